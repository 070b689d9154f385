/* SPDX-License-Identifier: MIT */
/*
 * driver_table.h - all that pool/ knows of CUDA: a table of functions.
 *
 * interpose/ fills it with the real driver; unit tests fill it with a driver
 * of their own, so that memory, time and failure are the test's to decide.
 *
 * Every function returns 0 (good), a value > 0 (the driver's own CUresult,
 * handed on untouched) or, where it says so, a value < 0 (our -errno).
 * Every function may be called with any context current and from any thread,
 * and leaves the thread's current context, capture mode and errno as they
 * were. Those that CUDA forbids during a capture run in the relaxed capture
 * mode, so that they never invalidate the capture of the calling thread.
 */
#ifndef GCP_POOL_DRIVER_TABLE_H
#define GCP_POOL_DRIVER_TABLE_H

#include <stdbool.h>
#include <stdint.h>

/* A device address (CUdeviceptr). */
typedef uint64_t gcp_addr;

/* CUresult values that the rooms have to tell apart (asserted equal to those
 * of cuda.h in interpose/). */
enum {
	GCP_CUDA_OUT_OF_MEMORY = 2,
	GCP_CUDA_NOT_READY = 600,
};

struct gcp_driver {
	/* --- memory --------------------------------------------------------- */

	/* Allocates `bytes` of device memory in context `ctx`.
	 * Does not wait for the device. */
	int (*mem_alloc)(void *ctx, uint64_t bytes, gcp_addr *ret_addr);

	/* Frees what mem_alloc gave. Returns only when all work submitted to
	 * `ctx` before the call is done (facts: "What cudaFree really does"). */
	int (*mem_free)(void *ctx, gcp_addr addr);

	/* The same for memory that no work uses any more: waits for none, whatever is
	 * submitted to `ctx`. -EBUSY: nothing was freed, for the device cannot do it or
	 * reports an error. Absent (NULL) where the driver cannot. */
	int (*mem_release)(void *ctx, gcp_addr addr);

	/* Makes what mem_release needs in `ctx`, unless it is there. False: it cannot
	 * be made for now, and mem_release would fail. May be NULL: nothing is needed.
	 */
	bool (*mem_release_prepare)(void *ctx);

	/* Bytes that the device of `ctx` has left for any process, now. Any error; may
	 * be NULL. */
	int (*mem_left)(void *ctx, uint64_t *ret_bytes);

	/* Asks the driver's own stream-ordered and graph pools of the context's
	 * device to give back what they cache. Best effort. */
	void (*mem_trim)(void *ctx);

	/* --- virtual memory --------------------------------------------------- */
	/* Absent (NULL vm_reserve) where the driver has none. None of these waits
	 * for the device, and none is ordered with its work by anything: the caller
	 * that unmaps knows that all work on the addresses is done. Sizes and addresses
	 * are multiples of the granularity. Memory lives until it is released, also
	 * when the context it was made for is gone. */

	/* Whether the device has virtual memory; its granularity, in bytes. */
	bool (*vm_device)(int device, uint64_t *ret_granularity);

	/* Whether new memory of the device had better be mapped (GCP_BACKEND_AUTO), as
	 * things are now. Cheap. May be NULL: it had. */
	bool (*vm_wanted)(int device);

	/* Sets addresses aside, with nothing behind them, and gives them back. */
	int (*vm_reserve)(uint64_t bytes, uint64_t alignment, gcp_addr *ret_addr);
	int (*vm_unreserve)(gcp_addr addr, uint64_t bytes);

	/* Makes physical memory of device `device`, all of which is mapped and
	 * unmapped at once, and gives it back. Released
	 * memory that is still mapped goes when it is unmapped. */
	int (*vm_create)(int device, uint64_t bytes, uint64_t *ret_handle);
	int (*vm_release)(uint64_t handle);

