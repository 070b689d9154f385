/* SPDX-License-Identifier: MIT */
/*
 * handle.c - physical memory behind mapped segments: made, mapped, unmapped, given
 * back. A handle is what one call makes: 2 MiB to 1 GiB, always mapped and unmapped as
 * a whole. Each costs the driver the same time, however large it is: a large pool, and
 * a large request, get larger ones; and a program that only takes memory, as one that
 * loads a model, gets one for each block, and at its beginning one for several small
 * blocks. One that frees as much as it takes will have other sizes there soon.
 *
 * Called by vmm.c, vmm_space.c, replace.c, lane.c and lane_move.c, and by export.c,
 * with vmm_lock held, which guards the chunks that change here: those of blocks that
 * are MOVING. gcp_handles_at_once, called by grow.c, needs no lock.
 */
#include "vmm.h"

#include <sys/mman.h>

enum {
	/* Chunks that are for one block are one handle, where they are so many and the
	 * program has freed at most this part of what the pool has; or several. */
	OWN_LEAST = 2,
	OWN_MOST = 512,
	FREED_PART = 4,
	/* No other handle is larger than this part of what the pool has mapped, or than
	 * config.handle_parts says: one block keeps all of its handle where it is. */
	POOL_SHARE = 512,
	/* A small pool has less than this part of the device, or of its quota: no more
	 * than that can be kept by small blocks. */
	DEVICE_SHARE = 64,
	/* There, where each of many threads waits while another one makes a handle. */
	POOL_SHARE_THREADS = 64,
	/* There, of a program that only takes memory: this part, but no more than so
	 * much, or than the other part. */
	GROWTH_SHARE = 16,
	GROWTH_CHUNKS = 8,
	GROWTH_SHARE_LARGE = 32,
};

/* --- the records ------------------------------------------------------------------ */

struct gcp_chunk *gcp_chunks_create(uint64_t size)
{
	int saved = errno;
	void *chunks = mmap(NULL, size / GCP_CHUNK * sizeof(struct gcp_chunk),
			    PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	errno = saved;
	return chunks == MAP_FAILED ? NULL : chunks;
}

void gcp_chunks_destroy(struct gcp_chunk *chunks, uint64_t size)
{
	int saved = errno;

	munmap(chunks, size / GCP_CHUNK * sizeof(*chunks));
	errno = saved;
}

struct gcp_chunk *gcp_chunks_of(const struct gcp_block *block, uint64_t *ret_count)
{
	const struct gcp_segment *segment = block->segment;

