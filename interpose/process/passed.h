/* SPDX-License-Identifier: MIT */
/*
 * passed.h - memory of devices that the program has from the driver itself, because its
 * calls pass through: what of it the program holds, for the statistics and the quota.
 * And what it says of blocks of the pools: marks.
 *
 * Called by the hooks, with no lock held.
 */
#ifndef GCP_INTERPOSE_PASSED_H
#define GCP_INTERPOSE_PASSED_H

#include <stdatomic.h>

#include "../cuda/symbols.h"
#include "../statistics/report.h"

/* Larger requests cannot succeed; the real function says so. */
#define GCP_BYTES_MAX ((size_t)1 << 46)

/* By what memory is given back. */
enum gcp_passed_kind {
	GCP_PASSED_ADDRESS,
	GCP_PASSED_ARRAY,
	GCP_PASSED_HANDLE, /* that of cuMemCreate */
	GCP_PASSED_MAPPING,
	/* Of a block: that copies and fills of it which are not asynchronous in name
	 * return when they are done (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS); that it is used
	 * in more streams than one (gcpool_record_stream). */
	GCP_MARK_SYNC_MEMOPS,
	GCP_MARK_STREAMS,
};

struct gcp_passed {
	enum gcp_counted_call call; /* which has given it */
	int device;
	uint64_t bytes;
};

/* A call for memory. memory.device is -1 where no quota counts it. */
struct gcp_pass {
	const char *call_name;
	struct gcp_passed memory;
	enum gcp_passed_kind kind;
	uint64_t start;
	bool counts; /* now */
};
/* Before each try. False: it is beyond the quota, and memory is out. */
bool gcp_pass_may(struct gcp_pass *pass);
/* After each. Returns `result`. */
CUresult gcp_pass_tried(struct gcp_pass *pass, CUresult result);
/* After the last: the program has got the memory of that key (0: no record is made), or
 * one line says that it has not. Returns `result`. */
CUresult gcp_pass_end(struct gcp_pass *pass, CUresult result, uint64_t key);

/* Which device's quota counts memory: of the current context, of cuMemCreate. -1: none.
 */
CUdevice gcp_device_here(void);
CUdevice gcp_passed_device(const CUmemAllocationProp *properties);
/* Of an array, without what the driver rounds up. */
uint64_t gcp_passed_array_bytes(size_t width, size_t height, size_t depth,
				CUarray_format format, unsigned int channels);

/* Asks how much of a device others use, for the statistics: CUDA itself, other
 * processes. It is that of the current context. */
void gcp_passed_note_others(int device);

/* Memory of a handle is mapped. */
void gcp_passed_map(uint64_t handle, uint64_t addr);
/* Before the program gives back what has `count` keys from `key` on: what is known of
 * it does not count any more. Memory of a handle counts until that is released and
 * mapped nowhere. */
void gcp_passed_drop(enum gcp_passed_kind kind, uint64_t key, uint64_t count);

/* Sets or ends a mark of the block at `addr`. `id`: of its allocation (gcp_pools_find),
 * with which the mark ends. False: the host has no memory. */
bool gcp_mark_set(CUdeviceptr addr, uint64_t id, enum gcp_passed_kind mark, bool on);
bool gcp_mark_get(CUdeviceptr addr, uint64_t id, enum gcp_passed_kind mark);

extern _Atomic uint32_t gcp_marks_seen __attribute__((visibility("hidden")));

/* True once any block has had it. A relaxed load. */
static inline bool gcp_marks_any(enum gcp_passed_kind mark)
{
	return atomic_load_explicit(&gcp_marks_seen, memory_order_relaxed) >> mark & 1;
}

/* The context is gone, and its memory with it. */
void gcp_passed_context_gone(CUcontext ctx);

#endif
