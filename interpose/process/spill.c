/* SPDX-License-Identifier: MIT */
/*
 * spill.c - see spill.h. Called by the hooks where memory is out, by those of frees,
 * and by sleep.c.
 *
 *      region   | 2 MiB | 2 MiB | 2 MiB |     pieces, side by side
 *               |  block           |
 *
 * A region has one block, or small ones side by side. Its pieces are handles of one
 * size, so that they fit again: to make them takes 370 ms a GiB. What is freed is dead:
 * its region may still be in use until all work that its context had then is done (an
 * epoch of the pool, fence.c). Then the addresses go, and the pieces are kept.
 *
 * A block that has moved to the device has the same addresses, and pieces that go back
 * to the driver when it is freed. They count as memory that passes through.
 *
 * Rules:
 *  V1 the memory of a freed block is used again only when all work that its context
 *     had at the free is done
 *  V2 what a capture takes is memory of the device
 *  V3 the host has never more than the option says, and keeps its last tenth
 *  V4 a piece is in one place: a region, or kept
 *  V5 a block moves only while nothing uses it, after what it holds was copied
 */
#include "spill.h"

#include <stdlib.h>
#include <sys/queue.h>

#include "../cuda/contexts.h"
#include "../cuda/ctx_scope.h"
#include "../cuda/cuda_vmm.h"
#include "../cuda/resolve.h"
#include "../base/clock.h"
#include "../observe/observer.h"
#include "../observe/ranges.h"
#include "spans.h"

#define CHUNK ((uint64_t)2 << 20)
enum { UNIT = 512 };

struct piece {
	CUmemGenericAllocationHandle handle;
	TAILQ_ENTRY(piece) entry;
};
TAILQ_HEAD(pieces, piece);

struct region {
	struct gcp_pool *pool;
	CUcontext ctx;
	bool gone; /* the context */
	CUdeviceptr addr;
	uint64_t bytes, carved;
	uint32_t users; /* blocks that are not released */
	bool moved;     /* it is memory of the device */
	struct pieces pieces;
	TAILQ_ENTRY(region) entry; /* the oldest first */
};

struct block {
	struct gcp_range range; /* first */
	struct region *region;
	uint64_t id, moment; /* the second: of its free */
	bool async;
	TAILQ_ENTRY(block) entry; /* of dead ones */
};

static struct gcp_mutex spill_lock = GCP_MUTEX(GCP_RANK_SPILL);
/* With spill_lock. */
static TAILQ_HEAD(, region) regions = TAILQ_HEAD_INITIALIZER(regions);
static TAILQ_HEAD(, block) dead = TAILQ_HEAD_INITIALIZER(dead);
static struct gcp_treap live;  /* ranges of live blocks */
static struct region *current; /* small blocks are taken from it */
static struct pieces kept = TAILQ_HEAD_INITIALIZER(kept); /* the host's, unused */
static uint64_t taken;                                    /* of the host, in bytes */
static atomic_bool is_used;                               /* there were blocks */

/* --- pieces (their calls are legal in each capture mode) ----------------------- */

static CUresult piece_make(struct pieces *to, int device, bool host)
{
	CUmemAllocationProp how = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				   .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
	struct piece *piece = calloc(1, sizeof(*piece));
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
	int node = 0;

	if (host) {
		(void)gcp_real.cuDeviceGetAttribute(
		    &node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device);
		how.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
		how.location.id = node > 0 ? node : 0;
	}
	if (piece)
		result = gcp_real.cuMemCreate(&piece->handle, CHUNK, &how, 0);
	if (result != CUDA_SUCCESS) {
		free(piece);
		return result;
	}
	taken += host ? CHUNK : 0;
	TAILQ_INSERT_TAIL(to, piece, entry);
	return CUDA_SUCCESS;
}

static void pieces_release(struct pieces *pieces, bool host)
{
	struct piece *piece;

	gcp_assert_held(GCP_RANK_SPILL);
	while ((piece = TAILQ_FIRST(pieces))) {
		TAILQ_REMOVE(pieces, piece, entry);
		(void)gcp_real.cuMemRelease(piece->handle);
		taken -= host ? CHUNK : 0;
		free(piece);
	}
	if (!host)
		gcp_given();
}

