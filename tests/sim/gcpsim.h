/* SPDX-License-Identifier: MIT */
/*
 * gcpsim.h - how a test steers and reads the simulated CUDA driver.
 *
 * Included by tests only. The functions are exported by the simulated
 * libcuda.so.1 and do not exist in NVIDIA's: a program that has to run on both
 * finds them with dlsym, and their absence means a real driver.
 *
 * Every function may be called from any thread at any time, also before cuInit
 * and while the driver is in an error state. None of them counts as a driver
 * call and none lets the device make progress, unless it says so.
 *
 * The environment sets the same things before the program starts:
 *
 *   GCPSIM_SEED=N             seed of every random choice (default 1)
 *   GCPSIM_SPEED=idle|random|never|N   see enum gcpsim_speed; N: nanoseconds
 *                             that the device's clock moves on at each call
 *   GCPSIM_DEVICES=N          number of devices, 1..16 (default 1)
 *   GCPSIM_MEMORY=BYTES       memory of each device, with suffix K, M, G
 *   GCPSIM_HOST_MEMORY=BYTES  how much the host may pin (default: no limit)
 *   GCPSIM_NUMA_MEMORY=BYTES  what cuMemCreate may take of the host (default: no
 *                             limit); 0: devices say that it takes none
 *   GCPSIM_VMM=0              devices say that they have no virtual memory management
 *   GCPSIM_HANDLES=again      a destroyed stream, event or context is the next made
 *   GCPSIM_DRIVER_VERSION=N   1000 * major + 10 * minor (default 13000); what
 *                             came later does not exist
 *   GCPSIM_HIDE=1             nor does the loader find what came later
 *   GCPSIM_FAIL=NAME:N[+][:CODE],...   the Nth call of the driver function
 *                             NAME fails, with + all later ones too (default
 *                             code: 2, out of memory)
 *   GCPSIM_STAGING=1          small synchronous copies from pageable memory
 *                             return before their data has arrived
 *   GCPSIM_QUIET=1            count hazards and faults, print none
 *   GCPSIM_REPORT=FILE        at exit, append one line of figures to FILE
 */
#ifndef GCPSIM_H
#define GCPSIM_H

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GCPSIM_API __attribute__((visibility("default")))

enum gcpsim_speed {
	GCPSIM_IDLE = -1,   /* all work is done when the call returns */
	GCPSIM_RANDOM = -2, /* the clock moves on at each call, as the seed says */
	GCPSIM_NEVER = 0,   /* work is done only when a thread waits for it, and
			     * then only what it waits for */
			    /* > 0: nanoseconds that the clock moves on at each call */
};

/* --- what was found --------------------------------------------------------- */

/* Pairs of operations that may overlap in time and touch the same bytes, at
 * least one of them writing. */
GCPSIM_API uint64_t gcpsim_hazards(void);

/* Operations that, when they ran, did not find memory as the operations before
 * them left it: overtaken in this very run. Found by data tags, independently
 * of the above: 0 hazards means 0 disorders, or one of the two errs. One mistake
 * can count often, each time that an operation meets what it left. */
GCPSIM_API uint64_t gcpsim_disorders(void);

/* Operations that touched memory which is not allocated. */
GCPSIM_API uint64_t gcpsim_faults(void);

/* Uses of destroyed handles, and CUDA calls made inside a host callback. */
GCPSIM_API uint64_t gcpsim_misuses(void);

/* Captures that were invalidated. */
GCPSIM_API uint64_t gcpsim_invalidated(void);

/* The last hazard or fault in words, "" if none. Valid until the next one. */
GCPSIM_API const char *gcpsim_last_report(void);

/* Sets all of the above to zero. */
GCPSIM_API void gcpsim_reset_findings(void);

/* --- what was done ---------------------------------------------------------- */

/* Calls of the driver function with this exact symbol name, "cuMemAlloc_v2"
 * say; NULL: of all functions. The per-thread-stream variants count as their
 * plain function. UINT64_MAX: no such function. */
