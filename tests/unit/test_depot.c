/* SPDX-License-Identifier: MIT */
/*
 * test_depot.c - what threads share: batches of freed blocks, the window, and the
 * two small locks. Looks behind pool.h, where the rules are.
 */
#include "fake.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "../../pool/cache/cache.h"
#include "../../pool/base/lock.h"
#include "cases.h"

#define TEST(name) CASE(name, setup, teardown)

enum { COUNT = 64, BATCH = 8, SIZE = 10240 };

static struct gcp_pools *pools;
static struct gcp_pool *pool;

static void open_with_window(uint64_t window_bytes)
{
	struct gcp_config config;

	gcp_config_default(&config);
	config.window_bytes = window_bytes;
	config.window_blocks = BATCH;
	config.blocking_free = true; /* what is freed is ready */
	fake_reset();
	pools = fake_pools(&config);
	pool = fake_pool(pools);
}

static int setup(void **state)
{
	(void)state;
	open_with_window(64 << 20);
	return 0;
}

/* Another thread with a cache of its own, while there is one. */
static struct {
	pthread_t thread;
	pthread_barrier_t here, there;
	bool lives;
} other;

static void other_thread_end(void)
{
	if (!other.lives)
		return;
	other.lives = false;
	pthread_barrier_wait(&other.there);
	pthread_join(other.thread, NULL);
	pthread_barrier_destroy(&other.here);
	pthread_barrier_destroy(&other.there);
}

static int teardown(void **state)
{
	(void)state;
	other_thread_end();
	gcp_pools_thread_exit(pools);
	fake_finish(pools);
	return 0;
}

/* --- batches ------------------------------------------------------------------ */

static gcp_addr blocks[COUNT];

/* Another thread, which lives until it is let go, frees them all. */
static void *free_all(void *arg)
{
	(void)arg;
	for (int i = 0; i < COUNT; i++)
		must_free(pools, blocks[i]);
	pthread_barrier_wait(&other.here);
	pthread_barrier_wait(&other.there);
	gcp_pools_thread_exit(pools);
	return NULL;
}

static void freed_by_another(void)
{
	pthread_barrier_init(&other.here, NULL, 2);
	pthread_barrier_init(&other.there, NULL, 2);
	for (int i = 0; i < COUNT; i++)
		blocks[i] = must_alloc(pool, SIZE);
	pthread_create(&other.thread, NULL, free_all, NULL);
	pthread_barrier_wait(&other.here);
	other.lives = true;
	must_be_sound(pools);
}

static int64_t in_depots(void)
{
	return atomic_load(&pool->depot_bytes);
}

/* At the head of a batch. No thread could empty such a depot: no test can go on. */
static void depot_must_not_have(gcp_addr addr)
{
	const struct gcp_block *first =
	    pool->depots[gcp_class_of(&pools->classes, SIZE)].first;

	if (first && first->addr == addr)
		abort();
}

TEST(what_another_thread_freed_comes_in_batches)
{
	gcp_addr again[COUNT];
	int64_t waiting;

	freed_by_another();
	waiting = in_depots();
	assert_true(waiting >= (COUNT / BATCH - 3) * BATCH * SIZE);
	assert_int_equal(waiting % (BATCH * SIZE), 0);
	for (int i = 0; i < waiting / SIZE; i++) {
		again[i] = must_alloc(pool, SIZE);
		depot_must_not_have(again[i]);
		for (int j = 0; j < i; j++)
			assert_int_not_equal(again[i], again[j]);
		must_be_sound(pools);
	}
	assert_int_equal(in_depots(), 0);
	for (int i = 0; i < waiting / SIZE; i++)
		must_free(pools, again[i]);
}

static void put_batch(struct gcp_block *block, uint64_t epoch)
{
	struct gcp_chain chain;

	*block = (struct gcp_block){
	    .epoch = epoch,
	    .size = SIZE,
	    .size_class = (uint16_t)gcp_class_of(&pools->classes, SIZE),
	};
	gcp_chain_init(&chain);
	gcp_chain_append(&chain, block, &block->next, 1);
	gcp_depot_put(pool, &chain);
	assert_null(chain.first);
}

