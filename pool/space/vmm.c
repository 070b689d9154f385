/* SPDX-License-Identifier: MIT */
/*
 * vmm.c - mapped segments: the second way to get memory from the driver, beside
 * mem_alloc. Addresses are set aside in long ranges; memory is made in handles
 * (handle.c) and mapped behind them, and unused handles are mapped elsewhere as
 * they are needed. So unused memory anywhere serves any request, however large.
 *
 * Called by grow.c when nothing that is free fits, by maintain.c and purge.c to give
 * memory back, by pools.c and lane.c. Holds vmm_lock over calls of the driver, which
 * never wait for the device.
 *
 * THE RULE: unmapping is ordered by no queue. Addresses are unmapped only when
 * their epoch is completed; that a barrier holds later work back is not enough.
 * A handle whose epoch is only ordered can move all the same: it is mapped at its
 * new place too, earlier work goes on at the old one, and that is unmapped when
 * the epoch is completed. Until then the old addresses are not given out. So can what
 * waits in the stream of the request, which orders the earlier work itself (U1).
 * Nothing moves that a block of the program, or a private heap, still has.
 *
 * Whatever call fails for another reason than that memory is out: an ordinary segment
 * serves the request (grow.c), as plain CUDA would.
 *
 * Memory that we map is not the context's: it does not go with it. When a context
 * is gone, so is its work, and what was mapped for it is given back here.
 *
 * Rules of mapped memory:
 *  D1 addresses are unmapped only when the work on them is completed
 *  D2 mapped memory is open to its device
 *  D3 addresses that a handle has left are unmapped when their work is completed
 *  D4 memory that moves keeps the epoch of its work
 *  D5 a handle of several chunks lies behind one block
 *  D6 what is unused and serves no request goes back before new memory is taken, but
 *     for a little
 */
#include "vmm.h"

#include <sys/mman.h>

void gcp_vmm_init(struct gcp_pool *pool)
{
	const struct gcp_pools *pools = pool->pools;
	uint64_t granularity = 0;

	pool->vmm = pools->config.backend != GCP_BACKEND_SEGMENTS &&
		    pools->driver.vm_reserve &&
		    pools->driver.vm_device(pool->device, &granularity) &&
		    granularity > 0 && GCP_CHUNK % granularity == 0;
}

/* --- ranges of addresses ------------------------------------------------------ */

/* Sets aside more addresses than asked for, if it can: as many as the pool has memory,
 * so that it has few ranges, and many pools do not need all addresses there are. */
static int range_reserve(struct gcp_heap *heap, uint64_t bytes, gcp_addr *ret_addr,
			 uint64_t *ret_size)
{
	enum { RANGE_MIN = 64 << 20 };
	struct gcp_pool *pool = heap->pool;
	uint64_t least = gcp_round_up(bytes, GCP_CHUNK);
	uint64_t size = atomic_load(&pool->vmm_mapped);

	size = gcp_round_up(size > RANGE_MIN ? size : RANGE_MIN, GCP_CHUNK);
	if (heap->private || size < least)
		size = least;
	int result = GCP_CALL(pool, vm_reserve, size, GCP_CHUNK, ret_addr);
	if (result != 0 && size > least) {
		size = least;
		result = GCP_CALL(pool, vm_reserve, size, GCP_CHUNK, ret_addr);
	}
	*ret_size = size;
	return result;
}

/* Gives back the addresses, and the records of a range that has nothing behind it. */
static void range_release(struct gcp_pool *pool, gcp_addr addr, uint64_t size,
			  struct gcp_chunk *chunks)
{
	GCP_KEEP_ERRNO;

	(void)pool->pools->driver.vm_unreserve(addr, size);
	if (chunks)
		munmap(chunks, size / GCP_CHUNK * sizeof(*chunks));
}

