/* SPDX-License-Identifier: MIT */
/*
 * pinned_types.h - the structures of the pool of pinned host memory, and their
 * invariants. Included by pool/pinned*.c, and by pools.c for their life.
 *
 *   block    what the program gets: one allocation of the driver, never split, so
 *            that flags, device pointer and attributes are the driver's own
 *   bucket   free blocks of one size, class and place of one context
 *   arena    the buckets of one class (flags) and place (NUMA) of one context
 *   set      blocks that captured graphs can address; a capture's private pool
 *   epoch    all frees between two fences, as in fence.c; a fence covers all contexts
 *
 * Where a rule lives:
 *   when may a freed block be used again?    fence.c, pinned_fence.c
 *   a free block, a fence, or new memory?    pinned.c
 *   when is memory given back?               pinned_reclaim.c
 *   what can a graph address?                pinned_set.c
 *
 * Locks, between pool->lock and fence_lock of pool_types.h:
 *   quota_lock     what a quota leaves, over the driver's call
 *   pinned->lock   making arenas; pinned sets and what they hold
 *   bucket->lock   a bucket's lists and counts; a few instructions
 */
#ifndef GCP_POOL_PINNED_TYPES_H
#define GCP_POOL_PINNED_TYPES_H

#include "../timeline/timeline.h"

enum {
	GCP_PINNED_CLASSES_MAX = 4096, /* sizes, whatever the options say */
	GCP_PINNED_AGE_NS = 5000,      /* an epoch that is older is closed by a free */
	GCP_PINNED_LARGE = 8 << 20,    /* a free of as many bytes closes its epoch */
};

enum gcp_pinned_state {
	GCP_PINNED_RELEASED, /* descriptor not in use */
	GCP_PINNED_USED,     /* the program's */
	GCP_PINNED_FREED,    /* free, or on its way to or from the program */
};

/* On which list a block is. */
enum gcp_pinned_rest {
	GCP_PINNED_IN_HAND,   /* the program's, or some thread's of ours */
	GCP_PINNED_IN_BUCKET, /* ready or pending; bucket->lock */
	GCP_PINNED_IN_SET,    /* freed and kept; pinned->lock */
};

/* Invariants:
 *  N1 the map finds every block of bucket->blocks at its address
 *  N2 a block that is not IN_HAND is FREED */
struct gcp_pinned_block {
	char *p;
	uint64_t size;       /* bytes taken from the driver: its bucket's */
	uint64_t requested;  /* bytes asked for; by the allocating thread */
	uint64_t epoch;      /* epoch of its latest free */
	uint64_t generation; /* pool->pinned_generation when it was allocated */
	struct gcp_pinned_bucket *bucket;
	struct gcp_pinned_set *_Atomic set; /* NULL: for any request; pinned->lock */
	TAILQ_ENTRY(gcp_pinned_block) link; /* bucket->ready, ->pending */
	TAILQ_ENTRY(gcp_pinned_block) all;  /* bucket->blocks */
	LIST_ENTRY(gcp_pinned_block) kept;  /* set->blocks */
	enum gcp_pinned_rest rest; /* by the thread that has it, under the new lock */
	_Atomic uint8_t state;     /* enum gcp_pinned_state */
};
TAILQ_HEAD(gcp_pinned_list, gcp_pinned_block);

/* All fields but size and arena: lock.
 *  N3 count is the number of its blocks; those in ready and pending are IN_BUCKET
 *     and have no pinned set
 *  N4 taken - given is the number of its blocks that the program has */
struct gcp_pinned_bucket {
	struct gcp_spin lock;
	uint32_t count;
	struct gcp_pinned_list ready;   /* completed; freed last, given first */
	struct gcp_pinned_list pending; /* longest freed first */
	struct gcp_pinned_list blocks;
	uint64_t size; /* bytes of each block */
	struct gcp_pinned_arena *arena;
	/* Since the start; bytes: asked for. */
	uint64_t taken, taken_bytes, given, given_bytes;
} __attribute__((aligned(64)));

struct gcp_pinned_arena {
	struct gcp_pool *pool;
	uint32_t flags, place;
	size_t map_bytes;
	struct gcp_pinned_arena *_Atomic next; /* pool->pinned_arenas; never removed */
	struct gcp_pinned_bucket buckets[];    /* [class] */
};

/* All fields: pinned->lock. */
struct gcp_pinned_set {
	struct gcp_pinned *pinned;
	LIST_HEAD(, gcp_pinned_block) blocks; /* those in hand, and those IN_SET */
};

struct gcp_pinned_gauge {
	_Atomic uint64_t current, peak;
	_Atomic uint64_t allocated; /* in all; of those alone that no bucket counts */
};

#define GCP_X(name) GCP_PINNED_CALL_##name,
enum gcp_pinned_call { GCP_PINNED_CALLS(GCP_X) GCP_PINNED_CALL_COUNT };
#undef GCP_X

