/* SPDX-License-Identifier: MIT */
/*
 * place.c - which handles of mapped memory a block may lie in.
 *
 * A block keeps all of the handles that it lies in: while it lives they serve nothing
 * larger elsewhere. So it lies only in handles of at most HANDLE_TIMES its size, or of
 * one chunk (D5, vmm.c):
 *
 *      block       its new handles (handle.c)    it may lie in handles up to
 *      64 KiB      2 MiB, shared                 2 MiB
 *      1 MiB       2 MiB, shared                 4 MiB
 *      8 MiB       2 MiB                         32 MiB
 *      128 MiB     32 MiB                        32 MiB, the largest that there are
 *
 * Where only larger ones are unused, they go back to the driver when their work is
 * completed, and the block gets new ones. Graphs share their handles: theirs serve any
 * block.
 *
 * Called by fit.c, stream_heap.c and vmm_space.c with pool->lock held. Never calls the
 * driver.
 */
#include "../pool_types.h"

enum { HANDLE_TIMES = 4 };

static uint32_t handle_most(uint64_t size)
{
	uint64_t chunks = HANDLE_TIMES * size / GCP_CHUNK;

	return chunks < 1                 ? 1
	       : chunks > GCP_HANDLE_MOST ? GCP_HANDLE_MOST
					  : (uint32_t)chunks;
}

bool gcp_size_is_small(uint64_t size)
{
	return handle_most(size) == 1;
}

/* Room for eight blocks at least, as a power of two, so that runs of all
 * classes tile a segment. */
uint64_t gcp_slab_bytes(uint64_t block_bytes)
{
	uint64_t bytes = 64 << 10;

	while (bytes < 8 * block_bytes)
		bytes *= 2;
	return bytes;
}

uint64_t gcp_request_run(const struct gcp_request *request)
{
	uint32_t slab_count = request->heap->pool->pools->classes.slab_count;

	return request->size_class < slab_count ? gcp_slab_bytes(request->size)
						: request->size;
}

struct gcp_division gcp_request_division(const struct gcp_request *request)
{
	const struct gcp_heap *heap = request->heap;

	if (heap->private || request->divides)
		return (struct gcp_division){.most = UINT32_MAX};
	return (struct gcp_division){.most = handle_most(gcp_request_run(request)),
				     .whole = gcp_pool_is_tight(heap->pool)};
}

/* Where the handle begins, or ends, that lies at `addr`. */
static gcp_addr handle_begin(const struct gcp_segment *segment, gcp_addr addr)
{
	uint64_t index = (addr - segment->addr) / GCP_CHUNK;

	assert(addr >= segment->addr && addr < segment->addr + segment->size);
	return segment->addr + (index - segment->chunks[index].before) * GCP_CHUNK;
}

static uint32_t handle_chunks(const struct gcp_segment *segment, gcp_addr addr)
{
	return segment->chunks[(addr - segment->addr) / GCP_CHUNK].count;
}

static gcp_addr handle_end(const struct gcp_segment *segment, gcp_addr addr)
{
	return handle_begin(segment, addr) +
	       handle_chunks(segment, addr) * (uint64_t)GCP_CHUNK;
}

/* Whether [begin, end) may have a part of the handle at `addr`. */
static bool may_divide(const struct gcp_block *block, gcp_addr addr, gcp_addr begin,
		       gcp_addr end, const struct gcp_division *division)
{
	const struct gcp_segment *segment = block->segment;
	gcp_addr first = handle_begin(segment, addr), last = handle_end(segment, addr);
	uint32_t count = handle_chunks(segment, addr);

	if (count == 1 || (begin <= first && last < end + GCP_CHUNK))
		return true;
	return count <= division->most && !(division->whole && block->addr <= first &&
					    last <= block->addr + block->size);
}

gcp_addr gcp_block_place(const struct gcp_block *block, uint64_t size,
			 const struct gcp_division *division)
{
	const struct gcp_segment *segment = block->segment;
	gcp_addr at = block->addr, above = block->addr + block->size, end;

	gcp_assert_held(GCP_RANK_POOL);
	assert(size > 0 && division->most > 0);
	if (!segment->chunks)
		return block->size >= size ? at : 0;
	while (at + size <= above) {
		if (!may_divide(block, at, at, at + size, division)) {
			at = handle_end(segment, at);
			continue;
		}
		if (may_divide(block, at + size - 1, at, at + size, division))
			return at;
		/* To the end of that handle, or behind it. */
		end = handle_end(segment, at + size - 1);
		if (end - gcp_round_up(size, GCP_CHUNK) > at && end <= above)
			at = end - gcp_round_up(size, GCP_CHUNK);
		else
			at = end;
	}
	return 0;
}
