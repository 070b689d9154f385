/* SPDX-License-Identifier: MIT */
/*
 * report.c - the report, as text and as JSON. See report.h.
 *
 * Every gauge, counter and call of pool.h appears by itself: the rows below
 * are expansions of its tables.
 */
#include <string.h>

#include "../gcpool.h"
#include "report.h"
#include "call_stats.h"

#define ULL(number) ((unsigned long long)(number))

struct row {
	char name[28], meaning[100];
	size_t offset; /* in struct gcp_stats */
};

static const struct row gauges[] = {
#define GCP_X(name, meaning) {#name, meaning, offsetof(struct gcp_stats, name)},
    GCP_GAUGES(GCP_X)
#undef GCP_X
};

static const struct row counters[] = {
#define GCP_X(name, meaning) {#name, meaning, offsetof(struct gcp_stats, name)},
    GCP_COUNTERS(GCP_X)
#undef GCP_X
};

/* What the library calls the driver for. */
#define WORDS_mem_alloc    "cuMemAlloc: new segments"
#define WORDS_mem_free     "cuMemFree: segments given back"
#define WORDS_mem_trim     "cuMemPoolTrimTo and the like, when memory is out"
#define WORDS_vm_reserve   "cuMemAddressReserve: addresses set aside"
#define WORDS_vm_create    "cuMemCreate: new memory, in handles"
#define WORDS_vm_release   "cuMemRelease: such memory given back"
#define WORDS_vm_map       "cuMemMap"
#define WORDS_vm_open      "cuMemSetAccess"
#define WORDS_vm_unmap     "cuMemUnmap"
#define WORDS_fence_create "cuEventCreate"
#define WORDS_fence_record "cuCtxRecordEvent: an epoch is closed"
#define WORDS_fence_order  "cuCtxWaitEvent: a barrier, the host goes on"
#define WORDS_fence_query  "cuEventQuery: is an epoch completed?"
#define WORDS_fence_wait   "cuEventSynchronize: the host waits for an epoch"
#define WORDS_ctx_sync     "cuCtxSynchronize: the same, on drivers before 12.5"

static const struct row costs[] = {
#define GCP_X(name) {#name, WORDS_##name, offsetof(struct gcp_stats, name)},
    GCP_DRIVER_CALLS(GCP_X)
#undef GCP_X
};

static const struct row counted_calls[] = {
#define GCP_X(name, words) {#name, words, 0},
    GCP_COUNTED_CALLS(GCP_X)
#undef GCP_X
};

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const struct gcp_gauge *gauge_at(const struct gcp_stats *stats, size_t i)
{
	return (const void *)((const char *)stats + gauges[i].offset);
}

static uint64_t counter_at(const struct gcp_stats *stats, size_t i)
{
	return *(const uint64_t *)(const void *)((const char *)stats +
						 counters[i].offset);
}

static const struct gcp_call_cost *cost_at(const struct gcp_stats *stats, size_t i)
{
	return (const void *)((const char *)stats + costs[i].offset);
}

/* --- figures ------------------------------------------------------------------- */

static int device_max(const struct gcp_report *report)
{
	return report->pools ? gcp_pools_device_max(report->pools) : -1;
}

static int device_stats(const struct gcp_report *report, int device,
			struct gcp_stats *ret_stats)
{
	return gcp_pools_stats(report->pools, device, ret_stats);
}

/* Driver calls that the pool made needless, and what they would have cost. */
struct saved {
	uint64_t allocs, frees;
	uint64_t estimated_ns;
	uint64_t estimated_from; /* real calls that were measured */
};

static uint64_t mean_ns(const struct gcp_call_cost *cost)
{
	return cost->count ? cost->ns / cost->count : 0;
}

static struct saved saved_of(const struct gcp_stats *stats)
{
	struct saved saved = {0};
	uint64_t freed = stats->allocation.freed;

	saved.allocs = stats->hits;
	saved.frees = freed > stats->mem_free.count ? freed - stats->mem_free.count : 0;
	saved.estimated_ns = saved.allocs * mean_ns(&stats->mem_alloc) +
			     saved.frees * mean_ns(&stats->mem_free);
	saved.estimated_from = stats->mem_alloc.count + stats->mem_free.count;
	return saved;
}

static bool host_stats(const struct gcp_report *report,
		       struct gcp_pinned_stats *ret_stats)
{
	return report->pools && gcp_pinned_stats(report->pools, ret_stats) == 0;
}

static void host_reached(const struct gcp_report *report, struct gcp_call_cost *reached)
{
	struct gcp_pinned_stats host;

	if (!host_stats(report, &host))
		return;
#define GCP_X(name)                                                                    \
	reached->count += host.name.count;                                             \
	reached->ns += host.name.total_ns;
	GCP_PINNED_CALLS(GCP_X)
#undef GCP_X
}

