/* SPDX-License-Identifier: MIT */
/*
 * test_locks.c - the ranks of locks; and owner and remote thread of a cache, each as
 * fast as it can, on two processors. What keeps these apart is one barrier that the
 * remote thread has the kernel set in the owner's name (pool/base/lock.c): without it
 * the owner's word that it is inside can still be on its way when the remote thread
 * looks.
 *
 *   test_locks [FROM ROUNDS]: so many rounds; where the two threads seldom run at the
 *   same moment, many are needed to see that the barrier is missing
 */
#include "fake.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUND_MS = 200, MEETINGS = 20000 };

static struct gcp_owner own;
static volatile unsigned long sum; /* what one of two has written at once is lost */
static unsigned long owners;
static atomic_bool over;
static unsigned long rounds = 1;

static void *own_it(void *arg)
{
	while (!atomic_load_explicit(&over, memory_order_relaxed)) {
		gcp_owner_lock(&own);
		sum = sum + 1;
		gcp_owner_unlock(&own);
		owners++;
	}
	return NULL;
}

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* How often, until the time is over or the two have met often enough. */
static unsigned long lock_remotely(void)
{
	unsigned long remote_locks = 0, last = 0, meetings = 0;
	long end = now_ms() + ROUND_MS;
	struct gcp_mutex registry;

	gcp_mutex_init(&registry, GCP_RANK_REGISTRY);
	gcp_mutex_lock(&registry);
	while (meetings < MEETINGS && (remote_locks % 64 != 0 || now_ms() < end)) {
		gcp_remote_announce(&own);
		gcp_remote_barrier();
		gcp_rank_take(GCP_RANK_CACHE);
		gcp_remote_lock(&own);
		meetings += sum != last;
		last = sum = sum + 1;
		gcp_remote_unlock(&own);
		gcp_rank_drop(GCP_RANK_CACHE);
		remote_locks++;
	}
	gcp_mutex_unlock(&registry);
	return remote_locks;
}

static void a_remote_thread_sees_an_owner_that_has_just_come(void **state)
{
	for (unsigned long round = 0; round < rounds; round++) {
		unsigned long remote_locks;
		pthread_t thread;

		atomic_store(&over, false);
		sum = owners = 0;
		pthread_create(&thread, NULL, own_it, NULL);
		remote_locks = lock_remotely();
		atomic_store(&over, true);
		pthread_join(thread, NULL);
		assert_int_equal(sum, owners + remote_locks);
	}
}

/* --- ranks ---------------------------------------------------------------------- */

#ifndef NDEBUG

static struct gcp_mutex pool_lock, fence_lock;

static void in_order(void)
{
	gcp_mutex_lock(&pool_lock);
	gcp_mutex_lock(&fence_lock);
	gcp_assert_held(GCP_RANK_POOL);
	gcp_mutex_unlock(&pool_lock);
	gcp_assert_held(GCP_RANK_FENCE);
	gcp_mutex_unlock(&fence_lock);
	gcp_mutex_lock(&pool_lock);
}

static void out_of_order(void)
{
	gcp_mutex_lock(&fence_lock);
	gcp_mutex_lock(&pool_lock);
}

static void two_of_a_rank(void)
{
	struct gcp_mutex other;

	gcp_mutex_init(&other, GCP_RANK_POOL);
	gcp_mutex_lock(&pool_lock);
	gcp_mutex_lock(&other);
}

static void without_the_lock(void)
{
	gcp_mutex_lock(&fence_lock);
	gcp_assert_held(GCP_RANK_POOL);
}

static void unlocked_by_another(void)
{
	gcp_mutex_unlock(&pool_lock);
}

static void remote_without_registry(void)
{
	gcp_remote_lock(&own);
}

static void remote_under_the_pool(void)
{
	in_order();
	gcp_rank_take(GCP_RANK_CACHE);
}

/* The signal that ends a process which does so; 0: none. */
static int signal_of(void (*locks)(void))
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		const struct rlimit none = {0, 0};

		setrlimit(RLIMIT_CORE, &none);
		fclose(stderr);
		locks();
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void locks_are_taken_in_the_order_of_ranks(void **state)
{
	gcp_mutex_init(&pool_lock, GCP_RANK_POOL);
	gcp_mutex_init(&fence_lock, GCP_RANK_FENCE);
	assert_int_equal(signal_of(in_order), 0);
	assert_int_equal(signal_of(out_of_order), SIGABRT);
	assert_int_equal(signal_of(two_of_a_rank), SIGABRT);
	assert_int_equal(signal_of(without_the_lock), SIGABRT);
	assert_int_equal(signal_of(unlocked_by_another), SIGABRT);
	assert_int_equal(signal_of(remote_without_registry), SIGABRT);
	assert_int_equal(signal_of(remote_under_the_pool), SIGABRT);
}

#endif

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
#ifndef NDEBUG
	    cmocka_unit_test(locks_are_taken_in_the_order_of_ranks),
#endif
	    cmocka_unit_test(a_remote_thread_sees_an_owner_that_has_just_come),
	};

	if (argc > 2)
		rounds = strtoul(argv[2], NULL, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
