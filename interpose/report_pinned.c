/* SPDX-License-Identifier: MIT */
/*
 * report_pinned.c - what the report says of pinned host memory. See report.h.
 *
 * Every gauge, counter and call of pool.h appears by itself, as in report.c.
 */
#include <string.h>

#include "report.h"

#define ULL(number) ((unsigned long long)(number))

static uint64_t mean_ns(const struct gcp_pinned_time *time)
{
	return time->count ? time->total_ns / time->count : 0;
}

/* --- text ---------------------------------------------------------------------- */

#define WORDS_host_alloc        "cuMemHostAlloc: new blocks"
#define WORDS_host_free         "cuMemFreeHost: blocks given back"
#define WORDS_host_fence_record "a page of frees is closed, in every context"
#define WORDS_host_fence_query  "is an epoch completed?"
#define WORDS_host_fence_wait   "a free waits for a page"

static void time_text(const char *name, const char *meaning,
		      const struct gcp_pinned_time *time, struct gcp_text *text)
{
	if (time->count > 0)
		gcp_text_add(text, "    %-17s %8llu %10.3f %10.3f %10.3f %10.3f  %s\n",
			     name, ULL(time->count), (double)time->total_ns / 1e6,
			     (double)mean_ns(time) / 1e3, (double)time->min_ns / 1e3,
			     (double)time->max_ns / 1e3, meaning);
}

static void buckets_text(const struct gcp_pinned_stats *stats, struct gcp_text *text)
{
	gcp_text_add(text, "  blocks (held) from a power of two on:");
	for (int i = 0; i < GCP_PINNED_POWERS; i++)
		if (stats->bucket_allocation[i])
			gcp_text_add(text, "  2^%d: %llu (%llu)", i,
				     ULL(stats->bucket_allocation[i]),
				     ULL(stats->bucket_active[i]));
	gcp_text_add(text, "\n");
}

void gcp_report_host_text(const struct gcp_pinned_stats *stats, struct gcp_text *text)
{
	if (stats->hits + stats->misses == 0)
		return;
	gcp_text_add(text, "%-19s %10s %10s %10s %10s\n", "pinned memory", "current",
		     "peak", "taken", "given back");
#define GCP_X(name, meaning)                                                           \
	if (stats->name.allocated > 0 || stats->name.peak > 0)                         \
		gcp_report_gauge_text(#name, meaning, &stats->name, text);
	GCP_PINNED_GAUGES(GCP_X)
#undef GCP_X
#define GCP_X(name, meaning)                                                           \
	if (stats->name)                                                               \
		gcp_report_counter_text(#name, meaning, stats->name, text);
	GCP_PINNED_COUNTERS(GCP_X)
#undef GCP_X
	gcp_text_add(text, "  driver calls %16s %10s %10s %10s %10s\n", "count", "ms",
		     "us each", "us least", "us most");
#define GCP_X(name) time_text(#name, WORDS_##name, &stats->name, text);
	GCP_PINNED_CALLS(GCP_X)
#undef GCP_X
	buckets_text(stats, text);
}

/* --- JSON ---------------------------------------------------------------------- */

static void counts_json(const char *name, const uint64_t counts[GCP_PINNED_POWERS],
			struct gcp_text *text)
{
	const char *comma = "";

	gcp_text_add(text, ", \"%s\": {", name);
	for (int i = 0; i < GCP_PINNED_POWERS; i++) {
		if (!counts[i])
			continue;
		gcp_text_add(text, "%s\"%llu\": %llu", comma, 1ull << i,
			     ULL(counts[i]));
		comma = ", ";
	}
	gcp_text_add(text, "}");
}

void gcp_report_host_json(const struct gcp_pinned_stats *stats, struct gcp_text *text)
{
	const char *comma = "";

	gcp_text_add(text, "{");
#define GCP_X(name, meaning)                                                           \
	gcp_text_add(text,                                                             \
		     "%s\"%s\": {\"current\": %llu, \"peak\": %llu, "                  \
		     "\"allocated\": %llu, \"freed\": %llu}",                          \
		     comma, #name, ULL(stats->name.current), ULL(stats->name.peak),    \
		     ULL(stats->name.allocated), ULL(stats->name.freed));              \
	comma = ", ";
	GCP_PINNED_GAUGES(GCP_X)
#undef GCP_X
#define GCP_X(name, meaning) gcp_report_counter_json(#name, stats->name, text);
	GCP_PINNED_COUNTERS(GCP_X)
#undef GCP_X
	gcp_text_add(text, ", \"driver_calls\": {");
	comma = "";
#define GCP_X(name)                                                                    \
	gcp_text_add(text,                                                             \
		     "%s\"%s\": {\"count\": %llu, \"ns\": %llu, \"mean_ns\": %llu, "   \
		     "\"min_ns\": %llu, \"max_ns\": %llu}",                            \
		     comma, #name, ULL(stats->name.count), ULL(stats->name.total_ns),  \
		     ULL(mean_ns(&stats->name)), ULL(stats->name.min_ns),              \
		     ULL(stats->name.max_ns));                                         \
	comma = ", ";
	GCP_PINNED_CALLS(GCP_X)
#undef GCP_X
	gcp_text_add(text, "}");
	counts_json("bucket_allocation", stats->bucket_allocation, text);
	counts_json("bucket_active", stats->bucket_active, text);
	gcp_text_add(text, "}");
}
