/* SPDX-License-Identifier: MIT */
/*
 * sync_memops.c - see sync_memops.h. The driver refuses the attribute for memory that
 * is mapped by hand, and of an ordinary segment it would give it to every block. So the
 * library keeps it for each block, and waits itself. Takes the lock of a pool, to find
 * the block; called with no lock held.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../base/process.h"
#include "../cuda/ctx_scope.h"
#include "../cuda/resolve.h"
#include "sync_memops.h"

/* One for each address at which a block has had it: the id is that of the allocation
 * which had it last, or 0. By address, under the lock. */
static struct marked {
	CUdeviceptr addr;
	uint64_t id;
} * marked;
static size_t marked_count, marked_room;
static struct gcp_mutex marked_lock = GCP_MUTEX(GCP_RANK_SYNC_MEMOPS);

atomic_bool gcp_sync_memops_seen;

/* The index of the first one at or above `addr`. */
static size_t marked_index(CUdeviceptr addr)
{
	gcp_assert_held(GCP_RANK_SYNC_MEMOPS);
	size_t low = 0, high = marked_count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (marked[middle].addr < addr)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool marked_grow(void)
{
	gcp_assert_held(GCP_RANK_SYNC_MEMOPS);
	size_t room = 2 * marked_room + 64;
	struct marked *more;
	int saved = errno;

	if (marked_count < marked_room)
		return true;
	more = realloc(marked, room * sizeof(*marked));
	errno = saved;
	if (!more)
		return false;
	marked = more;
	marked_room = room;
	return true;
}

static bool marked_put(CUdeviceptr addr, uint64_t id)
{
	gcp_assert_held(GCP_RANK_SYNC_MEMOPS);
	size_t i = marked_index(addr);

	if (i == marked_count || marked[i].addr != addr) {
		if (!marked_grow())
			return false;
		memmove(marked + i + 1, marked + i,
			(marked_count++ - i) * sizeof(*marked));
	}
	marked[i] = (struct marked){addr, id};
	assert(i == 0 || marked[i - 1].addr < addr); /* by address */
	assert(i + 1 == marked_count || addr < marked[i + 1].addr);
	return true;
}

bool gcp_sync_memops_set(CUdeviceptr addr, uint64_t id, bool on)
{
	bool done;

	if (!on && !gcp_sync_memops_any())
		return true;
	gcp_mutex_lock(&marked_lock);
	done = marked_put(addr, on ? id : 0);
	gcp_mutex_unlock(&marked_lock);
	if (done)
		atomic_store(&gcp_sync_memops_seen, true);
	return done;
}

bool gcp_sync_memops_get(CUdeviceptr addr, uint64_t id)
{
	bool found;
	size_t i;

	gcp_mutex_lock(&marked_lock);
	i = marked_index(addr);
	found = i < marked_count && marked[i].addr == addr && marked[i].id == id;
	gcp_mutex_unlock(&marked_lock);
	return found;
}

static bool synchronizes(CUdeviceptr ptr)
{
	struct gcp_block_info info;

	return ptr && gcp_pools_find(gcp_process.pools, ptr, &info) == 0 &&
	       gcp_sync_memops_get(info.addr, info.id);
}

CUresult gcp_sync_memops_wait(CUresult result, CUdeviceptr to, CUdeviceptr from,
			      bool per_thread)
{
	if (result != CUDA_SUCCESS || !gcp_sync_memops_any() ||
	    !gcp_process_pooling() || !(synchronizes(to) || synchronizes(from)))
		return result;
	return GCP_WITHIN(NULL,
			  gcp_real.cuStreamSynchronize(per_thread ? CU_STREAM_PER_THREAD
								  : CU_STREAM_LEGACY));
}
