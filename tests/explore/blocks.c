/* SPDX-License-Identifier: MIT */
/*
 * blocks.c - the reference model of memory: what is live, where, how large,
 * whose, and what it holds. Every allocation and free of the program goes
 * through here, and what the library answers is compared with the model at once.
 */
#include "explore.h"

#include <unistd.h>

#include "gcpool.h"

enum {
	HEAD_WORDS = 64,
	WIDE_MAX = 64 << 10,
	CHUNK = 2 << 20, /* in which the library takes memory */
};

static void regions_init(struct block *block)
{
	uint64_t words = block->bytes / 4, head = words, tail = 0;

	/* Small blocks are used to the last word, large ones at both ends. */
	if (words > 2 * HEAD_WORDS) {
		head = block->bytes <= WIDE_MAX && block->bytes % 3 == 0 ? words / 2
									 : HEAD_WORDS;
		tail = head == HEAD_WORDS ? HEAD_WORDS : words - head;
	}
	block->regions[0] = (struct region){.words = (uint32_t)head};
	block->regions[1] =
	    (struct region){.offset = (words - tail) * 4, .words = (uint32_t)tail};
}

struct region *block_region(struct block *block, unsigned number)
{
	struct region *region = &block->regions[number % REGIONS];

	return region->words ? region : &block->regions[0];
}

bool block_is_kept(const struct model *w, const struct block *block)
{
	for (uint32_t i = 1; block->addressed && i <= w->pool_count && !block->live;
	     i++)
		if (block->pools & pool_bit(i) && w->pools[i].refs > 0)
			return true;
	return false;
}

/* Code that the library does not see may free a block of the program: the driver, which
 * refuses all other addresses, frees the whole of what begins there. So nothing else of
 * the program's is in it. */
static void beginning_check(struct model *w, const struct block *block)
{
	uint64_t base, bytes;

	if (block->host || gcpsim_usage(block->addr) >= 0 ||
	    gcpsim_piece(block->addr, &base, &bytes) != 0)
		return;
	for (const struct block *other = w->blocks; other; other = other->next)
		if (other != block && other->live && !other->host &&
		    other->addr - base < bytes &&
		    (block->addr == base || other->addr == base))
			failure(w, "0x%lx and 0x%lx share what begins with one of them",
				block->addr, other->addr);
}

static void place_check(struct thread *t, const struct block *block)
{
	struct model *w = t->model;

	beginning_check(w, block);
	if (block->addr == 0 || block->addr % 512 != 0)
		failure(w, "a block at 0x%lx is not aligned", block->addr);
	for (const struct block *other = w->blocks; other; other = other->next)
		if (other != block && !other->host &&
		    other->addr < block->addr + block->bytes &&
		    block->addr < other->addr + other->bytes &&
		    (other->live || (block_is_kept(w, other) &&
				     !capture_may_recycle(t, other->pools))))
			failure(w,
				"the new block 0x%lx+%lu lies in 0x%lx+%lu, which "
				"is %s",
				block->addr, block->bytes, other->addr, other->bytes,
				other->live ? "live" : "a graph's");
}

/* What CUDA says about the block must be as if it were alone in the process. */
static void view_check(struct model *w, const struct block *block)
{
	uint64_t at = block->addr + block->bytes / 2;
	CUdeviceptr base = 0;
	CUcontext ctx = NULL;
	size_t size = 0;

	if (!fine(w, cuMemGetAddressRange(&base, &size, at), "cuMemGetAddressRange"))
		return;
	if (base != block->addr || size != block->bytes)
		failure(w, "the range of 0x%lx+%lu is said to be 0x%lx+%lu",
			block->addr, block->bytes, (uint64_t)base, size);
	if (fine(w, cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, at),
		 "cuPointerGetAttribute") &&
	    ctx != (block->async ? NULL : w->contexts[block->context].ctx) &&
	    !w->setting->vmm)
		failure(w, "the block 0x%lx is said to be another context's",
			block->addr);
}

/* The end of a graph is told by a thread of the driver's, which a busy machine
 * may keep waiting. */
static bool try_again(const struct model *w, int device, uint64_t bytes, uint64_t plain,
		      CUresult result)
{
	static unsigned tries;

	if (result != CUDA_ERROR_OUT_OF_MEMORY ||
	    plain_may_refuse(w, device, bytes, plain) || tries++ > 200)
		return false;
	usleep(20000);
	return true;
}

/* --- allocate and free -------------------------------------------------------- */

/* Plain CUDA allocates during a capture only in this mode. */
static CUstreamCaptureMode relax(const struct model *w)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	if (w->setting->plain)
		cuThreadExchangeStreamCaptureMode(&mode);
	return mode;
}