	/* Puts all of `handle`, which has `bytes`, behind addresses that have
	 * nothing behind them. They may not be touched before vm_open. */
	int (*vm_map)(gcp_addr addr, uint64_t bytes, uint64_t handle);
	/* Gives `device`, and those that should reach its memory, access to mapped
	 * addresses. -EACCES: only `device` has it, another is refused. */
	int (*vm_open)(int device, gcp_addr addr, uint64_t bytes);
	/* Takes whole mappings away. */
	int (*vm_unmap)(gcp_addr addr, uint64_t bytes);

	/* --- fences --------------------------------------------------------- */
	/* Creates an event that can fence `ctx`. */
	int (*fence_create)(void *ctx, void **ret_fence);
	/* Of a fence whose context is gone, and the event with it: gives back the
	 * memory of the host, and calls no driver function. */
	void (*fence_discard)(void *fence);

	/* Records the event behind ALL work submitted to `ctx` so far, on every
	 * stream. Does not wait and holds nothing back.
	 * FORBIDDEN while any stream of `ctx` captures. */
	int (*fence_record)(void *ctx, void *fence);

	/* Holds back ALL later work of EVERY live context of this process until
	 * the fence is done. Does not block the host.
	 * alone: only if the process has no more than one context; if one would have
	 * to wait for another: -EXDEV, and none waits.
	 * FORBIDDEN while any stream of the process captures. */
	int (*fence_order)(void *fence, bool alone);

	/* 0: done; GCP_CUDA_NOT_READY: pending; else the sticky device error.
	 * Called while no capture can begin. */
	int (*fence_query)(void *fence);

	/* Blocks the host until the fence is done; own: until the part of it is done
	 * that its own context does, as mem_free there would, for what other devices do
	 * for others may wait for this thread. */
	int (*fence_wait)(void *fence, bool own);

	/* Blocks the host until work is done that counts for `ctx` and is another
	 * device's, and was submitted before `moment`, which foreign_now gave: mem_free
	 * need not wait for it. own: for what the streams of `ctx` were given alone;
	 * -EAGAIN: some of the rest is left. Allowed in captures. May be NULL, both:
	 * there is none. */
	uint64_t (*foreign_now)(void);
	int (*foreign_wait)(void *ctx, uint64_t moment, bool own);

	/* All that was submitted to any context counts as such work of before the
	 * moment, for foreign_wait with NULL. FORBIDDEN while any stream of the process
	 * captures. May be NULL. */
	int (*foreign_everywhere)(uint64_t *ret_moment);

	/* --- pinned host memory ---------------------------------------------- */
	/* All absent (NULL) where context fences are. */

	/* cuMemHostAlloc in context `ctx`. */
	int (*host_alloc)(void *ctx, uint64_t bytes, uint32_t flags, void **ret_p);

	/* Frees it. Returns only when all work submitted to `ctx` before the call
	 * is done. */
	int (*host_free)(void *ctx, void *p);

	/* Where the operating system would put new memory of the calling thread:
	 * equal numbers, equal places. Always 0 where there is one place only. */
	uint32_t (*host_place)(void);

	/* --- the process ------------------------------------------------------ */

	/* Whether a device outside every context's queue may write into device
	 * memory by itself (an RDMA library is loaded, or the option says so).
	 * Then only completed epochs are reused, never ordered ones. Cheap. */
	bool (*third_party_writers)(void);

	/* Monotonic time in nanoseconds. */
	uint64_t (*clock_ns)(void);

	/* How often other threads have given memory back to the driver, of a device or
	 * pinned: where that has grown since a call found none, there may be some now.
	 * May be NULL. */
	uint64_t (*given_by_others)(void);

	/* Takes back the memory of graphs that have ended, once the launches are done
	 * that it waits for. Never waits. Called before new memory is taken, with no
	 * lock of the room held. Returns true if memory came back. May be NULL. */
	bool (*graphs_look)(void);

	/* Bytes of memory that the device has; 0: unknown. May be NULL. */
	uint64_t (*device_memory)(int device);

	/* A free has closed an epoch, or an allocation has missed its thread's cache:
	 * an occasion for what is done from time to time. No lock of the room is
	 * held. NULL unless asked for. */
	void (*tick)(void);
};

#endif
