/* SPDX-License-Identifier: MIT */
/*
 * report.c - the report at exit, as text and as JSON. See report.h.
 *
 * Every gauge, counter and call of pool.h appears by itself: the rows below
 * are expansions of its tables.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gcpool.h"
#include "report.h"
#include "call_stats.h"

#define ULL(number) ((unsigned long long)(number))

/* More than 64 devices with all that can be said of them. */
enum { REPORT_BYTES_MAX = 1 << 20 };

struct row {
	const char *name, *meaning;
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

static const struct row costs[] = {
#define GCP_X(name) {#name, "", offsetof(struct gcp_stats, name)},
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
	return report->pools ? gcp_pools_device_max(report->pools)
			     : gcp_call_stats_device_max();
}

static int device_stats(const struct gcp_report *report, int device,
			struct gcp_stats *ret_stats)
{
	return report->pools ? gcp_pools_stats(report->pools, device, ret_stats)
			     : gcp_call_stats_stats(device, ret_stats);
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

static struct saved saved_of(const struct gcp_report *report,
			     const struct gcp_stats *stats)
{
	struct saved saved = {0};
	uint64_t freed = stats->allocation.freed;

	if (report->mode != GCP_MODE_POOL)
		return saved;
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

/* All calls that reached the driver. In count mode those of the devices are
 * the program's, which are in the call statistics already. */
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
	if (report->mode != GCP_MODE_POOL)
		return reached;
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

static uint64_t ms_since_start(void)
{
	uint64_t start = gcp_call_stats_start_ns();

	return start ? (gcp_call_stats_clock() - start) / 1000000 : 0;
}

static const char *mode_name(enum gcp_mode mode)
{
	static const char *const names[] = {
	    [GCP_MODE_POOL] = "pool",
	    [GCP_MODE_COUNT] = "count",
	    [GCP_MODE_OFF] = "off",
	};

	return names[mode];
}

/* --- text ---------------------------------------------------------------------- */

static void device_text(const struct gcp_report *report, int device,
			const struct gcp_stats *stats, struct gcp_text *text);
static void call_stats_text(const struct gcp_report *report, struct gcp_text *text);

void gcp_report_text(const struct gcp_report *report, struct gcp_text *text)
{
	struct gcp_call_cost reached = reached_of(report);
	struct gcp_pinned_stats host;
	struct gcp_stats stats;

	gcp_text_add(text, "libgcpool %s, mode %s: %s, process %d, %.2f s\n",
		     GCPOOL_VERSION_STRING, mode_name(report->mode),
		     program_invocation_name, (int)getpid(),
		     (double)ms_since_start() / 1e3);
	gcp_text_add(text,
		     "  %llu allocator calls reached the driver and took %.3f ms\n",
		     ULL(reached.count), (double)reached.ns / 1e6);
	for (int device = 0; device <= device_max(report); device++)
		if (device_stats(report, device, &stats) == 0)
			device_text(report, device, &stats, text);
	if (host_stats(report, &host))
		gcp_report_host_text(&host, text);
	call_stats_text(report, text);
}

static double mib(uint64_t bytes)
{
	return (double)bytes / (1 << 20);
}

static bool name_ends_in_bytes(const char *name)
{
	size_t length = strlen(name);

	return length > 6 && strcmp(name + length - 6, "_bytes") == 0;
}

static void gauge_text(const struct row *row, const struct gcp_gauge *gauge,
		       struct gcp_text *text)
{
	if (name_ends_in_bytes(row->name))
		gcp_text_add(text, "  %-17s %10.1f %10.1f %12.1f %12.1f  MiB %s\n",
			     row->name, mib(gauge->current), mib(gauge->peak),
			     mib(gauge->allocated), mib(gauge->freed), row->meaning);
	else
		gcp_text_add(text, "  %-17s %10llu %10llu %12llu %12llu  %s\n",
			     row->name, ULL(gauge->current), ULL(gauge->peak),
			     ULL(gauge->allocated), ULL(gauge->freed), row->meaning);
}

static void saved_text(const struct gcp_report *report, const struct gcp_stats *stats,
		       struct gcp_text *text)
{
	struct saved saved = saved_of(report, stats);
	uint64_t asked = stats->hits + stats->misses;
	uint64_t peak = stats->allocated_bytes.peak;

	gcp_text_add(text,
		     "  saved             %llu allocs (%.1f %% hits) and %llu frees, "
		     "estimated %.1f ms at the cost of %llu real calls\n",
		     ULL(saved.allocs),
		     asked ? 100.0 * (double)stats->hits / (double)asked : 0.0,
		     ULL(saved.frees), (double)saved.estimated_ns / 1e6,
		     ULL(saved.estimated_from));
	gcp_text_add(text,
		     "  fragmentation     largest free block %.1f MiB, "
		     "reserved / allocated at peak %.3f\n",
		     mib(stats->largest_free_bytes),
		     peak ? (double)stats->reserved_at_peak_bytes / (double)peak : 0.0);
}

/* Names and numbers, as many on a line as fit. */
static void counters_text(const struct gcp_stats *stats, struct gcp_text *text)
{
	int on_line = 0;

	for (size_t i = 0; i < COUNT_OF(counters); i++) {
		if (counter_at(stats, i) == 0)
			continue;
		gcp_text_add(text, "%s  %-17s %10llu", on_line ? "  " : "",
			     counters[i].name, ULL(counter_at(stats, i)));
		on_line = (on_line + 1) % 3;
		if (on_line == 0)
			gcp_text_add(text, "\n");
	}
	if (on_line)
		gcp_text_add(text, "\n");
}

static void device_text(const struct gcp_report *report, int device,
			const struct gcp_stats *stats, struct gcp_text *text)
{
	gcp_text_add(text, "device %-2d          %10s %10s %12s %12s\n", device,
		     "current", "peak", "allocated", "freed");
	for (size_t i = 0; i < COUNT_OF(gauges); i++)
		if (gauge_at(stats, i)->allocated > 0)
			gauge_text(&gauges[i], gauge_at(stats, i), text);
	if (report->mode != GCP_MODE_POOL)
		return; /* the calls are the program's: they follow */
	counters_text(stats, text);
	gcp_text_add(text, "  driver calls      %10s %10s %12s\n", "count", "ms",
		     "us each");
	for (size_t i = 0; i < COUNT_OF(costs); i++) {
		const struct gcp_call_cost *cost = cost_at(stats, i);

		if (cost->count > 0)
			gcp_text_add(text, "    %-15s %10llu %10.3f %12.3f\n",
				     costs[i].name, ULL(cost->count),
				     (double)cost->ns / 1e6,
				     (double)cost->ns / (double)cost->count / 1e3);
	}
	saved_text(report, stats, text);
}

static void call_stats_text(const struct gcp_report *report, struct gcp_text *text)
{
	struct gcp_call_stats_sum sum;
	bool titled = false;

	for (size_t i = 0; i < COUNT_OF(counted_calls); i++) {
		gcp_call_stats_get((enum gcp_counted_call)i, &sum);
		if (sum.count == 0)
			continue;
		if (!titled)
			gcp_text_add(text, "%-19s %10s %10s %12s %12s\n",
				     report->mode == GCP_MODE_POOL ? "passed through"
								   : "calls",
				     "count", "failed", "ms", "MiB");
		titled = true;
		gcp_text_add(text, "  %-17s %10llu %10llu %12.3f %12.1f  %s\n",
			     counted_calls[i].name, ULL(sum.count), ULL(sum.failed),
			     (double)sum.ns / 1e6, mib(sum.bytes),
			     counted_calls[i].meaning);
	}
}

/* --- JSON ---------------------------------------------------------------------- */

static void string_json(const char *string, struct gcp_text *text);
static void device_json(const struct gcp_report *report, int device,
			const struct gcp_stats *stats, struct gcp_text *text);

void gcp_report_json(const struct gcp_report *report, struct gcp_text *text)
{
	struct gcp_call_cost reached = reached_of(report);
	struct gcp_pinned_stats host;
	struct gcp_call_stats_sum sum;
	struct gcp_stats stats;
	uint64_t ms = ms_since_start();
	const char *comma = "";

	gcp_text_add(text,
		     "{\"schema\": 1, \"library\": \"libgcpool\", \"version\": \"%s\", "
		     "\"mode\": \"%s\", \"pid\": %d, \"program\": ",
		     GCPOOL_VERSION_STRING, mode_name(report->mode), (int)getpid());
	string_json(program_invocation_name, text);
	/* Not %f: its point follows the program's locale. */
	gcp_text_add(text, ", \"seconds\": %llu.%03llu", ULL(ms / 1000),
		     ULL(ms % 1000));
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
		gcp_report_host_json(&host, text);
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
	struct saved saved = saved_of(report, stats);

	gcp_text_add(text, "{\"device\": %d", device);
	for (size_t i = 0; i < COUNT_OF(gauges); i++) {
		const struct gcp_gauge *gauge = gauge_at(stats, i);

		gcp_text_add(text,
			     ", \"%s\": {\"current\": %llu, \"peak\": %llu, "
			     "\"allocated\": %llu, \"freed\": %llu}",
			     gauges[i].name, ULL(gauge->current), ULL(gauge->peak),
			     ULL(gauge->allocated), ULL(gauge->freed));
	}
	for (size_t i = 0; i < COUNT_OF(counters); i++)
		gcp_text_add(text, ", \"%s\": %llu", counters[i].name,
			     ULL(counter_at(stats, i)));
	gcp_text_add(text, ", \"driver_calls\": {");
	for (size_t i = 0; i < COUNT_OF(costs); i++)
		gcp_text_add(text, "%s\"%s\": {\"count\": %llu, \"ns\": %llu}",
			     i ? ", " : "", costs[i].name,
			     ULL(cost_at(stats, i)->count), ULL(cost_at(stats, i)->ns));
	gcp_text_add(
	    text,
	    "}, \"largest_free_bytes\": %llu, \"reserved_at_peak_bytes\": %llu, "
	    "\"saved\": {\"allocs\": %llu, \"frees\": %llu, "
	    "\"estimated_ns\": %llu, \"estimated_from\": %llu}}",
	    ULL(stats->largest_free_bytes), ULL(stats->reserved_at_peak_bytes),
	    ULL(saved.allocs), ULL(saved.frees), ULL(saved.estimated_ns),
	    ULL(saved.estimated_from));
}

/* Bytes above 127 pass as they are: names of files are mostly UTF-8. */
static void string_json(const char *string, struct gcp_text *text)
{
	gcp_text_add(text, "\"");
	for (; *string; string++) {
		unsigned char byte = (unsigned char)*string;

		if (byte == '"' || byte == '\\')
			gcp_text_add(text, "\\%c", byte);
		else if (byte < 0x20)
			gcp_text_add(text, "\\u%04x", byte);
		else
			gcp_text_add(text, "%c", byte);
	}
	gcp_text_add(text, "\"");
}

/* --- at exit ------------------------------------------------------------------- */

void gcp_report_exit(const struct gcp_options *options, struct gcp_pools *pools)
{
	static atomic_flag done = ATOMIC_FLAG_INIT;
	struct gcp_report report = {options->mode, pools};
	struct gcp_text text;
	int saved = errno;
	void *memory;
	int fd;

	if (options->stats == GCP_STATS_OFF || atomic_flag_test_and_set(&done))
		return;
	memory = mmap(NULL, REPORT_BYTES_MAX, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED) {
		gcp_log(GCP_LOG_WARNING,
			"no memory for the statistics, leaving them out");
		errno = saved;
		return;
	}
	gcp_text_init(&text, memory, REPORT_BYTES_MAX);
	if (options->stats == GCP_STATS_JSON)
		gcp_report_json(&report, &text);
	else
		gcp_report_text(&report, &text);
	fd = gcp_file_open(options->stats_file);
	if (fd < 0)
		gcp_log(GCP_LOG_WARNING,
			"cannot open GCPOOL_STATS_FILE=%.200s (error %d), "
			"writing the statistics to stderr",
			options->stats_file, errno);
	gcp_text_write(&text, fd >= 0 ? fd : STDERR_FILENO);
	gcp_file_close(fd);
	munmap(memory, REPORT_BYTES_MAX);
	errno = saved;
}
