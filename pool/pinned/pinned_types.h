/* SPDX-License-Identifier: MIT */
/*
 * pinned_types.h - the structures of the pool of pinned host memory, and their
 * invariants. Included by pool/pinned*.c, and by pools.c for their life.
 *
 *   block    what the program gets: one allocation of the driver, never split, so
 *            that flags, device pointer and attributes are the driver's own
 *   bucket   the blocks of one context, size, class (flags) and place (NUMA)
 *   set      blocks that captured graphs can address; a capture's private pool
 *
 * A block belongs to the context in which it was allocated, and plain cudaFreeHost
 * waits for the work of that context alone, whichever is current (measured). So a free
 * stamps the block with the open epoch of that context's pool, as of device memory. But
 * the block is used again only when the work of that context up to the epoch is done:
 * the CPU writes into it at once, and no barrier holds the CPU back.
 *
 * Where a rule lives:
 *   when may a freed block be used again?    fence.c, pinned_bucket.c
 *   a free block, a fence, or new memory?    pinned.c
 *   when is memory given back?               pinned_reclaim.c
 *   what can a graph address?                pinned_set.c
 *
 * pinned->lock guards all of it but what is atomic.
 */
#ifndef GCP_POOL_PINNED_TYPES_H
#define GCP_POOL_PINNED_TYPES_H

#include "../timeline/timeline.h"

enum { GCP_PINNED_BUCKETS = 256 }; /* lists that buckets are found in; a power of 2 */

/* Where a block is. */
enum gcp_pinned_state {
	GCP_PINNED_RELEASED, /* descriptor not in use */
	GCP_PINNED_USED,     /* the program's */
	GCP_PINNED_FREED,    /* kept by its set, if it has one; else ready or pending */
};

/* Invariants:
 *  N1 the map finds every block of bucket->blocks at its address
 *  N2 a block that the program has is in no list of free blocks */
struct gcp_pinned_block {
	char *p;
	uint64_t requested; /* bytes asked for */
	uint64_t epoch;     /* epoch of its latest free */
	uint64_t turn;      /* of decay, of that free */
	struct gcp_pinned_bucket *bucket;
	struct gcp_pinned_set *set;         /* NULL: for any request */
	TAILQ_ENTRY(gcp_pinned_block) link; /* bucket->ready, pool->pinned_pending */
	TAILQ_ENTRY(gcp_pinned_block) all;  /* bucket->blocks */
	LIST_ENTRY(gcp_pinned_block) kept;  /* set->blocks */
	_Atomic uint8_t state;              /* enum gcp_pinned_state */
};
/*  N3 its blocks that are FREED and have no pinned set are in ready or pending */
struct gcp_pinned_bucket {
	struct gcp_pinned_list ready; /* completed; freed last, given first */
	struct gcp_pinned_list blocks;
	_Atomic uint32_t waiting; /* blocks in pool->pinned_pending */
	struct gcp_pool *pool;    /* this and what follows: constant */
	uint64_t size;            /* bytes of each block, as the driver gave them */
	uint32_t flags, place;
	/* Never removed: in the list of the table, and pool->pinned_buckets. */
	struct gcp_pinned_bucket *next, *older;
};

struct gcp_pinned_set {
	struct gcp_pinned *pinned;
	LIST_HEAD(, gcp_pinned_block) blocks; /* USED ones and FREED ones */
};

#define GCP_X(name) GCP_PINNED_CALL_##name,
enum gcp_pinned_call { GCP_PINNED_CALLS(GCP_X) GCP_PINNED_CALL_COUNT };
#undef GCP_X

/*  N4 stats counts the blocks: allocations all, active_requests those that are USED,
 *     unused the bytes of those that are FREED and have no set, pinned_pending_bytes
 *     of a pool those that wait there */
struct gcp_pinned {
	struct gcp_pools *pools;
	struct gcp_map *map; /* cuMemFree must not take a pinned block for another */
	struct gcp_descriptor_pool block_descriptors, bucket_descriptors;
	struct gcp_mutex lock;
	/* Bytes in no block: asked for, or on their way back to the driver. */
	_Atomic uint64_t moving;
	uint64_t unused;               /* bytes in ready and pending */
	uint64_t most;                 /* bytes that the program ever had at once */
	struct gcp_pinned_stats stats; /* as far as it is counted here */
	_Atomic uint64_t calls[GCP_PINNED_CALL_COUNT][GCP_COSTS];
	struct gcp_pinned_bucket *buckets[GCP_PINNED_BUCKETS];
};

static inline void gcp_pinned_count(struct gcp_pinned *pinned, uint64_t *counter)
{
	GCP_LOCKED(&pinned->lock);
	(*counter)++;
}

/* --- for the rest of the room: pinned.c, pinned_reclaim.c --------------------- */

/* Sets pools->pinned, unless pinned memory is not to be pooled. -ENOMEM. */
int gcp_pinned_create(struct gcp_pools *pools);
/* The context of the pool is gone, and its pinned memory with it. registry_lock is
 * held. */
