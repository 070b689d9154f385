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
 *   epoch    all frees between two fences, as in fence.c, but of all contexts
 *
 * Where a rule lives:
 *   when may a freed block be used again?    pinned_fence.c
 *   a free block, a fence, or new memory?    pinned.c
 *   when is memory given back?               pinned_reclaim.c
 *   what can a graph address?                pinned_set.c
 *
 * Locks, after those of pool_types.h:
 *   registry_lock   comes before these
 *   pinned->lock    making arenas; pinned sets and what they hold
 *   quota_lock      what a quota leaves, over the driver's call; with none of the above
 *   bucket->lock    a bucket's lists and counts; a few instructions
 *   fence_lock      epochs and fences; never with one of the two above
 */
#ifndef GCP_POOL_PINNED_TYPES_H
#define GCP_POOL_PINNED_TYPES_H

#include "pool_types.h"

enum {
	GCP_PINNED_QUEUE = 256,        /* closed epochs that wait for their fence */
	GCP_PINNED_CLASSES_MAX = 4096, /* sizes, whatever the options say */
	GCP_PINNED_GROW_MAX = 32,      /* blocks of a bucket to save fences; pinned.c */
	GCP_PINNED_AGE_NS = 5000,      /* an epoch that is older is closed by a free */
	GCP_PINNED_SPIN_NS = 20000,    /* most that an allocation looks for a fence */
	GCP_PINNED_SPIN_BACKOFF = 16,  /* times not to look after looking in vain */
};

enum gcp_pinned_state {
	GCP_PINNED_RELEASED, /* descriptor not in use */
	GCP_PINNED_USED,     /* the program's */
	GCP_PINNED_FREED,    /* nobody's, or on its way to or from the program */
};

/* In whose book a block is. */
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
	struct gcp_pinned_set *_Atomic set; /* NULL: anyone's; pinned->lock */
	TAILQ_ENTRY(gcp_pinned_block) link; /* bucket->ready, ->pending */
	TAILQ_ENTRY(gcp_pinned_block) all;  /* bucket->blocks */
	LIST_ENTRY(gcp_pinned_block) kept;  /* set->blocks */
	enum gcp_pinned_rest rest; /* by him who has it in hand, under the new lock */
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
	uint32_t spin_backoff; /* times not to look for a fence any more; pinned.c */
	struct gcp_pinned_list ready;   /* completed; freed last, given first */
	struct gcp_pinned_list pending; /* longest freed first */
	struct gcp_pinned_list blocks;
	uint64_t size; /* bytes of each block */
	struct gcp_pinned_arena *arena;
	uint64_t alloc_ns; /* what the driver took for the latest one */
	uint64_t spent_ns; /* on fences, for want of one more block; pinned.c */
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

/* A fence in every context, shared by the frees of an epoch. fence_lock. */
struct gcp_pinned_fence {
	void *handle;
	uint32_t waiters; /* hosts that wait for it without the lock */
	bool done;        /* its epoch is; not used again before they have left */
	struct gcp_pinned_fence *next; /* pinned->timeline.spare */
};

struct gcp_pinned_closed_epoch {
	uint64_t epoch, bytes;
	struct gcp_pinned_fence *fence;
};

/* The epochs of pinned memory, one sequence for the process. As struct gcp_timeline,
 * without "ordered": the CPU stands in no context's queue.
 *  N5 completed < open; the queue is ascending and between them */
struct gcp_pinned_timeline {
	_Atomic uint64_t open, completed;
	_Atomic uint64_t load;          /* of the open epoch: LOAD_BLOCK, units */
	_Atomic uint64_t pending_bytes; /* on closed epochs; writer: fence_lock */
	_Atomic uint64_t closed_ns;     /* when the latest was closed */
	_Atomic bool closing;           /* a thread is in gcp_pinned_timeline_close */
	struct gcp_pinned_closed_epoch
	    queue[GCP_PINNED_QUEUE]; /* fence_lock, and below */
	uint32_t head, count;
	struct gcp_pinned_fence *spare;
};

struct gcp_pinned_gauge {
	_Atomic uint64_t current, peak;
};

struct gcp_pinned {
	struct gcp_pools *pools;
	struct gcp_map *map;
	struct gcp_descriptor_pool block_descriptors, fence_descriptors;
	uint32_t class_count, pow2_count;
	pthread_mutex_t lock, quota_lock;
	_Atomic bool off; /* fences fail: nothing is pooled until a context ends */
	struct gcp_pinned_timeline timeline;
	/* Statistics. Gauges and counters: atomic; times: time_lock. */
#define GCP_X(name, meaning) struct gcp_pinned_gauge name;
	GCP_PINNED_GAUGES(GCP_X)
#undef GCP_X
	_Atomic uint64_t misses, alloc_retries, ooms, waits, closed, trims,
	    deferred_frees;
	_Atomic uint64_t added, added_bytes, gone, gone_bytes; /* blocks */
	_Atomic uint64_t set_added_bytes, set_released_bytes;  /* of pinned sets */
	struct gcp_spin time_lock;
#define GCP_X(name) struct gcp_pinned_time name;
	GCP_PINNED_CALLS(GCP_X)
#undef GCP_X
	struct gcp_pinned_stats base; /* totals at the latest reset; pinned->lock */
};

/* --- for the rest of the room: pinned.c, pinned_reclaim.c
 * ------------------------------
 */

