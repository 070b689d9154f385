/* SPDX-License-Identifier: MIT */
/*
 * test_report.c - call statistics against a model of them, and the shape of reports.
 * In count mode; reports of pools are read by the tests of the scripts.
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
#include "../../interpose/observe/report.h"

static char bytes[1 << 20];

static const char *report(bool json)
{
	struct gcp_report what = {.mode = GCP_MODE_COUNT};
	struct gcp_text text;

	gcp_text_init(&text, bytes, sizeof(bytes));
	if (json)
		gcp_report_json(&what, &text);
	else
		gcp_report_text(&what, &text);
	assert_false(text.cut);
	return bytes;
}

/* --- call statistics ---------------------------------------------------------- */

enum { POINTERS = 20000 };

/* The model: what is alive, by number. */
static struct {
	uint64_t bytes; /* 0: not alive */
	int ctx;
} model[POINTERS];

static gcp_addr address(int i)
{
	return 0x7f0000000000ull + (gcp_addr)i * 512;
}

static uint64_t random_next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	return z ^ (z >> 27);
}

static void model_check(uint64_t allocations)
{
	struct gcp_stats stats;
	uint64_t count = 0, sum = 0;

	for (int i = 0; i < POINTERS; i++) {
		count += model[i].bytes > 0;
		sum += model[i].bytes;
	}
	assert_int_equal(gcp_call_stats_stats(3, &stats), 0);
	assert_int_equal(stats.allocation.current, count);
	assert_int_equal(stats.allocated_bytes.current, sum);
	assert_int_equal(stats.allocation.allocated, allocations);
	assert_int_equal(stats.allocation.freed, allocations - count);
	assert_true(stats.allocated_bytes.peak >= sum);
	assert_int_equal(stats.mem_alloc.count, allocations);
}

static void live_pointers_are_those_of_the_model(void **state)
{
	uint64_t random = 1, allocations = 0;

	(void)state;
	for (int step = 0; step < 400000; step++) {
		int i = (int)(random_next(&random) % POINTERS);

		if (step % 50000 == 49999) {
			int ctx = (int)(random_next(&random) % 4);

			gcp_call_stats_context_gone((void *)(intptr_t)(ctx + 1));
			for (int j = 0; j < POINTERS; j++)
				if (model[j].ctx == ctx)
					model[j].bytes = 0;
			model_check(allocations);
		} else if (model[i].bytes) {
			gcp_call_stats_free(address(i), 10);
			model[i].bytes = 0;
		} else {
			model[i].bytes = 1 + random_next(&random) % 100000;
			model[i].ctx = (int)(random_next(&random) % 4);
			gcp_call_stats_alloc((void *)(intptr_t)(model[i].ctx + 1), 3,
					     address(i), model[i].bytes, 10);
			allocations++;
		}
	}
	model_check(allocations);
	assert_int_equal(gcp_call_stats_device_max(), 3);
}

static void peaks_can_be_reset(void **state)
{
	struct gcp_stats stats;

	(void)state;
	gcp_call_stats_reset_peaks(3);
	assert_int_equal(gcp_call_stats_stats(3, &stats), 0);
	assert_int_equal(stats.allocated_bytes.peak, stats.allocated_bytes.current);
}

static void strange_pointers_and_devices_are_ignored(void **state)
{
	struct gcp_stats stats;

	(void)state;
	gcp_call_stats_free(0, 0);
	gcp_call_stats_free(12345, 0);
	gcp_call_stats_alloc(NULL, -1, 4096, 1, 0);
	gcp_call_stats_alloc(NULL, 64, 4096, 1, 0);
	assert_int_equal(gcp_call_stats_stats(-1, &stats), -ENOENT);
	assert_int_equal(gcp_call_stats_stats(0, &stats), -ENOENT);
	assert_int_equal(gcp_call_stats_stats(64, &stats), -ENOENT);
}

static void an_address_that_comes_again_counts_once(void **state)
{
	struct gcp_stats before, after;

	(void)state;
	gcp_call_stats_alloc(NULL, 5, 4096, 100, 0);
	gcp_call_stats_stats(5, &before);
	gcp_call_stats_alloc(NULL, 5, 4096, 300, 0);
	gcp_call_stats_stats(5, &after);
	assert_int_equal(before.allocated_bytes.current, 100);
	assert_int_equal(after.allocated_bytes.current, 300);
	assert_int_equal(after.allocation.current, 1);
	gcp_call_stats_free(4096, 0);
}