/* All calls that reached the driver. */
static struct gcp_call_cost reached_of(const struct gcp_report *report)
{
	struct gcp_call_cost reached = {0};
	struct gcp_call_stats_sum sum;
	struct gcp_stats stats;

	for (int call = 0; call < GCP_COUNTED_CALL_COUNT; call++) {
		gcp_call_stats_get((enum gcp_counted_call)call, &sum);
		reached.count += sum.count;
		reached.ns += sum.ns;
	}
	host_reached(report, &reached);
	for (int device = 0; device <= device_max(report); device++) {
		if (device_stats(report, device, &stats) != 0)
			continue;
		for (size_t i = 0; i < COUNT_OF(costs); i++) {
			reached.count += cost_at(&stats, i)->count;
			reached.ns += cost_at(&stats, i)->ns;
		}
	}
	return reached;
}

/* --- text ---------------------------------------------------------------------- */

static void device_text(const struct gcp_report *report, int device,
			const struct gcp_stats *stats, struct gcp_text *text);
static void call_stats_text(struct gcp_text *text);
static void report_host_text(const struct gcp_pinned_stats *stats,
			     struct gcp_text *text);
static void report_host_json(const struct gcp_pinned_stats *stats,
			     struct gcp_text *text);

void gcp_report_text(const struct gcp_report *report, struct gcp_text *text)
{
	struct gcp_call_cost reached = reached_of(report);
	struct gcp_pinned_stats host;
	struct gcp_stats stats;

	gcp_report_process_text(report, text);
	gcp_text_add(text,
		     "  %llu allocator calls reached the driver and took %.3f ms\n",
		     ULL(reached.count), (double)reached.ns / 1e6);
	for (int device = 0; device <= device_max(report); device++)
		if (device_stats(report, device, &stats) == 0)
			device_text(report, device, &stats, text);
	if (host_stats(report, &host))
		report_host_text(&host, text);
	call_stats_text(text);
}

static bool name_is_of_bytes(const char *name)
{
	size_t length = strlen(name);

	return length > 6 && strcmp(name + length - 6, "_bytes") == 0;
}

/* A number in a column of `width`; of bytes, with their unit. */
static void cell_text(uint64_t number, bool bytes, int width, struct gcp_text *text)
{
	char cell[32];
	struct gcp_text inner;

	gcp_text_init(&inner, cell, sizeof(cell));
	if (bytes)
		gcp_text_add_bytes(&inner, number);
	else
		gcp_text_add(&inner, "%llu", ULL(number));
	gcp_text_add(text, " %*s", width, cell);
}

static void report_gauge_text(const char *name, const char *meaning,
			      const struct gcp_gauge *gauge, struct gcp_text *text)
{
	bool bytes = name_is_of_bytes(name);

	gcp_text_add(text, "  %-17s", name);
	cell_text(gauge->current, bytes, 10, text);
	cell_text(gauge->peak, bytes, 10, text);
	cell_text(gauge->allocated, bytes, 10, text);
	cell_text(gauge->freed, bytes, 10, text);
	gcp_text_add(text, "  %s\n", meaning);
}

static void report_counter_text(const char *name, const char *meaning, uint64_t number,
				struct gcp_text *text)
{
	gcp_text_add(text, "  %-17s %10llu  %s\n", name, ULL(number), meaning);
}

static void report_counter_json(const char *name, uint64_t number,
				struct gcp_text *text)
{
	static const char *const renamed[][2] = {
	    {"epochs", "pages"},
	    {"deferred_frees", "held_frees"},
	};

	gcp_text_add(text, ", \"%s\": %llu", name, ULL(number));
	for (size_t i = 0; i < COUNT_OF(renamed); i++)
		if (strcmp(name, renamed[i][0]) == 0)
			gcp_text_add(text, ", \"%s\": %llu", renamed[i][1],
				     ULL(number));
}

static void saved_text(const struct gcp_stats *stats, struct gcp_text *text)
{
	struct saved saved = saved_of(stats);
	uint64_t asked = stats->hits + stats->misses;
	uint64_t peak = stats->allocated_bytes.peak;

	gcp_text_add(text,
		     "  saved             %llu allocs (%.1f %% hits) and %llu frees",
		     ULL(saved.allocs),
		     asked ? 100.0 * (double)stats->hits / (double)asked : 0.0,
		     ULL(saved.frees));
	/* Mapped memory makes no such calls. */
	if (saved.estimated_from > 0)
		gcp_text_add(text, ", estimated %.1f ms at the cost of %llu real calls",
			     (double)saved.estimated_ns / 1e6,
			     ULL(saved.estimated_from));
	gcp_text_add(text, "\n  fragmentation     largest free block ");
	gcp_text_add_bytes(text, stats->largest_free_bytes);
	gcp_text_add(text, ", reserved / allocated at peak %.3f\n",
		     peak ? (double)stats->reserved_at_peak_bytes / (double)peak : 0.0);
}

