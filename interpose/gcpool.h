/* SPDX-License-Identifier: MIT */
/*
 * gcpool.h - the public interface of libgcpool, a caching and capture-aware
 * allocator for unmodified CUDA programs.
 *
 * No program needs this file: LD_PRELOAD=libgcpool.so is enough. A program
 * that wants to know, at run time, what the allocator is doing, or to have it
 * give memory back, can ask. It should not link with the library, but find it
 * if it is there:
 *
 *	int (*get_stats)(int, struct gcpool_stats *, size_t);
 *	struct gcpool_stats stats;
 *
 *	*(void **)&get_stats = dlsym(RTLD_DEFAULT, "gcpool_get_stats");
 *	if (get_stats && get_stats(0, &stats, sizeof(stats)) == 0)
 *		printf("%llu bytes in use\n",
 *		       (unsigned long long)stats.allocated_bytes.current);
 *
 * Every function may be called from any thread, at any time after the start
 * of main, also while a stream is being captured. None changes errno, the
 * current context or the last CUDA error.
 *
 * Contents: 1 version, 2 statistics, 3 memory, 4 graph pools, 5 pinned memory,
 * 6 memory for frameworks, 7 work, 8 sleep.
 */
#ifndef GCPOOL_H
#define GCPOOL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef GCPOOL_API
#define GCPOOL_API
#endif

/* --- 1 version --------------------------------------------------------------- */

#define GCPOOL_VERSION_MAJOR  0
#define GCPOOL_VERSION_MINOR  2
#define GCPOOL_VERSION_PATCH  0
#define GCPOOL_VERSION_STRING "0.2.0"

/* The version of the library that is loaded: major * 10000 + minor * 100 +
 * patch. Compare with GCPOOL_VERSION of the header. */
#define GCPOOL_VERSION                                                                 \
	(GCPOOL_VERSION_MAJOR * 10000 + GCPOOL_VERSION_MINOR * 100 +                   \
	 GCPOOL_VERSION_PATCH)
GCPOOL_API int gcpool_version(void);

/* The commit that the library was built from, as "b56b6bd0"; with "-dirty" behind it
 * where files had changed since; empty where it was built outside a repository. */
GCPOOL_API const char *gcpool_commit(void);

/* Whether allocations of this process are served from the pool.
 * @return 1: yes. 0: no: the library is not preloaded, GCPOOL_MODE is off, this is a
 * forked child of a process that used CUDA, or nothing was allocated yet. */
GCPOOL_API int gcpool_active(void);

/* Writes the table of options (environment variables) to a file descriptor: names,
 * defaults, values in force, meanings. Before the first allocation the values are
 * those that the environment asks for now, and wrong ones get a message each.
 * Needs 32 KiB of stack; makes no CUDA call.
 * @return the number of variables that are wrong; 0 after the first allocation. */
GCPOOL_API int gcpool_print_options(int fd);

/* --- 2 statistics ------------------------------------------------------------ */

/* A quantity over time. All in bytes or pieces. */
struct gcpool_gauge {
	uint64_t current;   /* now */
	uint64_t peak;      /* highest ever, or since gcpool_reset_peaks */
	uint64_t allocated; /* sum of all increases */
	uint64_t freed;     /* sum of all decreases; current = allocated - freed */
};

/* Calls into the driver and the time spent in them. */
struct gcpool_calls {
	uint64_t count;
	uint64_t ns;
};

/* Names are those of PyTorch's memory_stats where the meaning is the same.
 * Later versions add fields at the end, and only there. */
struct gcpool_stats {
	/* Gauges. */
	struct gcpool_gauge allocation;      /* blocks held by the program */
	struct gcpool_gauge segment;         /* allocations of the driver */
	struct gcpool_gauge requested_bytes; /* asked for, and held */
	struct gcpool_gauge allocated_bytes; /* in blocks held by the program */
	struct gcpool_gauge active_bytes;    /* the same, and freed ones that the device
					      * may still use, or another process */
	struct gcpool_gauge reserved_bytes;  /* taken from the driver */
	struct gcpool_gauge private_bytes;   /* of these, in pools of graphs */