/* That there are no addresses does not mean that there is no memory. */
static int range_add(struct gcp_heap *heap, uint64_t bytes)
{
	struct gcp_pool *pool = heap->pool;
	struct gcp_chunk *chunks;
	uint64_t size;
	gcp_addr addr;
	int result;

	if (range_reserve(heap, bytes, &addr, &size) != 0)
		return GCP_NOT_MAPPED;
	chunks = gcp_zeroed_map(size / GCP_CHUNK * sizeof(*chunks));
	result = -ENOMEM;
	if (chunks) {
		gcp_mutex_lock(&pool->lock);
		result = gcp_space_add(heap, addr, size, chunks, bytes < GCP_CHUNK / 2);
		gcp_mutex_unlock(&pool->lock);
	}
	if (result != 0)
		range_release(pool, addr, size, chunks);
	return result == -ERANGE ? GCP_NOT_MAPPED : result;
}

void gcp_vmm_release_orphans(struct gcp_pool *pool)
{
	struct gcp_segment *segment;

	gcp_assert_held(GCP_RANK_VMM);
	while ((segment = TAILQ_FIRST(&pool->orphans))) {
		TAILQ_REMOVE(&pool->orphans, segment, link);
		gcp_handles_release_all(pool, segment);
		range_release(pool, segment->addr, segment->size, segment->chunks);
		gcp_mutex_lock(&pool->lock);
		gcp_descriptor_free(&pool->segment_descriptors, segment);
		gcp_mutex_unlock(&pool->lock);
	}
}

/* --- handles on their way ----------------------------------------------------- */

/* Makes new memory for the end of the target, behind what is donated. */
static int target_make(struct gcp_pool *pool, const struct gcp_move *move)
{
	uint64_t count, first = move->donated / GCP_CHUNK;
	struct gcp_chunk *chunks = gcp_chunks_of(move->target, &count);
	uint64_t bytes = (count - first) * GCP_CHUNK;

	if (bytes == 0)
		return 0;
	/* To make many handles, and give them back, takes longer than to ask. */
	if (!gcp_quota_allows(pool, bytes) ||
	    (count - first > GCP_HANDLE_MOST && gcp_pool_left(pool) < bytes))
		return GCP_CUDA_OUT_OF_MEMORY;
	return gcp_handles_make(pool, &chunks[first], count - first, move);
}

/* Unmaps the donors that may be. Their handles go to `to` or, if it is NULL, to the
 * driver. Those that could not be unmapped stay with the move. */
static int donors_empty(struct gcp_pool *pool, struct gcp_move *move,
			struct gcp_chunk *to)
{
	struct gcp_block *donor;

	while ((donor = TAILQ_FIRST(&move->donors))) {
		uint64_t count;
		struct gcp_chunk *from = gcp_chunks_of(donor, &count);
		bool unmapped = donor->epoch <= atomic_load(&pool->timeline.completed);
		int result = 0;

		assert(to || unmapped);
		if (unmapped)
			result = GCP_CALL(pool, vm_unmap, donor->addr, donor->size);
		if (result != 0)
			return result;
		if (to) {
			memcpy(to, from, count * sizeof(*to));
			to += count;
		} else {
			gcp_handles_release(pool, from, count);
		}
		gcp_chunks_leave(from, count, unmapped);
		gcp_mutex_lock(&pool->lock);
		gcp_space_detach(move, donor, unmapped);
		gcp_mutex_unlock(&pool->lock);
	}
	return 0;
}

/* Unmaps what handles have left meanwhile. Nothing depends on it: an error shows
 * elsewhere. */
static void unmapping_finish(struct gcp_pool *pool)
{
	struct gcp_block *block;
	int result = 0;

	while (result == 0) {
		gcp_mutex_lock(&pool->lock);
		block = gcp_space_next_unmapping(pool);
		gcp_mutex_unlock(&pool->lock);
		if (!block)
			return;
		result = gcp_handles_unmap(pool, block);
		gcp_mutex_lock(&pool->lock);
		gcp_space_free(block, result == 0);
		gcp_mutex_unlock(&pool->lock);
	}
}

/* First what can fail for want of memory, then what cannot be undone. Whatever
 * fails: handles that have no place any more are given back. What cannot be mapped is
 * no lack of memory, whatever the driver calls it. */
