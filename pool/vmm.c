/* SPDX-License-Identifier: MIT */
/*
 * vmm.c - mapped segments: the second way to get memory from the driver, beside
 * mem_alloc. Addresses are set aside in long ranges; memory is made in chunks of
 * 2 MiB and mapped behind them, and unused chunks are mapped elsewhere as they
 * are needed. So unused memory anywhere serves any request, however large.
 *
 * Called by grow.c when nothing that is free fits, and by reclaim.c. Holds
 * vmm_lock over calls of the driver, which never wait for the device.
 *
 * THE RULE: unmapping is ordered by no queue. Addresses are unmapped only when
 * their epoch is completed; that a barrier holds later work back is not enough.
 * A chunk whose epoch is only ordered can move all the same: it is mapped at its
 * new place too, earlier work goes on at the old one, and that is unmapped when
 * the epoch is completed. Until then nobody gets the old addresses.
 * Nothing moves that a block of the program, or a private heap, still has.
 *
 * Memory that we map is not the context's: it does not go with it. When a context
 * is gone, so is its work, and what was mapped for it is given back here.
 */
#include "vmm.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { RANGE_MIN = 64 << 20 }; /* bytes of addresses to set aside at once */

void gcp_vmm_init(struct gcp_pool *pool)
{
	const struct gcp_pools *pools = pool->pools;
	uint64_t granularity = 0, memory = 0;

	pool->vmm = pools->config.vmm && pools->driver.vm_reserve &&
		    pools->driver.vm_device(pool->device, &granularity, &memory) &&
		    granularity > 0 && GCP_CHUNK % granularity == 0;
	atomic_store(&pool->vmm_mapped, 0);
	pool->vmm_range =
	    gcp_round_up(memory > RANGE_MIN ? memory : RANGE_MIN, GCP_CHUNK);
}

/* --- ranges of addresses -----------------------------------------------------------
 */

static uint64_t *chunks_create(uint64_t size)
{
	int saved = errno;
	void *chunks =
	    mmap(NULL, size / GCP_CHUNK * sizeof(uint64_t), PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	errno = saved;
	return chunks == MAP_FAILED ? NULL : chunks;
}

static void chunks_destroy(uint64_t *chunks, uint64_t size)
{
	int saved = errno;

	munmap(chunks, size / GCP_CHUNK * sizeof(uint64_t));
	errno = saved;
}

/* Sets aside more addresses than asked for, if it can. */
static int range_reserve(struct gcp_heap *heap, enum gcp_kind kind, uint64_t bytes,
			 gcp_addr *ret_addr, uint64_t *ret_size)
{
	struct gcp_pool *pool = heap->pool;
	uint64_t size = kind == GCP_KIND_SLAB ? pool->vmm_range / 8 : pool->vmm_range;
	uint64_t least = gcp_round_up(bytes, GCP_CHUNK);
	int result;

	size = gcp_round_up(size, GCP_CHUNK);
	if (heap->private || size < least)
		size = least;
	for (;;) {
		result = GCP_CALL(pool, vm_reserve, size, GCP_CHUNK, ret_addr);
		if (result == 0 || size == least)
			break;
		size = gcp_round_up(size / 2, GCP_CHUNK);
		if (size < least)
			size = least;
	}
	*ret_size = size;
	return result;
}

static int range_add(struct gcp_heap *heap, enum gcp_kind kind, uint64_t bytes)
{
	struct gcp_pool *pool = heap->pool;
	uint64_t size, *chunks;
	gcp_addr addr;
	int result = range_reserve(heap, kind, bytes, &addr, &size);

	if (result != 0)
		return result;
	chunks = chunks_create(size);
	result = -ENOMEM;
	if (chunks) {
		gcp_mutex_lock(&pool->lock);
		result = gcp_space_add(heap, addr, size, kind, chunks);
		gcp_mutex_unlock(&pool->lock);
	}
	if (result != 0) {
		if (chunks)
			chunks_destroy(chunks, size);
		(void)pool->pools->driver.vm_unreserve(addr, size);
	}
	return result;
}

/* --- chunks -------------------------------------------------------------------------
 */

static uint64_t *chunk_of(const struct gcp_block *block)
{
	return &block->segment->chunks[gcp_space_chunk(block->segment, block->addr)];
}

static uint64_t chunk_count(const struct gcp_block *block)
{
	return block->size / GCP_CHUNK;
}

static void chunks_set(uint64_t *chunks, uint64_t count, uint64_t value)
{
	for (uint64_t i = 0; i < count; i++)
		chunks[i] = value;
}

static void chunks_release(struct gcp_pool *pool, uint64_t *chunks, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		if (chunks[i] && chunks[i] != GCP_CHUNK_MOVED)
			(void)GCP_CALL(pool, vm_release, chunks[i]);
		chunks[i] = 0;
	}
}