/* The epoch of the batch that `chain` is exchanged for; 0: of none. */
static uint64_t exchange(struct gcp_chain *chain)
{
	uint32_t size_class = gcp_class_of(&pools->classes, SIZE);

	return gcp_depot_exchange(pool, size_class, chain) ? chain->first->epoch : 0;
}

TEST(the_oldest_batch_is_taken_first)
{
	static const uint64_t epochs[] = {30, 50, 20, 40, 10};
	struct gcp_block made[5];
	struct gcp_chain chain = {0};

	freed_by_another();
	gcp_caches_flush(pool);
	for (int i = 0; i < 5; i++)
		put_batch(&made[i], epochs[i]);
	assert_int_equal(exchange(&chain), 10);
	assert_int_equal(exchange(&chain), 0); /* there are younger ones only */
	chain = (struct gcp_chain){0};
	assert_int_equal(exchange(&chain), 20);
	chain = (struct gcp_chain){0};
	for (uint64_t epoch = 30; epoch <= 50;
	     epoch += 10, chain = (struct gcp_chain){0})
		assert_int_equal(exchange(&chain), epoch);
	assert_int_equal(in_depots(), 0);
	/* A young one waits at its place when it was exchanged. */
	put_batch(&made[0], 10);
	put_batch(&made[1], 30);
	made[2].epoch = 20;
	chain = (struct gcp_chain){&made[2], &made[2].next, 1};
	assert_int_equal(exchange(&chain), 10);
	for (uint64_t epoch = 20; epoch <= 30; epoch += 10) {
		chain = (struct gcp_chain){0};
		assert_int_equal(exchange(&chain), epoch);
	}
}

enum { LEFT = 5, WANTING_SIZE = 64 << 10 };

/* Batches of one class lie in the depots, and one of another class needs all there is.
 * After how many attempts it is there, of twice as many as there are classes; 0: never.
 * *ret_gone: what made room. */
static uint32_t attempts_till_room(bool asked_for, struct gcp_chain *ret_gone)
{
	static struct gcp_block left[LEFT], wanting;
	struct gcp_chain older = {&(struct gcp_block){.size = SIZE}, NULL, 1};
	uint32_t most = 2 * pools->classes.count;

	freed_by_another();
	gcp_caches_flush(pool);
	for (int i = 0; i < LEFT; i++)
		put_batch(&left[i], 1 + (uint64_t)i);
	wanting = (struct gcp_block){
	    .size = gcp_window_depot_bytes(pool),
	    .size_class = (uint16_t)gcp_class_of(&pools->classes, WANTING_SIZE),
	};
	for (uint32_t i = 1; i <= most; i++) {
		if (asked_for)
			assert_int_equal(exchange(&older), 0);
		*ret_gone = (struct gcp_chain){&wanting, &wanting.next, 1};
		gcp_depot_put(pool, ret_gone);
		if (ret_gone->first != &wanting)
			return i;
	}
	return 0;
}

TEST(a_class_that_no_thread_asks_for_loses_its_place)
{
	struct gcp_chain gone;
	uint32_t attempts = attempts_till_room(false, &gone);

	assert_in_range(attempts, 1, pools->classes.count);
	assert_int_equal(gone.count, LEFT);
	assert_int_equal(gone.first->size, SIZE);
	assert_int_equal(in_depots(), gcp_window_depot_bytes(pool));
	gcp_depot_drain(pool, UINT64_MAX, &gone);
	assert_int_equal(in_depots(), 0);
}

TEST(a_class_that_is_asked_for_keeps_its_place)
{
	struct gcp_chain gone;

	assert_int_equal(attempts_till_room(true, &gone), 0);
	assert_int_equal(gone.count, 1);
	assert_int_equal(in_depots(), LEFT * SIZE);
	gcp_depot_drain(pool, UINT64_MAX, &gone);
}

TEST(the_depot_is_bounded)
{
	teardown(NULL);
	open_with_window(1 << 20);
	freed_by_another();
	assert_true(in_depots() > 0);
	assert_true(in_depots() <= (1 << 20) / 2);
}

TEST(a_trim_empties_the_depot)
{
	freed_by_another();

	gcp_pools_trim(pools, 0, 0);
	assert_int_equal(in_depots(), 0);
	assert_int_equal(fake.memory_used, 0);
}

