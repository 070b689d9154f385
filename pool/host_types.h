/*
 * host_types.h - the structures of the pool of pinned host memory, and their
 * invariants. Included by pool/host*.c, and by pools.c for their life.
 *
 *   block    what the program gets: one allocation of the driver, never split, so
 *            that flags, device pointer and attributes are the driver's own
 *   bucket   free blocks of one size, class and place of one context
 *   shelf    the buckets of one class (flags) and place (NUMA) of one context
 *   keep     blocks that captured graphs can address; a capture's private pool
 *   page     all frees between two fences, as in fence.c, but of all contexts
 *
 * Where a rule lives:
 *   when may a freed block be used again?    host_fence.c
 *   a free block, a fence, or new memory?    host.c
 *   when is memory given back?               host_reclaim.c
 *   what can a graph address?                host_keep.c
 *
 * Locks, after those of types.h:
 *   registry_lock   comes before these
 *   host->lock      making shelves; keeps and what they hold
 *   quota_lock      what a quota leaves, over the driver's call; with none of the above
 *   bucket->lock    a bucket's lists and counts; a few instructions
 *   fence_lock      pages and fences; never with one of the two above
 */
#ifndef GCP_POOL_HOST_TYPES_H
#define GCP_POOL_HOST_TYPES_H

#include "types.h"

enum {
	GCP_HOST_QUEUE = 256,        /* closed pages that wait for their fence */
	GCP_HOST_CLASSES_MAX = 4096, /* sizes, whatever the options say */
	GCP_HOST_GROW_MAX = 32,      /* blocks of a bucket to save fences; host.c */
	GCP_HOST_AGE_NS = 5000,      /* a page that is older is closed by a free */
	GCP_HOST_SPIN_NS = 20000,    /* most that an allocation looks for a fence */
	GCP_HOST_DISTRUST = 16,      /* times not to look after looking in vain */
};

enum gcp_host_state {
	GCP_HOST_RETIRED, /* descriptor not in use */
	GCP_HOST_USED,    /* the program's */
	GCP_HOST_FREED,   /* nobody's, or on its way to or from the program */
};

/* In whose book a block is. */
enum gcp_host_rest {
	GCP_HOST_IN_HAND,   /* the program's, or some thread's of ours */
	GCP_HOST_IN_BUCKET, /* ready or pending; bucket->lock */
	GCP_HOST_IN_KEEP,   /* freed and kept; host->lock */
};

/* Invariants:
 *  N1 the map finds every block of bucket->blocks at its address
 *  N2 a block that is not IN_HAND is FREED */
struct gcp_host_block {
	char *p;
	uint64_t size;      /* bytes taken from the driver: its bucket's */
	uint64_t requested; /* bytes asked for; by the allocating thread */
	uint64_t page;      /* host page of its latest free */
	uint64_t life;      /* pool->host_life when it was allocated */
	struct gcp_host_bucket *bucket;
	struct gcp_host_keep *_Atomic keep; /* NULL: anyone's; host->lock */
	TAILQ_ENTRY(gcp_host_block) link;   /* bucket->ready, ->pending */
	TAILQ_ENTRY(gcp_host_block) all;    /* bucket->blocks */
	LIST_ENTRY(gcp_host_block) kept;    /* keep->blocks */
	enum gcp_host_rest rest; /* by him who has it in hand, under the new lock */
	_Atomic uint8_t state;   /* enum gcp_host_state */
};
TAILQ_HEAD(gcp_host_list, gcp_host_block);

/* All fields but size and shelf: lock.
 *  N3 count is the number of its blocks; those in ready and pending are IN_BUCKET
 *     and have no keep
 *  N4 taken - given is the number of its blocks that the program has */
struct gcp_host_bucket {
	struct gcp_spin lock;
	uint32_t count;
	uint32_t distrust;          /* times not to look for a fence any more; host.c */
	struct gcp_host_list ready; /* completed; freed last, given first */
	struct gcp_host_list pending; /* longest freed first */
	struct gcp_host_list blocks;
	uint64_t size; /* bytes of each block */
	struct gcp_host_shelf *shelf;
	uint64_t alloc_ns; /* what the driver took for the latest one */
	uint64_t spent_ns; /* on fences, for want of one more block; host.c */
	/* Since the start; bytes: asked for. */
	uint64_t taken, taken_bytes, given, given_bytes;
} __attribute__((aligned(64)));

struct gcp_host_shelf {
	struct gcp_pool *pool;
	uint32_t flags, place;
	size_t map_bytes;
	struct gcp_host_shelf *_Atomic next; /* pool->host_shelves; never removed */
	struct gcp_host_bucket buckets[];    /* [class] */
};