/* Makes new memory for the end of the target, behind what is donated. */
static int chunks_make(struct gcp_pool *pool, const struct gcp_move *move)
{
	uint64_t *chunks = chunk_of(move->target), count = chunk_count(move->target);
	uint64_t first = move->donated / GCP_CHUNK;

	if (!gcp_quota_allows(pool, (count - first) * GCP_CHUNK))
		return GCP_CUDA_OUT_OF_MEMORY;
	for (uint64_t i = first; i < count; i++) {
		int result =
		    GCP_CALL(pool, vm_create, pool->device, GCP_CHUNK, &chunks[i]);
		if (result != 0) {
			chunks[i] = 0;
			chunks_release(pool, &chunks[first], i - first);
			return result;
		}
	}
	GCP_LOG(pool->pools, "device %d: took %llu chunks of 2 MiB for 0x%llx",
		pool->device, GCP_ULL(count - first), GCP_ULL(move->target->addr));
	return 0;
}

static bool is_completed(struct gcp_pool *pool, const struct gcp_block *block)
{
	return block->epoch <= atomic_load(&pool->timeline.completed);
}

/* Unmaps the donors that may be. Their chunks go to `to` or, if it is NULL, to the
 * driver. Those that could not be unmapped stay with the move. */
static int donors_empty(struct gcp_pool *pool, struct gcp_move *move, uint64_t *to)
{
	struct gcp_block *donor;

	while ((donor = TAILQ_FIRST(&move->donors))) {
		uint64_t *from = chunk_of(donor), count = chunk_count(donor);
		bool unmapped = is_completed(pool, donor);
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
			chunks_release(pool, from, count);
			GCP_LOG(pool->pools,
				"device %d: gave back %llu chunks of 2 MiB at 0x%llx",
				pool->device, GCP_ULL(count), GCP_ULL(donor->addr));
		}
		chunks_set(from, count, unmapped ? 0 : GCP_CHUNK_MOVED);
		gcp_mutex_lock(&pool->lock);
		gcp_space_detach(move, donor, unmapped);
		gcp_mutex_unlock(&pool->lock);
	}
	return 0;
}

/* Unmaps a block that chunks have left: all that is mapped of it. */
static int block_unmap(struct gcp_pool *pool, const struct gcp_block *block)
{
	uint64_t *chunks = chunk_of(block), count = chunk_count(block), end;
	int result = 0;

	for (uint64_t first = 0; first < count && result == 0; first = end + 1) {
		for (end = first; end < count && chunks[end]; end++)
			;
		if (end == first)
			continue;
		result = GCP_CALL(pool, vm_unmap, block->addr + first * GCP_CHUNK,
				  (end - first) * GCP_CHUNK);
		if (result == 0)
			chunks_set(&chunks[first], end - first, 0);
	}
	return result;
}

/* Unmaps what chunks have left meanwhile. Nothing depends on it: an error shows
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
		result = block_unmap(pool, block);
		gcp_mutex_lock(&pool->lock);
		gcp_space_free(block, result == 0);
		gcp_mutex_unlock(&pool->lock);
	}
}

/* Puts the target's chunks behind its addresses. If that fails they are released,
 * and what could not be unmapped again is GCP_CHUNK_MOVED. */
static int target_map(struct gcp_pool *pool, const struct gcp_block *target)
{
	uint64_t *chunks = chunk_of(target), count = chunk_count(target), mapped = 0;
	int result = 0;

	while (result == 0 && mapped < count) {
		result = GCP_CALL(pool, vm_map, target->addr + mapped * GCP_CHUNK,
				  GCP_CHUNK, chunks[mapped]);
		mapped += result == 0;
	}
	if (result == 0)
		result =
		    GCP_CALL(pool, vm_open, pool->device, target->addr, target->size);
	if (result == 0)
		return 0;
	chunks_release(pool, chunks, count);
	chunks_set(chunks, mapped, GCP_CHUNK_MOVED);
	(void)block_unmap(pool, target);
	return result;
}