GCPSIM_API uint64_t gcpsim_calls(const char *symbol);

/* Symbol names of all entry points, per-thread twins too; NULL behind the last. */
GCPSIM_API const char *gcpsim_entry(int index);

/* Bytes of physical memory taken on the device, and bytes in allocations that
 * the program (or the library) holds there. Device -1: pinned memory of the
 * host, cuMemHostAlloc's and cuMemAllocHost's. -2 (used alone): the host's memory in
 * handles of cuMemCreate. */
GCPSIM_API uint64_t gcpsim_memory_used(int device);
GCPSIM_API uint64_t gcpsim_memory_live(int device);
GCPSIM_API uint64_t gcpsim_allocations(int device);

/* The most that gcpsim_memory_used has been. */
GCPSIM_API uint64_t gcpsim_memory_peak(int device);

/* Operations that are submitted and not done. */
GCPSIM_API uint64_t gcpsim_pending(void);
/* The latest of each stream of this context (a CUcontext), those that are not done. */
GCPSIM_API uint64_t gcpsim_pending_in(void *ctx);

/* User objects that are not destroyed yet. */
GCPSIM_API uint64_t gcpsim_user_objects(void);

/* Launches that allowed their kernels to start before the work in front of them has
 * ended (programmatic stream serialization). Here no kernel makes use of it. */
GCPSIM_API uint64_t gcpsim_early_launches(void);

/* The latest kernel launch: grid and block sizes, x, y and z of each, and the bytes of
 * shared memory. */
GCPSIM_API void gcpsim_last_launch(unsigned ret_sizes[7]);

/* What physical memory there is at a device address: the one allocation, or the one
 * handle that is mapped there. 0, or -1 if there is none. */
GCPSIM_API int gcpsim_piece(uint64_t addr, uint64_t *ret_base, uint64_t *ret_bytes);

/* What the handle that is mapped at a device address was made for: allocFlags.usage.
 * -1: none is. */
GCPSIM_API int gcpsim_usage(uint64_t addr);

/* Returns 1 if that handle is memory of the host. */
GCPSIM_API int gcpsim_is_on_host(uint64_t addr);

/* --- plain CUDA -----------------------------------------------------------------
 *
 * What the program's calls would have done on this driver alone, while something
 * between the program and the driver makes other calls of them. A test tells of each
 * call that the program makes; nothing here is a call of the driver. */

/* The program allocates: a number that stands for the memory, or 0: there is not so
 * much on the device. Device -1: pinned memory. */
GCPSIM_API uint64_t gcpsim_plain_alloc(int device, uint64_t bytes);
GCPSIM_API void gcpsim_plain_free(uint64_t number); /* 0: nothing */

/* Bytes of physical memory that would be taken, now and at most. */
GCPSIM_API uint64_t gcpsim_plain_used(int device);
GCPSIM_API uint64_t gcpsim_plain_peak(int device);

/* From now on each wait is looked at: of the host, of a context's later work for a
 * fence, and of a stream's later work for an event that it does not come after by
 * itself. It must be for work that plain CUDA had waited for by then. The calling
 * thread is the program's, as each that calls this. A thread that never does may ask
 * for work until it is done: that holds nothing up. */
GCPSIM_API void gcpsim_plain_watch(void);
/* The program makes a call in which plain CUDA waits for all work of this context
 * (a CUcontext): all that was given to it so far may be waited for from now on. pinned:
 * it frees pinned memory. */
GCPSIM_API void gcpsim_plain_waits(void *ctx, bool pinned);
/* Bytes of pinned memory that lie in this context. */
GCPSIM_API uint64_t gcpsim_plain_pinned(void *ctx);
/* Bytes of pinned memory that lie in this context, which is not the calling thread's,
 * if to free one of them the driver would wait for work that came after the program's
 * latest free of pinned memory there; else 0. */
