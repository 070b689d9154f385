/* SPDX-License-Identifier: MIT */
/*
 * vmm.h - mapped segments: what grow.c, reclaim.c and pools.c want of vmm.c, and
 * vmm.c of vmm_space.c and handle.c.
 */
#ifndef GCP_POOL_VMM_H
#define GCP_POOL_VMM_H

#include "../heap/block.h"

/* --- vmm.c: no lock is held ------------------------------------------------------- */

/* Memory cannot be mapped, for whatever reason but that there is none: ordinary
 * segments may do. */
#define GCP_NOT_MAPPED (-EOPNOTSUPP)

/* Whether the pool maps its own segments. */
void gcp_vmm_init(struct gcp_pool *pool);
/* gcp_take_locked. */
typedef bool gcp_taking(struct gcp_request *request, bool hit);
/* Makes room for the request, and takes the block: by mapping unused handles to other
 * addresses and, where those do not do, new memory (*ret_new: bytes). 0 without a
 * block: there is room already. GCP_CUDA_OUT_OF_MEMORY, GCP_NOT_MAPPED; -ENOMEM. */
int gcp_vmm_provide(struct gcp_request *request, gcp_taking *take, uint64_t *ret_new);
/* Gives unused handles back whose epochs are completed, until `bytes` are given
 * back; returns the bytes. exact: no more than `bytes`, though handles be larger.
 * Unmaps addresses that handles have left, where their work is completed, first: they
 * may be all that holds memory of a graph that has ended. */
uint64_t gcp_vmm_release(struct gcp_pool *pool, uint64_t bytes, bool exact);
/* Gives back what pool->orphans has. vmm_lock is held. */
void gcp_vmm_release_orphans(struct gcp_pool *pool);

/* --- lane.c ----------------------------------------------------------------------- */

/* The heap is in no lane any more: it is mapped elsewhere, or its context is gone.
 * vmm_lock is held. */
void gcp_lane_leave(struct gcp_heap *heap);
/* In the latter case the lanes' handles go back to the driver: a context that ends does
 * not take them along. The same vmm_lock is held, and no other lock. */
void gcp_lanes_release_unused(struct gcp_pool *pool);
/* The heap leaves its lane, if it is in one, and is about to be released: what it is
 * mapped to is unmapped behind what runs on it. Takes vmm_lock. */
void gcp_lane_heap_ends(struct gcp_heap *heap);

/* --- handle.c: vmm_lock is held ----------------------------------------------- */

/* In chunk->handle: still mapped here, but it belongs to another range by now. */
#define GCP_CHUNK_MOVED UINT64_MAX
/* Nothing is mapped while the process is asleep: gcp_pools_sleep. */
#define GCP_CHUNK_ABSENT (UINT64_MAX - 1)
/* Those of a block that is made of whole chunks. */
struct gcp_chunk *gcp_chunks_of(const struct gcp_block *block, uint64_t *ret_count);
/* That handle is mapped there; nothing is any more, or (not unmapped) what is has
 * moved.
 */
void gcp_chunks_set(struct gcp_chunk *chunks, uint64_t handle, uint32_t count);
void gcp_chunks_leave(struct gcp_chunk *chunks, uint64_t count, bool unmapped);
/* How many chunks each handle has of new memory of so many chunks, in about so many
 * handles: handle.c. */
enum { GCP_HANDLE_PARTS = 8 };
uint32_t gcp_handle_chunks(uint64_t count, uint32_t parts);
/* New memory for the target of the move. An error of the driver: none is made. */
struct gcp_move;
int gcp_handles_make(struct gcp_pool *pool, struct gcp_chunk *chunks, uint64_t count,
		     const struct gcp_move *move);
void gcp_handles_release(struct gcp_pool *pool, struct gcp_chunk *chunks,
			 uint64_t count);
/* Puts the target's handles behind its addresses. If that fails they are released,
 * and what could not be unmapped again is GCP_CHUNK_MOVED. */
int gcp_handles_map(struct gcp_pool *pool, const struct gcp_block *target);
/* Unmaps all that is mapped of a block that handles have left. */
int gcp_handles_unmap(struct gcp_pool *pool, const struct gcp_block *block);
/* Unmaps and releases all that the segment has. */
void gcp_handles_release_all(struct gcp_pool *pool, struct gcp_segment *segment);
/* gcp_pools_for_each_handle. -ENOENT: the block is not mapped. */
int gcp_vmm_for_each_handle(const struct gcp_block *block, gcp_addr from,
			    int (*each)(void *arg, uint64_t handle, gcp_addr addr,
					uint64_t bytes),
			    void *arg);