/* All fields: host->lock. */
struct gcp_host_keep {
	struct gcp_host *host;
	LIST_HEAD(, gcp_host_block) blocks; /* those in hand, and those IN_KEEP */
};

/* A fence in every context, shared by the frees of a page. fence_lock. */
struct gcp_host_fence {
	void *world;
	uint32_t waiters; /* hosts that wait for it without the lock */
	bool done;        /* its page is; not used again before they have left */
	struct gcp_host_fence *next; /* host->pages.spare */
};

struct gcp_host_closed {
	uint64_t page, bytes;
	struct gcp_host_fence *fence;
};

/* The pages of pinned memory, one sequence for the process. As struct gcp_pages,
 * without "ordered": the CPU stands in no context's queue.
 *  N5 completed < open; the queue is ascending and between them */
struct gcp_host_pages {
	_Atomic uint64_t open, completed;
	_Atomic uint64_t load;          /* of the open page: LOAD_BLOCK, units */
	_Atomic uint64_t pending_bytes; /* on closed pages; writer: fence_lock */
	_Atomic uint64_t closed_ns;     /* when the latest was closed */
	_Atomic bool closing;           /* a thread is in gcp_host_pages_close */
	struct gcp_host_closed queue[GCP_HOST_QUEUE]; /* fence_lock, and below */
	uint32_t head, count;
	struct gcp_host_fence *spare;
};

struct gcp_host_gauge {
	_Atomic uint64_t current, peak;
};

struct gcp_host {
	struct gcp_pools *pools;
	struct gcp_map *map;
	struct gcp_meta block_meta, fence_meta;
	uint32_t class_count, pow2_count;
	pthread_mutex_t lock, quota_lock;
	_Atomic bool off; /* fences fail: nothing is pooled until a context ends */
	struct gcp_host_pages pages;
	/* Statistics. Gauges and counters: atomic; times: time_lock. */
#define GCP_X(name, meaning) struct gcp_host_gauge name;
	GCP_HOST_GAUGES(GCP_X)
#undef GCP_X
	_Atomic uint64_t misses, alloc_retries, ooms, waits, closed, trims, held_frees;
	_Atomic uint64_t added, added_bytes, gone, gone_bytes; /* blocks */
	_Atomic uint64_t kept_bytes, let_go_bytes;             /* of keeps */
	struct gcp_spin time_lock;
#define GCP_X(name) struct gcp_host_time name;
	GCP_HOST_CALLS(GCP_X)
#undef GCP_X
	struct gcp_host_stats base; /* totals at the latest reset; host->lock */
};

/* --- for the rest of the room: host.c, host_reclaim.c ------------------------------
 */

/* Sets pools->host, unless pinned memory is not to be pooled. -ENOMEM. */
int gcp_host_create(struct gcp_pools *pools);
void gcp_host_destroy(struct gcp_pools *pools); /* for tests */
/* The context of the pool is gone, and its pinned memory with it. registry_lock is
 * held. */
void gcp_host_drop(struct gcp_pool *pool);

/* --- host_bucket.c ------------------------------------------------------------- */

uint32_t gcp_host_class_of(const struct gcp_host *host, uint64_t bytes);
uint64_t gcp_host_class_size(const struct gcp_host *host, uint32_t class);
/* The bucket, made if there is none. NULL: no memory, or too large. */
struct gcp_host_bucket *gcp_host_bucket_get(struct gcp_pool *pool, uint64_t bytes,
					    uint32_t flags, uint32_t place);
/* A completed block for a request of `requested` bytes. *ret_page, if there is none:
 * the page of the oldest one that is not completed; 0: there is none at all. */
struct gcp_host_block *gcp_host_bucket_take(struct gcp_host_bucket *bucket,
					    uint64_t requested, uint64_t *ret_page);
/* The program gave a block back: counts it, or also puts it where it waits for its
 * page. */
void gcp_host_bucket_count_given(struct gcp_host_block *block);
void gcp_host_bucket_give(struct gcp_host_block *block);
/* Puts a block there that was counted before. */
void gcp_host_bucket_put(struct gcp_host_block *block);
/* Adds new memory as a block in hand, counted as taken. -ENOMEM, -ERANGE. */
int gcp_host_block_create(struct gcp_host_bucket *bucket, void *p, uint64_t life,
			  uint64_t requested, struct gcp_host_block **ret_block);
/* Takes a block in hand out of all books; what becomes of the memory is the
 * caller's. The bucket's lock is held. */