static void unrelax(const struct model *w, CUstreamCaptureMode mode)
{
	if (w->setting->plain)
		cuThreadExchangeStreamCaptureMode(&mode);
}

struct block *block_adopt(struct thread *t, uint64_t addr, uint64_t bytes)
{
	struct model *w = t->model;
	struct block *block = calloc(1, sizeof(*block));

	if (!block)
		failure(w, "no memory for the explorer itself");
	block->addr = addr;
	block->bytes = bytes;
	block->context = t->context;
	block->device = w->contexts[t->context].device;
	block->live = true;
	block->next = w->blocks;
	w->blocks = block;
	regions_init(block);
	return block;
}

#define NO_COUNT UINT64_MAX

uint64_t blocks_of_library(const struct model *w, int device)
{
	struct gcpool_stats stats;
	uint64_t count = 0;

	if (!library.asleep || !library.asleep())
		return library.get_stats &&
			       library.get_stats(device, &stats, sizeof(stats)) == 0
			   ? stats.allocation.current
			   : 0;
	for (const struct block *block = w->blocks; block; block = block->next)
		count += block->live && !block->host && !block->borrowed &&
			 !block->passed && block->device == device;
	return count;
}

static void block_is_cudas(struct model *w, struct block *block)
{
	block->passed = true;
	w->allocations[block->device]--;
}

/* Where a full device has no room for the rows that a pitch is learnt from CUDA serves
 * the request, and where the library has met a failure. */
static void pass_notice(struct model *w, struct block *block, uint64_t before)
{
	if (before == NO_COUNT || !library.get_stats ||
	    blocks_of_library(w, block->device) != before)
		return;
	if (!w->setting->plain)
		(void)fault_excuses(w);
	block_is_cudas(w, block);
}

/* A capture's memory is the device's. */
static void spill_notice(struct model *w, struct block *block)
{
	block->spilled = gcpsim_is_on_host(block->addr);
	if (!block->spilled)
		return;
	block_is_cudas(w, block);
	if (block->in_capture || block->pools)
		failure(w, "memory of a capture is on the host");
}

/* No two allocations have the same id: those that keep handles of other processes'
 * memory (UCX) know by it that an address has become another allocation's. What
 * captures take may be one allocation to others. */
static void id_check(struct model *w, struct block *block)
{
	CUresult result = cuPointerGetAttribute(
	    &block->id, CU_POINTER_ATTRIBUTE_BUFFER_ID, block->addr);

	if (result != CUDA_SUCCESS || block->in_capture || block->home)
		block->id = 0;
	for (struct block *other = block->next; other && block->id; other = other->next)
		if (other->id == block->id && !other->in_capture && !other->home)
			failure(w, "two allocations have the same id");
}

/* before: blocks that the library held, where CUDA may have served the request. */
static struct block *block_new(struct thread *t, CUresult result, CUdeviceptr addr,
			       uint64_t bytes, uint64_t plain, uint64_t before)
{
	struct model *w = t->model;
	struct block *block;

	if (result != CUDA_ERROR_OUT_OF_MEMORY)
		fine(w, result, "cuMemAlloc");
	if (result != CUDA_SUCCESS)
		return NULL;
	block = block_adopt(t, addr, bytes);
	w->allocations[block->device]++;
	pass_notice(w, block, before);
	capture_adopt(t, block);
	spill_notice(w, block);
	plain_own(t, block, plain);
	place_check(t, block);
	view_check(w, block);
	id_check(w, block);
	return block;
}

/* Calls of the driver that an allocation may have made, before and after. */
struct calls {
	uint64_t waits, fences, trims;
};

static struct calls calls_now(void)
{
	return (struct calls){gcpsim_calls("cuCtxWaitEvent"),
			      gcpsim_calls("cuCtxRecordEvent"),
			      gcpsim_calls("cuMemPoolTrimTo")};
}

static bool contexts_are_several(const struct model *w)
{
	unsigned live = 0;

	for (int i = 0; i < CONTEXTS_MAX; i++)
		live += w->contexts[i].live;
	return live > 1;
}

/* No allocation makes later work wait for what plain CUDA would not wait for: with
 * several contexts for nothing at all, and never for a fence of its own, which holds
 * nothing up where memory is scarce or mapped. And memory is out only when the driver
 * has none in its caches, or the device has never had so much. */
static void calls_check(struct model *w, struct calls before, uint64_t bytes,
			CUresult result)
{
	const struct setting *setting = w->setting;
	struct calls after = calls_now();
	bool scarce = setting->tight || setting->quota;

	if (setting->plain)
		return;
	if (contexts_are_several(w) && after.waits != before.waits && !fault_excuses(w))
		failure(w, "an allocation makes one context wait for another");
	if (after.fences != before.fences && !scarce && !setting->vmm &&
	    !setting->host_thread && !fault_excuses(w))
		failure(w, "an allocation sets a fence");
	if (result == CUDA_ERROR_OUT_OF_MEMORY && setting->memory_small &&
	    bytes <= setting->memory / CHUNK * CHUNK && !setting->quota &&
	    after.trims == before.trims && !fault_excuses(w))
		failure(w, "memory is out, and the driver's caches are full");
}

