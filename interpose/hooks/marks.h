/* SPDX-License-Identifier: MIT */
/*
 * marks.h - what programs say of a block: that copies and fills of it which are not
 * asynchronous in name return when they are done (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS), or
 * that it is used in more streams than one (gcpool_record_stream).
 */
#ifndef GCP_INTERPOSE_MARKS_H
#define GCP_INTERPOSE_MARKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../cuda/symbols.h"

enum gcp_mark { GCP_MARK_SYNC_MEMOPS = 1, GCP_MARK_STREAMS = 2 };

/* Sets or ends a mark of the block at `addr`. `id`: of its allocation (gcp_pools_find),
 * with which the mark ends. False: the host has no memory. */
bool gcp_mark_set(CUdeviceptr addr, uint64_t id, enum gcp_mark mark, bool on);
bool gcp_mark_get(CUdeviceptr addr, uint64_t id, enum gcp_mark mark);

extern _Atomic uint32_t gcp_marks_seen __attribute__((visibility("hidden")));

/* True once any block has had it. A relaxed load. */
static inline bool gcp_marks_any(enum gcp_mark mark)
{
	return atomic_load_explicit(&gcp_marks_seen, memory_order_relaxed) & mark;
}

/* After a copy or fill in the default stream gave `result`: waits for that stream if
 * one of the addresses is in a block with GCP_MARK_SYNC_MEMOPS. */
CUresult gcp_sync_memops_wait(CUresult result, CUdeviceptr to, CUdeviceptr from,
			      bool per_thread);

#endif
