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

TEST(a_trim_empties_the_depot)
{
	freed_by_another();

	gcp_pools_trim(pools, 0, 0);
	assert_int_equal(in_depots(), 0);
	assert_int_equal(fake.memory_used, 0);
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