static CUresult pieces_take(struct pieces *to, int device, uint64_t bytes)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;
	uint64_t limit = gcp_process.options.spill, missing, room;
	CUresult result = CUDA_SUCCESS;
	struct piece *piece;

	for (; bytes > 0 && (piece = TAILQ_FIRST(&kept)); bytes -= CHUNK) {
		TAILQ_REMOVE(&kept, piece, entry); /* V4 */
		TAILQ_INSERT_TAIL(to, piece, entry);
	}
	missing = bytes;
	room = bytes > 0 ? gcp_host_room() : 0;
	if (room > limit - taken)
		room = limit - taken;
	if (bytes > room) { /* V3 */
		TAILQ_CONCAT(&kept, to, entry);
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (; bytes > 0 && result == CUDA_SUCCESS; bytes -= CHUNK)
		result = piece_make(to, device, true);
	if (result != CUDA_SUCCESS && !atomic_flag_test_and_set(&said))
		gcp_log(GCP_LOG_WARNING,
			"device %d is full, and the host may give %llu MiB "
			"(GCPOOL_SPILL, all but a tenth) of %llu: error %d",
			device, (unsigned long long)room >> 20,
			(unsigned long long)missing >> 20, (int)result);
	return result;
}

/* Side by side, and open to these devices. After a failure nothing is mapped. */
static CUresult pieces_map(const struct pieces *pieces, CUdeviceptr addr,
			   uint64_t devices)
{
	CUresult result = CUDA_SUCCESS;
	const struct piece *piece;
	CUdeviceptr at = addr;

	TAILQ_FOREACH (piece, pieces, entry) {
		result = gcp_real.cuMemMap(at, CHUNK, 0, piece->handle, 0);
		if (result != CUDA_SUCCESS)
			break;
		at += CHUNK;
	}
	result = result ?: gcp_vmm_open_to(devices, addr, at - addr);
	if (result != CUDA_SUCCESS && at > addr)
		(void)gcp_real.cuMemUnmap(addr, at - addr);
	return result;
}

/* --- regions ------------------------------------------------------------------- */

static int device_of(const struct region *region)
{
	return gcp_pool_device(region->pool);
}

static uint64_t users_of(const struct region *region)
{
	return gcp_vmm_users(device_of(region), device_of(region));
}

static void spilled_count(const struct region *region, int64_t bytes)
{
	_Atomic uint64_t *counts = gcp_process.spilled[device_of(region) & 63];

	gcp_assert_held(GCP_RANK_SPILL);
	counts[0] += (uint64_t)bytes;
	if (counts[1] < counts[0])
		counts[1] = counts[0];
	counts[bytes > 0 ? 2 : 3] += (uint64_t)(bytes > 0 ? bytes : -bytes);
}

/* Nothing uses it. What cannot be unmapped stays, and is not used again. */
static void region_release(struct region *region)
{
	assert(region->users == 0);
	if (region == current)
		current = NULL;
	TAILQ_REMOVE(&regions, region, entry);
	if (region->moved)
		(void)gcp_pools_pass(gcp_process.pools, device_of(region),
				     -(int64_t)region->bytes);
	else
		spilled_count(region, -(int64_t)region->bytes);
	if (gcp_real.cuMemUnmap(region->addr, region->bytes) == CUDA_SUCCESS) {
		(void)gcp_real.cuMemAddressFree(region->addr, region->bytes);
		if (region->moved)
			pieces_release(&region->pieces, false);
		else
			TAILQ_CONCAT(&kept, &region->pieces, entry);
	}
	free(region);
}

static struct region *region_new(struct gcp_pool *pool, uint64_t bytes)
{
	struct region *region = calloc(1, sizeof(*region));
	CUresult result;

	if (!region)
		return NULL;
	region->pool = pool;
	region->ctx = gcp_pool_context(pool);
	region->bytes = (bytes + CHUNK - 1) / CHUNK * CHUNK;
	TAILQ_INIT(&region->pieces);
	result = pieces_take(&region->pieces, device_of(region), region->bytes)
		     ?: gcp_real.cuMemAddressReserve(&region->addr, region->bytes,
						     CHUNK, 0, 0);
	if (result == CUDA_SUCCESS) {
		result = pieces_map(&region->pieces, region->addr, users_of(region));
		if (result != CUDA_SUCCESS)
			(void)gcp_real.cuMemAddressFree(region->addr, region->bytes);
	}
	if (result != CUDA_SUCCESS) {
		pieces_release(&region->pieces, true);
		free(region);
		return NULL;
	}
	TAILQ_INSERT_TAIL(&regions, region, entry);
	spilled_count(region, (int64_t)region->bytes);
	return region;
}

/* --- blocks -------------------------------------------------------------------- */

/* Releases those that all work is done with. Never waits. */
static void dead_release(void)
{
	struct block *block, *next;
	struct region *region;

	gcp_assert_held(GCP_RANK_SPILL);
	for (block = TAILQ_FIRST(&dead); block; block = next) {
		next = TAILQ_NEXT(block, entry);
		region = block->region;
		if (!region->gone &&
		    !gcp_pool_work_is_done(region->pool, block->moment))
			continue; /* V1 */
		TAILQ_REMOVE(&dead, block, entry);
		free(block);
		if (--region->users == 0)
			region_release(region);
	}
}