	/* Counters. */
	uint64_t hits;   /* allocations served without the driver */
	uint64_t misses; /* allocations that needed the driver */
	uint64_t
	    alloc_retries; /* driver allocations that failed and were tried again */
	uint64_t ooms;     /* allocations that failed for want of memory */
	uint64_t epochs;   /* epochs closed, of device memory too */
	uint64_t fences;   /* fences recorded */
	uint64_t barriers; /* reuse ordered on the device; host not blocked */
	uint64_t waits;    /* times the host waited for the device */
	uint64_t trims;    /* segments given back to the driver */
	uint64_t consolidations; /* always 0: kept for its place */
	uint64_t deferred_frees; /* always 0: kept for its place */

	/* Calls that the library made. */
	struct gcpool_calls mem_alloc, mem_free, mem_trim;
	struct gcpool_calls fence_create, fence_record, fence_order;
	struct gcpool_calls fence_query, fence_wait;
	struct gcpool_calls ctx_sync; /* always 0: kept for its place */

	/* Fragmentation. */
	uint64_t largest_free_bytes;     /* largest block that could be given at once */
	uint64_t reserved_at_peak_bytes; /* reserved when allocated_bytes peaked */

	/* Mapped segments (GCPOOL_BACKEND=auto or vmm). */
	uint64_t remaps; /* allocations served by mapping unused memory elsewhere */
	struct gcpool_calls vm_reserve, vm_create, vm_release;
	struct gcpool_calls vm_map, vm_open, vm_unmap;

	/* Stream-ordered memory (cudaMallocAsync) that the pool serves. */
	struct gcpool_gauge async_bytes; /* of requested_bytes */

	/* Frees in captures whose memory did not serve the capture's next allocation,
	 * because its order in the graph was not known (yet), or because work outside
	 * of the capture may use it; the third is always 0. */
	uint64_t reuse_order_unknown, reuse_eager_work, reuse_unknown_calls;

	uint64_t mapped_bytes; /* of reserved_bytes, now: mapped */

	/* Memory that graphs share (GCPOOL_GRAPH_SHARE). */
	struct gcpool_gauge lane_bytes; /* of private_bytes */
	uint64_t graph_remaps; /* times that a graph's addresses were mapped anew */
	uint64_t graph_moves;  /* launches that gave a graph another lane, or its own */
	uint64_t graph_waits;  /* launches that wait, on the device, for others */
	struct gcpool_gauge lane; /* lanes (section 4) that hold memory */
	uint64_t graph_launches;  /* launches of graphs that may share, each of which
				   * the library looked at */

	/* Memory of the host for blocks of the device (GCPOOL_SPILL): bytes, and how
	 * many blocks have got some. Not of reserved_bytes. */
	struct gcpool_gauge spilled_bytes;
	uint64_t spills;
};

/* The statistics of one device, as CUDA numbers it in this process.
 * `size` is sizeof(struct gcpool_stats) as the caller knows it: a smaller one
 * gets what fits, a larger one gets zeros at its end.
 * @return 0, and *stats filled. -ENOENT: nothing was allocated on this device.
 * -EINVAL: stats is NULL or size is 0. On failure *stats is untouched.
 * Takes locks of the allocator for some microseconds; waits for nothing. While memory
 * of graphs that are gone waits for their last launches it asks CUDA whether they are
 * done, and gives it back: as any CUDA call, not from a host function
 * (cudaLaunchHostFunc). */
GCPOOL_API int gcpool_get_stats(int device, struct gcpool_stats *stats, size_t size);

/* In the place of a device: pinned host memory. */
#define GCPOOL_HOST (-1)

/* Sets the peaks of a device (or GCPOOL_HOST) to what is current. Asks CUDA as
 * gcpool_get_stats does.
 * @return 0, or -ENOENT as above. */
GCPOOL_API int gcpool_reset_peaks(int device);

/* --- 3 memory ---------------------------------------------------------------- */

/* Gives memory that the program does not hold back to the driver, until at most
 * `keep_bytes` (bytes) of it stay cached in each context of `device`, and as many in
 * all lanes (section 4) of the device together. Waits on the host for work of these
 * contexts, also while a stream is being captured; not from a host function
 * (cudaLaunchHostFunc). GCPOOL_HOST: the same of pinned memory; what was freed in a
 * capture that is under way stays.
 * @return the bytes given back. 0 also where there was nothing to give, for an unknown
 * device, with GCPOOL_MODE=off, and before the first allocation. */