static void failed_calls_count_but_give_no_bytes(void **state)
{
	(void)state;
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

static void the_json_is_one_object_on_one_line(void **state)
{
	(void)state;
	program_invocation_name = "a \"name\"\n\\ with\x01 all";
	assert_string_equal(json_skip(report(true)), "\n");
	assert_null(strchr(bytes, '\x01'));
	assert_ptr_equal(strchr(bytes, '\n'), bytes + strlen(bytes) - 1);
}

#define NAMED(name) assert_non_null(strstr(bytes, "\"" #name "\": "));

static void the_json_names_everything_that_is_counted(void **state)
{
	(void)state;
	report(true);
#define GCP_X(name, meaning) NAMED(name)
	GCP_GAUGES(GCP_X)
	GCP_COUNTERS(GCP_X)
	GCP_COUNTED_CALLS(GCP_X)
#undef GCP_X
	NAMED(pages) /* names of version 0.1 */
	NAMED(regroups)
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

static const char *text_of(int64_t seconds)
{
	struct gcp_text text;

	gcp_text_init(&text, bytes, sizeof(bytes));
	gcp_text_add_time(&text, seconds);
	return bytes;
}

static void times_are_dates(void **state)
{
	struct tm tm;
	char wanted[32];

	(void)state;
	assert_string_equal(text_of(0), "1970-01-01T00:00:00Z");
	assert_string_equal(text_of(951782399), "2000-02-28T23:59:59Z");
	assert_string_equal(text_of(951782400), "2000-02-29T00:00:00Z");
	for (int64_t seconds = 1; seconds < 1ll << 33; seconds += 12345677) {
		time_t now = (time_t)seconds;

		strftime(wanted, sizeof(wanted), "%Y-%m-%dT%H:%M:%SZ",
			 gmtime_r(&now, &tm));
		assert_string_equal(text_of(seconds), wanted);
	}
}

static void devices_have_the_names_that_were_noted(void **state)
{
	(void)state;
	assert_false(gcp_report_knows_gpu(3));
	gcp_report_note_gpu(3, &(struct gcp_gpu){.name = "a \"GPU\"",
						 .uuid = "GPU-1-2",
						 .pci = "0000:3b:00.0",
						 .bytes = 3ull << 30,
						 .cuda = 12050});
	assert_true(gcp_report_knows_gpu(3));
	assert_true(gcp_report_knows_gpu(-1)); /* and not to be asked about */
	assert_true(gcp_report_knows_gpu(64));
	gcp_report_note_gpu(64, &(struct gcp_gpu){.name = "none"});
	report(true);
	assert_non_null(strstr(bytes, "\"name\": \"a \\\"GPU\\\"\""));
	assert_non_null(
	    strstr(bytes, "\"uuid\": \"GPU-1-2\", \"pci\": \"0000:3b:00.0\""));
	assert_non_null(strstr(bytes, "\"memory_bytes\": 3221225472"));
	assert_non_null(strstr(bytes, "\"cuda\": \"12.5\""));
	report(false);
	assert_non_null(
	    strstr(bytes, "device 3: a \"GPU\", 3.0 GiB, GPU-1-2 at 0000:3b:00.0"));
}

/* Of the blocks of the model, the largest first. */
static void blocks_that_are_left_are_named(void **state)
{
	const char *line;
	int commas = 0;

	(void)state;
	gcp_call_stats_alloc((void *)9, 4, 0x123000, 100, 1);
	for (int i = 1; i <= 9; i++)
		gcp_call_stats_alloc((void *)9, 4, 0x200000 + (gcp_addr)i * 512,
				     (uint64_t)i * 1024, 1);
	gcp_call_stats_free(0x200000 + 9 * 512, 1);
	line = strstr(report(false), "device 4");
	line = line ? strstr(line, "never freed: 9 blocks, 36.1 KiB; the largest: "
				   "0x201000 8.0 KiB, 0x200e00 7.0 KiB")
		    : NULL;
	assert_non_null(line);
	for (; *line != '\n'; line++)
		commas += *line == ',';
	assert_int_equal(commas, 5); /* five of them */
	gcp_call_stats_context_gone((void *)9);
	line = strstr(report(false), "device 4");
	assert_null(strstr(line, "never freed"));
}

static void the_text_fits_a_screen(void **state)
{
	int lines = 0;

	(void)state;
	program_invocation_name = "program";
	for (const char *next = report(false); *next; next++)
		lines += *next == '\n';
	assert_true(lines <= 40);
	assert_non_null(strstr(bytes, "mode count: program, process "));
	assert_non_null(strstr(bytes, "/test_report"));
	assert_non_null(strstr(bytes, "bytes taken from the driver"));
	assert_null(strstr(bytes, "MiB bytes"));
	assert_non_null(strstr(bytes, "device 3"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(live_pointers_are_those_of_the_model),
	    cmocka_unit_test(peaks_can_be_reset),
	    cmocka_unit_test(strange_pointers_and_devices_are_ignored),
	    cmocka_unit_test(an_address_that_comes_again_counts_once),
	    cmocka_unit_test(failed_calls_count_but_give_no_bytes),
	    cmocka_unit_test(the_json_is_one_object_on_one_line),
	    cmocka_unit_test(the_json_names_everything_that_is_counted),
	    cmocka_unit_test(the_text_fits_a_screen),
	    cmocka_unit_test(times_are_dates),
	    cmocka_unit_test(devices_have_the_names_that_were_noted),
	    cmocka_unit_test(blocks_that_are_left_are_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