static int move_run(struct gcp_pool *pool, struct gcp_move *move)
{
	struct gcp_block *target = move->target;
	int result = target_make(pool, move);
	struct gcp_chunk *chunks;
	uint64_t count;

	if (result != 0)
		return result;
	chunks = gcp_chunks_of(target, &count);
	result = donors_empty(pool, move, chunks);
	if (result == 0)
		result = gcp_handles_map(pool, target);
	else
		gcp_handles_release(pool, chunks, count);
	return result == 0 ? 0 : GCP_NOT_MAPPED;
}

/* --- making room -------------------------------------------------------------- */

/* 0: planned, or there is room already (no target). */
static int move_plan(const struct gcp_request *request, struct gcp_move *move,
		     struct gcp_move *useless)
{
	struct gcp_heap *heap = request->heap;
	struct gcp_pool *pool = heap->pool;
	gcp_addr at;

	*move = (struct gcp_move){
	    .donors = TAILQ_HEAD_INITIALIZER(move->donors),
	    .apart = heap->private && request->use == GCP_USE_ANY,
	    .stream = request->stream,
	    .looks = request->looks_long ? UINT32_MAX : GCP_LOOKS,
	};
	*useless = (struct gcp_move){.donors = TAILQ_HEAD_INITIALIZER(useless->donors)};
	GCP_LOCKED(&pool->lock);
	gcp_heap_advance(&pool->common);
	if (gcp_fit_find(heap, request->size, move->apart, &at))
		return 0;
	int result = gcp_space_plan(heap, request->size, move, useless);
	if (result != 0)
		gcp_space_release(pool, move);
	return result;
}

static int room_make(struct gcp_request *request, gcp_taking *take, uint64_t *ret_new)
{
	struct gcp_pool *pool = request->heap->pool;
	struct gcp_move move, useless;
	int result;

	gcp_assert_held(GCP_RANK_VMM);
	assert(!request->block && !request->made);
	unmapping_finish(pool);
	result = move_plan(request, &move, &useless);
	if (result == -ENOSPC) {
		result = range_add(request->heap, request->size);
		if (result == 0)
			result = move_plan(request, &move, &useless);
	}
	if (result != 0 || !move.target)
		return result;
	*ret_new = move.target->size - move.donated;
	/* What cannot be unmapped stays. */
	(void)donors_empty(pool, &useless, NULL);
	result = move_run(pool, &move);
	gcp_mutex_lock(&pool->lock);
	gcp_space_release(pool, &useless);
	if (result == 0) {
		request->made = gcp_space_fill(&move);
		take(request, *ret_new == 0);
		request->made = NULL;
	} else {
		gcp_space_release(pool, &move);
	}
	pool->stats.remaps += result == 0 && *ret_new == 0;
	gcp_mutex_unlock(&pool->lock);
	return result;
}

int gcp_vmm_provide(struct gcp_request *request, gcp_taking *take, uint64_t *ret_new)
{
	struct gcp_pool *pool = request->heap->pool;
	const struct gcp_pools *pools = pool->pools;

	*ret_new = 0;
	/* What something outside of CUDA is to read or write may have to be ordinary.
	 */
	if (pools->config.backend != GCP_BACKEND_MAPPED && pools->driver.vm_wanted &&
	    !pools->driver.vm_wanted(pool->device))
		return GCP_NOT_MAPPED;
	GCP_LOCKED(&pool->pools->vmm_lock);
	int result = room_make(request, take, ret_new);
	gcp_vmm_release_orphans(pool);
	return result == 0 || result == GCP_CUDA_OUT_OF_MEMORY || result == -ENOMEM
		   ? result
		   : GCP_NOT_MAPPED;
}

/* --- giving back -------------------------------------------------------------- */

uint64_t gcp_vmm_release(struct gcp_pool *pool, uint64_t bytes, bool exact)
{
	struct gcp_move move = {.donors = TAILQ_HEAD_INITIALIZER(move.donors)};

	if (!pool->vmm)
		return 0;
	GCP_LOCKED(&pool->pools->vmm_lock);
	unmapping_finish(pool);
	gcp_mutex_lock(&pool->lock);
	gcp_space_collect_completed(pool, bytes, exact, &move);
	gcp_mutex_unlock(&pool->lock);
	uint64_t given = move.donated;
	(void)donors_empty(pool, &move, NULL);
	given -= move.donated;
	gcp_mutex_lock(&pool->lock);
	pool->stats.trims += given > 0;
	gcp_space_release(pool, &move);
	gcp_mutex_unlock(&pool->lock);
	gcp_vmm_release_orphans(pool);
	return given;
}

