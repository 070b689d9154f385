/* SPDX-License-Identifier: MIT */
/*
 * marks.c - see marks.h. The driver refuses SYNC_MEMOPS for memory that is mapped by
 * hand, and of an ordinary segment it would give it to every block. So the library
 * keeps it for each block, and waits itself. Takes the lock of a pool, to find the
 * block; called with no lock held.
 */
#include <stdlib.h>

#include "../base/process.h"
#include "../cuda/ctx_scope.h"
#include "../cuda/resolve.h"
#include "../process/spill.h"
#include "marks.h"

/* Of an address at which a block has had any, for the allocation that had one last. */
static struct marked {
	CUdeviceptr addr;
	uint64_t id;
	uint32_t marks;
	struct marked *next;
} * marked[1024];
static struct gcp_mutex marks_lock = GCP_MUTEX(GCP_RANK_MARKS); /* guards them */

_Atomic uint32_t gcp_marks_seen;

/* Where its record is, or would be. */
static struct marked **marked_at(CUdeviceptr addr)
{
	gcp_assert_held(GCP_RANK_MARKS);
	struct marked **place = &marked[addr * 0x9e3779b97f4a7c15u >> 54];

	assert(addr);
	while (*place && (*place)->addr != addr)
		place = &(*place)->next;
	return place;
}

bool gcp_mark_set(CUdeviceptr addr, uint64_t id, enum gcp_mark mark, bool on)
{
	struct marked **place, *one;
	GCP_KEEP_ERRNO;
	bool done;

	assert(id > 0);
	gcp_mutex_lock(&marks_lock);
	place = marked_at(addr);
	if (!*place && on)
		*place = calloc(1, sizeof(**place));
	one = *place;
	done = one || !on;
	if (one && one->id != id && on)
		*one = (struct marked){.addr = addr, .id = id, .next = one->next};
	if (one && one->id == id)
		one->marks = on ? one->marks | mark : one->marks & ~(uint32_t)mark;
	if (one && !one->marks) {
		*place = one->next;
		free(one);
	}
	gcp_mutex_unlock(&marks_lock);
	if (on && done)
		atomic_fetch_or(&gcp_marks_seen, mark);
	assert(!on || !done || gcp_marks_any(mark)); /* it is looked for from now on */
	return done;
}

bool gcp_mark_get(CUdeviceptr addr, uint64_t id, enum gcp_mark mark)
{
	const struct marked *one;

	if (!gcp_marks_any(mark))
		return false;
	assert(id > 0); /* 0 is that of no allocation */
	GCP_LOCKED(&marks_lock);
	one = *marked_at(addr);
	return one && one->id == id && one->marks & mark;
}

/* The same of the block that holds `ptr`. */
static bool mark_find(CUdeviceptr ptr, enum gcp_mark mark)
{
	struct gcp_block_info info;

	return gcp_marks_any(mark) && ptr && gcp_block_find(ptr, &info) == 0 &&
	       gcp_mark_get(info.addr, info.id, mark);
}

CUresult gcp_sync_memops_wait(CUresult result, CUdeviceptr to, CUdeviceptr from,
			      bool per_thread)
{
	if (result != CUDA_SUCCESS || !gcp_process_pooling() ||
	    !(mark_find(to, GCP_MARK_SYNC_MEMOPS) ||
	      mark_find(from, GCP_MARK_SYNC_MEMOPS)))
		return result;
	return GCP_WITHIN(NULL,
			  gcp_real.cuStreamSynchronize(per_thread ? CU_STREAM_PER_THREAD
								  : CU_STREAM_LEGACY));
}
