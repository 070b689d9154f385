/* SPDX-License-Identifier: MIT */
/*
 * call_stats.c - counts of the program's calls that pass through. See report.h.
 */

#include "../base/clock.h"
#include "report.h"

struct gcp_call_stats gcp_call_stats[GCP_COUNTED_CALL_COUNT];
_Atomic uint64_t gcp_call_stats_start_ns;

void gcp_call_stats_begin(void)
{
	uint64_t none = 0;

	atomic_compare_exchange_strong(&gcp_call_stats_start_ns, &none, gcp_clock_ns());
}

void gcp_call_stats_add(enum gcp_counted_call call, uint64_t start_ns, uint64_t bytes,
			int result)
{
	struct gcp_call_stats *stats = &gcp_call_stats[call];
	uint64_t ns = gcp_clock_ns() - start_ns;

	atomic_fetch_add_explicit(&stats->count, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&stats->ns, ns, memory_order_relaxed);
	if (result != 0)
		atomic_fetch_add_explicit(&stats->failed, 1, memory_order_relaxed);
	else
		atomic_fetch_add_explicit(&stats->bytes, bytes, memory_order_relaxed);
}
