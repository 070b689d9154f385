/* SPDX-License-Identifier: MIT */
/*
 * call_stats.c - counts of the program's calls that pass through. See report.h.
 */

#include "../base/clock.h"
#include "call_stats.h"

static struct {
	_Atomic(uint64_t) start_ns;
	struct {
		_Atomic(uint64_t) count, failed, bytes, ns, held;
	} calls[GCP_COUNTED_CALL_COUNT];
} call_stats;

/* --- calls --------------------------------------------------------------------- */

void gcp_call_stats_begin(void)
{
	uint64_t none = 0;

	atomic_compare_exchange_strong(&call_stats.start_ns, &none, gcp_clock_ns());
}

uint64_t gcp_call_stats_start_ns(void)
{
	return atomic_load(&call_stats.start_ns);
}

void gcp_call_stats_add(enum gcp_counted_call call, uint64_t start_ns, uint64_t bytes,
			int result)
{
	uint64_t ns = gcp_clock_ns() - start_ns;

	atomic_fetch_add_explicit(&call_stats.calls[call].count, 1,
				  memory_order_relaxed);
	atomic_fetch_add_explicit(&call_stats.calls[call].ns, ns, memory_order_relaxed);
	if (result != 0)
		atomic_fetch_add_explicit(&call_stats.calls[call].failed, 1,
					  memory_order_relaxed);
	else if (bytes > 0)
		atomic_fetch_add_explicit(&call_stats.calls[call].bytes, bytes,
					  memory_order_relaxed);
}

void gcp_call_stats_hold(enum gcp_counted_call call, int64_t bytes)
{
	atomic_fetch_add(&call_stats.calls[call].held, bytes);
}

void gcp_call_stats_get(enum gcp_counted_call call, struct gcp_call_stats_sum *ret_sum)
{
	ret_sum->count = atomic_load(&call_stats.calls[call].count);
	ret_sum->failed = atomic_load(&call_stats.calls[call].failed);
	ret_sum->bytes = atomic_load(&call_stats.calls[call].bytes);
	ret_sum->ns = atomic_load(&call_stats.calls[call].ns);
	ret_sum->held = atomic_load(&call_stats.calls[call].held);
}
