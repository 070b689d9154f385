/* SPDX-License-Identifier: MIT */
/*
 * pools.c - graph pools that the program names: made, used, listed and
 * released; checkpoints of them, and restoring.
 *
 * A program restores only what it knows all of: where it cannot say whether a block
 * came from the pool (`unsure`) it leaves restoring alone. Before it restores it
 * waits for everything, since a block that lives again may lie where others lay.
 */
#include "explore.h"

#include <errno.h>

#include "gcpool.h"

enum { LISTED_MAX = 80 };

static struct graph_pool *pool_named(struct model *w, unsigned slot)
{
	return &w->pools[w->named[slot]];
}

/* --- which blocks are whose --- */

/* The library must say that the block came from the named pool. */
static void origin_check(struct model *w, const struct block *block, uint32_t pool)
{
	if (library.graph_pool && library.graph_pool(block->addr) != w->pools[pool].id)
		failure(w, "the block 0x%lx is not of graph pool %lu", block->addr,
			w->pools[pool].id);
}

void pools_adopt(struct thread *t, struct block *block, bool alone)
{
	struct model *w = t->model;

	for (unsigned i = 0; i < CAPTURE_SLOTS; i++) {
		const struct capture *c = &w->captures[i];

		if (!c->live || w->pools[c->pool].id == 0)
			continue;
		if (!alone || block->pools != pool_bit(c->pool) ||
		    c->invalidated_here) {
			w->pools[c->pool].unsure = true;
			continue;
		}
		origin_check(w, block, c->pool);
		block->home = c->pool;
	}
}

static void checkpoint_release(struct checkpoint *checkpoint)
{
	if (checkpoint->handle)
		library.checkpoint_free(checkpoint->handle);
	free(checkpoint->blocks);
	*checkpoint = (struct checkpoint){0};
}

void pools_reset(struct model *w)
{
	for (unsigned i = 0; i < NAMED_MAX; i++)
		checkpoint_release(&w->checkpoints[i]);
}

void pools_end(struct model *w)
{
	pools_reset(w);
	for (unsigned i = 0; i < NAMED_MAX; i++)
		if (w->named[i])
			library.pool_release(pool_named(w, i)->id);
}

static bool is_capturing(const struct model *w, uint32_t pool)
{
	for (unsigned i = 0; i < CAPTURE_SLOTS; i++)
		if (w->captures[i].live && w->captures[i].pool == pool)
			return true;
	return false;
}

/* --- create, use, release --- */

static void pool_create(struct model *w, unsigned slot)
{
	uint32_t pool =
	    w->named[slot] || w->pool_count + 1 == POOLS_MAX ? 0 : w->pool_count + 1;

	if (!pool || library.pool_create(&w->pools[pool].id) != 0)
		return;
	w->pool_count = pool;
	w->pools[pool].named = true;
	w->named[slot] = pool;
}

static void pool_use(struct thread *t, unsigned slot, unsigned how)
{
	uint32_t pool = how & 1 ? t->model->named[slot] : 0;
	int result = library.pool_use(t->model->pools[pool].id);

	if (result != 0 && result != -ENOENT)
		failure(t->model, "gcpool_graph_pool_use gives %d", result);
	if (result == 0)
		t->pool = pool;
}

static void pool_release(struct model *w, unsigned slot)
{
	if (library.pool_release(pool_named(w, slot)->id) != 0)
		failure(w, "gcpool_graph_pool_release fails");
	pool_named(w, slot)->named = false;
	w->named[slot] = 0;
	if (w->past)
		library.checkpoint_free(w->past);
	w->past = w->checkpoints[slot].handle;
	w->checkpoints[slot].handle = NULL;
	checkpoint_release(&w->checkpoints[slot]);
}

/* --- the list --- */

static void listed_check(struct model *w, uint32_t pool,
			 const struct gcpool_graph_pool *listed)
{
	uint64_t bytes = 0;

	for (const struct block *block = w->blocks; block; block = block->next)
		if (block->live && block->home == pool)
			bytes += block->bytes;
	if (listed->references < 1 + listed->captures + listed->graphs ||
	    listed->allocated_bytes < bytes ||
	    listed->reserved_bytes < listed->allocated_bytes)
		failure(w,
			"graph pool %lu: %lu references, %lu of %lu bytes; the "
			"program has %lu",
			listed->id, listed->references, listed->allocated_bytes,
			listed->reserved_bytes, bytes);
}

static void pool_list(struct model *w, unsigned slot, unsigned how)
{
	static struct gcpool_graph_pool listed[LISTED_MAX];
	size_t count = library.pools(listed, how & 1 ? LISTED_MAX : how % 4);
	const struct gcpool_graph_pool *found = NULL;

	if (!(how & 1) || count > LISTED_MAX)
		return;
	for (size_t i = 0; i < count; i++)
		if (listed[i].id == pool_named(w, slot)->id)
			found = &listed[i];
	if (!found)
		failure(w, "a graph pool of the program is not listed");
	if (!pool_named(w, slot)->unsure)
		listed_check(w, w->named[slot], found);
}