struct gcp_pinned {
	struct gcp_pools *pools;
	struct gcp_map *map;
	struct gcp_descriptor_pool block_descriptors;
	uint32_t class_count, pow2_count;
	struct gcp_mutex lock, quota_lock;
	_Atomic bool off; /* fences fail: nothing is pooled until a context ends */
	_Atomic bool out; /* the driver has refused memory: it may do so again */
	_Atomic uint64_t giving;      /* bytes off the lists that the driver frees */
	struct gcp_timeline timeline; /* of all contexts */
	_Atomic uint64_t closed_ns;   /* when the latest epoch was closed */
				      /* Statistics, atomic. */
#define GCP_X(name, meaning) struct gcp_pinned_gauge name;
	GCP_PINNED_GAUGES(GCP_X)
#undef GCP_X
	_Atomic uint64_t misses, alloc_retries, ooms, waits, trims, deferred_frees;
	_Atomic uint64_t calls[GCP_PINNED_CALL_COUNT][GCP_COSTS];
};

/* --- for the rest of the room: pinned.c, pinned_reclaim.c --------------------- */

/* Sets pools->pinned, unless pinned memory is not to be pooled. -ENOMEM. */
int gcp_pinned_create(struct gcp_pools *pools);
/* The context of the pool is gone, and its pinned memory with it. registry_lock is
 * held. */
void gcp_pinned_reset(struct gcp_pool *pool);

/* --- pinned_bucket.c -------------------------------------------------------- */

uint32_t gcp_pinned_class_of(const struct gcp_pinned *pinned, uint64_t bytes);
/* The bucket, made if there is none. NULL: no memory, or too large. */
struct gcp_pinned_bucket *gcp_pinned_bucket_get(struct gcp_pool *pool, uint64_t bytes,
						uint32_t flags, uint32_t place);
/* A completed block for a request of `requested` bytes. *ret_epoch, if there is none:
 * the epoch of the oldest one that is not completed; 0: there is none at all. */
struct gcp_pinned_block *gcp_pinned_bucket_take(struct gcp_pinned_bucket *bucket,
						uint64_t requested,
						uint64_t *ret_epoch);
/* The program gave a block back: counts it, or also puts it where it waits for its
 * epoch. */
void gcp_pinned_bucket_count_given(struct gcp_pinned_block *block);
void gcp_pinned_bucket_give(struct gcp_pinned_block *block);
/* Puts a block there that was counted before. */
void gcp_pinned_bucket_put(struct gcp_pinned_block *block);
/* Adds new memory as a block in hand, counted as taken. -ENOMEM, -ERANGE. */
int gcp_pinned_block_create(struct gcp_pinned_bucket *bucket, void *p,
			    uint64_t generation, uint64_t requested,
			    struct gcp_pinned_block **ret_block);
/* Takes a block in hand off all lists; what becomes of the memory is the
 * caller's. The bucket's lock is held. */
void gcp_pinned_block_release(struct gcp_pinned_block *block);
struct gcp_pinned_block *gcp_pinned_block_find(struct gcp_pinned *pinned,
					       const void *p);

/* Calls `each` for each bucket of the process. */
void gcp_pinned_buckets_for_each(struct gcp_pools *pools,
				 void (*each)(struct gcp_pinned_bucket *bucket,
					      void *arg),
				 void *arg);

/* --- pinned_fence.c: no lock is held ---------------------------------------- */

extern const struct gcp_fence_scope gcp_pinned_fences;

/* As gcp_timeline_stamp. */
static inline uint64_t gcp_pinned_timeline_stamp(struct gcp_pinned *pinned)
{
	return gcp_timeline_now(&pinned->timeline);
}

/* Whether blocks of the pool that were freed into `epoch` may be used again: it is
 * completed, or done in the pool's context; pinned_fence.c. */
static inline bool gcp_pinned_epoch_ready(const struct gcp_pool *pool, uint64_t epoch)
{
#ifdef GCP_WITHOUT_FENCES /* for the test that the tests notice */
	(void)pool, (void)epoch;
	return true;
#else
	return epoch <= atomic_load_explicit(&pool->pools->pinned->timeline.ready,
					     memory_order_acquire) ||
	       epoch <= atomic_load_explicit(&pool->pinned_done, memory_order_acquire);
#endif
}

/* A block was freed. True: the epoch has taken enough, or waited long enough, to
 * be closed. */
bool gcp_pinned_timeline_count(struct gcp_pinned *pinned, uint64_t bytes);
/* Bytes that were freed and whose epoch was not completed when last looked. */
uint64_t gcp_pinned_timeline_pending(const struct gcp_pinned *pinned);
/* Closes the open epoch unless a capture forbids it. 0; the error for which fences
 * are off from now on, which may be any context's and is not the program's. */