static struct block *block_new(struct gcp_pool *pool, uint64_t bytes)
{
	struct block *block = calloc(1, sizeof(*block));
	struct region *region = bytes < CHUNK ? current : NULL;

	if (!region || region->pool != pool || region->bytes - region->carved < bytes)
		region = block ? region_new(pool, bytes) : NULL;
	if (!region || !block) {
		free(block);
		return NULL;
	}
	if (bytes < CHUNK)
		current = region;
	block->region = region;
	block->range.at = region->addr + region->carved;
	block->range.bytes = bytes;
	region->carved += (bytes + UNIT - 1) / UNIT * UNIT;
	assert(bytes > 0 && region->carved <= region->bytes);
	region->users++;
	gcp_ranges_insert(&live, &block->range);
	return block;
}

bool gcp_spill_alloc(struct gcp_pool *pool, uint64_t bytes, bool async,
		     gcp_addr *ret_addr)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;
	static uint64_t ids;
	int device = gcp_pool_device(pool);
	uint64_t start = gcp_clock_ns();
	struct block *block;
	GCP_KEEP_ERRNO;

	if (gcp_process.options.spill == 0 || gcp_process_capturing() || /* V2 */
	    !gcp_pool_pin(pool))
		return false;
	gcp_mutex_lock(&spill_lock);
	dead_release();
	block = block_new(pool, bytes);
	if (block) {
		*ret_addr = block->range.at;
		block->id = UINT64_C(7) << 61 | ++ids; /* no gcp_block_id is that */
		block->async = async;
		atomic_store(&is_used, true);
		gcp_process.spilled[device & 63][4]++;
	}
	gcp_mutex_unlock(&spill_lock);
	gcp_pool_unpin(pool);
	if (block)
		gcp_observe_call(GCP_TRACE_pass_alloc, *ret_addr, bytes, start, 0);
	if (block && !atomic_flag_test_and_set(&said))
		gcp_log(GCP_LOG_WARNING,
			"device %d is full: blocks get memory of the host, and are "
			"slow (GCPOOL_SPILL)",
			device);
	return block;
}

/* The live block that holds `ptr`, or NULL. */
static struct block *block_at(CUdeviceptr ptr)
{
	struct block *block = gcp_ranges_behind(&live, ptr);

	gcp_assert_held(GCP_RANK_SPILL);
	return block && ptr - block->range.at < block->range.bytes ? block : NULL;
}

static bool is_empty(void)
{
	return !atomic_load_explicit(&is_used, memory_order_relaxed) ||
	       !gcp_process_pooling();
}

bool gcp_spill_find(CUdeviceptr ptr, struct gcp_block_info *ret_info)
{
	const struct block *block;

	if (is_empty())
		return false;
	GCP_LOCKED(&spill_lock);
	block = block_at(ptr);
	if (block)
		*ret_info = (struct gcp_block_info){.addr = block->range.at,
						    .requested = block->range.bytes,
						    .size = block->range.bytes,
						    .mapped = true,
						    .async = block->async,
						    .ctx = block->region->ctx,
						    .device = device_of(block->region),
						    .id = block->id};
	return block;
}

int gcp_block_find(CUdeviceptr ptr, struct gcp_block_info *ret_info)
{
	int result = gcp_pools_find(gcp_process.pools, ptr, ret_info);

	return result == -ENOENT && gcp_spill_find(ptr, ret_info) ? 0 : result;
}

/* It is dead from now on. *ret_pool: the one to wait for. */
static int block_end(CUdeviceptr addr, struct gcp_pool **ret_pool)
{
	struct block *block;

	GCP_LOCKED(&spill_lock);
	block = block_at(addr);
	if (!block || block->range.at != addr)
		return block ? -EINVAL : -ENOENT;
	*ret_pool = block->async ? NULL : block->region->pool;
	gcp_ranges_remove(&live, &block->range);
	block->moment = gcp_pool_work_now(block->region->pool);
	TAILQ_INSERT_TAIL(&dead, block, entry);
	return 0;
}

int gcp_spill_free(CUdeviceptr addr, bool waits)
{
	struct gcp_pool *pool;
	int result = is_empty() ? -ENOENT : block_end(addr, &pool);
	GCP_KEEP_ERRNO;

	if (result != 0)
		return result;
	if (waits && pool && !gcp_process_capturing() && gcp_pool_pin(pool)) {
		result = gcp_pool_finish(pool);
		gcp_pool_unpin(pool);
	}
	GCP_LOCKED(&spill_lock);
	dead_release(); /* what was not waited for is looked for later */
	return result < 0 || result == GCP_CUDA_OUT_OF_MEMORY ? 0 : result;
}

void gcp_spill_trim(void)
{
	GCP_KEEP_ERRNO;

	if (is_empty())
		return;
	GCP_LOCKED(&spill_lock);
	dead_release();
	pieces_release(&kept, true);
}

