/* SPDX-License-Identifier: MIT */
/*
 * async.c - stream-ordered memory: cuMemAllocAsync, and what CUDA's default pool says
 * of it. Its frees are those of blocks.c, on a stream or not, like all others.
 *
 * The model claims less than plain CUDA gives: a block may be used behind what its
 * stream was given before the allocation, and neither that nor the free orders anything
 * else.
 */
#include "explore.h"

bool async_is_served(const struct model *w, int context)
{
	return !w->setting->plain && w->contexts[context].primary && w->setting->vmm &&
	       !w->ordinary;
}

static void alloc_async(struct thread *t, const struct op *op)
{
	struct model *w = t->model;
	struct block **slot = &w->slots[op->a % BLOCK_SLOTS];
	struct stream *s = *slot ? NULL : stream_pick(t, op->c);

	if (!s || s->capture || !can_name(t, s) ||
	    (s->kind == STREAM_LEGACY && !legacy_is_free(w, s->context)) ||
	    (!w->setting->plain && !async_is_served(w, s->context)))
		return;
	*slot = block_create_async(t, s, op->bytes ? op->bytes : 1);
}

/* --- the default pool --------------------------------------------------------- */

static uint64_t attribute(struct thread *t, CUmemoryPool pool,
			  CUmemPool_attribute which)
{
	cuuint64_t value = 0;

	fine(t->model, cuMemPoolGetAttribute(pool, which, &value),
	     "cuMemPoolGetAttribute");
	return value;
}

static uint64_t bytes_used(const struct model *w, int device)
{
	uint64_t bytes = 0;

	for (const struct block *block = w->blocks; block; block = block->next)
		if (block->live && block->async && block->device == device &&
		    !block->spilled)
			bytes += block->bytes;
	return bytes;
}

/* Its figures are those of the program's blocks, and fit together. */
static void pool_ask(struct thread *t, const struct op *op)
{
	struct model *w = t->model;
	int device = w->contexts[t->context].device;
	uint64_t bytes = bytes_used(w, device), used, high, reserved;
	cuuint64_t zero = 0;
	CUmemoryPool pool;

	if (w->setting->leak || w->setting->plain || w->left || w->passed_async ||
	    cuDeviceGetDefaultMemPool(&pool, device) != CUDA_SUCCESS)
		return;
	if (op->how % 4 == 0)
		FINE(t,
		     cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
	used = attribute(t, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
	high = attribute(t, pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH);
	reserved = attribute(t, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
	if (used != bytes && !fault_excuses(w))
		failure(w, "device %d: %lu bytes in stream order, its pool says %lu",
			device, bytes, used);
	if ((high < used || reserved < used ||
	     attribute(t, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) < reserved) &&
	    !fault_excuses(w))
		failure(w, "device %d: used %lu, at most %lu, and reserved %lu", device,
			used, high, reserved);
}

/* From now on streams are served from a pool of the program's, or from the default one
 * again. Not in histories that planted bugs are tried on, nor where CUDA's pool would
 * keep memory that is scarce. */
static void pool_set(struct thread *t, const struct op *op)
{
	int device = t->model->contexts[t->context].device;
	CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
	const struct setting *setting = t->model->setting;
	CUmemoryPool *own = &t->model->own_pools[device], pool;

	if (!all_is_calm(t->model) || setting->memory_small || setting->quota ||
	    setting->seed % (1ull << GENERATION_SHIFT) < SEEDS_OF_BUGS ||
	    (!*own && !FINE(t, cuMemPoolCreate(own, &properties))) ||
	    !FINE(t, cuDeviceGetDefaultMemPool(&pool, device)))
		return;
	FINE(t, cuDeviceSetMemPool(device, op->how & 2 ? *own : pool));
}

void async_play(struct thread *t, const struct op *op)
{
	if (op->kind == OP_ALLOC_ASYNC)
		alloc_async(t, op);
	else if (op->how % 2)
		pool_set(t, op);
	else
		pool_ask(t, op);
}