void gcp_pinned_reset(struct gcp_pool *pool);

/* --- pinned_bucket.c: pinned->lock is held, but in find --------------------- */

/* The bucket, made if there is none. NULL: no memory. */
struct gcp_pinned_bucket *gcp_pinned_bucket_get(struct gcp_pool *pool, uint64_t bytes,
						uint32_t flags, uint32_t place);
/* Moves what is completed of the pool to where it can be taken. */
void gcp_pinned_advance(struct gcp_pool *pool);
/* A completed block, off its list, or NULL. */
struct gcp_pinned_block *gcp_pinned_bucket_take(struct gcp_pinned_bucket *bucket);
/* The completed block of the pool that was used longest ago, but in a turn before
 * `before`; pending: else the one that was freed longest ago. Off its list, or NULL. */
struct gcp_pinned_block *gcp_pinned_spare(struct gcp_pool *pool, uint64_t before,
					  bool pending);
/* A record for new memory, in no list of free blocks. -ENOMEM, -ERANGE. */
int gcp_pinned_block_create(struct gcp_pinned_bucket *bucket, void *p,
			    struct gcp_pinned_block **ret_block);
/* The program has the block, 1; or no more, -1. */
void gcp_pinned_block_count(const struct gcp_pinned_block *block, int64_t sign);
/* Gives it to the program, and to a set unless that is NULL. */
void gcp_pinned_block_use(struct gcp_pinned_block *block, uint64_t requested,
			  struct gcp_pinned_set *set);
/* The program has freed it: its set keeps it, or it is put. */
void gcp_pinned_block_unuse(struct gcp_pinned_block *block);
/* Stamps it with the open epoch, and puts it where it waits for that. */
void gcp_pinned_block_put(struct gcp_pinned_block *block);
/* Takes it out of its set, if any. */
void gcp_pinned_block_detach(struct gcp_pinned_block *block);
/* Its record ends; what becomes of the memory is the caller's. It is in no list of
 * free blocks, and in no set. */
void gcp_pinned_block_release(struct gcp_pinned_block *block);

/* Returns true if blocks of the pool that were freed into `epoch` may be used again. */
static inline bool gcp_pinned_epoch_ready(const struct gcp_pool *pool, uint64_t epoch)
{
#ifdef GCP_WITHOUT_FENCES /* for the test that the tests notice */
	(void)pool, (void)epoch;
	return true;
#else
	return gcp_timeline_is_own_completed(&pool->timeline, epoch);
#endif
}

/* --- pinned_reclaim.c ------------------------------------------------------- */

/* Looks whether what was freed in the pool is completed, closing the open epoch if some
 * was freed into that. Never waits. An error shows again. */
void gcp_pinned_look(struct gcp_pool *pool);
/* Waits, in a free into `epoch`, for what was freed before in the same context, until
 * no more than `most` bytes are pending. What was freed beside a capture has no fence:
 * a real free waits for that. 0, or the error of that context. */
int gcp_pinned_keep(struct gcp_pool *pool, uint64_t most, uint64_t epoch);
/* Bytes of those of this context, each block rounded up to `unit`. */
uint64_t gcp_pinned_unused_own(struct gcp_pool *pool, uint64_t unit);
/* By how much what is unused is beyond the cache limit, or the bound of all pinned
 * memory. pinned->lock is held. */
uint64_t gcp_pinned_over_limit(const struct gcp_pinned *pinned);
/* Waits for what frees would have waited for on plain CUDA, as far as they had closed
 * it when the search began. */
void gcp_pinned_frees_wait(struct gcp_pools *pools, struct gcp_search *search);
/* Gives completed blocks back until `bytes` are; idle: of contexts alone that are done
 * with all work, so that no real free waits. */
uint64_t gcp_pinned_release(struct gcp_pinned *pinned, uint64_t bytes, bool idle);
/* The same of this context alone, and if that is less, of what is pending. The first
 * real free waits for all work of the context, as plain cudaFreeHost does; after that
 * all is done there that was freed before the call. For frees of that context, and
 * where memory is out; also during a capture. 0, or what the driver's free says, as
 * plain CUDA's. */
int gcp_pinned_finish_own(struct gcp_pool *pool, uint64_t bytes);
/* Called in a free of the pool's context. Begins a turn of decay if it is time, and
 * gives back ready blocks that were unused for all turns (maintain.c). 0, or as
 * finish_own. */
int gcp_pinned_decay(struct gcp_pool *pool);
/* The real free of memory that pinned->moving counts, and no block any more. 0, or what
 * the driver says; the memory is not ours any more either way. */
int gcp_pinned_memory_give(struct gcp_pool *pool, void *p, uint64_t bytes);

/* GCP_PINNED_CALL(pinned, host_free, host_free, ctx, p): a call of the driver's
 * function `name`, counted and timed as `row`. */
#define GCP_PINNED_CALL(pinned, row, name, ...)                                        \
	GCP_TIMED((pinned)->pools, (pinned)->calls[GCP_PINNED_CALL_##row], name,       \
		  __VA_ARGS__)

#endif
