/* SPDX-License-Identifier: MIT */
/*
 * test_threads.c - many threads on one pool: also run it under TSan.
 */
#include "fake.h"
#include "../../pool/cache/cache.h"
#include "cases.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define TEST(name) CASE(name, setup, NULL)

enum { THREADS = 8, ROUNDS = 4000, LIVE = 32 };

static struct gcp_pools *pools;
static struct gcp_pool *pool;

static int setup(void **state)
{
	(void)state;
	fake_reset();
	pools = fake_pools(NULL);
	pool = fake_pool(pools);
	return 0;
}

static void run(void *(*body)(void *), int count)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < count; i++)
		pthread_create(&threads[i], NULL, body, (void *)(intptr_t)i);
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
}

static void *alloc_and_free(void *arg)
{
	unsigned seed = (unsigned)(intptr_t)arg;
	gcp_addr live[LIVE] = {0};

	for (int round = 0; round < ROUNDS; round++) {
		int i = rand_r(&seed) % LIVE;

		if (live[i])
			must_free(pools, live[i]);
		live[i] = must_alloc(pool, 1 + (unsigned)rand_r(&seed) %
						   (round % 16 ? 200000 : 5000000));
		if (round % 64 == 0)
			fake_submit();
		if (round % 512 == 0)
			gcp_pools_trim(pools, 0, 16 << 20);
		if (round % 700 == 0)
			must_stats(pools);
	}
	for (int i = 0; i < LIVE; i++)
		if (live[i])
			must_free(pools, live[i]);
	gcp_pools_thread_exit(pools);
	return NULL;
}

TEST(threads_allocate_and_free)
{
	run(alloc_and_free, THREADS);
	assert_int_equal(must_stats(pools).allocated_bytes.current, 0);
	gcp_pools_trim(pools, 0, 0);
	assert_int_equal(fake.memory_used, 0);
	fake_finish(pools);
}

/* --- flushed at any moment ---------------------------------------------------- */

static atomic_int busy;

/* A young cache looks at a magazine after each put; one thread takes away what the
 * others hold between any two of their instructions. */
static void *free_under_flushes(void *arg)
{
	gcp_addr live[LIVE];

	if (!arg) {
		while (atomic_load(&busy))
			gcp_pools_trim(pools, 0, 0);
		return NULL;
	}
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < LIVE; i++)
			live[i] = must_alloc(pool, 40000 + (uint64_t)i * 25000);
		for (int i = 0; i < LIVE; i++)
			must_free(pools, live[i]);
		gcp_pools_thread_exit(pools);
	}
	atomic_fetch_sub(&busy, 1);
	return NULL;
}

TEST(a_cache_may_be_flushed_between_any_two_steps_of_a_free)
{
	atomic_store(&busy, THREADS - 1);
	run(free_under_flushes, THREADS);
	assert_int_equal(must_stats(pools).allocated_bytes.current, 0);
	fake_finish(pools);
}

/* --- producers and consumers ----------------------------------------------------- */

static _Atomic gcp_addr slots[64];

static void *produce_or_consume(void *arg)
{
	bool producer = (intptr_t)arg % 2 == 0;

	for (int round = 0; round < ROUNDS; round++) {
		_Atomic gcp_addr *slot = &slots[round % 64];

		if (producer) {
			gcp_addr mine = must_alloc(pool, 10000);
			gcp_addr old = atomic_exchange(slot, mine);
			if (old)
				must_free(pools, old);
		} else {
			gcp_addr old = atomic_exchange(slot, 0);
			if (old)
				must_free(pools, old);
		}
	}
	gcp_pools_thread_exit(pools);
	return NULL;
}

TEST(any_thread_frees_what_another_allocated)
{
	run(produce_or_consume, THREADS);
	for (int i = 0; i < 64; i++)
		if (slots[i])
			must_free(pools, atomic_exchange(&slots[i], 0));
	assert_int_equal(must_stats(pools).allocation.current, 0);
	assert_true(fake.memory_used < 64 << 20);
	fake_finish(pools);
}