/* --- checkpoint and restore --- */

static void pool_checkpoint(struct model *w, unsigned slot)
{
	struct checkpoint *checkpoint = &w->checkpoints[slot];
	uint32_t pool = w->named[slot];
	struct gcpool_checkpoint *handle = NULL;
	int result = library.checkpoint(w->pools[pool].id, &handle);
	int wanted = is_capturing(w, pool) ? -EBUSY : 0;

	if (result != wanted && !(result == -ENOMEM && fault_excuses(w)))
		failure(w, "gcpool_graph_pool_checkpoint gives %d", result);
	if (result != 0)
		return;
	checkpoint_release(checkpoint);
	checkpoint->handle = handle;
	for (struct block *block = w->blocks; block; block = block->next)
		checkpoint->count += block->live && block->home == pool;
	checkpoint->blocks = calloc(checkpoint->count + 1, sizeof(struct block *));
	if (!checkpoint->blocks)
		failure(w, "no memory for the explorer itself");
	checkpoint->count = 0;
	for (struct block *block = w->blocks; block; block = block->next)
		if (block->live && block->home == pool)
			checkpoint->blocks[checkpoint->count++] = block;
}

static void slot_fill(struct model *w, struct block *block)
{
	for (unsigned i = 0; i < BLOCK_SLOTS; i++)
		if (!w->slots[i]) {
			w->slots[i] = block;
			return;
		}
}

/* Those of the checkpoint live again, what they hold is not known; others do not. */
static void blocks_restore(struct thread *t, uint32_t pool,
			   const struct checkpoint *checkpoint)
{
	struct model *w = t->model;

	for (struct block *block = w->blocks; block; block = block->next) {
		if (!block->live || block->home != pool)
			continue;
		plain_free(t, block);
		block->live = false;
		block->died = w->step;
		block_unslot(w, block);
	}
	for (uint32_t i = 0; i < checkpoint->count; i++) {
		struct block *block = checkpoint->blocks[i];

		block->live = true;
		block->plain_freed = block->exported = false;
		block->pools = w->pools[pool].refs > 0 ? pool_bit(pool) : 0;
		block->regions[0].known = block->regions[1].known = 0;
		slot_fill(w, block);
	}
}

static void pool_restore(struct thread *t, unsigned slot)
{
	struct model *w = t->model;
	const struct checkpoint *checkpoint = &w->checkpoints[slot];
	uint32_t pool = w->named[slot];
	int result, wanted, busy = is_capturing(w, pool);

	for (const struct block *block = w->blocks; block; block = block->next)
		busy |= block->live && block->home == pool && block->exported;
	wanted = busy ? -EBUSY : 0;
	if (library.restore(w->pools[pool].id, NULL) != -ESTALE)
		failure(w, "no checkpoint can be restored");
	if (w->past && library.restore(w->pools[pool].id, w->past) == 0)
		failure(w, "a checkpoint of a pool that is gone can be restored");
	if (!checkpoint->handle || w->pools[pool].unsure)
		return;
	if (wanted == 0 && (!all_is_calm(w) || !may_be_unsafe(t)))
		return;
	for (int i = 0; i < CONTEXTS_MAX && wanted == 0; i++)
		if (!host_wait_context(t, i))
			return;
	if (wanted == 0 && !ipc_peer_closes_all(t, -1))
		return;
	result = library.restore(w->pools[pool].id, checkpoint->handle);
	if (result != wanted)
		failure(w, "gcpool_graph_pool_restore gives %d", result);
	if (result == 0)
		blocks_restore(t, pool, checkpoint);
}

void pools_play(struct thread *t, const struct op *op)
{
	struct model *w = t->model;
	unsigned slot = op->a % NAMED_MAX;

	if (!library.pool_create || w->setting->plain || !awake(w))
		return;
	if (op->kind == OP_POOL_USE)
		pool_use(t, slot, op->how);
	else if (op->kind == OP_POOL_CREATE)
		pool_create(w, slot);
	else if (!w->named[slot])
		return;
	else if (op->kind == OP_POOL_RELEASE)
		pool_release(w, slot);
	else if (op->kind == OP_POOL_RETAIN)
		return; /* what older histories did is no function any more */
	else if (op->kind == OP_POOL_LIST)
		pool_list(w, slot, op->how);
	else if (op->kind == OP_POOL_CHECKPOINT)
		pool_checkpoint(w, slot);
	else
		pool_restore(t, slot);
}