/* First what can fail for want of memory, then what cannot be undone. Whatever
 * fails: chunks that have no place any more are given back. */
static int move_run(struct gcp_pool *pool, struct gcp_move *move)
{
	struct gcp_block *target = move->target;
	int result = chunks_make(pool, move);

	if (result != 0)
		return result;
	result = donors_empty(pool, move, chunk_of(target));
	if (result == 0)
		return target_map(pool, target);
	chunks_release(pool, chunk_of(target), chunk_count(target));
	return result;
}

/* --- making room ---------------------------------------------------------------------
 */

/* pool->lock is held. 0: planned, or there is room already (no target). */
static int move_plan(struct gcp_heap *heap, enum gcp_kind kind, uint64_t bytes,
		     struct gcp_move *move)
{
	struct gcp_pool *pool = heap->pool;
	int result;

	gcp_heap_advance(&pool->common);
	if (gcp_tree_lowest_fit(heap, kind, bytes))
		return 0;
	gcp_slab_coalesce_unused(&pool->common);
	if (gcp_tree_lowest_fit(heap, kind, bytes))
		return 0;
	result = gcp_space_place(heap, kind, bytes, move);
	if (result != 0)
		return result;
	uint64_t size = move->target->size;
	gcp_space_collect(pool, size, atomic_load(&pool->timeline.completed), move);
	gcp_space_collect(pool, size, atomic_load(&pool->timeline.ready), move);
	return 0;
}

static int provide_locked(struct gcp_heap *heap, enum gcp_kind kind, uint64_t bytes,
			  bool *ret_new)
{
	struct gcp_move move = {.donors = TAILQ_HEAD_INITIALIZER(move.donors)};
	struct gcp_pool *pool = heap->pool;
	int result;

	unmapping_finish(pool);
	gcp_mutex_lock(&pool->lock);
	result = move_plan(heap, kind, bytes, &move);
	gcp_mutex_unlock(&pool->lock);
	if (result == -ENOSPC) {
		result = range_add(heap, kind, bytes);
		if (result != 0)
			return result;
		gcp_mutex_lock(&pool->lock);
		result = move_plan(heap, kind, bytes, &move);
		gcp_mutex_unlock(&pool->lock);
	}
	if (result != 0 || !move.target)
		return result;
	*ret_new = move.donated < move.target->size;
	result = move_run(pool, &move);
	gcp_mutex_lock(&pool->lock);
	if (result == 0)
		gcp_space_fill(&move);
	else
		gcp_space_release(pool, &move);
	pool->stats.remaps += result == 0 && !*ret_new;
	gcp_mutex_unlock(&pool->lock);
	return result;
}

int gcp_vmm_provide(struct gcp_heap *heap, enum gcp_kind kind, uint64_t bytes,
		    bool *ret_new)
{
	struct gcp_pools *pools = heap->pool->pools;
	int result;

	*ret_new = false;
	/* More than there is: nothing need be set aside or tried for that. */
	if (bytes > heap->pool->vmm_range)
		return GCP_CUDA_OUT_OF_MEMORY;
	gcp_mutex_lock(&pools->vmm_lock);
	result = provide_locked(heap, kind, bytes, ret_new);
	gcp_mutex_unlock(&pools->vmm_lock);
	return result;
}

/* --- giving back
 * ----------------------------------------------------------------------
 */

uint64_t gcp_vmm_release(struct gcp_pool *pool, uint64_t bytes)
{
	struct gcp_move move = {.donors = TAILQ_HEAD_INITIALIZER(move.donors)};
	struct gcp_block *donor;
	uint64_t given = 0, kept = 0;

	if (!pool->vmm || bytes == 0)
		return 0;
	if (bytes <= UINT64_MAX - GCP_CHUNK)
		bytes = gcp_round_up(bytes, GCP_CHUNK);
	gcp_mutex_lock(&pool->pools->vmm_lock);
	unmapping_finish(pool);
	gcp_mutex_lock(&pool->lock);
	gcp_space_collect(pool, bytes, atomic_load(&pool->timeline.completed), &move);
	gcp_mutex_unlock(&pool->lock);
	given = move.donated;
	(void)donors_empty(pool, &move, NULL);
	gcp_mutex_lock(&pool->lock);
	TAILQ_FOREACH (donor, &move.donors, link)
		kept += donor->size;
	pool->stats.trims += given > kept;
	gcp_space_release(pool, &move);
	gcp_mutex_unlock(&pool->lock);
	gcp_mutex_unlock(&pool->pools->vmm_lock);
	return given - kept;
}