struct block *block_create(struct thread *t, uint64_t bytes)
{
	CUstreamCaptureMode mode = relax(t->model);
	struct calls before = calls_now();
	int device = t->model->contexts[t->context].device;
	uint64_t plain = plain_take(t->model, device, bytes);
	uint64_t held = blocks_of_library(t->model, device);
	CUdeviceptr addr = 0;
	CUresult result;

	do
		result = cuMemAlloc(&addr, bytes);
	while (try_again(t->model, device, bytes, plain, result));
	unrelax(t->model, mode);
	calls_check(t->model, before, bytes, result);
	plain_compare(t->model, device, bytes, plain, result);
	plain_spill_check(t->model, bytes, result);
	return block_new(t, result, addr, bytes, plain,
			 plain_is_spoilt(t->model) ? held : NO_COUNT);
}

/* It may be used behind what `s` was given before, and nothing else is ordered by it.
 */
static void async_adopt(struct thread *t, struct block *block, struct stream *s)
{
	struct model *w = t->model;
	struct mark mark = {s->number, ++s->count};

	s->clock.at[s->number] = s->count;
	block->async = true;
	for (unsigned r = 0; r < REGIONS; r++)
		region_touch(&block->regions[r], mark, WANT_WRITE);
	w->allocations[block->device]++;
	place_check(t, block);
	view_check(w, block);
}

struct block *block_create_async(struct thread *t, struct stream *s, uint64_t bytes)
{
	struct model *w = t->model;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUstream stream = stream_handle(t, s);
	int device = w->contexts[s->context].device;
	struct calls before = calls_now();
	uint64_t by_cuda = gcpsim_calls("cuMemAllocAsync"), plain;
	struct block *block;
	CUdeviceptr addr = 0;
	CUresult result;

	plain_serve(w, s, bytes);
	plain = plain_take(w, device, bytes);

	/* What the library leaves to CUDA is as forbidden in captures as on plain CUDA.
	 */
	cuThreadExchangeStreamCaptureMode(&mode);
	do
		result = cuMemAllocAsync(&addr, bytes, stream);
	while (try_again(w, device, bytes, plain, result));
	cuThreadExchangeStreamCaptureMode(&mode);
	calls_check(w, before, bytes, result);
	plain_compare(w, device, bytes, plain, result);
	if (result != CUDA_ERROR_OUT_OF_MEMORY)
		fine(w, result, "cuMemAllocAsync");
	if (result != CUDA_SUCCESS)
		return NULL;
	block = block_adopt(t, addr, bytes);
	plain_own(t, block, plain);
	async_adopt(t, block, s);
	spill_notice(w, block);
	id_check(w, block);
	if (!w->setting->plain && gcpsim_calls("cuMemAllocAsync") != by_cuda) {
		block_is_cudas(w, block);
		w->passed_async = true;
	}
	return block;
}

struct block *block_create_pitch(struct thread *t, uint64_t width, uint64_t rows)
{
	CUstreamCaptureMode mode = relax(t->model);
	CUdeviceptr addr = 0;
	size_t pitch = 0;
	uint64_t bytes = (width + 511) / 512 * 512 * rows;
	int device = t->model->contexts[t->context].device;
	uint64_t plain, before = blocks_of_library(t->model, device);
	CUresult result;

	plain = plain_take(t->model, device, bytes);
	do
		result = cuMemAllocPitch(&addr, &pitch, width, rows, 4);
	while (try_again(t->model, device, bytes, plain, result));
	unrelax(t->model, mode);
	plain_compare(t->model, device, bytes, plain, result);
	if (result == CUDA_SUCCESS && (pitch < width || pitch % 512 != 0))
		failure(t->model, "a pitch of %lu for rows of %lu", pitch, width);
	return block_new(t, result, addr, bytes, plain, before);
}

/* Not the library's: forbidden in captures is what CUDA forbids, and nothing waits for
 * what a graph still needs. */
static bool is_cudas(const struct model *w, const struct block *block)
{
	return w->setting->plain || (block->passed && !block->spilled);
}

/* Plain CUDA does not keep what a graph still needs. */
static bool is_left(struct model *w, const struct block *block)
{
	bool left = w->setting->leak ||
		    (is_cudas(w, block) && (block->pools || !all_is_calm(w)));

	w->left |= left;
	return left;
}