int gcp_pinned_timeline_close(struct gcp_pinned *pinned);
/* The same if no closed epoch covers `epoch` yet: it is open, or its fence failed. */
int gcp_pinned_timeline_close_for(struct gcp_pinned *pinned, uint64_t epoch);
/* In a free into `epoch`: if a closed epoch covers it by now, an allocation of this
 * context that is out of memory may wait for that (pool->pinned_freed). */
void gcp_pinned_timeline_freed(struct gcp_pool *pool, uint64_t epoch);
/* Looks whether `epoch` is completed; never waits. An error: as above. */
int gcp_pinned_timeline_poll(struct gcp_pinned *pinned, uint64_t epoch);
/* Waits until `epoch`, if it is closed, is done in the context of `pool`. 0, or the
 * error of that context. */
int gcp_pinned_timeline_wait(struct gcp_pool *pool, uint64_t epoch);
/* The same until no more than the window is pending there, as far as epochs are closed.
 * Only for a free of that context. */
int gcp_pinned_timeline_keep_window(struct gcp_pool *pool);
/* Closes the open epoch, unless a capture forbids it, and looks which epochs are
 * completed, and which are done in each context; never waits. Where memory is out.
 * Gives the epoch that was open: where it is done, the context is idle. */
uint64_t gcp_pinned_timeline_look(struct gcp_pinned *pinned);
/* Before a call that waits for all work of the context of `pool`: moves on to the next
 * epoch, without a fence; and after it: the epoch that was given is done there. */
uint64_t gcp_pinned_timeline_leave(struct gcp_pool *pool);
void gcp_pinned_timeline_left(struct gcp_pool *pool, uint64_t epoch);

/* Waits until all that was freed so far is completed, in every context. -EBUSY: a
 * capture forbids it. */
int gcp_pinned_timeline_complete(struct gcp_pinned *pinned);

/* --- pinned_set.c ---------------------------------------------------------- */

void gcp_pinned_set_add(struct gcp_pinned_set *set, struct gcp_pinned_block *block);
/* The program has freed `block`. False: no pinned set has it, the caller frees it. */
bool gcp_pinned_set_put(struct gcp_pinned *pinned, struct gcp_pinned_block *block);
/* Takes it out of its set, if any. pinned->lock is held. */
void gcp_pinned_set_detach(struct gcp_pinned_block *block);

/* --- pinned_reclaim.c ------------------------------------------------------- */

/* Bytes of those of this context, each block rounded up to `unit`. */
uint64_t gcp_pinned_unused_own(struct gcp_pool *pool, uint64_t unit);
/* By how much what is unused is beyond the cache limit, or the bound of all pinned
 * memory. */
uint64_t gcp_pinned_over_limit(const struct gcp_pinned *pinned);
/* Gives ready blocks back until `bytes` are: of contexts where `idle` is ready, so that
 * no real free waits (0: of all). */
uint64_t gcp_pinned_release(struct gcp_pinned *pinned, uint64_t bytes, uint64_t idle);
/* The same of this context alone, for its frees: they wait for no other. 0, or what
 * the driver's free says, as plain CUDA's. */
int gcp_pinned_release_own(struct gcp_pool *pool, uint64_t bytes);
/* The same, and if that is less, of what is pending. The first real free waits for all
 * work of the context, as plain cudaFreeHost does; after that all is done there that
 * was freed before the call. For frees of that context, and where memory is out; also
 * during a capture. */
int gcp_pinned_finish_own(struct gcp_pool *pool, uint64_t bytes);
/* The real free of memory that pinned->giving counts, and no list any more. 0, or what
 * the driver says; the memory is not ours any more either way. */
int gcp_pinned_memory_give(struct gcp_pool *pool, void *p, uint64_t bytes);

/* --- pinned_stats.c --------------------------------------------------------- */

static inline void gcp_pinned_gauge_add(struct gcp_pinned_gauge *gauge, uint64_t change)
{
	gcp_raise(&gauge->peak,
		  change + atomic_fetch_add_explicit(&gauge->current, change,
						     memory_order_relaxed));
}

/* The same for one whose total no bucket counts. */
static inline void gcp_pinned_gauge_total(struct gcp_pinned_gauge *gauge,
					  uint64_t change)
{
	atomic_fetch_add_explicit(&gauge->allocated, change, memory_order_relaxed);
	gcp_pinned_gauge_add(gauge, change);
}

static inline void gcp_pinned_gauge_sub(struct gcp_pinned_gauge *gauge, uint64_t change)
{
	uint64_t before = /* release: pinned->giving has it already */
	    atomic_fetch_sub_explicit(&gauge->current, change, memory_order_release);

	assert(before >= change);
	(void)before;
}

/* GCP_PINNED_CALL(pinned, host_free, host_free, ctx, p): a call of the driver's
 * function `name`, counted and timed as `row`. */
#define GCP_PINNED_CALL(pinned, row, name, ...)                                        \
	GCP_TIMED((pinned)->pools, (pinned)->calls[GCP_PINNED_CALL_##row], name,       \
		  __VA_ARGS__)

#endif
