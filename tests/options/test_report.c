/* SPDX-License-Identifier: MIT */
/*
 * test_report.c - call statistics, and the shape of reports, of a pool over the driver
 * made of counters.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "../../interpose/base/clock.h"
#include "../../interpose/statistics/report.h"
#include "../unit/fake.h"
#include "../unit/cases.h"

#define TEST(name) CASE(name, pool_begin, pool_end)

static int pool_begin(void **state);
static int pool_end(void **state);

static struct gcp_pools *pools;
static char bytes[1 << 20];

static const char *report(bool json)
{
	struct gcp_report what = {.pools = pools};
	struct gcp_text text;

	gcp_text_init(&text, bytes, sizeof(bytes));
	gcp_report_add(&what, json, &text);
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

static const char *json_skip(const char *next);

static const char *json_string(const char *next)
{
	assert_int_equal(*next, '"');
	for (next++; *next != '"'; next++) {
		assert_true((unsigned char)*next >= 0x20);
		if (*next == '\\')
			next++;
	}
	return next + 1;
}

/* Members of an object or an array, behind its opening bracket. */
static const char *json_members(const char *next, char end)
{
	if (*next == end)
		return next + 1;
	for (;;) {
		if (end == '}') {
			next = json_string(next);
			assert_memory_equal(next, ": ", 2);
			next += 2;
		}
		next = json_skip(next);
		if (*next == end)
			return next + 1;
		assert_memory_equal(next, ", ", 2);
		next += 2;
	}
}

/* One value; returns what is behind it. */
static const char *json_skip(const char *next)
{
	size_t digits;

	if (*next == '{')
		return json_members(next + 1, '}');
	if (*next == '[')
		return json_members(next + 1, ']');
	if (*next == '"')
		return json_string(next);
	if (strncmp(next, "true", 4) == 0 || strncmp(next, "false", 5) == 0)
		return next + (*next == 't' ? 4 : 5);
	digits = strspn(next, "0123456789.");
	assert_true(digits > 0);
	return next + digits;
}

#define NAMED(name) assert_non_null(strstr(bytes, "\"" #name "\": "));

TEST(the_json_names_everything_that_is_counted)
{
	report(true);
#define GCP_X(name, meaning) NAMED(name)
	GCP_GAUGES(GCP_X)
	GCP_COUNTERS(GCP_X)
	GCP_COUNTED_CALLS(GCP_X)
#undef GCP_X
	NAMED(pages) /* names of version 0.1 */
	NAMED(held_frees)
	GCP_DRIVER_CALLS(NAMED)
	NAMED(largest_free_bytes)
	NAMED(reserved_at_peak_bytes)
	NAMED(mapped_bytes)
	NAMED(saved)
	NAMED(final)
	NAMED(arguments)
	NAMED(hostname)
	NAMED(started)
	NAMED(options)
	NAMED(size_classes)
	NAMED(unfreed)
}

static int pool_begin(void **state)
{
	(void)state;
	fake_reset();
	pools = fake_pools(NULL);
	must_free(pools, must_alloc(fake_pool(pools), 1000));
	return 0;
}

static int pool_end(void **state)
{
	(void)state;
	fake_finish(pools);
	return 0;
}