static void costs_text(const struct gcp_stats *stats, struct gcp_text *text)
{
	gcp_text_add(text, "  %-17s %10s %10s %10s\n", "driver calls", "count", "ms",
		     "us each");
	for (size_t i = 0; i < COUNT_OF(costs); i++) {
		const struct gcp_call_cost *cost = cost_at(stats, i);

		if (cost->count > 0)
			gcp_text_add(text, "    %-15s %10llu %10.3f %10.3f  %s\n",
				     costs[i].name, ULL(cost->count),
				     (double)cost->ns / 1e6,
				     (double)cost->ns / (double)cost->count / 1e3,
				     costs[i].meaning);
	}
}

static void device_text(const struct gcp_report *report, int device,
			const struct gcp_stats *stats, struct gcp_text *text)
{
	gcp_text_add(text, "device %-2d          %10s %10s %10s %10s\n", device,
		     "current", "peak", "taken", "given back");
	for (size_t i = 0; i < COUNT_OF(gauges); i++)
		if (gauge_at(stats, i)->allocated > 0)
			report_gauge_text(gauges[i].name, gauges[i].meaning,
					  gauge_at(stats, i), text);
	gcp_report_blocks_text(report, device, text);
	for (size_t i = 0; i < COUNT_OF(counters); i++)
		if (counter_at(stats, i) > 0)
			report_counter_text(counters[i].name, counters[i].meaning,
					    counter_at(stats, i), text);
	costs_text(stats, text);
	saved_text(stats, text);
}

static void call_stats_text(struct gcp_text *text)
{
	struct gcp_call_stats_sum sum;
	bool titled = false;

	for (size_t i = 0; i < COUNT_OF(counted_calls); i++) {
		gcp_call_stats_get((enum gcp_counted_call)i, &sum);
		if (sum.count == 0)
			continue;
		if (!titled)
			gcp_text_add(text, "%-19s %10s %10s %10s %10s\n",
				     "passed through", "count", "failed", "ms",
				     "asked for");
		titled = true;
		gcp_text_add(text, "  %-17s %10llu %10llu %10.3f",
			     counted_calls[i].name, ULL(sum.count), ULL(sum.failed),
			     (double)sum.ns / 1e6);
		cell_text(sum.bytes, true, 10, text);
		gcp_text_add(text, "  %s\n", counted_calls[i].meaning);
	}
}

/* --- JSON ---------------------------------------------------------------------- */

static void device_json(const struct gcp_report *report, int device,
			const struct gcp_stats *stats, struct gcp_text *text);

void gcp_report_json(const struct gcp_report *report, struct gcp_text *text)
{
	struct gcp_call_cost reached = reached_of(report);
	struct gcp_pinned_stats host;
	struct gcp_call_stats_sum sum;
	struct gcp_stats stats;
	const char *comma = "";

	gcp_report_process_json(report, text);
	gcp_text_add(text,
		     ", \"reached\": {\"count\": %llu, \"ns\": %llu}, \"calls\": {",
		     ULL(reached.count), ULL(reached.ns));
	for (size_t i = 0; i < COUNT_OF(counted_calls); i++) {
		gcp_call_stats_get((enum gcp_counted_call)i, &sum);
		gcp_text_add(text,
			     "%s\"%s\": {\"count\": %llu, \"failed\": %llu, "
			     "\"bytes\": %llu, \"ns\": %llu}",
			     i ? ", " : "", counted_calls[i].name, ULL(sum.count),
			     ULL(sum.failed), ULL(sum.bytes), ULL(sum.ns));
	}
	gcp_text_add(text, "}");
	if (host_stats(report, &host)) {
		gcp_text_add(text, ", \"host\": ");
		report_host_json(&host, text);
	}
	gcp_text_add(text, ", \"devices\": [");
	for (int device = 0; device <= device_max(report); device++) {
		if (device_stats(report, device, &stats) != 0)
			continue;
		gcp_text_add(text, "%s", comma);
		device_json(report, device, &stats, text);
		comma = ", ";
	}
	gcp_text_add(text, "]}\n");
}

