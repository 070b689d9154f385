/* SPDX-License-Identifier: MIT */
/*
 * yields.c - to be preloaded: a thread that takes or leaves a mutex goes on at once, or
 * lets others run first, or sleeps for a moment. What goes wrong only if a thread is
 * held up between two locks happens once in days on an idle machine, and here at once.
 *
 *   GCPT_YIELD_SEED=N   what is drawn. Threads are not played by it: the same seed
 *                       finds the same again often, not always.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { OF = 200, YIELD = 20, SLEEP = 1, SLEEP_US = 1000 };

typedef int mutex_call(pthread_mutex_t *mutex);

static void yield(void)
{
	static atomic_uint threads;
	static __thread unsigned random_state;
	const char *seed = random_state ? NULL : getenv("GCPT_YIELD_SEED");
	unsigned draw;

	if (random_state == 0)
		random_state = (unsigned)strtoul(seed ? seed : "0", NULL, 0) * 64 +
			       atomic_fetch_add(&threads, 1) + 1;
	draw = (unsigned)rand_r(&random_state);
	if (draw % OF < SLEEP)
		usleep(draw / OF % SLEEP_US);
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