TEST(a_thread_alone_leaves_nothing_for_others)
{
	for (int i = 0; i < COUNT; i++)
		blocks[i] = must_alloc(pool, SIZE);
	for (int i = 0; i < COUNT; i++)
		must_free(pools, blocks[i]);
	assert_int_equal(in_depots(), 0);
}

TEST(threads_share_the_window)
{
	freed_by_another();

	assert_int_equal(atomic_load(&pool->cache_count), 2);
	assert_int_equal(gcp_window_of_thread(pool).bytes, gcp_window(pool).bytes / 2);
	other_thread_end();
	assert_int_equal(gcp_window_of_thread(pool).bytes, gcp_window(pool).bytes);
}

TEST(what_threads_keep_is_used_before_memory_grows)
{
	enum { FILL = 35 };
	gcp_addr small[FILL];
	uint64_t allocs;

	for (int i = 0; i < FILL; i++) /* a segment, all of it */
		small[i] = must_alloc(pool, 512 << 10);
	allocs = fake.allocs;
	assert_int_equal(allocs, 1);
	for (int i = 0; i < 4; i++)
		must_free(pools, small[i]);
	must_free(pools, must_alloc(pool, 1 << 20));
	assert_int_equal(fake.allocs, allocs);
	for (int i = 4; i < FILL; i++)
		must_free(pools, small[i]);
}

static uint8_t state_at(gcp_addr addr)
{
	const struct gcp_block *block = gcp_map_find(pools->map, addr);

	assert_non_null(block);
	return atomic_load(&block->state);
}

/* The heap's lock is for all: one of many threads takes the next blocks as well, and
 * a free of one is refused before the program has it. */
TEST(one_of_many_threads_takes_several_blocks)
{
	enum { BYTES = 64 << 10 };
	gcp_addr first, second, third;

	first = must_alloc(pool, BYTES);
	assert_int_not_equal(state_at(first + BYTES), GCP_BLOCK_CACHED);
	atomic_fetch_add(&pool->cache_count, 2);
	gcp_windows_update(pools);
	second = must_alloc(pool, BYTES);
	assert_int_equal(second, first + BYTES);
	for (int i = 1; i <= 2; i++) {
		assert_int_equal(state_at(second + i * BYTES), GCP_BLOCK_CACHED);
		assert_int_equal(gcp_pools_free(pools, second + i * BYTES), -EINVAL);
	}
	assert_int_not_equal(state_at(second + 3 * BYTES), GCP_BLOCK_CACHED);
	third = must_alloc(pool, BYTES);
	assert_int_equal(third, second + BYTES);
	must_be_sound(pools);
	atomic_fetch_sub(&pool->cache_count, 2);
	must_free(pools, first);
	must_free(pools, second);
	must_free(pools, third);
}

/* Blocks of a size that is not asked for again would only be cut and put together. */
TEST(of_a_size_of_no_use_again_a_thread_takes_one)
{
	enum { BYTES = 64 << 10 };
	gcp_addr taken[6];

	atomic_fetch_add(&pool->cache_count, 2);
	gcp_windows_update(pools);
	for (int i = 0; i < 6; i++) {
		taken[i] = must_alloc(pool, i % 2 ? BYTES : 2 * BYTES);
		assert_int_not_equal(state_at(taken[i] + (i % 2 ? 1 : 2) * BYTES),
				     GCP_BLOCK_CACHED);
	}
	must_be_sound(pools);
	atomic_fetch_sub(&pool->cache_count, 2);
	for (int i = 0; i < 6; i++)
		must_free(pools, taken[i]);
}

/* --- locks -------------------------------------------------------------------- */

enum { TURNS = 3000 };

static struct gcp_owner own;
static struct gcp_spin spin;
static struct {
	int a, b;
} owners, remotes, shared;
static _Atomic int wrong;
static _Atomic int owner_turns, spins;
static atomic_bool remote_locks_over;
static struct gcp_mutex registry;

/* Remote threads exclude each other by the registry's lock. */
static void remote_lock(struct gcp_owner *owner)
{
	gcp_mutex_lock(&registry);
	gcp_remote_lock(owner);
}

static void remote_unlock(struct gcp_owner *owner)
{
	gcp_remote_unlock(owner);
	gcp_mutex_unlock(&registry);
}