/* Nothing is to be kept. */
static bool limit_is_0(void)
{
	return plain_option("GCPOOL_CACHE_LIMIT", 1) == 0;
}

static bool frees_block(void)
{
	const char *blocking = getenv("GCPOOL_BLOCKING_FREE");

	return blocking && *blocking == '1';
}

/* If the program asked for that, or that nothing is kept, a free waits for all work of
 * the context, and so does that of memory which other processes may have; not
 * beside a capture, nor if a graph has the block. */
static void blocking_check(struct model *w, const struct block *block)
{
	uint64_t pending = gcpsim_pending_in(w->contexts[block->context].ctx);

	if (!(frees_block() || limit_is_0() || block->exported) || w->setting->plain ||
	    w->setting->leak || block->async || pending == 0 || block->in_capture ||
	    !all_is_calm(w))
		return;
	if (!fault_excuses(w))
		failure(w, "a free did not wait for %lu operations", pending);
}

static void block_dies(struct model *w, struct block *block)
{
	block->live = false;
	block->died = w->step;
	if (block->eager && !block->addressed) /* no graph writes there */
		block->pools = 0;
	w->frees++;
}

bool block_free(struct thread *t, struct block *block)
{
	struct model *w = t->model;
	bool left;

	if (!order_free(t, block) || !ipc_peer_closes(t, block))
		return false;
	/* CUDA relies on the program to have waited. */
	if (block->async && (!order_host(t, &block->regions[0], WANT_WRITE) ||
			     !order_host(t, &block->regions[1], WANT_WRITE)))
		return false;
	if (block->borrowed) {
		block->live = false;
		block->died = w->step;
		return true;
	}
	/* A free that reports an error of the device may have freed all the same. */
	left = is_left(w, block);
	if (!block->async)
		plain_waits(w, block->context);
	if (!block->async && (frees_block() || limit_is_0()) &&
	    (w->setting->devices > 1 || w->freed_elsewhere))
		plain_may_wait(w, EXCUSE_WAIT_DEVICES);
	plain_closes(w, block, !block->async);
	uint64_t fences = calls_now().fences;
	if (!left && !FINE(t, cuMemFree(block->addr))) {
		if (library.asleep && library.asleep()) /* no memory for a wake */
			return false;
		(void)cuMemFree(block->addr);
	}
	if (calls_now().fences != fences && !block->async && !w->setting->host_thread)
		plain_closed(w, block->context);
	if (!left)
		plain_free(t, block);
	block_dies(w, block);
	blocking_check(w, block);
	return true;
}

/* A free on a stream has failed. One without waits for the block's context alone: where
 * the stream is another one's, the program does. */
static void free_after_all(const struct block *block, const struct stream *s,
			   CUstream stream)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	gcpsim_plain_asks(1);
	cuThreadExchangeStreamCaptureMode(&mode);
	if (block->context != s->context)
		(void)cuStreamSynchronize(stream);
	cuThreadExchangeStreamCaptureMode(&mode);
	gcpsim_plain_asks(-1);
	(void)cuMemFree(block->addr);
}

bool block_free_async(struct thread *t, struct block *block, struct stream *s)
{
	struct model *w = t->model;
	bool left;

	if (s->capture || block->borrowed ||
	    (block->context != s->context && !can_name(t, s)) ||
	    (s->kind == STREAM_LEGACY && !legacy_is_free(w, s->context)) ||
	    (is_cudas(w, block) && !all_is_calm(w)) ||
	    !order_region(t, s, &block->regions[0], WANT_WRITE, 7) ||
	    !order_region(t, s, &block->regions[1], WANT_WRITE, 7) ||
	    !ipc_peer_closes(t, block))
		return false;
	left = is_left(w, block);
	w->freed_elsewhere |= block->context != s->context;
	plain_closes(w, block, false);
	if (!left && !FINE(t, cuMemFreeAsync(block->addr, stream_handle(t, s)))) {
		if (library.asleep && library.asleep())
			return false;
		free_after_all(block, s, stream_handle(t, s));
	}
	block_dies(w, block); /* no later use may count on an order by this */
	block->passing = is_cudas(w, block);
	if (block->passing && !left) /* its context's end waits for CUDA's free */
		region_touch(&block->regions[0], order_step(w, s), WANT_WRITE);
	block->plain_mark = (struct mark){s->number, s->count};
	w->freed_on_streams = true;
	if (!left)
		plain_free(t, block);
	return true;
}

void block_unslot(struct model *w, const struct block *block)
{
	for (unsigned i = 0; i < BLOCK_SLOTS; i++)
		if (w->slots[i] == block)
			w->slots[i] = NULL;
}

void block_lose(struct block *block)
{
	block->live = false;
	block->pools = 0;
	plain_lose(block);
}
