/* SPDX-License-Identifier: MIT */
/*
 * test_locks.c - owner and remote thread of a cache, each as fast as he can, on two
 * processors. What keeps them apart is one barrier that the remote thread has the
 * kernel set in the owner's name (pool/lock.c): without it the owner's word that he is
 * inside can still be on its way when the remote thread looks.
 *
 *   test_locks [FROM ROUNDS]: so many rounds; where the two threads seldom run at the
 *   same moment, many are needed to see that the barrier is missing
 */
#include "fake.h"

#include "../../pool/pool_types.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { ROUND_MS = 200, MEETINGS = 20000 };

static struct gcp_owner own;
static volatile unsigned long sum; /* what one of two has written at once is lost */
static unsigned long owners;
static atomic_bool over;
static unsigned long rounds = 1;

static void *own_it(void *arg)
{
	(void)arg;
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

	while (meetings < MEETINGS && (remote_locks % 64 != 0 || now_ms() < end)) {
		gcp_remote_lock(&own);
		meetings += sum != last;
		last = sum = sum + 1;
		gcp_remote_unlock(&own);
		remote_locks++;
	}
	return remote_locks;
}

static void a_remote_thread_sees_an_owner_who_has_just_come(void **state)
{
	(void)state;
	for (unsigned long round = 0; round < rounds; round++) {
		unsigned long remote_locks;
		pthread_t thread;

		gcp_owner_lock_init(&own);
		atomic_store(&over, false);
		sum = owners = 0;
		pthread_create(&thread, NULL, own_it, NULL);
		remote_locks = lock_remotely();
		atomic_store(&over, true);
		pthread_join(thread, NULL);
		assert_int_equal(sum, owners + remote_locks);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_remote_thread_sees_an_owner_who_has_just_come),
	};

	if (argc > 2)
		rounds = strtoul(argv[2], NULL, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
