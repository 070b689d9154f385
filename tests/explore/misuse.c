/* SPDX-License-Identifier: MIT */
/*
 * misuse.c - mistakes of a program that CUDA answers with a code and nothing else:
 * what was freed is freed again, what was never allocated is freed, and what cannot
 * be had is asked for. The answer must be CUDA's, and nothing may change by it.
 *
 * Called while nothing is captured: a mistake that reaches CUDA would be one more in
 * a capture.
 */
#include "explore.h"

enum { TOO_MUCH_SHIFT = 44, WAYS = 8 };

/* A planned fault may answer instead. */
static void expect(struct model *w, CUresult result, CUresult wanted, const char *what)
{
	if (result != wanted && !fault_gives(w, result))
		failure(w, "%s gives %d instead of %d", what, (int)result, (int)wanted);
}

/* Whether something that is live lies there. */
static bool is_used(const struct model *w, uint64_t addr)
{
	for (const struct block *block = w->blocks; block; block = block->next)
		if (block->live && addr >= block->addr &&
		    addr < block->addr + block->bytes)
			return true;
	return false;
}

/* One that was freed, the youngest or an older one, and its place is still unused. Not
 * where a planned fault has kept the driver from freeing what the library gave back: a
 * second free does that. */
static struct block *dead_find(struct model *w, bool host, unsigned older)
{
	struct block *found = NULL;

	if (plain_is_spoilt(w) && w->setting->fault->loses && fault_excuses(w))
		return NULL;

	for (struct block *block = w->blocks; block; block = block->next) {
		if (block->live || block->host != host || block->foreign ||
		    block->borrowed || is_used(w, block->addr))
			continue;
		found = block;
		if (older-- == 0)
			break;
	}
	return found;
}

static void free_again(struct thread *t, unsigned older, bool on_stream)
{
	struct model *w = t->model;
	const struct block *block = dead_find(w, false, older);
	struct stream *s = on_stream ? stream_pick(t, 1) : NULL;

	if (!block || (on_stream && !s))
		return;
	if (s)
		expect(w, cuMemFreeAsync(block->addr, stream_handle(t, s)),
		       CUDA_ERROR_INVALID_VALUE, "a second free on a stream");
	else
		expect(w, cuMemFree(block->addr), CUDA_ERROR_INVALID_VALUE,
		       "a second free");
}

/* The first address behind the start of a block that could be one itself, or its
 * middle, or its last word. */
static void free_inside(struct thread *t, const struct block *block, unsigned how)
{
	uint64_t inside = how % 3 == 0 ? 512 : block->bytes / 2 / (how % 2 ? 512 : 4);

	inside *= how % 3 == 0 ? 1 : how % 2 ? 512 : 4;
	if (!block->live || inside == 0 || inside >= block->bytes)
		return;
	expect(t->model, cuMemFree(block->addr + inside), CUDA_ERROR_INVALID_VALUE,
	       "a free inside of a block");
}

static void free_pinned_again(struct thread *t, unsigned older)
{
	const struct block *block = dead_find(t->model, true, older);

	if (block)
		expect(t->model, cuMemFreeHost((void *)(uintptr_t)block->addr),
		       CUDA_ERROR_INVALID_VALUE, "a second free of pinned memory");
}

/* Each kind of memory with the other one's function. */
static void free_crosswise(struct thread *t, const struct block *block,
			   const struct block *pin)
{
	if (block)
		expect(t->model, cuMemFreeHost((void *)(uintptr_t)block->addr),
		       CUDA_ERROR_INVALID_VALUE, "device memory freed as pinned");
	if (pin)
		expect(t->model, cuMemFree(pin->addr), CUDA_ERROR_INVALID_VALUE,
		       "pinned memory freed as the device's");
}

static void ask_too_much(struct thread *t)
{
	CUdeviceptr addr = 0;

	expect(t->model, cuMemAlloc(&addr, 0), CUDA_ERROR_INVALID_VALUE,
	       "an allocation of nothing");
	expect(t->model, cuMemAlloc(&addr, 1ull << TOO_MUCH_SHIFT),
	       CUDA_ERROR_OUT_OF_MEMORY, "an allocation of too much");
}

void misuse_play(struct thread *t, const struct op *op)
{
	struct model *w = t->model;
	const struct block *block = w->slots[op->a % BLOCK_SLOTS];
	unsigned older = op->how / WAYS % 4;

	/* What is left somewhere is not freed. */
	if (!all_is_calm(w) || w->setting->leak || w->left)
		return;
	switch (op->how % WAYS) {
	case 0:
	case 1:
	case 2:
		free_again(t, older, op->how % WAYS == 2);
		break;
	case 3:
	case 4:
		if (block)
			free_inside(t, block, op->value);
		break;
	case 5:
		free_pinned_again(t, older);
		break;
	case 6:
		free_crosswise(t, block, w->pinned[op->b % PINNED_SLOTS]);
		break;
	default:
		ask_too_much(t);
		break;
	}
}
