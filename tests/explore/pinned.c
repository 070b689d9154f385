/* SPDX-License-Identifier: MIT */
/*
 * pinned.c - pinned memory: the host reads and writes it, at once when it is fresh and
 * else when the work on it is done.
 */
#include "explore.h"

#include <sys/mman.h>

#include "gcpool.h"

enum { REGISTERED = 64 << 10 };

/* --- allocate and free -------------------------------------------------------- */

/* Freed memory cannot go back where a planned fault is in the way. */
static bool got(struct thread *t, CUresult result)
{
	return result != CUDA_ERROR_OUT_OF_MEMORY &&
	       fine(t->model, result, "cuMemHostAlloc");
}

static struct block *pinned_adopt(struct thread *t, void *p, uint64_t bytes)
{
	struct block *block = block_adopt(t, (uintptr_t)p, bytes);

	block->host = true;
	for (struct block *other = block->next; other; other = other->next)
		if (other->host && other->live && other->addr < block->addr + bytes &&
		    block->addr < other->addr + other->bytes)
			failure(t->model, "pinned memory at %p is live already", p);
	return block;
}

enum { NO_FLAGS = 256 };

/* As the library says; without it, or where it leaves all such memory to CUDA, 0. */
static uint64_t blocks_held(void)
{
	struct gcpool_host_stats stats;

	return library.get_host_stats &&
		       library.get_host_stats(&stats, sizeof(stats)) == 0
		   ? stats.active_requests.current
		   : 0;
}

/* What is beyond a limit, and what met a failure, is plain CUDA's. */
static void pass_notice(struct model *w, struct block *block, uint64_t before)
{
	const struct setting *setting = w->setting;
	struct gcpool_host_stats stats;

	if (setting->plain || blocks_held() != before || !library.get_host_stats ||
	    library.get_host_stats(&stats, sizeof(stats)) != 0)
		return;
	block->passed = true;
	if (!setting->host_memory && !setting->host_quota && !fault_excuses(w))
		failure(w,
			"pinned memory is CUDA's that the library should have given");
}

/* flags: NO_FLAGS asks by the function that has none. */
static void pinned_create(struct thread *t, struct block **slot, uint64_t bytes,
			  unsigned flags, uint64_t plain)
{
	uint64_t before = blocks_held();
	void *p = NULL;
	CUresult result = flags != NO_FLAGS ? cuMemHostAlloc(&p, bytes, flags)
					    : cuMemAllocHost(&p, bytes);

	plain_compare(t->model, -1, bytes, plain, result);
	if (!got(t, result))
		return;
	*slot = pinned_adopt(t, p, bytes);
	(*slot)->flags = flags % NO_FLAGS;
	pass_notice(t->model, *slot, before);
	plain_own(t, *slot, plain);
}

static void pinned_alloc(struct thread *t, struct block **slot, const struct op *op)
{
	uint64_t bytes = op->bytes + 1;
	unsigned flags = (op->how >> 1) % 8;

	if (*slot || !may_be_unsafe(t))
		return;
	if (op->how >> 4 == 0)
		bytes <<= 6;
	pinned_create(t, slot, bytes, op->how & 1 ? flags : NO_FLAGS,
		      plain_take(t->model, -1, bytes));
}

bool pinned_take(struct thread *t, unsigned slot, uint64_t bytes)
{
	struct block **place = &t->model->pinned[slot];

	if (!*place && may_be_unsafe(t))
		pinned_create(t, place, bytes, NO_FLAGS,
			      plain_take(t->model, -1, bytes));
	return *place != NULL;
}

bool pinned_take_beside(struct thread *t, unsigned slot, uint64_t bytes)
{
	uint64_t plain = plain_take(t->model, -1, bytes);

	t->model->may_wait = 0;
	pinned_create(t, &t->model->pinned[slot], bytes, NO_FLAGS, plain);
	return t->model->pinned[slot] != NULL;
}

/* Memory of the program's own, pinned by hand. */
static void pinned_register(struct thread *t, struct block **slot)
{
	void *p;

	if (*slot || !may_be_unsafe(t))
		return;
	p = mmap(NULL, REGISTERED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		 -1, 0);
	if (p == MAP_FAILED)
		failure(t->model, "no memory for the explorer itself");
	if (!got(t, cuMemHostRegister(p, REGISTERED, 0))) {
		munmap(p, REGISTERED);
		return;
	}
	*slot = pinned_adopt(t, p, REGISTERED);
	(*slot)->foreign = true;
}

/* Peaks may be reset; what may be held does not depend on that. */
static uint64_t peak_ever(struct model *w, uint64_t peak)
{
	if (w->pinned_peak < peak)
		w->pinned_peak = peak;
	return w->pinned_peak;
}

/* What is unused stays below the limit, and what is held below twice what was ever in
 * use at once and the window, also while work goes on. The latest free was of memory of
 * that context. */
static void limit_check(struct model *w, int context)
{
	uint64_t limit = plain_option("GCPOOL_HOST_CACHE_LIMIT", UINT64_MAX);
	uint64_t bound = plain_option("GCPOOL_HOST_WINDOW", 256 << 20);
	struct gcpool_host_stats stats;
	uint64_t allowed;

	if (w->setting->plain || w->setting->leak || !library.active ||
	    !library.active() || library.get_host_stats(&stats, sizeof(stats)) != 0)
		return;
	bound += 2 * peak_ever(w, stats.active_bytes.peak) - stats.active_bytes.current;
	limit = limit < bound ? limit : bound;
	/* What graphs can address stays. */
	allowed = stats.active_bytes.current + stats.private_bytes.current + limit;
	if (stats.allocated_bytes.current <= allowed)
		return;
	/* What graphs leave in a context that is at work the next free there gives
	 * back: no free waits for another context. */
	allowed += w->pinned_captured - w->pinned_captured_in[context];
	if (stats.allocated_bytes.current <= allowed)
		excused(EXCUSE_PINNED_LIMIT);
	else if (!fault_excuses(w))
		failure(w,
			"%lu bytes of pinned memory are held for %lu in use, and "
			"the limit is %lu",
			stats.allocated_bytes.current, stats.active_bytes.current,
			limit);
}

