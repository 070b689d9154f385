/* SPDX-License-Identifier: MIT */
/*
 * process.c - see process.h.
 */
#include <signal.h>

#include "elfwalk.h"
#include "process.h"

struct gcp_process gcp_process = {.runtime_lock = GCP_MUTEX(GCP_RANK_RUNTIME)};

static const _Atomic uint32_t unresolved = 1, none = 0;
static const _Atomic uint64_t all_streams = UINT64_MAX;

struct gcp_watch gcp_watch = {
    .submissions = &unresolved,
    .streams = &all_streams,
    .shares = &none,
};

void gcp_watch_resolved(void)
{
	const _Atomic uint32_t *expected = &unresolved;

	atomic_compare_exchange_strong(&gcp_watch.submissions, &expected, &none);
}

__thread struct gcp_thread gcp_thread
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

static _Atomic uint64_t given;

void gcp_given(void)
{
	gcp_thread.given++;
	atomic_fetch_add(&given, 1);
}

uint64_t gcp_given_by_others(void)
{
	return atomic_load(&given) - gcp_thread.given;
}

bool gcp_thread_create(pthread_t *ret_thread, void *(*run)(void *), void *arg)
{
	int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
	sigset_t all, before; /* of this thread: Linux means no more by sigprocmask */
	bool created;

	assert(run);
	*(void **)&create = gcp_elf_libc_symbol("pthread_create");
	if (!create)
		return false;
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before);
	created = create(ret_thread, NULL, run, arg) == 0;
	sigprocmask(SIG_SETMASK, &before, NULL);
	return created;
}

void gcp_watch_nothing(void)
{
	atomic_store(&gcp_watch.submissions, &none);
	atomic_store(&gcp_watch.streams, &all_streams);
	atomic_store(&gcp_watch.shares, &none);
}
