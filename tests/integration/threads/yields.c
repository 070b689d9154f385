/* SPDX-License-Identifier: MIT */
/*
 * yields.c - to be preloaded: a thread that takes or leaves a mutex goes on at once, or
 * lets others run first, or sleeps for a moment. What goes wrong only if a thread is
 * held up between two locks happens once in days on an idle machine, and here at once.
 *
 *   GCPT_YIELD_SEED=N   what is drawn; without it the clock says. Of a program that
 *                       fails the seed is printed. Threads are not played by it: the
 *                       same seed finds the same again often, not always.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { OF = 200, YIELD = 20, SLEEP = 1, SLEEP_US = 300 };

typedef int mutex_call(pthread_mutex_t *mutex);

static uint64_t seed;
static atomic_uint threads;
static __thread uint64_t random_state;

static void say_seed(int code, void *unused)
{
	(void)unused;
	if (code != 0)
		fprintf(stderr, "GCPT_YIELD_SEED=%llu\n", (unsigned long long)seed);
}

__attribute__((constructor)) static void seed_set(void)
{
	const char *text = getenv("GCPT_YIELD_SEED");
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	seed = text ? strtoull(text, NULL, 0) : (uint64_t)now.tv_nsec;
	on_exit(say_seed, NULL);
}

static void yield(void)
{
	uint64_t draw;

	if (random_state == 0)
		random_state = (seed + 1) * 0x9e3779b97f4a7c15u +
			       atomic_fetch_add(&threads, 1) * 2 + 1;
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	draw = random_state >> 33;
	if (draw % OF < SLEEP)
		usleep((useconds_t)(draw / OF % SLEEP_US));
	else if (draw % OF < YIELD)
		sched_yield();
}

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
	static mutex_call *real;

	if (!real)
		real = (mutex_call *)dlsym(RTLD_NEXT, "pthread_mutex_lock");
	yield();
	return real(mutex);
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	static mutex_call *real;
	int code;

	if (!real)
		real = (mutex_call *)dlsym(RTLD_NEXT, "pthread_mutex_unlock");
	code = real(mutex);
	yield();
	return code;
}