/* --- vmm_space.c: vmm_lock and pool->lock are held ---------------------------- */

/* Room in the making: a part of a hole that memory is to be put behind, and
 * unused handles that it may come from. Their blocks are MOVING. */
struct gcp_move {
	struct gcp_heap *heap;        /* of the target */
	struct gcp_block *target;     /* NULL: none, handles are given back */
	struct gcp_block_list donors; /* of the pool's common heap */
	uint64_t donated;             /* bytes of donors, at most `room` */
	uint64_t room;                /* bytes that the target may have */
	const struct gcp_block *keep; /* what the target is to merge with */
	uint64_t epoch;               /* that the donated handles had at most */
	bool apart;                   /* the target is to merge with nothing */
	uint64_t stream;              /* what waits there may be donated, too: */
	uint32_t looks;               /* the latest so many blocks; 0: none */
};

/* Adds addresses with nothing behind them. -ENOMEM, -ERANGE. */
int gcp_space_add(struct gcp_heap *heap, gcp_addr addr, uint64_t size,
		  struct gcp_chunk *chunks, bool small);
/* Picks the part of a hole that needs the least memory to make room for `bytes`, and
 * unused handles to put there, first those that are completed; and of the others, which
 * are useless, about as much as is missing. Neither if the pool had better grow.
 * -ENOSPC: no hole will do; -ENOMEM. */
int gcp_space_plan(struct gcp_heap *heap, uint64_t bytes, struct gcp_move *move,
		   struct gcp_move *useless);
/* Picks unused handles whose epochs are completed, to be given back. */
void gcp_space_collect_completed(struct gcp_pool *pool, uint64_t bytes, bool exact,
				 struct gcp_move *move);
/* The donor's handles belong elsewhere now. It is a hole, or a part of one, if they
 * are unmapped; else it is about to be. */
void gcp_space_detach(struct gcp_move *move, struct gcp_block *donor, bool unmapped);
/* Cuts what lies there in whole handles out of a free block of a private heap: it is
 * UNMAPPING, for its handles are to be a lane's. NULL: no memory, nothing is cut. */
struct gcp_block *gcp_space_take_scratch(struct gcp_heap *heap,
					 struct gcp_block *block);
/* An UNMAPPING block whose epoch is completed, MOVING now; NULL: there is none. */
struct gcp_block *gcp_space_next_unmapping(struct gcp_pool *pool);
/* It is unmapped: a hole. Or it is not: it stays. A range that is one hole goes to
 * pool->orphans. */
void gcp_space_free(struct gcp_block *block, bool unmapped);
/* The target has memory behind it: it is free. Returns the block that it is a part of.
 */
struct gcp_block *gcp_space_fill(struct gcp_move *move);
/* What is left of the move goes back to what it was. */
void gcp_space_release(struct gcp_pool *pool, struct gcp_move *move);
/* The holes of a heap that ends become another's. pool->lock alone is held. */
void gcp_space_join(struct gcp_heap *heap, struct gcp_heap *ending);

/* --- segment.c: pool->lock is held ------------------------------------------------ */

/* A segment of one block, which is in no list yet; `chunks`: it has no memory so far,
 * and they say what is mapped there. -ENOMEM, -ERANGE: not made. */
int gcp_segment_create(struct gcp_heap *heap, gcp_addr addr, uint64_t size,
		       struct gcp_chunk *chunks, bool small,
		       struct gcp_segment **ret_segment);
/* The pool has got memory from the driver, or given back. */
void gcp_reserved_count(struct gcp_pool *pool, int64_t change, bool mapped,
			bool private);
/* So many bytes of it more, or less, have memory behind them. */
void gcp_space_change(struct gcp_heap *heap, struct gcp_segment *segment,
		      int64_t change);
/* Adds a driver allocation as one free block. The same errors. */
int gcp_heap_add_segment(struct gcp_heap *heap, gcp_addr addr, uint64_t size);
/* Moves an unused segment of the common heap, all ready, into a private heap
 * that needs `size`. False: there is none of about that size. */
bool gcp_heap_adopt(struct gcp_heap *heap, uint64_t size);
/* Unlinks those that the purge takes onto `list` (NULL: none); returns their bytes. */
uint64_t gcp_heap_unlink_unused(struct gcp_heap *heap, const struct gcp_purge *purge,
				struct gcp_segment_list *list);
/* Takes the segment off the lists, but not its blocks; the caller owns its memory.
 */
void gcp_segment_unlink(struct gcp_heap *heap, struct gcp_segment *segment);
void gcp_heap_reset(struct gcp_heap *heap);

#endif