static void pinned_free(struct thread *t, struct block **slot)
{
	struct block *block = *slot;
	void *p = block ? (void *)(uintptr_t)block->addr : NULL;
	bool leak = t->model->setting->leak;

	if (!block || !may_be_unsafe(t) || !order_free(t, block))
		return;
	/* Unregistering memory waits for no work. */
	if (block->foreign && (!order_host(t, &block->regions[0], WANT_WRITE) ||
			       !order_host(t, &block->regions[1], WANT_WRITE)))
		return;
	gcpsim_plain_waits(t->model->contexts[block->context].ctx, true);
	if (block->foreign && !FINE(t, cuMemHostUnregister(p)))
		return;
	if (!block->foreign && !leak && !FINE(t, cuMemFreeHost(p))) {
		if (library.asleep && library.asleep()) /* no memory for a wake */
			return;
		(void)cuMemFreeHost(p);
	}
	if (block->foreign)
		munmap(p, REGISTERED);
	if (!leak)
		plain_free(t, block);
	t->model->left |= leak;
	if (!block->foreign)
		limit_check(t->model, block->context);
	block->live = false;
	*slot = NULL;
}

void pinned_give(struct thread *t, unsigned slot)
{
	pinned_free(t, &t->model->pinned[slot]);
}

void pinned_end(struct thread *t)
{
	for (unsigned i = 0; i < PINNED_SLOTS; i++)
		pinned_free(t, &t->model->pinned[i]);
}

/* --- the host works on it --- */

static void pinned_write(struct thread *t, struct block *block, const struct op *op)
{
	struct region *region = block_region(block, op->how);
	uint32_t *words = (uint32_t *)(uintptr_t)(block->addr + region->offset);

	if (!region->words || !order_host(t, region, WANT_WRITE))
		return;
	gcpsim_host_writes(words, region->words * 4);
	for (uint32_t i = 0; i < region->words; i++)
		words[i] = op->value;
	region->known = region->words;
	region->value = op->value;
}

static void pinned_read(struct thread *t, struct block *block, const struct op *op)
{
	const struct region *region = block_region(block, op->how);
	const uint32_t *words =
	    (const uint32_t *)(uintptr_t)(block->addr + region->offset);

	if (!region->known || !order_host(t, region, WANT_READ))
		return;
	gcpsim_host_reads(words, region->known * 4);
	for (uint32_t i = 0; i < region->known; i++)
		if (words[i] != region->value)
			failure(t->model, "pinned word %u is %u and should be %u", i,
				words[i], region->value);
}

/* --- looking --- */

/* What CUDA says of it. */
static void view_check(struct thread *t, const struct block *block)
{
	void *p = (void *)(uintptr_t)block->addr;
	CUdeviceptr base = 0, device = 0;
	unsigned flags = 0;
	size_t size = 0;

	/* Memory pinned by hand begins where CUDA likes. */
	if (block->foreign || !FINE(t, cuMemHostGetFlags(&flags, p)) ||
	    !FINE(t, cuMemHostGetDevicePointer(&device, p, 0)) ||
	    !FINE(t, cuMemGetAddressRange(&base, &size, device)))
		return;
	/* Where it is not pooled CUDA rounds up as it likes. */
	if ((flags & block->flags) != block->flags || base != block->addr ||
	    size < block->bytes || size >= block->bytes + 512)
		failure(t->model,
			"pinned 0x%lx+%lu, flags %u, is said to be 0x%lx+%lu, "
			"flags %u",
			block->addr, block->bytes, block->flags, (uint64_t)base, size,
			flags);
}

static void look(struct thread *t, const struct block *block, const struct op *op)
{
	struct model *w = t->model;
	struct gcpool_host_stats stats;

	if (block)
		view_check(t, block);
	if (!library.active || !library.active() || w->setting->plain || op->how % 4 ||
	    library.get_host_stats(&stats, sizeof(stats)) != 0)
		return;
	(void)peak_ever(w, stats.active_bytes.peak);
	if (library.reset_peaks(GCPOOL_HOST) == 0 &&
	    library.get_host_stats(&stats, sizeof(stats)) == 0 &&
	    stats.active_bytes.peak != stats.active_bytes.current &&
	    !w->setting->host_thread)
		failure(w, "a peak of pinned memory was not reset");
}

static void trim(const struct op *op)
{
	gcpsim_plain_asks(1);
	if (library.trim)
		library.trim(GCPOOL_HOST, op->how & 1 ? 0 : op->bytes << 4);
	gcpsim_plain_asks(-1);
}

void pinned_play(struct thread *t, const struct op *op)
{
	struct block **slot = &t->model->pinned[op->a % PINNED_SLOTS];

	if (op->kind == OP_PINNED_ALLOC)
		pinned_alloc(t, slot, op);
	else if (op->kind == OP_PINNED_REGISTER)
		pinned_register(t, slot);
	else if (op->kind == OP_PINNED_FREE)
		pinned_free(t, slot);
	else if (op->kind == OP_HOST_LOOK)
		look(t, *slot, op);
	else if (op->kind == OP_HOST_TRIM)
		trim(op);
	else if (*slot && op->kind == OP_PINNED_WRITE)
		pinned_write(t, *slot, op);
	else if (*slot && op->kind == OP_PINNED_READ)
		pinned_read(t, *slot, op);
}