/* --- one block, many frees ---------------------------------------------------- */

static gcp_addr contested;
static _Atomic int freed;
static pthread_barrier_t start;

static void *free_contested(void *arg)
{
	(void)arg;
	pthread_barrier_wait(&start);
	if (gcp_pools_free(pools, contested) == 0)
		atomic_fetch_add(&freed, 1);
	gcp_pools_thread_exit(pools);
	return NULL;
}

TEST(of_racing_frees_of_one_block_one_succeeds)
{
	pthread_barrier_init(&start, NULL, THREADS);
	for (int round = 0; round < 50; round++) {
		contested = must_alloc(pool, 4096);
		freed = 0;
		run(free_contested, THREADS);
		assert_int_equal(freed, 1);
	}
	fake_finish(pools);
}

/* --- captures begin while fences are set -------------------------------------- */

static _Atomic bool stop;

static void *hold_and_release(void *arg)
{
	(void)arg;
	while (!stop) {
		gcp_pools_fences_hold(pools);
		__atomic_fetch_add(&fake.capturing, 1, __ATOMIC_SEQ_CST);
		__atomic_fetch_sub(&fake.capturing, 1, __ATOMIC_SEQ_CST);
		gcp_pools_fences_release(pools);
	}
	return NULL;
}

TEST(a_fence_and_a_capture_exclude_each_other)
{
	pthread_t holder;

	stop = false;
	pthread_create(&holder, NULL, hold_and_release, NULL);
	run(alloc_and_free, 3);
	stop = true;
	pthread_join(holder, NULL);
	assert_int_equal(fake.violations, 0);
	fake_finish(pools);
}

/* --- thread exit -------------------------------------------------------------- */

static void *leave_blocks(void *arg)
{
	(void)arg;
	for (int i = 0; i < 100; i++)
		must_free(pools, must_alloc(pool, 4096));
	gcp_pools_thread_exit(pools);
	return NULL;
}

TEST(a_thread_gives_its_blocks_back_when_it_ends)
{
	/* Each leaves less than an epoch; together they fill epochs, and then live on
	 * what the others left. */
	for (int i = 0; i < 20; i++)
		run(leave_blocks, 1);
	uint64_t allocs = fake.allocs;
	assert_true(allocs <= 4);
	for (int i = 0; i < 200; i++)
		run(leave_blocks, 1);
	assert_int_equal(fake.allocs, allocs);
	fake_finish(pools);
}

/* --- contexts that come and go ------------------------------------------------ */

static _Atomic int refused;

/* Each thread has a context of its own, which it destroys and makes again. */
static void *context_comes_and_goes(void *arg)
{
	void *ctx = (void *)(0x2000 + 0x10 * (intptr_t)arg);

	for (int round = 0; round < 300; round++) {
		struct gcp_pool *own;
		gcp_addr addrs[8];

		assert_int_equal(gcp_pool_get(pools, ctx, 0, &own), 0);
		for (int i = 0; i < 8; i++)
			addrs[i] = must_alloc(own, 4096u << i);
		for (int i = 0; i < 8; i++)
			if (gcp_pools_free(pools, addrs[i]) != 0)
				atomic_fetch_add(&refused, 1);
		gcp_pool_reset(pools, ctx);
	}
	gcp_pools_thread_exit(pools);
	return NULL;
}

TEST(a_context_that_goes_takes_nothing_of_another_along)
{
	refused = 0;
	run(context_comes_and_goes, 4);
	assert_int_equal(refused, 0);
	fake.memory_used = 0; /* it went with the contexts */
	fake_finish(pools);
}

/* --- many that wait for fences ------------------------------------------------ */

static void *free_and_wait(void *arg)
{
	(void)arg;
	for (int i = 0; i < 2000; i++) {
		fake_submit();
		must_free(pools, must_alloc(pool, 3 << 20));
	}
	gcp_pools_thread_exit(pools);
	return NULL;
}