/* Errors do not matter here: what a dying context has taken along is gone. */
static void segment_release(struct gcp_pool *pool, struct gcp_segment *segment)
{
	uint64_t count = segment->size / GCP_CHUNK, *chunks = segment->chunks;

	for (uint64_t first = 0, end; first < count; first = end) {
		for (end = first; end < count && chunks[end]; end++)
			;
		if (end > first)
			(void)GCP_CALL(pool, vm_unmap,
				       segment->addr + first * GCP_CHUNK,
				       (end - first) * GCP_CHUNK);
		chunks_release(pool, &chunks[first], end - first);
		while (end < count && !chunks[end])
			end++;
	}
	(void)pool->pools->driver.vm_unreserve(segment->addr, segment->size);
	chunks_destroy(chunks, segment->size);
}

void gcp_vmm_release_orphans(struct gcp_pool *pool)
{
	struct gcp_segment *segment;

	gcp_assert_held(GCP_RANK_VMM);
	while ((segment = TAILQ_FIRST(&pool->orphans))) {
		TAILQ_REMOVE(&pool->orphans, segment, link);
		segment_release(pool, segment);
		gcp_descriptor_free(&pool->pools->segment_descriptors, segment);
	}
}

/* --- handles of blocks that other processes open ---------------------------------- */

int gcp_vmm_for_each_handle(const struct gcp_block *block, gcp_addr from,
			    int (*each)(void *arg, uint64_t handle, gcp_addr addr,
					uint64_t bytes),
			    void *arg)
{
	const struct gcp_segment *segment = block->segment;
	gcp_addr at = from > block->addr ? from : block->addr;
	int result = 0;

	gcp_assert_held(GCP_RANK_VMM);
	if (!segment->chunks)
		return -ENOENT;
	at -= (at - segment->addr) % GCP_CHUNK;
	for (; result == 0 && at < block->addr + block->size; at += GCP_CHUNK)
		result = each(arg, segment->chunks[(at - segment->addr) / GCP_CHUNK],
			      at, GCP_CHUNK);
	return result;
}

/* --- peers
 * ----------------------------------------------------------------------------
 */

/* The mapped segment at or above `addr`. */
static struct gcp_segment *segment_from(struct gcp_pool *pool, gcp_addr addr)
{
	struct gcp_segment key = {.addr = addr}, *segment;

	gcp_mutex_lock(&pool->lock);
	segment = RB_NFIND(gcp_segment_tree, &pool->segments, &key);
	while (segment && !segment->chunks)
		segment = RB_NEXT(gcp_segment_tree, &pool->segments, segment);
	gcp_mutex_unlock(&pool->lock);
	return segment;
}

static int segment_reopen(struct gcp_pool *pool, const struct gcp_segment *segment)
{
	uint64_t count = segment->size / GCP_CHUNK, *chunks = segment->chunks, end;
	int result = 0;

	for (uint64_t first = 0; first < count; first = end + 1) {
		int opened = 0;

		for (end = first; end < count && chunks[end]; end++)
			;
		if (end > first)
			opened = GCP_CALL(pool, vm_open, pool->device,
					  segment->addr + first * GCP_CHUNK,
					  (end - first) * GCP_CHUNK);
		result = result == 0 ? opened : result;
	}
	return result;
}

int gcp_pools_reopen(struct gcp_pools *pools, int device)
{
	struct gcp_segment *segment;
	int result = 0;

	/* While it is held segments come and go nowhere, and nothing is mapped. */
	gcp_mutex_lock(&pools->vmm_lock);
	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next) {
		gcp_addr at = 0;

		if (!pool->live || pool->device != device)
			continue;
		while ((segment = segment_from(pool, at))) {
			int opened = segment_reopen(pool, segment);

			result = result == 0 ? opened : result;
			at = segment->addr + segment->size;
		}
	}
	gcp_mutex_unlock(&pools->vmm_lock);
	return result;
}
