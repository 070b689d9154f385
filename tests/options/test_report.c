/* SPDX-License-Identifier: MIT */
/*
 * test_report.c - call statistics, and the shape of reports, of a pool over the driver
 * made of counters.
 */

#include "../../interpose/base/clock.h"
#include "../../interpose/base/process.h"
#include "../../interpose/statistics/report.h"
#include "../unit/fake.h"
#include "../unit/cases.h"

static int setup(void **state)
{
	fake_setup_open(state);
	must_free(must_alloc(pool, 1000));
	return 0;
}

#define TEST(name) CASE(name, setup, fake_close)

static char bytes[1 << 20];

static const char *report(bool json)
{
	struct gcp_text text = {.bytes = bytes, .capacity = sizeof(bytes)};

	gcp_process.pools = pools;
	gcp_report_add(json, false, &text);
	assert_false(text.cut);
	return bytes;
}

TEST(failed_calls_count_but_give_no_bytes)
{
	gcp_call_stats_add(GCP_COUNTED_mem_create, gcp_clock_ns(), 1000, 2);
	gcp_call_stats_add(GCP_COUNTED_mem_create, gcp_clock_ns(), 2048, 0);
	assert_non_null(strstr(report(true),
			       "\"mem_create\": {\"count\": 2, \"failed\": 1, "
			       "\"bytes\": 2048, \"ns\": "));
}

/* --- JSON ---------------------------------------------------------------------- */

#define NAMED(name) assert_non_null(strstr(bytes, "\"" #name "\": "));

TEST(the_json_names_everything_that_is_counted)
{
	report(true);
#define GAUGES_ROW(name, meaning) NAMED(name)
	GCP_GAUGES(GAUGES_ROW)
	GCP_COUNTERS(GAUGES_ROW)
	GCP_COUNTED_CALLS(NAMED)
	GCP_DRIVER_CALLS(NAMED)
	NAMED(largest_free_bytes)
	NAMED(reserved_at_peak_bytes)
	NAMED(mapped_bytes)
	NAMED(final)
	NAMED(arguments)
	NAMED(hostname)
	NAMED(started)
	NAMED(options)
}
