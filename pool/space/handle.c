/* SPDX-License-Identifier: MIT */
/*
 * handle.c - physical memory behind mapped segments: made, mapped, unmapped, given
 * back. A handle is what one call makes, and is always mapped and unmapped as a whole.
 *
 * Each call costs the driver the same time, however large the handle is: so new memory
 * for a block is made in GCP_HANDLE_PARTS handles, or in chunks; in half as many for a
 * graph, of which a handle serves several blocks. Before the pool has mapped unused
 * memory to other addresses, for a program that only allocates, it is made in a quarter
 * as many, and of a block of 16 MiB and more in as few as can be; but not in the order
 * of a stream, where a block divides handles that wait. Which blocks may lie in them
 * then says place.c.
 *
 * Called by vmm.c, vmm_space.c, lane.c, and by export.c, with vmm_lock
 * held, which guards the chunks that change here: those of blocks that are MOVING.
 */
#include "vmm.h"

/* --- the records ------------------------------------------------------------------ */

struct gcp_chunk *gcp_chunks_of(const struct gcp_block *block, uint64_t *ret_count)
{
	const struct gcp_segment *segment = block->segment;

	assert(block->addr % GCP_CHUNK == segment->addr % GCP_CHUNK);
	*ret_count = block->size / GCP_CHUNK;
	return &segment->chunks[(block->addr - segment->addr) / GCP_CHUNK];
}

void gcp_chunks_leave(struct gcp_chunk *chunks, uint64_t count, bool unmapped)
{
	for (uint64_t i = 0; i < count; i++)
		chunks[i] = (struct gcp_chunk){unmapped ? 0 : GCP_CHUNK_MOVED, 0, 0};
}

void gcp_chunks_set(struct gcp_chunk *chunks, uint64_t handle, uint32_t count)
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
	assert(count == 0 || chunks[0].handle != GCP_CHUNK_ABSENT); /* awake */
	for (uint64_t i = 0; i < count; i++)
		if (chunks[i].handle && chunks[i].handle != GCP_CHUNK_MOVED &&
		    chunks[i].before == 0)
			(void)GCP_CALL(pool, vm_release, chunks[i].handle);
	gcp_chunks_leave(chunks, count, true);
}

uint32_t gcp_handle_chunks(uint64_t count, uint32_t parts)
{
	uint64_t chunks = count / parts;

	if (chunks > GCP_HANDLE_MOST)
		chunks = GCP_HANDLE_MOST;
	return chunks > 0 ? (uint32_t)chunks : 1;
}

int gcp_handles_make(struct gcp_pool *pool, struct gcp_chunk *chunks, uint64_t count,
		     const struct gcp_move *move)
{
	bool one = count >= GCP_HANDLE_PARTS && !move->stream;
	uint32_t parts = move->heap->private      ? GCP_HANDLE_PARTS / 2
			 : pool->stats.remaps > 0 ? GCP_HANDLE_PARTS
			 : one                    ? 1
						  : GCP_HANDLE_PARTS / 4;
	uint32_t most = gcp_handle_chunks(count, parts), size;
	uint64_t handle;

	gcp_assert_held(GCP_RANK_VMM);
	assert(most > 0 && most <= GCP_HANDLE_MOST);
	for (uint64_t i = 0; i < count; i += size) {
		size = count - i < most ? (uint32_t)(count - i) : most;
		int result = GCP_CALL(pool, vm_create, pool->device,
				      (uint64_t)size * GCP_CHUNK, &handle);
		if (result != 0) {
			gcp_handles_release(pool, chunks, i);
			return result;
		}
		gcp_chunks_set(&chunks[i], handle, size);
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
	gcp_chunks_leave(chunks, mapped, false);
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
			gcp_chunks_leave(&chunks[first], end - first, true);
	}
	return result;
}

/* --- of a whole segment ------------------------------------------------------- */

/* Errors do not matter here: what a context that ends has taken along is gone. */
void gcp_handles_release_all(struct gcp_pool *pool, struct gcp_segment *segment)
{
	uint64_t count = segment->size / GCP_CHUNK;
	struct gcp_chunk *chunks = segment->chunks;

	for (uint64_t first = 0, end; first < count; first = end + 1) {
		for (end = first; end < count && chunks[end].handle; end++)
			;
		if (end > first)
			(void)GCP_CALL(pool, vm_unmap,
				       segment->addr + first * GCP_CHUNK,
				       (end - first) * GCP_CHUNK);
	}
	gcp_handles_release(pool, chunks, count);
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