void gcp_host_block_retire(struct gcp_host_block *block);
struct gcp_host_block *gcp_host_block_find(struct gcp_host *host, const void *p);

/* Calls `visit` for each bucket of the process. */
void gcp_host_buckets_visit(struct gcp_pools *pools,
			    void (*visit)(struct gcp_host_bucket *bucket, void *arg),
			    void *arg);

/* --- host_fence.c: no lock is held -------------------------------------------------
 */

/* As gcp_pages_tag. */
uint64_t gcp_host_pages_tag(struct gcp_host *host);

static inline bool gcp_host_page_ready(const struct gcp_host *host, uint64_t page)
{
#ifdef GCP_WITHOUT_FENCES /* for the test that the tests notice */
	(void)host, (void)page;
	return true;
#else
	return page <=
	       atomic_load_explicit(&host->pages.completed, memory_order_acquire);
#endif
}

/* A block was freed. True: the page has taken enough, or waited long enough, to
 * be closed. */
bool gcp_host_pages_count(struct gcp_host *host, uint64_t bytes);
/* Bytes that were freed and whose page was not completed when last looked. */
uint64_t gcp_host_pages_pending(const struct gcp_host *host);
/* Closes the open page unless a capture forbids it. 0; the error for which fences
 * are off from now on, which may be any context's and is not the program's. */
int gcp_host_pages_close(struct gcp_host *host);
/* The same if no closed page covers `page` yet: it is open, or its fence failed. */
int gcp_host_pages_close_for(struct gcp_host *host, uint64_t page);
/* Looks whether `page` is completed; never waits. An error: as above. */
int gcp_host_pages_poll(struct gcp_host *host, uint64_t page);
/* Looks at all of them, from old to young. */
int gcp_host_pages_poll_all(struct gcp_host *host);
/* Waits until the oldest closed page is done in `ctx`, then looks at the others.
 * *ret_advanced: a page was completed. 0, or the error of `ctx`. */
int gcp_host_pages_wait_oldest(struct gcp_host *host, void *ctx, bool *ret_advanced);
/* The same for the fence that covers `page`, if there is one. */
int gcp_host_pages_wait_for(struct gcp_host *host, uint64_t page, void *ctx);
/* Waits until all that was freed so far is completed, in every context. -EBUSY: a
 * capture forbids it. Where memory is out, or the program asks. */
int gcp_host_pages_complete(struct gcp_host *host);
void gcp_host_pages_finish(struct gcp_host *host);

/* --- host_keep.c -------------------------------------------------------------------
 */

void gcp_host_keep_add(struct gcp_host_keep *keep, struct gcp_host_block *block);
/* The program has freed `block`. False: no keep has it, the caller frees it. */
bool gcp_host_keep_put(struct gcp_host *host, struct gcp_host_block *block);
/* Takes it out of its keep, if any. host->lock is held. */
void gcp_host_keep_forget(struct gcp_host_block *block);

/* --- host_reclaim.c ------------------------------------------------------------------
 */

/* Whether blocks are unused, ready or not. */
bool gcp_host_is_any_unused(struct gcp_host *host);
/* Gives completed blocks back until `bytes` are. Waits only as the driver's own
 * free does. */
uint64_t gcp_host_give_back(struct gcp_host *host, uint64_t bytes);
/* The same of this context alone, for its frees: they wait for no other. 0, or what
 * the driver's free says, as plain CUDA's. */
int gcp_host_give_back_own(struct gcp_pool *pool, uint64_t bytes);
/* The real free of a block that is in no book any more. 0, or what the driver says;
 * the memory is not ours any more either way. */
int gcp_host_memory_free(struct gcp_pool *pool, void *p);

/* --- host_stats.c --------------------------------------------------------------------
 */

static inline void gcp_host_gauge_add(struct gcp_host_gauge *gauge, uint64_t change)
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

static inline void gcp_host_gauge_sub(struct gcp_host_gauge *gauge, uint64_t change)
{
	atomic_fetch_sub_explicit(&gauge->current, change, memory_order_relaxed);
}

void gcp_host_time_add(struct gcp_host *host, struct gcp_host_time *time,
		       uint64_t start_ns);
/* GCP_HOST_CALL(host, host_free, host_free, ctx, p): a call of the driver's
 * function `name`, timed as `row`. */
#define GCP_HOST_CALL(host, row, name, ...)                                            \
	({                                                                             \
		uint64_t start_ = (host)->pools->driver.clock_ns();                    \
		__auto_type result_ = (host)->pools->driver.name(__VA_ARGS__);         \
		gcp_host_time_add((host), &(host)->row, start_);                       \
		result_;                                                               \
	})

#endif
