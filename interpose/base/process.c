/* SPDX-License-Identifier: MIT */
/*
 * process.c - see process.h.
 */
#include "process.h"

struct gcp_process gcp_process;

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

bool gcp_others_gave(void)
{
	uint64_t others = atomic_load(&given) - gcp_thread.given;
	bool gave = others != gcp_thread.others_gave;

	gcp_thread.others_gave = others;
	return gave;
}

void gcp_watch_nothing(void)
{
	atomic_store(&gcp_watch.submissions, &none);
	atomic_store(&gcp_watch.streams, &all_streams);
	atomic_store(&gcp_watch.shares, &none);
}