	assert(block->addr % GCP_CHUNK == segment->addr % GCP_CHUNK);
	*ret_count = block->size / GCP_CHUNK;
	return &segment->chunks[(block->addr - segment->addr) / GCP_CHUNK];
}

void gcp_chunks_clear(struct gcp_chunk *chunks, uint64_t count)
{
	memset(chunks, 0, count * sizeof(*chunks));
}

void gcp_chunks_moved(struct gcp_chunk *chunks, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		chunks[i].handle = GCP_CHUNK_MOVED;
}

static void handle_set(struct gcp_chunk *chunks, uint64_t handle, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		chunks[i] = (struct gcp_chunk){handle, i, count};
}

/* --- the driver ------------------------------------------------------------------- */

/* GCP_CHUNK_MOVED has been released, or belongs to another range. */
void gcp_handles_release(struct gcp_pool *pool, struct gcp_chunk *chunks,
			 uint64_t count)
{
	gcp_assert_held(GCP_RANK_VMM);
	for (uint64_t i = 0; i < count; i++)
		if (chunks[i].handle && chunks[i].handle != GCP_CHUNK_MOVED &&
		    chunks[i].before == 0)
			(void)GCP_CALL(pool, vm_release, chunks[i].handle);
	gcp_chunks_clear(chunks, count);
}

static bool only_takes(const struct gcp_pool *pool)
{
	uint64_t mapped = atomic_load_explicit(&pool->vmm_mapped, memory_order_relaxed);
	uint64_t freed = atomic_load_explicit(&pool->vmm_freed, memory_order_relaxed);

	return freed <= mapped / FREED_PART;
}

static bool is_small(const struct gcp_pool *pool)
{
	uint64_t all = pool->quota < pool->memory ? pool->quota : pool->memory;

	return all != UINT64_MAX &&
	       atomic_load_explicit(&pool->vmm_mapped, memory_order_relaxed) <
		   all / DEVICE_SHARE;
}

static uint64_t growth_most(uint64_t chunks)
{
	uint64_t most = chunks / GROWTH_SHARE_LARGE;

	if (most < GROWTH_CHUNKS)
		most = GROWTH_CHUNKS;
	return most < chunks / GROWTH_SHARE ? most : chunks / GROWTH_SHARE;
}

/* Of a pool that has so many, how many chunks one handle may have. */
static uint64_t pool_most(const struct gcp_pool *pool, uint64_t chunks)
{
	if (!is_small(pool))
		return chunks / POOL_SHARE;
	if (only_takes(pool))
		return growth_most(chunks);
	return chunks /
	       (gcp_window_has_few_threads(pool) ? POOL_SHARE : POOL_SHARE_THREADS);
}

/* How many chunks a handle should have that blocks share, of so many that are made. */
static uint64_t shared_most(const struct gcp_pool *pool, uint64_t count)
{
	uint64_t chunks =
	    atomic_load_explicit(&pool->vmm_mapped, memory_order_relaxed) / GCP_CHUNK;
	uint64_t most = pool_most(pool, chunks);

	if (most < count / pool->pools->config.handle_parts)
		most = count / pool->pools->config.handle_parts;
	if (most < 1)
		most = 1;
	return most < gcp_handle_shared(pool) ? most : gcp_handle_shared(pool);
}

/* Of so many chunks that are for one block, how many are in handles of their own. */
static uint64_t own_chunks(const struct gcp_pool *pool, uint64_t own)
{
	return own < OWN_LEAST || !only_takes(pool) ? 0 : own;
}

uint64_t gcp_handles_at_once(const struct gcp_pool *pool, uint64_t bytes)
{
	uint64_t handle = 0;

	if (is_small(pool) && only_takes(pool))
		handle = shared_most(pool, 1) * GCP_CHUNK;
	return bytes <= handle / 2 ? handle / bytes * bytes : bytes;
}

int gcp_handles_make(struct gcp_pool *pool, struct gcp_chunk *chunks, uint64_t count,
		     uint64_t own)
{
	uint64_t shared = shared_most(pool, count), size, handle;

	gcp_assert_held(GCP_RANK_VMM);
	own = own_chunks(pool, own);
	for (uint64_t i = 0; i < count; i += size) {
		uint64_t left = i < own ? own - i : count - i;
		uint64_t most = i < own ? OWN_MOST : shared;

		size = left < most ? left : most;
		int result =
		    GCP_CALL(pool, vm_create, pool->device, size * GCP_CHUNK, &handle);
		if (result != 0) {
			gcp_handles_release(pool, chunks, i);
			return result;
		}
		handle_set(&chunks[i], handle, (uint32_t)size);
		if (size > gcp_handle_shared(pool))
			atomic_store_explicit(&pool->vmm_large, true,
					      memory_order_relaxed);
	}
	return 0;
}

int gcp_handles_map(struct gcp_pool *pool, const struct gcp_block *target)
{
	uint64_t count, mapped = 0;
	struct gcp_chunk *chunks = gcp_chunks_of(target, &count);
	int result = 0;

	gcp_assert_held(GCP_RANK_VMM);
	while (result == 0 && mapped < count) {
		uint64_t bytes = chunks[mapped].count * (uint64_t)GCP_CHUNK;

		result = GCP_CALL(pool, vm_map, target->addr + mapped * GCP_CHUNK,
				  bytes, chunks[mapped].handle);
		mapped += result == 0 ? chunks[mapped].count : 0;
	}
	if (result == 0)
		result =
		    GCP_CALL(pool, vm_open, pool->device, target->addr, target->size);
	if (result == 0)
		return 0;
	gcp_handles_release(pool, &chunks[mapped], count - mapped);
	for (uint64_t i = 0; i < mapped; i += chunks[i].count)
		(void)GCP_CALL(pool, vm_release, chunks[i].handle);
	gcp_chunks_moved(chunks, mapped);
	(void)gcp_handles_unmap(pool, target);
	return result;
}

int gcp_handles_unmap(struct gcp_pool *pool, const struct gcp_block *block)
{
	uint64_t count, end;
	struct gcp_chunk *chunks = gcp_chunks_of(block, &count);
	int result = 0;

	gcp_assert_held(GCP_RANK_VMM);
	for (uint64_t first = 0; first < count && result == 0; first = end + 1) {
		for (end = first; end < count && chunks[end].handle; end++)
			;
		if (end == first)
			continue;
		result = GCP_CALL(pool, vm_unmap, block->addr + first * GCP_CHUNK,
				  (end - first) * GCP_CHUNK);
		if (result == 0)
			gcp_chunks_clear(&chunks[first], end - first);
	}
	return result;
}

/* --- of a whole segment ------------------------------------------------------- */

/* Errors do not matter here: what a context that ends has taken along is gone. */
void gcp_handles_release_all(struct gcp_pool *pool, struct gcp_segment *segment)
{
	uint64_t count = segment->size / GCP_CHUNK;
	struct gcp_chunk *chunks = segment->chunks;

	for (uint64_t first = 0, end; first < count; first = end) {
		for (end = first; end < count && chunks[end].handle; end++)
			;
		if (end > first)
			(void)GCP_CALL(pool, vm_unmap,
				       segment->addr + first * GCP_CHUNK,
				       (end - first) * GCP_CHUNK);
		gcp_handles_release(pool, &chunks[first], end - first);
		while (end < count && !chunks[end].handle)
			end++;
	}
}

int gcp_handles_reopen(struct gcp_pool *pool, const struct gcp_segment *segment)
{
	uint64_t count = segment->size / GCP_CHUNK, end;
	const struct gcp_chunk *chunks = segment->chunks;
	int result = 0;

	gcp_assert_held(GCP_RANK_VMM);
	for (uint64_t first = 0; first < count; first = end + 1) {
		int opened = 0;

		for (end = first; end < count && chunks[end].handle; end++)
			;
		if (end > first)
			opened = GCP_CALL(pool, vm_open, pool->device,
					  segment->addr + first * GCP_CHUNK,
					  (end - first) * GCP_CHUNK);
		result = result == 0 ? opened : result;
	}
	return result;
}

/* --- of blocks that other processes open -------------------------------------- */

int gcp_vmm_for_each_handle(const struct gcp_block *block, gcp_addr from,
			    int (*each)(void *arg, uint64_t handle, gcp_addr addr,
					uint64_t bytes),
			    void *arg)
{
	const struct gcp_segment *segment = block->segment;
	const struct gcp_chunk *chunks = segment->chunks;
	gcp_addr at = from > block->addr ? from : block->addr;
	int result = 0;

	gcp_assert_held(GCP_RANK_VMM);
	if (!chunks)
		return -ENOENT;
	for (uint64_t i = (at - segment->addr) / GCP_CHUNK;
	     result == 0 && segment->addr + i * GCP_CHUNK < block->addr + block->size;
	     i += chunks[i].count) {
		i -= chunks[i].before;
		result = each(arg, chunks[i].handle, segment->addr + i * GCP_CHUNK,
			      chunks[i].count * (uint64_t)GCP_CHUNK);
	}
	return result;
}
