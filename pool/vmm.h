/* SPDX-License-Identifier: MIT */
/*
 * vmm.h - mapped segments: what grow.c, reclaim.c and pools.c want of vmm.c, and
 * vmm.c of vmm_space.c.
 */
#ifndef GCP_POOL_VMM_H
#define GCP_POOL_VMM_H

#include "pool_types.h"

/* --- vmm.c: no lock is held ------------------------------------------------------- */

/* Whether the pool maps its own segments. */
void gcp_vmm_init(struct gcp_pool *pool);
/* Puts a free block of at least `bytes` into `heap`, where none is: by mapping
 * unused chunks to other addresses and, where those do not do, new memory
 * (*ret_new). GCP_CUDA_OUT_OF_MEMORY, a device error; -ENOMEM. */
int gcp_vmm_provide(struct gcp_heap *heap, enum gcp_kind kind, uint64_t bytes,
		    bool *ret_new);
/* Gives unused chunks back whose epochs are completed, until `bytes` are given
 * back; returns the bytes. */
uint64_t gcp_vmm_release(struct gcp_pool *pool, uint64_t bytes);
/* Gives back what pool->orphans has. vmm_lock is held. */
void gcp_vmm_release_orphans(struct gcp_pool *pool);

/* gcp_pools_for_each_handle. vmm_lock is held. -ENOENT: the block is not mapped. */
int gcp_vmm_for_each_handle(const struct gcp_block *block, gcp_addr from,
			    int (*each)(void *arg, uint64_t handle, gcp_addr addr,
					uint64_t bytes),
			    void *arg);

/* --- vmm_space.c: vmm_lock and pool->lock are held ----------------------------------
 */

/* In segment->chunks: mapped here still, but somebody else's. */
#define GCP_CHUNK_MOVED UINT64_MAX

/* Room in the making: a part of a hole that memory is to be put behind, and
 * unused chunks that it may come from. Their blocks are MOVING. */
struct gcp_move {
	struct gcp_heap *heap;        /* of the target */
	struct gcp_block *target;     /* NULL: none, chunks are given back */
	struct gcp_block_list donors; /* of the pool's common heap */
	uint64_t donated;             /* bytes of donors */
	uint64_t epoch;               /* that the donated chunks had at most */
};

/* Adds addresses with nothing behind them. -ENOMEM, -ERANGE. */
int gcp_space_add(struct gcp_heap *heap, gcp_addr addr, uint64_t size,
		  enum gcp_kind kind, uint64_t *chunks);
/* Picks the part of a hole that needs the least memory to make room for `bytes`.
 * -ENOSPC: no hole will do; -ENOMEM. */
int gcp_space_place(struct gcp_heap *heap, enum gcp_kind kind, uint64_t bytes,
		    struct gcp_move *move);
/* Picks unused chunks whose epoch is `epoch` at most, until `bytes` are donated. */
void gcp_space_collect(struct gcp_pool *pool, uint64_t bytes, uint64_t epoch,
		       struct gcp_move *move);
/* The donor's chunks belong elsewhere now. It is a hole, or a part of one, if they
 * are unmapped; else it is about to be. */
void gcp_space_detach(struct gcp_move *move, struct gcp_block *donor, bool unmapped);
/* An UNMAPPING block whose epoch is completed, MOVING now; NULL: there is none. */
struct gcp_block *gcp_space_next_unmapping(struct gcp_pool *pool);
/* It is unmapped: a hole. Or it is not: it stays. */
void gcp_space_free(struct gcp_block *block, bool unmapped);
/* The target has memory behind it: it is free. */
void gcp_space_fill(struct gcp_move *move);
/* What is left of the move goes back to what it was. */
void gcp_space_release(struct gcp_pool *pool, struct gcp_move *move);
/* The index of an address in segment->chunks. */
uint64_t gcp_space_chunk(const struct gcp_segment *segment, gcp_addr addr);

/* --- block.c: pool->lock is held --------------------------------------------- */

/* Cuts `block`, which is in no list, so that it has `size`; returns the rest, in
 * no list either. NULL: no memory for its descriptor, nothing is cut. */
struct gcp_block *gcp_block_cut(struct gcp_block *block, uint64_t size);
/* `lower` takes in its upper neighbour; neither is in a list. */
void gcp_block_coalesce_upper(struct gcp_pools *pools, struct gcp_block *lower,
			      struct gcp_block *upper);
/* Bytes of a free block that could be given back. */
uint64_t gcp_block_unused(const struct gcp_block *block);

/* --- heap.c: pool->lock is held ---------------------------------------------- */

/* A block whose epoch is ready becomes free memory. */
void gcp_block_coalesce(struct gcp_heap *heap, struct gcp_block *block);

#endif