/* Threads that yield to a busy machine take minutes for what else takes 50 ms. */
static bool seconds_over(time_t since)
{
	return time(NULL) - since > 5;
}

/* A thread that comes in between finds the two unequal. */
static void step(int *a, int *b, int turn)
{
	++*a;
	if (turn % 16 == 0)
		sched_yield();
	++*b;
}

static void *lock_remotely(void *arg)
{
	time_t start = time(NULL);

	(void)arg;
	/* Both must have had their share: on a busy machine one may begin late. */
	for (int turn = 0; !seconds_over(start) &&
			   (turn < TURNS || atomic_load(&owner_turns) < TURNS);
	     turn++) {
		remote_lock(&own);
		if (owners.a != owners.b)
			atomic_fetch_add(&wrong, 1);
		step(&remotes.a, &remotes.b, turn);
		remote_unlock(&own);
	}
	atomic_store(&remote_locks_over, true);
	return NULL;
}

CASE(owner_and_remote_thread_exclude_each_other, NULL, NULL)
{
	pthread_t thread;

	gcp_owner_lock_init(&own);
	gcp_mutex_init(&registry, GCP_RANK_REGISTRY);
	atomic_store(&wrong, 0);
	pthread_create(&thread, NULL, lock_remotely, NULL);
	for (int turn = 0; !atomic_load(&remote_locks_over); turn++) {
		gcp_owner_lock(&own);
		if (remotes.a != remotes.b)
			atomic_fetch_add(&wrong, 1);
		step(&owners.a, &owners.b, turn);
		gcp_owner_unlock(&own);
		atomic_store(&owner_turns, turn);
	}
	pthread_join(thread, NULL);
	assert_int_equal(wrong, 0);
}

/* Each of these says that it comes, and then that it is in. */
static _Atomic int stage;

static void *come_as_remote_thread(void *arg)
{
	(void)arg;
	atomic_store(&stage, 1);
	remote_lock(&own);
	atomic_store(&stage, 2);
	remote_unlock(&own);
	return NULL;
}

static void *come_as_owner(void *arg)
{
	(void)arg;
	atomic_store(&stage, 1);
	gcp_owner_lock(&own);
	atomic_store(&stage, 2);
	gcp_owner_unlock(&own);
	return NULL;
}

/* A thread that does not wait is in long before the pause is over. */
static void must_stay_outside(void *(*come)(void *), void (*let_in)(struct gcp_owner *))
{
	const struct timespec pause = {.tv_nsec = 50 * 1000 * 1000};
	pthread_t thread;

	atomic_store(&stage, 0);
	pthread_create(&thread, NULL, come, NULL);
	while (atomic_load(&stage) == 0)
		sched_yield();
	nanosleep(&pause, NULL);
	assert_int_equal(atomic_load(&stage), 1);
	let_in(&own);
	pthread_join(thread, NULL);
	assert_int_equal(atomic_load(&stage), 2);
}

CASE(a_remote_thread_waits_for_the_owner, NULL, NULL)
{
	gcp_owner_lock_init(&own);
	gcp_mutex_init(&registry, GCP_RANK_REGISTRY);
	gcp_owner_lock(&own);
	must_stay_outside(come_as_remote_thread, gcp_owner_unlock);
}

CASE(the_owner_waits_for_a_remote_thread, NULL, NULL)
{
	gcp_owner_lock_init(&own);
	gcp_mutex_init(&registry, GCP_RANK_REGISTRY);
	remote_lock(&own);
	must_stay_outside(come_as_owner, remote_unlock);
}

static void *spin_about(void *arg)
{
	time_t start = time(NULL);

	(void)arg;
	for (int turn = 0; turn < 10 * TURNS && !seconds_over(start); turn++) {
		atomic_fetch_add(&spins, 1);
		gcp_spin_lock(&spin);
		if (shared.a != shared.b)
			atomic_fetch_add(&wrong, 1);
		step(&shared.a, &shared.b, turn);
		gcp_spin_unlock(&spin);
	}
	return NULL;
}

CASE(a_spin_lock_has_one_holder, NULL, NULL)
{
	pthread_t threads[3];

	atomic_store(&wrong, 0);
	atomic_store(&spins, 0);
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, spin_about, NULL);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(wrong, 0);
	assert_int_equal(shared.a, spins);
}