/* Sets pools->pinned, unless pinned memory is not to be pooled. -ENOMEM. */
int gcp_pinned_create(struct gcp_pools *pools);
void gcp_pinned_destroy(struct gcp_pools *pools); /* for tests */
/* The context of the pool is gone, and its pinned memory with it. registry_lock is
 * held. */
void gcp_pinned_reset(struct gcp_pool *pool);

/* --- pinned_bucket.c ------------------------------------------------------------- */

uint32_t gcp_pinned_class_of(const struct gcp_pinned *pinned, uint64_t bytes);
uint64_t gcp_pinned_class_size(const struct gcp_pinned *pinned, uint32_t class);
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
/* Takes a block in hand out of all books; what becomes of the memory is the
 * caller's. The bucket's lock is held. */
void gcp_pinned_block_release(struct gcp_pinned_block *block);
struct gcp_pinned_block *gcp_pinned_block_find(struct gcp_pinned *pinned,
					       const void *p);

/* Calls `each` for each bucket of the process. */
void gcp_pinned_buckets_for_each(struct gcp_pools *pools,
				 void (*each)(struct gcp_pinned_bucket *bucket,
					      void *arg),
				 void *arg);

/* --- pinned_fence.c: no lock is held -------------------------------------------------
 */

/* As gcp_timeline_stamp. */
uint64_t gcp_pinned_timeline_stamp(struct gcp_pinned *pinned);

static inline bool gcp_pinned_epoch_ready(const struct gcp_pinned *pinned,
					  uint64_t epoch)
{
#ifdef GCP_WITHOUT_FENCES /* for the test that the tests notice */
	(void)pinned, (void)epoch;
	return true;
#else
	return epoch <=
	       atomic_load_explicit(&pinned->timeline.completed, memory_order_acquire);
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
/* Looks whether `epoch` is completed; never waits. An error: as above. */
int gcp_pinned_timeline_poll(struct gcp_pinned *pinned, uint64_t epoch);
/* Looks at all of them, from old to young. */
int gcp_pinned_timeline_poll_all(struct gcp_pinned *pinned);
/* Waits until the oldest closed epoch is done in `ctx`, then looks at the others.
 * *ret_advanced: an epoch was completed. 0, or the error of `ctx`. */
int gcp_pinned_timeline_wait_oldest(struct gcp_pinned *pinned, void *ctx,
				    bool *ret_advanced);
/* The same for the fence that covers `epoch`, if there is one. */
int gcp_pinned_timeline_wait_for(struct gcp_pinned *pinned, uint64_t epoch, void *ctx);
/* Waits until all that was freed so far is completed, in every context. -EBUSY: a
 * capture forbids it. Where memory is out, or the program asks. */
int gcp_pinned_timeline_complete(struct gcp_pinned *pinned);
void gcp_pinned_timeline_destroy(struct gcp_pinned *pinned);

/* --- pinned_set.c -------------------------------------------------------------------
 */

void gcp_pinned_set_add(struct gcp_pinned_set *set, struct gcp_pinned_block *block);
/* The program has freed `block`. False: no pinned set has it, the caller frees it. */
bool gcp_pinned_set_put(struct gcp_pinned *pinned, struct gcp_pinned_block *block);
/* Takes it out of its set, if any. pinned->lock is held. */
void gcp_pinned_set_detach(struct gcp_pinned_block *block);

/* --- pinned_reclaim.c
 * ------------------------------------------------------------------
 */

/* Whether blocks are unused, ready or not. */
bool gcp_pinned_is_any_unused(struct gcp_pinned *pinned);
/* Gives completed blocks back until `bytes` are. Waits only as the driver's own
 * free does. */
uint64_t gcp_pinned_release(struct gcp_pinned *pinned, uint64_t bytes);
/* The same of this context alone, for its frees: they wait for no other. 0, or what
 * the driver's free says, as plain CUDA's. */
int gcp_pinned_release_own(struct gcp_pool *pool, uint64_t bytes);
/* The real free of a block that is in no book any more. 0, or what the driver says;
 * the memory is not ours any more either way. */
int gcp_pinned_memory_free(struct gcp_pool *pool, void *p);

/* --- pinned_stats.c
 * --------------------------------------------------------------------
 */

static inline void gcp_pinned_gauge_add(struct gcp_pinned_gauge *gauge, uint64_t change)
{
	uint64_t now =
	    atomic_fetch_add_explicit(&gauge->current, change, memory_order_relaxed) +
	    change;
	uint64_t peak = atomic_load_explicit(&gauge->peak, memory_order_relaxed);

	while (__builtin_expect(now > peak, 0) &&
	       !atomic_compare_exchange_weak_explicit(&gauge->peak, &peak, now,
						      memory_order_relaxed,
						      memory_order_relaxed))
		;
}

static inline void gcp_pinned_gauge_sub(struct gcp_pinned_gauge *gauge, uint64_t change)
{
	atomic_fetch_sub_explicit(&gauge->current, change, memory_order_relaxed);
}

void gcp_pinned_time_add(struct gcp_pinned *pinned, struct gcp_pinned_time *time,
			 uint64_t start_ns);
/* GCP_PINNED_CALL(pinned, host_free, host_free, ctx, p): a call of the driver's
 * function `name`, timed as `row`. */
#define GCP_PINNED_CALL(pinned, row, name, ...)                                        \
	({                                                                             \
		uint64_t start_ = (pinned)->pools->driver.clock_ns();                  \
		__auto_type result_ = (pinned)->pools->driver.name(__VA_ARGS__);       \
		gcp_pinned_time_add((pinned), &(pinned)->row, start_);                 \
		result_;                                                               \
	})

#endif