/* --- peers -------------------------------------------------------------------- */

/* The mapped segment at or above `addr`. */
static struct gcp_segment *segment_from(struct gcp_pool *pool, gcp_addr addr)
{
	struct gcp_segment key = {.addr = addr}, *segment;

	gcp_mutex_lock(&pool->lock);
	segment = gcp_segments_from(&pool->segments, &key);
	while (segment && !segment->chunks)
		segment = gcp_segments_next(segment);
	gcp_mutex_unlock(&pool->lock);
	return segment;
}

static int handle_open(struct gcp_pool *pool, gcp_addr at, struct gcp_chunk *chunks)
{
	if (chunks->handle == GCP_CHUNK_ABSENT)
		return 0;
	return GCP_CALL(pool, vm_open, pool->device, at,
			chunks->count * (uint64_t)GCP_CHUNK);
}

/* Makes what sleep has taken. */
static int handle_make(struct gcp_pool *pool, gcp_addr at, struct gcp_chunk *chunks)
{
	uint64_t bytes = chunks->count * (uint64_t)GCP_CHUNK, handle;
	int result = 0;

	if (chunks->handle == GCP_CHUNK_ABSENT) {
		result = GCP_CALL(pool, vm_create, pool->device, bytes, &handle);
		if (result == 0 && (result = GCP_CALL(pool, vm_map, at, bytes, handle)))
			(void)GCP_CALL(pool, vm_release, handle);
		if (result == 0)
			gcp_chunks_set(chunks, handle, chunks->count);
	}
	return result ? result : handle_open(pool, at, chunks); /* Z3 */
}

static int handles_step(struct gcp_pool *pool,
			int (*step)(struct gcp_pool *pool, gcp_addr at,
				    struct gcp_chunk *chunks))
{
	struct gcp_segment *segment;
	int result = 0;

	gcp_assert_held(GCP_RANK_VMM);
	for (gcp_addr at = 0; (segment = segment_from(pool, at));
	     at = segment->addr + segment->size) {
		struct gcp_chunk *chunks = segment->chunks;

		for (uint64_t i = 0; i < segment->size / GCP_CHUNK;) {
			bool whole =
			    chunks[i].handle && chunks[i].handle != GCP_CHUNK_MOVED;

			assert(!whole || chunks[i].before == 0);
			if (whole && result != GCP_CUDA_OUT_OF_MEMORY)
				result = step(pool, segment->addr + i * GCP_CHUNK,
					      &chunks[i])
					     ?: result;
			i += whole ? chunks[i].count : 1;
		}
	}
	return result;
}

int gcp_pools_reopen(struct gcp_pools *pools, int device)
{
	int result = 0;

	/* While it is held segments come and go nowhere, and nothing is mapped. */
	GCP_LOCKED(&pools->vmm_lock);
	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next)
		if (pool->live && (device < 0 || pool->device == device))
			result =
			    handles_step(pool, device < 0 ? handle_make : handle_open)
				?: result;
	return result;
}

/* --- asleep ------------------------------------------------------------------- */

/* Each handle is absent or present by itself. */
static int handle_give(struct gcp_pool *pool, gcp_addr at, struct gcp_chunk *chunks)
{
	if (chunks->handle == GCP_CHUNK_ABSENT ||
	    GCP_CALL(pool, vm_unmap, at, chunks->count * (uint64_t)GCP_CHUNK) != 0)
		return 0;
	(void)GCP_CALL(pool, vm_release, chunks->handle);
	gcp_chunks_set(chunks, GCP_CHUNK_ABSENT, chunks->count);
	return 0;
}

void gcp_pools_sleep(struct gcp_pools *pools)
{
	gcp_mutex_lock(&pools->vmm_lock);
	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next)
		if (pool->live) {
			assert(pool->stats.lane_bytes.current == 0); /* Z4 */
			(void)handles_step(pool, handle_give);
		}
	gcp_mutex_unlock(&pools->vmm_lock);
}
