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

void async_play(struct thread *t, const struct op *op)
{
	if (op->kind == OP_ALLOC_ASYNC)
		alloc_async(t, op);
	else
		pool_ask(t, op);
}