GCPOOL_API uint64_t gcpool_trim(int device, uint64_t keep_bytes);

/* --- 4 graph pools ----------------------------------------------------------- */

/* Memory allocated while a stream is captured belongs to a graph pool, and stays
 * in it until the last reference to the pool is gone. References are held by
 * each capture under way into the pool, by each graph captured into it and all
 * that was made from that graph (the library learns of these from the calls that
 * make and destroy them: docs/captures.md), and by the program.
 *
 * Without these functions each capture has a graph pool of its own. A program
 * can have several captures share one, so that what one capture has freed serves
 * the next. The graphs then use the same memory, so
 *
 *   1. they must be launched in the order in which they were captured, or at
 *      least never run at the same time (launch them into one stream);
 *   2. what a graph has left in memory that its capture had freed is lost when
 *      another one runs.
 *
 * All of them may be called while a stream is being captured. None waits; some ask CUDA
 * as gcpool_get_stats does. Unless gcpool_active() is 1 those that return an int give
 * -ENOENT (-EINVAL, if an argument is wrong), and the list is empty. */

/* Makes a graph pool with one reference, the caller's.
 * @return 0 and *id (never 0). -ENOENT: the pool is not active, or nothing was
 * allocated or captured yet. -EINVAL: id is NULL. -ENOMEM. */
GCPOOL_API int gcpool_graph_pool_create(uint64_t *id);

/* Captures that the calling thread begins from now on allocate from this graph
 * pool; id 0: each from one of its own, as at the start.
 * @return 0. -ENOENT: there is no such pool. */
GCPOOL_API int gcpool_graph_pool_use(uint64_t id);

/* Drops the program's reference. A pool that has lost its last reference is empty: its
 * free memory has gone to the common pool, and blocks that the program holds stay valid
 * until it frees them. Its id stays good: it may be captured into again.
 * @return 0. -ENOENT: there is no such pool, or the program has no reference. 2: the
 * process is asleep and could not wake. */
GCPOOL_API int gcpool_graph_pool_release(uint64_t id);

struct gcpool_graph_pool {
	uint64_t id;              /* also of pools that the library made itself */
	uint64_t references;      /* all of them */
	uint64_t captures;        /* of these, captures under way */
	uint64_t graphs;          /* of these, graphs */
	uint64_t reserved_bytes;  /* taken from the driver */
	uint64_t allocated_bytes; /* of these, in blocks that the program holds */
	uint64_t last_capture_id; /* CUDA's id of the latest capture into it */
	uint64_t shared_bytes;    /* of addresses that are mapped to a lane */
	uint64_t lane;            /* the id of the lane that its graph uses, or 0 */
	uint64_t lane_bytes;      /* what that lane has taken from the driver, for all
				   * of its graphs; 0: given back till the next launch */
	uint64_t launches;        /* of its graph that the library has looked at */
};

/* A lane is memory that several graphs use for what their captures have freed, one at a
 * time (GCPOOL_GRAPH_SHARE). Lists the graph pools that have references, or had, and
 * whose launches may still be under way: fills up to `count` of `pools` (NULL: none).
 * @return how many there are, which may be more than `count`. */
GCPOOL_API size_t gcpool_graph_pools(struct gcpool_graph_pool *pools, size_t count);

/* For frameworks that share a pool between graphs and replay only some of them.
 * A replay allocates nothing, so the pool's state does not say that its results are
 * live.
 *
 *   1. After a capture has ended, checkpoint: which blocks are live now.
 *   2. After a replay of that graph, and before the next capture into the pool,
 *      restore: exactly the blocks of the checkpoint are live again. The
 *      program has to free each of them, once, with cudaFree. Blocks that were
 *      live before and are not in the checkpoint are free: the program must
 *      not use or free them any more.
 *
 * Restoring changes no memory and waits for nothing. No thread frees a block of the
 * pool meanwhile: it may get an error, and the block stays live. A checkpoint is good
 * until the pool loses its last reference, any number of times, and is freed by
 * gcpool_graph_pool_checkpoint_free, which accepts NULL.
 * @return 0. An error, and nothing has changed: -ENOENT: no such pool; -EBUSY: a
 * capture into it is under way, or another process may open one of its blocks
 * (restore only); -ESTALE: the checkpoint is of another pool, or the pool has lost
 * its last reference since, or it is NULL; -EINVAL (NULL) and -ENOMEM (checkpoint
 * only). */
