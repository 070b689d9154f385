/* SPDX-License-Identifier: MIT */
/*
 * watched.c - programs that are recorded or looked at, and do what few programs do.
 *
 *   watched SCENARIO    plays one; 0: nothing has happened to the program
 */
#include "../preload/edge_cases.h"

/* --- threads that are cancelled ----------------------------------------------- */

/* So many events need several pieces of a recording. */
enum { PAIRS = 30000 };

static CUcontext ctx;
static bool through;

static void pairs(int count)
{
	for (int i = 0; i < count; i++)
		OK(cuMemFree(allocated(4096)));
}

static void *is_cancelled(void *count)
{
	OK(cuCtxSetCurrent(ctx));
	pthread_cancel(pthread_self()); /* pending until a cancellation point */
	pairs((int)(uintptr_t)count);
	through = true;
	return NULL;
}

static void cancelled_once(int count)
{
	pthread_t victim;

	through = false;
	pthread_create(&victim, NULL, is_cancelled, (void *)(uintptr_t)count);
	pthread_join(victim, NULL);
	must(through, "a thread has ended inside a call");
}

static void a_cancelled_thread_leaves_no_lock(void)
{
	ctx = primary();
	pairs(1);
	cancelled_once(PAIRS);
	alarm(20); /* a lock that is left taken is waited for without end */
	pairs(PAIRS);
}

/* For gcpool ctl: whatever is asked for, a thread that is cancelled answers. */
static void cancelled_threads_come_and_go(void)
{
	ctx = primary();
	while (!wrong) {
		cancelled_once(100);
		usleep(1000);
	}
}

static const struct scenario scenarios[] = {
    SCENARIO(a_cancelled_thread_leaves_no_lock),
    SCENARIO(cancelled_threads_come_and_go),
};

int main(int argc, char **argv)
{
	return scenario_play(scenarios, sizeof(scenarios) / sizeof(*scenarios), argc,
			     argv);
}
