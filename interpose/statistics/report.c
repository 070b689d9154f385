/* SPDX-License-Identifier: MIT */
/*
 * report.c - the report, as text and as JSON. See report.h.
 *
 * Every gauge, counter and call of pool.h appears by itself: the one table of rows is
 * an expansion of its tables.
 */
#include "report.h"
#include "../base/process.h"
#include "writer.h"

/* A figure of pool.h, and what it is. */
enum kind { GAUGE, COUNTER, COST, TIME };
struct row {
	char name[28];
	size_t offset; /* in struct gcp_stats or struct gcp_pinned_stats */
	enum kind kind;
};

static gcp_columns gauge_columns = {"current", "peak", "allocated", "freed", ""};
static gcp_columns cost_columns = {"count", "ns", ""};
static gcp_columns time_columns = {"count", "ns", "mean_ns", "min_ns", "max_ns", ""};

static const struct row device_rows[] = {
#define GAUGES_ROW(name, meaning) {#name, offsetof(struct gcp_stats, name), GAUGE},
    GCP_GAUGES(GAUGES_ROW)
#define COUNTERS_ROW(name, meaning) {#name, offsetof(struct gcp_stats, name), COUNTER},
	GCP_COUNTERS(COUNTERS_ROW)
#define DRIVER_CALLS_ROW(name) {#name, offsetof(struct gcp_stats, name), COST},
	    GCP_DRIVER_CALLS(DRIVER_CALLS_ROW)};

static const struct row host_rows[] = {
#define PINNED_GAUGES_ROW(name, meaning)                                               \
	{#name, offsetof(struct gcp_pinned_stats, name), GAUGE},
    GCP_PINNED_GAUGES(PINNED_GAUGES_ROW)
#define PINNED_COUNTERS_ROW(name, meaning)                                             \
	{#name, offsetof(struct gcp_pinned_stats, name), COUNTER},
	GCP_PINNED_COUNTERS(PINNED_COUNTERS_ROW)
#define PINNED_CALLS_ROW(name) {#name, offsetof(struct gcp_pinned_stats, name), TIME},
	    GCP_PINNED_CALLS(PINNED_CALLS_ROW)};

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const char counted[][24] = {
#define COUNTED_CALLS_ROW(name) #name,
    GCP_COUNTED_CALLS(COUNTED_CALLS_ROW)};

/* --- the parts of a report ----------------------------------------------------- */

static void row_write(struct gcp_writer *writer, const struct row *row,
		      const void *stats)
{
	const uint64_t *value = (const void *)((const char *)stats + row->offset);
	const struct gcp_pinned_time *time = (const void *)value;

	switch (row->kind) {
	case GAUGE:
		gcp_write_row(writer, row->name, gauge_columns, value);
		break;
	case COUNTER:
		gcp_write_number(writer, row->name, *value);
		break;
	case COST:
		gcp_write_row(writer, row->name, cost_columns, value);
		break;
	case TIME:
		gcp_write_row(
		    writer, row->name, time_columns,
		    (uint64_t[]){time->count, time->total_ns,
				 time->count ? time->total_ns / time->count : 0,
				 time->min_ns, time->max_ns});
		break;
	}
}

static void rows_write(struct gcp_writer *writer, const struct row *rows, size_t count,
		       const void *stats)
{
	bool calls = false;

	for (size_t i = 0; i < count; i++) {
		if (!calls && rows[i].kind >= COST) {
			gcp_write_open(writer, "driver_calls", '{');
			gcp_write_title(writer, "  driver calls");
			calls = true;
		}
		row_write(writer, &rows[i], stats);
	}
	if (calls)
		gcp_write_close(writer, '}');
}

static void device_write(struct gcp_writer *writer, int device,
			 const struct gcp_stats *stats)
{
	uint64_t spilled[5];
	GCP_TEXT(text, 24);

	gcp_text_add(&text, "device %d", device);
	gcp_write_open(writer, NULL, '{');
	if (writer->json)
		gcp_write_number(writer, "device", (uint64_t)device);
	gcp_write_title(writer, text.bytes);
	gcp_report_gpu(writer, device);
	gcp_write_number(writer, "largest_free_bytes", stats->largest_free_bytes);
	gcp_write_number(writer, "reserved_at_peak_bytes",
			 stats->reserved_at_peak_bytes);
	gcp_write_number(writer, "mapped_bytes", stats->mapped_bytes);
	gcp_write_number(writer, "passed_bytes",
			 gcp_pools_taken(gcp_process.pools, device) -
			     stats->reserved_bytes.current);
	gcp_spilled_get(device, spilled);
	gcp_write_row(writer, "spilled_bytes", gauge_columns, spilled);
	gcp_write_number(writer, "spills", spilled[4]);
	rows_write(writer, device_rows, COUNT_OF(device_rows), stats);
	gcp_write_close(writer, '}');
}

static void host_write(struct gcp_writer *writer, const struct gcp_pinned_stats *stats)
{
	if (!writer->json && stats->hits + stats->misses == 0)
		return;
	gcp_write_open(writer, "host", '{');
	gcp_write_title(writer, "pinned memory");
	rows_write(writer, host_rows, COUNT_OF(host_rows), stats);
	gcp_write_close(writer, '}');
}

static void calls_write(struct gcp_writer *writer)
{
	static gcp_columns columns = {"count", "failed",     "bytes",
				      "ns",    "held_bytes", ""};

	gcp_write_open(writer, "calls", '{');
	gcp_write_title(writer, "passed through");
	for (int i = 0; i < GCP_COUNTED_CALL_COUNT; i++) {
		const struct gcp_call_stats *sum = &gcp_call_stats[i];

		gcp_write_row(writer, counted[i], columns,
			      (uint64_t[]){sum->count, sum->failed, sum->bytes, sum->ns,
					   sum->held});
	}
	gcp_write_close(writer, '}');
}

void gcp_report_add(bool json, bool under_way, struct gcp_text *text)
{
	struct gcp_pools *pools = gcp_process.pools;
	struct gcp_writer writer = {.text = text, .json = json};
	struct gcp_pinned_stats host;
	struct gcp_stats stats;

	gcp_write_open(&writer, NULL, '{');
	gcp_report_process(&writer, under_way);
	calls_write(&writer);
	if (gcp_pinned_stats(pools, &host) == 0)
		host_write(&writer, &host);
	gcp_write_open(&writer, "devices", '[');
	for (int device = 0; device <= gcp_pools_device_max(pools); device++)
		if (gcp_pools_stats(pools, device, &stats) == 0)
			device_write(&writer, device, &stats);
	gcp_write_close(&writer, ']');
	gcp_write_close(&writer, '}');
	if (json)
		gcp_text_add(text, "\n");
}