struct gcpool_checkpoint;
GCPOOL_API int gcpool_graph_pool_checkpoint(uint64_t id,
					    struct gcpool_checkpoint **checkpoint);
GCPOOL_API int gcpool_graph_pool_restore(uint64_t id,
					 const struct gcpool_checkpoint *checkpoint);
GCPOOL_API void gcpool_graph_pool_checkpoint_free(struct gcpool_checkpoint *checkpoint);

/* --- 5 pinned memory --------------------------------------------------------- */

/* Time of calls into the driver; the mean is total_ns / count. */
struct gcpool_host_time {
	uint64_t count;
	uint64_t total_ns, max_ns, min_ns;
};

/* Pinned host memory of the whole process, all devices. Names are those of PyTorch's
 * host_memory_stats where the meaning is the same. All figures are exact, also with
 * several threads. Later versions add fields at the end, and only there. */
struct gcpool_host_stats {
	struct gcpool_gauge allocations;     /* blocks taken from the driver */
	struct gcpool_gauge allocated_bytes; /* bytes in them */
	struct gcpool_gauge active_requests; /* of these blocks, those held */
	struct gcpool_gauge active_bytes;    /* bytes in blocks held */
	struct gcpool_gauge requested_bytes; /* asked for, and held */
	struct gcpool_gauge private_bytes;   /* allocated_bytes kept for graphs */

	uint64_t hits;   /* allocations served without the driver */
	uint64_t misses; /* allocations that needed the driver */
	uint64_t
	    alloc_retries; /* driver allocations that failed and were tried again */
	uint64_t ooms;     /* allocations that failed for want of memory */
	uint64_t epochs;   /* epochs (frees that share a fence) closed */
	uint64_t waits;    /* times the host waited for the device */
	uint64_t trims;    /* blocks given back to the driver */
	uint64_t deferred_frees; /* frees that waited for the end of a capture */

	/* Calls that the library made. */
	struct gcpool_host_time host_alloc, host_free;
};

/* As gcpool_get_stats.
 * @return 0. -ENOENT: pinned memory is not pooled, or nothing was allocated yet.
 * -EINVAL. */
GCPOOL_API int gcpool_get_host_stats(struct gcpool_host_stats *stats, size_t size);

/* --- 6 memory for frameworks ------------------------------------------------------ */

/* For frameworks that let the program choose an allocator (PyTorch, CuPy, RMM), so that
 * all of them use the pool that serves the rest of the program: examples/ shows how.
 * The library must be preloaded. Where it is only loaded, and with GCPOOL_MODE=off,
 * these functions are cudaMalloc and cudaFree.
 *
 * Memory is used in the order of a stream (a CUstream or cudaStream_t; NULL: the legacy
 * default stream). A block may be used in `stream` of gcpool_malloc from that call on;
 * by work in other streams as far as the program orders them behind that. The caller of
 * gcpool_free says in which stream the last work on the block is, or comes before; work
 * of further streams is named by gcpool_record_stream, or ordered before that stream.
 *
 * A freed block serves the same stream at once, and another stream when a fence behind
 * all work of the context is completed. While the stream captures, gcpool_malloc gives
 * memory of the graph, and a block that is freed is free in the graph's order. Nothing
 * waits for the device, but when memory is out (20,000 looks, 50 us and more apart:
 * about two seconds on an idle host).
 *
 * Streams of gcpool_record_stream must live until the block is freed.
 *
 * Memory lives in the current context if that is one of the device, else in its primary
 * one, as that of the CUDA runtime. All of CUDA works on a block of gcpool_malloc.
 *
 * The results are CUDA's own: 0 or a CUresult, of which these have the same number as
 * cudaError_t: 1 invalid value, 2 out of memory, 3 not initialized, 101 no such device,
 * 900 to 907 the stream captures. May be called from any thread; as calls of CUDA, not
 * from a host function (cudaLaunchHostFunc). */

/* Allocates `bytes` on `device` (as CUDA numbers it), for use in `stream`. *ptr is set
 * to NULL on an error, and for 0 bytes. Aligned to 256 bytes or more.
 * @return 0; as above. */
GCPOOL_API int gcpool_malloc(void **ptr, size_t bytes, int device, void *stream);