GCPSIM_API uint64_t gcpsim_plain_stuck(void *ctx);
/* The calling thread's call asks to wait, for whatever it is: on (1), over (-1). */
GCPSIM_API void gcpsim_plain_asks(int change);
/* The program's call has returned: what was queried in it, and was not done, it has not
 * waited for. Queries are counted anew. */
GCPSIM_API void gcpsim_plain_returned(void);
/* Waits, so far, for work that plain CUDA would not have waited for. If that work
 * needs what the program does next, the program hangs there. */
GCPSIM_API uint64_t gcpsim_new_waits(void);
/* The same in a capture: an order that a call added
 * (CU_STREAM_ADD_CAPTURE_DEPENDENCIES, cuGraphAddDependencies), behind a node younger
 * than the latest gcpsim_plain_waits. */
GCPSIM_API uint64_t gcpsim_new_orders(void);
/* Of gcpsim_new_waits: a call asked until the work was done (cuEventQuery,
 * cuStreamQuery), and could have stopped at any time. */
GCPSIM_API uint64_t gcpsim_new_looks(void);

/* --- steering ---------------------------------------------------------------- */

GCPSIM_API void gcpsim_set_speed(int64_t speed); /* enum gcpsim_speed */

/* Lets the device work for so many of its nanoseconds; for ever. */
GCPSIM_API void gcpsim_advance(uint64_t ns);
GCPSIM_API void gcpsim_drain(void);

/* An event that is queried thousands of times is waited for, so that no program hangs
 * where nothing runs by itself; never: not from now on. */
GCPSIM_API void gcpsim_queries_never_wait(int never);

/* The next call that destroys a stream or an event calls this once: when the driver is
 * done with it and holds no lock, and before the call returns. What another thread does
 * then comes between the driver's call and what a library around it does next. */
GCPSIM_API void gcpsim_when_destroyed(void (*then)(void));

/* The same of the next call of the function with this exact symbol name, whatever it
 * does; NULL: of none. A thread may be cancelled there, as in calls of the driver that
 * wait. 0, or -1: there is no such function. */
GCPSIM_API int gcpsim_when_called(const char *symbol, void (*then)(void));

/* The next so many answers on what a captured stream's next work depends on have NULL
 * in place of the last node, as the array of a driver has it while another thread
 * captures on that stream. Of 64 nodes at most, else all is told. */
GCPSIM_API void gcpsim_tear_ends(int answers);

/* Changes a device's memory, as another process taking or leaving some would.
 * May be less than what is used. Device -1: how much the host may pin; -2: what
 * cuMemCreate may take of it. */
GCPSIM_API void gcpsim_set_memory(int device, uint64_t bytes);

/* As GCPSIM_FAIL, counted from now; NULL: no more failures. Returns 0, or -1
 * for a plan that makes no sense. From inside also NAME:<BYTES[M][@DEVICE][:CODE]: the
 * function fails whenever less than that is free on the device (default: 0). */
GCPSIM_API int gcpsim_fail(const char *plan);

/* Tells both checkers that the host, or a device outside CUDA such as a network
 * card, touches these bytes now. To be called just before the bytes are touched,
 * and not inside a host function, which the device orders. A hazard if work that
 * the host does not know to be done still writes there (or, if `writes`, still
 * reads); a disorder at once if such a write has not run, and later when work
 * that was to come before runs on what the host has written. */
GCPSIM_API void gcpsim_touch(uint64_t addr, size_t bytes, int writes);
GCPSIM_API void gcpsim_host_writes(const void *p, size_t bytes);
GCPSIM_API void gcpsim_host_reads(const void *p, size_t bytes);

/* Reads and writes device memory behind the program's back, without order and
 * without the hazard checker. 0, or -1 if it is not allocated. */
GCPSIM_API int gcpsim_peek(uint64_t addr, void *ret_data, size_t bytes);
GCPSIM_API int gcpsim_poke(uint64_t addr, const void *data, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