TEST(fences_do_not_run_out_under_waiting_threads)
{
	struct gcp_config config;

	gcp_config_default(&config);
	config.blocking_free = true;
	gcp_pools_destroy(pools);
	pools = fake_pools(&config);
	pool = fake_pool(pools);
	run(free_and_wait, 4);
	uint64_t records = fake.records;
	must_free(pools, must_alloc(pool, 3 << 20));
	assert_true(fake.records > records);
	/* The window, and a segment that each thread may be adding. */
	assert_true(fake.memory_used <= (64 + 4 * 16) << 20);
	fake_finish(pools);
}

/* --- threads that idle -------------------------------------------------------- */

enum { IDLERS = 64, SMALL = 16 << 10, SMALL_COUNT = 512 };

static struct {
	pthread_mutex_t lock;
	pthread_cond_t turned;
	int turn; /* whose */
} idlers = {.lock = PTHREAD_MUTEX_INITIALIZER, .turned = PTHREAD_COND_INITIALIZER};

static void idlers_wait(int turn)
{
	pthread_mutex_lock(&idlers.lock);
	while (idlers.turn != turn)
		pthread_cond_wait(&idlers.turned, &idlers.lock);
	pthread_mutex_unlock(&idlers.lock);
}

static void *work_and_idle(void *arg)
{
	static gcp_addr live[SMALL_COUNT];
	int me = (int)(intptr_t)arg;

	idlers_wait(me);
	for (int i = 0; i < SMALL_COUNT; i++)
		live[i] = must_alloc(pool, SMALL);
	for (int i = 0; i < SMALL_COUNT; i++)
		must_free(pools, live[i]);
	pthread_mutex_lock(&idlers.lock);
	idlers.turn++;
	pthread_cond_broadcast(&idlers.turned);
	pthread_mutex_unlock(&idlers.lock);
	idlers_wait(IDLERS);
	gcp_pools_thread_exit(pools);
	return NULL;
}

/* One after the other needs 8 MiB of small blocks and is idle from then on. */
TEST(idle_threads_keep_little_from_those_that_work)
{
	pthread_t threads[IDLERS];

	for (int i = 0; i < IDLERS; i++)
		pthread_create(&threads[i], NULL, work_and_idle, (void *)(intptr_t)i);
	for (int i = 0; i < IDLERS; i++)
		pthread_join(threads[i], NULL);
	/* What fifteen may keep without more ado. */
	assert_true(must_stats(pools).reserved_bytes.peak <= (15 * 8) << 20);
	fake_finish(pools);
}

/* --- one barrier for all caches --- */

static pthread_barrier_t kept, seen;

static void *keep_until_seen(void *arg)
{
	(void)arg;
	must_free(pools, must_alloc(pool, SMALL));
	pthread_barrier_wait(&kept);
	pthread_barrier_wait(&seen);
	gcp_pools_thread_exit(pools);
	return NULL;
}

/* None where owners execute one themselves. */
static void must_set_one_barrier(unsigned long before)
{
	assert_int_equal(fake_barriers() - before, !atomic_load(&gcp_owners_fenced));
}

TEST(a_flush_sets_one_barrier_for_all_caches)
{
	pthread_t threads[THREADS];
	unsigned long before;

	pthread_barrier_init(&kept, NULL, THREADS + 1);
	pthread_barrier_init(&seen, NULL, THREADS + 1);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, keep_until_seen, NULL);
	pthread_barrier_wait(&kept);
	gcp_caches_flush(pool); /* the first one makes itself known to the kernel */
	before = fake_barriers();
	gcp_caches_flush(pool);
	must_set_one_barrier(before);
	before = fake_barriers();
	(void)gcp_caches_flush_quiet(pool, UINT64_MAX);
	must_set_one_barrier(before);
	before = fake_barriers();
	(void)gcp_pool_allocated(pool);
	must_set_one_barrier(before);
	pthread_barrier_wait(&seen);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	before = fake_barriers();
	gcp_caches_flush(pool); /* for none */
	assert_int_equal(fake_barriers(), before);
	fake_finish(pools);
}