/* --- the way back -------------------------------------------------------------- */

/* Copies what it holds to pieces of the device, at addresses for that alone. */
static CUresult region_copy(const struct region *region, const struct pieces *pieces)
{
	CUstream stream = gcp_contexts_release_stream(region->ctx);
	CUresult result, unmapped;
	CUdeviceptr to;

	if (!stream || gcp_real.cuMemAddressReserve(&to, region->bytes, CHUNK, 0, 0))
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = pieces_map(pieces, to, UINT64_C(1) << device_of(region));
	if (result == CUDA_SUCCESS) {
		result = gcp_real.cuMemcpyDtoDAsync_v2(to, region->addr, region->bytes,
						       stream)
			     ?: gcp_real.cuStreamSynchronize(stream);
		unmapped = gcp_real.cuMemUnmap(to, region->bytes);
		result = result ?: unmapped;
	}
	(void)gcp_real.cuMemAddressFree(to, region->bytes);
	return result;
}

/* Whatever fails, it is as it was. */
static CUresult region_move(struct region *region)
{
	struct pieces pieces = TAILQ_HEAD_INITIALIZER(pieces);
	CUresult result = CUDA_SUCCESS;

	assert(!region->moved && gcp_ranks_held >> GCP_RANK_SLEEP & 1); /* V5 */
	for (uint64_t made = 0; made < region->bytes; made += CHUNK)
		result = result ?: piece_make(&pieces, device_of(region), false);
	result = result ?: region_copy(region, &pieces); /* V5 */
	result = result ?: gcp_real.cuMemUnmap(region->addr, region->bytes);
	if (result == CUDA_SUCCESS) {
		result = pieces_map(&pieces, region->addr, users_of(region));
		if (result == CUDA_SUCCESS) {
			spilled_count(region, -(int64_t)region->bytes);
			region->moved = true;
			pieces_release(&region->pieces, true);
			TAILQ_CONCAT(&region->pieces, &pieces, entry);
		} else if (pieces_map(&region->pieces, region->addr, users_of(region)))
			gcp_log(GCP_LOG_ERROR, "memory of the host is lost: the driver "
					       "does not map it again");
	}
	pieces_release(&pieces, false);
	return result;
}

/* Bytes that lanes of graphs have held and do not hold now: their next launches need
 * memory of the device, and can have none of the host. */
static int64_t lanes_left(int device)
{
	struct gcp_stats stats;

	if (gcp_pools_stats(gcp_process.pools, device, &stats) != 0)
		return 0;
	return (int64_t)(stats.lane_bytes.peak - stats.lane_bytes.current);
}

bool gcp_spill_return(bool look)
{
	struct region *region;
	size_t left, total;

	if (is_empty())
		return false;
	GCP_LOCKED(&spill_lock);
	dead_release();
	current = NULL;
	TAILQ_FOREACH (region, &regions, entry) {
		int64_t bytes = (int64_t)region->bytes, lanes;

		if (region->moved)
			continue;
		lanes = lanes_left(device_of(region));
		if (GCP_WITHIN(region->ctx, gcp_real.cuMemGetInfo_v2(&left, &total)) ||
		    left < region->bytes + (uint64_t)lanes ||
		    !gcp_pools_pass(gcp_process.pools, device_of(region),
				    bytes + lanes))
			return false;
		(void)gcp_pools_pass(gcp_process.pools, device_of(region), -lanes);
		if (!look && !GCP_WITHIN(region->ctx, region_move(region)))
			continue;
		(void)gcp_pools_pass(gcp_process.pools, device_of(region), -bytes);
		return look;
	}
	return false;
}

/* --- contexts ------------------------------------------------------------------ */

void gcp_spill_device_joined(int device)
{
	const struct region *region;

	if (is_empty())
		return;
	GCP_LOCKED(&spill_lock);
	TAILQ_FOREACH (region, &regions, entry)
		if (users_of(region) >> device & 1)
			(void)gcp_vmm_open_to(users_of(region), region->addr,
					      region->bytes);
}

/* Its work is done, and its memory the program's no more. */
void gcp_spill_context_gone(CUcontext ctx)
{
	struct block *block, *next;

	if (is_empty())
		return;
	GCP_LOCKED(&spill_lock);
	for (block = gcp_ranges_behind(&live, 0); block; block = next) {
		next = gcp_ranges_behind(&live, block->range.at + block->range.bytes);
		if (block->region->ctx != ctx)
			continue;
		gcp_ranges_remove(&live, &block->range);
		TAILQ_INSERT_TAIL(&dead, block, entry);
	}
	TAILQ_FOREACH (block, &dead, entry)
		block->region->gone |= block->region->ctx == ctx;
	dead_release();
}
