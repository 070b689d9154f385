/* SPDX-License-Identifier: MIT */
/*
 * share.c - whose memory is while captures are under way: which graphs the program
 * counts on to keep a block, and which it has to expect in it.
 */
#include "explore.h"

/* Where plain CUDA allows a thread that did not begin the capture to allocate, the
 * block is for anything; unless the program named the pool, and so knows. */
static bool may_belong(const struct thread *t, const struct capture *c)
{
	if (!c->live || c->thread == (int)t->number)
		return c->live;
	if (t->model->pools[c->pool].id && t->last)
		return true;
	return t->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
	       c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

static bool is_global(const struct thread *t, const struct capture *c)
{
	return t->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
	       c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

/* Of the stream that the thread worked on last. Events and the beginnings of captures,
 * too, tell the library which that is, or that it is none. */
static bool is_sure_of_work(const struct thread *t)
{
	return t->worked && t->worked == t->last && t->worked->live &&
	       t->worked->kind != STREAM_PER_THREAD;
}

static const struct capture *capture_of_work(const struct thread *t)
{
	return is_sure_of_work(t) ? t->worked->capture : NULL;
}

/* Whose a new block of the thread's is, as captures.md has it: its own captures' and
 * that of the stream that it works on, else those that make plain CUDA refuse it. */
enum share { SHARE_NONE, SHARE_OWN, SHARE_WORK, SHARE_FORBIDDING };

static enum share share_of(const struct thread *t, unsigned *ret_own)
{
	enum share share = SHARE_NONE;

	*ret_own = 0;
	for (unsigned i = 0; i < CAPTURE_SLOTS; i++) {
		const struct capture *c = &t->model->captures[i];

		*ret_own += c->live && c->thread == (int)t->number;
		if (c->live && is_global(t, c) && (!t->last || is_sure_of_work(t)))
			share = SHARE_FORBIDDING;
	}
	if (capture_of_work(t))
		share = SHARE_WORK;
	return *ret_own ? SHARE_OWN : share;
}

static bool is_own(const struct thread *t, const struct capture *c)
{
	return c->thread == (int)t->number;
}

/* The one capture of the thread's, if the program has named its pool. */
static bool own_is_named(const struct thread *t)
{
	unsigned own = 0, named = 0;

	for (unsigned i = 0; i < CAPTURE_SLOTS; i++) {
		const struct capture *c = &t->model->captures[i];

		own += c->live && is_own(t, c);
		named += c->live && is_own(t, c) && t->model->pools[c->pool].id;
	}
	return own == 1 && named == 1;
}

static bool is_sharer(const struct thread *t, const struct capture *c, enum share share)
{
	switch (share) {
	case SHARE_OWN:
		return is_own(t, c) || (c == capture_of_work(t) && !own_is_named(t));
	case SHARE_WORK:
		return c == capture_of_work(t);
	case SHARE_FORBIDDING:
		return is_global(t, c);
	case SHARE_NONE:
		break;
	}
	return false;
}

/* The library must say that the capture has the block, also once a planned fault has
 * struck. What it left to CUDA then no graph keeps; that is counted (blocks.c). */
static bool capture_keeps(struct model *w, const struct capture *c,
			  const struct block *block)
{
	if (w->setting->plain || w->setting->leak || !library.keeps)
		return true;
	if (block->passed)
		return false;
	if (!library.keeps(block->addr, c->known))
		failure(w, "the block 0x%lx is not its capture's", block->addr);
	return true;
}

/* The pools that keep a new block. A thread that shares a capture into a named pool
 * is not in that pool. */
static uint64_t pools_of(const struct thread *t, enum share share, unsigned own,
			 const struct block *block)
{
	struct model *w = t->model;
	uint64_t pools = 0;

	for (unsigned i = 0; i < CAPTURE_SLOTS; i++) {
		const struct capture *c = &w->captures[i];
		bool named = w->pools[c->pool].id &&
			     (share != SHARE_OWN || own > 1 || !is_own(t, c));

		if (c->live && is_sharer(t, c, share) && !named &&
		    capture_keeps(w, c, block))
			pools |= pool_bit(c->pool);
	}
	return pools;
}

/* Where plain CUDA would have allowed it, or would have allowed it to no thread. */
static bool is_eager(const struct thread *t, enum share share, unsigned own)
{
	for (unsigned i = 0; i < CAPTURE_SLOTS; i++) {
		const struct capture *c = &t->model->captures[i];

		if (!c->live || !is_sharer(t, c, share))
			continue;
		if (own == 1 && t->model->pools[c->pool].id)
			return false;
		if (t->mode == CU_STREAM_CAPTURE_MODE_RELAXED ||
		    c->mode == CU_STREAM_CAPTURE_MODE_RELAXED)
			return true;
	}
	return share == SHARE_WORK || share == SHARE_FORBIDDING;
}

uint64_t capture_pools(const struct thread *t)
{
	uint64_t pools = 0;

	for (unsigned i = 0; i < CAPTURE_SLOTS; i++)
		if (may_belong(t, &t->model->captures[i]))
			pools |= pool_bit(t->model->captures[i].pool);
	return pools;
}

static bool is_kept(const struct model *w, uint32_t pool)
{
	bool capturing = false;

	for (unsigned i = 0; i < CAPTURE_SLOTS; i++)
		capturing |= w->captures[i].live && w->captures[i].pool == pool;
	return capturing || w->pools[pool].refs > 0 || w->pools[pool].named;
}

/* What a capture was given stays with its graph, also where plain CUDA has it back when
 * the program frees it: that comes on top of the bound of memory. */
static void captures_take(struct thread *t, const struct block *block)
{
	struct model *w = t->model;
	uint64_t pools = block->pools | capture_pools(t), bytes = 0;

	for (uint32_t i = 1; pools && i <= w->pool_count; i++) {
		if (pools & pool_bit(i))
			w->pools[i].taken[block->device] +=
			    plain_class_bytes(block->bytes);
		if (is_kept(w, i))
			bytes += w->pools[i].taken[block->device];
	}
	if (w->graphs_held[block->device] < bytes)
		w->graphs_held[block->device] = bytes;
}

/* Where it is not sure, the program does not count on it that a graph keeps the
 * block, and counts on it that work at once may not use it yet. */
void capture_adopt(struct thread *t, struct block *block)
{
	struct model *w = t->model;
	unsigned own;
	enum share share = share_of(t, &own);

	block->in_capture = !all_is_calm(w);
	block->rewinds = w->rewinds;
	block->pools = pools_of(t, share, own, block);
	for (unsigned i = 0; i < CAPTURE_SLOTS; i++) {
		if (!may_belong(t, &w->captures[i]))
			continue;
		block->early = w->capture_numbers;
		/* To the library what the thread did last was captured, as far as plain
		 * CUDA refuses it memory for that: what it gets each launch may write
		 * (captures.md, "Where the program must help"). */
		if (w->pools[w->captures[i].pool].id ||
		    (t->last && t->last->capture == &w->captures[i] &&
		     is_global(t, &w->captures[i])))
			block->named_pool = w->captures[i].pool;
	}
	block->eager = is_eager(t, share, own);
	if (block->eager && own == 1)
		block->early = 0; /* plain CUDA gives it too, for any use */
	pools_adopt(t, block, own == 1);
	captures_take(t, block);
}

bool capture_may_take(const struct thread *t)
{
	if (all_is_calm(t->model) || !t->last)
		return capture_pools(t) != 0;
	return capture_pools(t) || t->last->capture || !is_sure_of_work(t);
}

bool capture_may_recycle(const struct thread *t, uint64_t pools)
{
	for (unsigned i = 0; i < CAPTURE_SLOTS; i++)
		if (may_belong(t, &t->model->captures[i]) &&
		    pools & pool_bit(t->model->captures[i].pool))
			return true;
	return false;
}

bool block_is_early(const struct model *w, const struct block *block)
{
	for (unsigned i = 0; i < CAPTURE_SLOTS; i++)
		if (w->captures[i].live && w->captures[i].number <= block->early)
			return true;
	return false;
}