static void device_json(const struct gcp_report *report, int device,
			const struct gcp_stats *stats, struct gcp_text *text)
{
	struct saved saved = saved_of(stats);

	gcp_text_add(text, "{\"device\": %d", device);
	gcp_report_gpu_json(device, text);
	for (size_t i = 0; i < COUNT_OF(gauges); i++) {
		const struct gcp_gauge *gauge = gauge_at(stats, i);

		gcp_text_add(text,
			     ", \"%s\": {\"current\": %llu, \"peak\": %llu, "
			     "\"allocated\": %llu, \"freed\": %llu}",
			     gauges[i].name, ULL(gauge->current), ULL(gauge->peak),
			     ULL(gauge->allocated), ULL(gauge->freed));
	}
	for (size_t i = 0; i < COUNT_OF(counters); i++)
		report_counter_json(counters[i].name, counter_at(stats, i), text);
	gcp_text_add(text, ", \"driver_calls\": {");
	for (size_t i = 0; i < COUNT_OF(costs); i++)
		gcp_text_add(text, "%s\"%s\": {\"count\": %llu, \"ns\": %llu}",
			     i ? ", " : "", costs[i].name,
			     ULL(cost_at(stats, i)->count), ULL(cost_at(stats, i)->ns));
	gcp_text_add(text, "}");
	gcp_report_blocks_json(report, device, text);
	gcp_text_add(
	    text,
	    ", \"largest_free_bytes\": %llu, \"reserved_at_peak_bytes\": %llu, "
	    "\"mapped_bytes\": %llu, \"saved\": {\"allocs\": %llu, \"frees\": %llu, "
	    "\"estimated_ns\": %llu, \"estimated_from\": %llu}}",
	    ULL(stats->largest_free_bytes), ULL(stats->reserved_at_peak_bytes),
	    ULL(stats->mapped_bytes), ULL(saved.allocs), ULL(saved.frees),
	    ULL(saved.estimated_ns), ULL(saved.estimated_from));
}

/* --- pinned host memory ------------------------------------------------------- */

static uint64_t pinned_mean_ns(const struct gcp_pinned_time *time)
{
	return time->count ? time->total_ns / time->count : 0;
}

/* --- text ---------------------------------------------------------------------- */

#define WORDS_host_alloc        "cuMemHostAlloc: new blocks"
#define WORDS_host_free         "cuMemFreeHost: blocks given back"
#define WORDS_host_fence_record "an epoch is closed, in every context"
#define WORDS_host_fence_query  "is an epoch completed?"
#define WORDS_host_fence_wait   "the host waits for an epoch"

static void time_text(const char *name, const char *meaning,
		      const struct gcp_pinned_time *time, struct gcp_text *text)
{
	if (time->count > 0)
		gcp_text_add(text, "    %-17s %8llu %10.3f %10.3f %10.3f %10.3f  %s\n",
			     name, ULL(time->count), (double)time->total_ns / 1e6,
			     (double)pinned_mean_ns(time) / 1e3,
			     (double)time->min_ns / 1e3, (double)time->max_ns / 1e3,
			     meaning);
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

static void report_host_text(const struct gcp_pinned_stats *stats,
			     struct gcp_text *text)
{
	if (stats->hits + stats->misses == 0)
		return;
	gcp_text_add(text, "%-19s %10s %10s %10s %10s\n", "pinned memory", "current",
		     "peak", "taken", "given back");
#define GCP_X(name, meaning)                                                           \
	if (stats->name.allocated > 0 || stats->name.peak > 0)                         \
		report_gauge_text(#name, meaning, &stats->name, text);
	GCP_PINNED_GAUGES(GCP_X)
#undef GCP_X
#define GCP_X(name, meaning)                                                           \
	if (stats->name)                                                               \
		report_counter_text(#name, meaning, stats->name, text);
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

static void report_host_json(const struct gcp_pinned_stats *stats,
			     struct gcp_text *text)
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
#define GCP_X(name, meaning) report_counter_json(#name, stats->name, text);
	GCP_PINNED_COUNTERS(GCP_X)
#undef GCP_X
	gcp_text_add(text, ", \"driver_calls\": {");
	comma = "";
#define GCP_X(name)                                                                    \
	gcp_text_add(text,                                                             \
		     "%s\"%s\": {\"count\": %llu, \"ns\": %llu, \"mean_ns\": %llu, "   \
		     "\"min_ns\": %llu, \"max_ns\": %llu}",                            \
		     comma, #name, ULL(stats->name.count), ULL(stats->name.total_ns),  \
		     ULL(pinned_mean_ns(&stats->name)), ULL(stats->name.min_ns),       \
		     ULL(stats->name.max_ns));                                         \
	comma = ", ";
	GCP_PINNED_CALLS(GCP_X)
#undef GCP_X
	gcp_text_add(text, "}");
	counts_json("bucket_allocation", stats->bucket_allocation, text);
	counts_json("bucket_active", stats->bucket_active, text);
	gcp_text_add(text, "}");
}