/* Frees a block of gcpool_malloc behind the work that `stream` was given so far. NULL
 * is no error. An address that is not the pool's goes to cuMemFree in the current
 * context, with its result and its wait for the device.
 * @return 0; 1: a block of the pool that is free already. On another error the block is
 * not freed: that of the stream. */
GCPOOL_API int gcpool_free(void *ptr, void *stream);

/* The block is also used by work in `stream`: when it is freed it serves nothing before
 * what that stream was given until the free is completed.
 * @return 0, also for NULL and before the first allocation; 1: no block of the pool; 2:
 * no host memory is left. */
GCPOOL_API int gcpool_record_stream(void *ptr, void *stream);

/* The same in the form of torch.cuda.memory.CUDAPluggableAllocator, which takes
 * gcpool_record_stream as it is. A failure gives a
 * line at level warn; gcpool_torch_malloc then throws std::bad_alloc of the process's
 * libstdc++, which PyTorch makes an exception of Python (without libstdc++: NULL). */
GCPOOL_API void *gcpool_torch_malloc(ptrdiff_t bytes, int device, void *stream);
GCPOOL_API void gcpool_torch_free(void *ptr, ptrdiff_t bytes, int device, void *stream);

/* --- 7 work ----------------------------------------------------------------- */

/* For libraries that keep what work of the device uses until it may be used again, as
 * libgcpool-handles.so keeps handles: by the rules by which freed memory is reused. */
struct gcpool_work {
	uint64_t context, life; /* which one */
	uint64_t moment;        /* all that was submitted to it until then; 0: none */
};

enum gcpool_work_question {
	GCPOOL_WORK_CONTEXT, /* *work becomes the current context, without a moment */
	GCPOOL_WORK_ENDS,    /* its moment becomes now. In calls that wait, on plain
			      * CUDA, for all work of the context, as cudaFree does */
	GCPOOL_WORK_READY    /* whether all of it is done, or all later work of the
			      * process follows it; without a moment: whether the
			      * context lives. Never waits for work that ENDS, or a
			      * free, was not behind */
};

/* @return 0: yes, or done. -EBUSY: READY with a moment: not yet; else: yes, or done,
 * and a stream captures (what ends now is not ready before the capture has ended).
 * -ENOENT: the pool is not active, or serves the context no memory. -ESTALE: the
 * context has ended; of the others also: it may be ending just now. -EINVAL. > 0: the
 * device's error, a CUresult. */
GCPOOL_API int gcpool_work(struct gcpool_work *work,
			   enum gcpool_work_question question);

/* --- 8 sleep ---------------------------------------------------------------- */

/* For a process that has been started with GCPOOL_CONTROL=1, or with GCPOOL_WAKE: gives
 * the device memory of the pools away, and keeps its addresses and what it holds
 * (docs/elastic.md). Meanwhile calls that submit work, or have to do with memory, wait:
 * until gcpool_wake, or with GCPOOL_WAKE=auto the first of them wakes the process
 * itself. These and `gcpool ctl PID sleep|wake` may be mixed. From any thread, but not
 * from a host function (cudaLaunchHostFunc). Each says why not at level info. */

/* Waits at most `timeout_ms` (milliseconds) for calls under way and for the device, and
 * then as long as the copy takes.
 * @return 0: asleep. On an error the process is awake and as before: -EALREADY: it is
 * asleep already; -EBUSY: a stream is being captured, or the thread is inside a call;
 * -ETIMEDOUT: the device is not idle; -ENOMEM: the host has no memory for it; -ENOTSUP:
 * some memory cannot go (it is exported, in ordinary segments, or RDMA may write it),
 * or a function was called that this version does not know; -EPERM: started without
 * these options; -ENOENT: gcpool_active() is not 1. > 0: the driver's error. */
GCPOOL_API int gcpool_sleep(unsigned timeout_ms);

/* @return 0: awake, and all is as before the sleep. -EALREADY: it is awake. > 0: the
 * driver's error; 2: no memory came within GCPOOL_WAKE_WAIT seconds: still asleep, and
 * nothing is lost. A call that waits for the wake gives 2 (out of memory) then; a free
 * of a block does not wait, and is done at the wake. */
GCPOOL_API int gcpool_wake(void);

#ifdef __cplusplus
}
#endif

#endif
