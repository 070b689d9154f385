/* SPDX-License-Identifier: MIT */
/*
 * test_options.c - the option table, what the environment does to it, and
 * messages.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../interpose/options.h"

/* What was complained of in the last parse. */
static struct {
	int count;
	char last[GCP_LINE_MAX];
} complaints;

static void complain(void *arg, const char *sentence)
{
	assert_ptr_equal(arg, &complaints);
	complaints.count++;
	snprintf(complaints.last, sizeof(complaints.last), "%s", sentence);
}

static struct gcp_options options;

static int parse(char *const *environment)
{
	complaints.count = 0;
	complaints.last[0] = 0;
	return gcp_options_parse(&options, environment, complain, &complaints);
}

#define PARSE(...) parse((char *const[]){__VA_ARGS__, NULL})

static uint64_t field(const struct gcp_option *option, const struct gcp_options *from)
{
	uint64_t number = 0;

	memcpy(&number, (const char *)from + option->offset, option->size);
	return number;
}

static void the_defaults_are_those_of_the_pool(void **state)
{
	struct gcp_config config;

	(void)state;
	gcp_config_default(&config);
	assert_int_equal(gcp_options_parse(&options, NULL, NULL, NULL), 0);
	assert_memory_equal(&options.pool, &config, sizeof(config));
	assert_int_equal(options.mode, GCP_MODE_POOL);
	assert_int_equal(options.log_level, GCP_LOG_WARNING);
	assert_int_equal(options.stats, GCP_STATS_OFF);
}

static void every_default_lies_within_its_bounds(void **state)
{
	const char *why = NULL;

	(void)state;
	gcp_options_default(&options);
	assert_int_equal(gcp_config_check(&options.pool, &why), 0);
	for (size_t i = 0; i < gcp_option_count; i++) {
		const struct gcp_option *option = &gcp_option_table[i];

		if (option->type != GCP_OPTION_COUNT &&
		    option->type != GCP_OPTION_BYTES)
			continue;
		assert_true(field(option, &options) >= option->min);
		assert_true(field(option, &options) <= option->max);
		if (option->multiple)
			assert_int_equal(field(option, &options) % option->multiple, 0);
	}
}

static void numbers_beyond_their_bounds_are_wrong(void **state)
{
	char pair[80];

	(void)state;
	for (size_t i = 0; i < gcp_option_count; i++) {
		const struct gcp_option *option = &gcp_option_table[i];

		if (option->type != GCP_OPTION_COUNT &&
		    option->type != GCP_OPTION_BYTES)
			continue;
		snprintf(pair, sizeof(pair), "%s=%llu", option->name,
			 (unsigned long long)option->max + 1);
		assert_int_equal(PARSE(pair), 1);
		assert_non_null(strstr(complaints.last, option->name));
		snprintf(pair, sizeof(pair), "%s=%llu", option->name,
			 (unsigned long long)option->min - 1);
		assert_int_equal(PARSE(pair), 1);
		snprintf(pair, sizeof(pair), "%s=99999999999999999999999",
			 option->name);
		assert_int_equal(PARSE(pair), 1);
	}
}

static void sizes_take_suffixes(void **state)
{
	(void)state;
	assert_int_equal(PARSE("GCPOOL_QUOTA=3g", "GCPOOL_WINDOW=128MiB",
			       "GCPOOL_THREAD_CACHE=2kB", "GCPOOL_CACHE_LIMIT=1T",
			       "GCPOOL_SLAB_MAX=1000"),
			 0);
	assert_int_equal(options.pool.quota, 3ull << 30);
	assert_int_equal(options.pool.window_bytes, 128 << 20);
	assert_int_equal(options.pool.thread_cache_bytes, 2048);
	assert_int_equal(options.pool.cache_limit, 1ull << 40);
	assert_int_equal(options.pool.slab_max, 1000);
	assert_int_equal(PARSE("GCPOOL_QUOTA=3Q"), 1);
	assert_int_equal(PARSE("GCPOOL_QUOTA=3M "), 1);
	assert_int_equal(PARSE("GCPOOL_QUOTA=M"), 1);
	assert_int_equal(PARSE("GCPOOL_FENCE_BATCH=1K"), 1);
}

static void classes_are_a_list_of_sizes(void **state)
{
	(void)state;
	assert_int_equal(PARSE("GCPOOL_CLASSES=512,4K,1M"), 0);
	assert_int_equal(options.pool.class_list_count, 3);
	assert_int_equal(options.pool.class_list[1], 4096);
	assert_int_equal(options.pool.class_list[3], 0);
	assert_int_equal(PARSE("GCPOOL_CLASSES=4K,512"), 1);
	assert_int_equal(options.pool.class_list_count, 0);
	assert_int_equal(PARSE("GCPOOL_CLASSES=512,"), 1);
	assert_int_equal(PARSE("GCPOOL_CLASSES=,512"), 1);
	assert_int_equal(PARSE("GCPOOL_CLASSES=700"), 1);
}

static void words_are_read_in_any_case(void **state)
{
	(void)state;
	assert_int_equal(PARSE("GCPOOL_MODE=Count", "GCPOOL_LOG=DEBUG",
			       "GCPOOL_STRICT=Yes", "GCPOOL_REUSE=completed",
			       "GCPOOL_BLOCKING_FREE=off"),
			 0);
	assert_int_equal(options.mode, GCP_MODE_COUNT);
	assert_int_equal(options.log_level, GCP_LOG_DEBUG);
	assert_true(options.strict);
	assert_true(options.pool.completed_only);
	assert_false(options.pool.blocking_free);
	assert_int_equal(PARSE("GCPOOL_MODE=poo"), 1);
	assert_string_equal(complaints.last,
			    "GCPOOL_MODE=poo is wrong, it must be pool|count|off, "
			    "the nearest is pool, using the default (pool)");
}

static void an_unknown_name_gets_its_nearest(void **state)
{
	(void)state;
	assert_int_equal(PARSE("GCPOOL_QOUTA=1G", "PATH=/bin", "GCPOOLX=1", "GCPOOL=1"),
			 1);
	assert_string_equal(complaints.last,
			    "GCPOOL_QOUTA is not an option, the nearest "
			    "is GCPOOL_QUOTA, ignoring it");
	assert_int_equal(PARSE("GCPOOL_WINDOWBLOCKS=1"), 1);
	assert_non_null(strstr(complaints.last, "GCPOOL_WINDOW_BLOCKS"));
	assert_int_equal(PARSE("GCPOOL_"), 1);
}

static void a_long_name_and_value_do_no_harm(void **state)
{
	static char pair[1 << 16];

	(void)state;
	memset(pair, 'X', sizeof(pair) - 1);
	memcpy(pair, "GCPOOL_", 7);
	assert_int_equal(PARSE(pair), 1);
	memcpy(pair, "GCPOOL_LOG_FILE=", 16);
	assert_int_equal(PARSE(pair), 1);
	assert_string_equal(options.log_file, "");
	memcpy(pair, "GCPOOL_MODE=", 12);
	assert_int_equal(PARSE(pair), 1);
}

static void sizes_that_do_not_fit_together_are_all_dropped(void **state)
{
	(void)state;
	assert_int_equal(
	    PARSE("GCPOOL_CLASS_MIN=2M", "GCPOOL_QUOTA=1G", "GCPOOL_REUSE=completed"),
	    1);
	assert_int_equal(options.pool.class_min, 512);
	assert_int_equal(options.pool.quota, 0);
	assert_true(options.pool.completed_only);
}

static void a_larger_segment_takes_the_split_limit_along(void **state)
{
	(void)state;
	assert_int_equal(PARSE("GCPOOL_SEGMENT=1G"), 0);
	assert_int_equal(options.pool.split_limit, 1 << 30);
	assert_int_equal(PARSE("GCPOOL_SEGMENT=1G", "GCPOOL_SPLIT_LIMIT=64M"), 1);
	assert_int_equal(options.pool.segment_bytes, 16 << 20);
}

static void the_first_of_two_values_counts_and_an_empty_one_does_not(void **state)
{
	(void)state;
	assert_int_equal(
	    PARSE("GCPOOL_FENCE_BATCH=5", "GCPOOL_FENCE_BATCH=6", "GCPOOL_MODE="), 0);
	assert_int_equal(options.pool.epoch_blocks, 5);
	assert_int_equal(options.mode, GCP_MODE_POOL);
}

static void the_help_shows_every_row_and_marks_changes(void **state)
{
	char bytes[8192];
	struct gcp_text text;

	(void)state;
	PARSE("GCPOOL_MODE=off");
	gcp_text_init(&text, bytes, sizeof(bytes));
	gcp_options_show(&options, &text);
	assert_false(text.cut);
	for (size_t i = 0; i < gcp_option_count; i++) {
		assert_non_null(strstr(bytes, gcp_option_table[i].name));
		assert_non_null(strstr(bytes, gcp_option_table[i].meaning));
	}
	assert_non_null(strstr(bytes, "\n* GCPOOL_MODE           pool      off "));
}

static int read_strictly(const char *name, const char *value)
{
	int status;
	pid_t child = fork();

	assert_true(child >= 0);
	if (child == 0) {
		close(2);
		setenv("GCPOOL_STRICT", "1", 1);
		setenv(name, value, 1);
		gcp_options_read(&options);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void strictness_ends_the_process(void **state)
{
	(void)state;
	assert_int_equal(read_strictly("GCPOOL_FENCE_BATCH", "x"), GCP_OPTIONS_EXIT);
	assert_int_equal(read_strictly("GCPOOL_PGAE", "1"), GCP_OPTIONS_EXIT);
	assert_int_equal(read_strictly("GCPOOL_FENCE_BATCH", "1"), 0);
}

/* --- messages ------------------------------------------------------------------ */

static char log_pattern[64], log_path[64];

/* How many lines the log has; the last one is left in `last`. */
static int log_lines(char *last, size_t size)
{
	FILE *file = fopen(log_path, "r");
	char line[2 * GCP_LINE_MAX];
	int count = 0;

	while (file && fgets(line, sizeof(line), file)) {
		count++;
		line[size - 1] = 0;
		memcpy(last, line, size);
	}
	if (file)
		fclose(file);
	return count;
}

static int log_begin(void **state)
{
	(void)state;
	snprintf(log_pattern, sizeof(log_pattern), "/tmp/gcpool-test-%%p.log");
	snprintf(log_path, sizeof(log_path), "/tmp/gcpool-test-%d.log", (int)getpid());
	unlink(log_path);
	gcp_log_setup(GCP_LOG_INFO, log_pattern);
	return 0;
}

static int log_end(void **state)
{
	(void)state;
	unlink(log_path);
	gcp_log_setup(GCP_LOG_WARNING, "");
	return 0;
}

static void a_message_is_one_line_with_the_process_id(void **state)
{
	char last[GCP_LINE_MAX], wanted[64];

	(void)state;
	errno = EXDEV;
	gcp_log(GCP_LOG_INFO, "%s, going on", "something");
	gcp_log(GCP_LOG_DEBUG, "not this");
	assert_int_equal(errno, EXDEV);
	assert_int_equal(log_lines(last, sizeof(last)), 1);
	snprintf(wanted, sizeof(wanted), "libgcpool[%d]: something, going on\n",
		 (int)getpid());
	assert_string_equal(last, wanted);
}

static void a_long_message_is_cut_and_still_a_line(void **state)
{
	static char word[3 * GCP_LINE_MAX];
	char last[2 * GCP_LINE_MAX];

	(void)state;
	memset(word, 'x', sizeof(word) - 1);
	gcp_log(GCP_LOG_ERROR, "%s", word);
	assert_int_equal(log_lines(last, sizeof(last)), 1);
	assert_true(strlen(last) < GCP_LINE_MAX);
	assert_int_equal(last[strlen(last) - 1], '\n');
}

static void a_place_repeats_itself_only_so_often(void **state)
{
	char last[GCP_LINE_MAX];

	(void)state;
	for (int i = 0; i < 100; i++)
		gcp_log(GCP_LOG_WARNING, "number %d", i);
	assert_int_equal(log_lines(last, sizeof(last)), GCP_LOG_REPEATS_MAX);
	assert_non_null(strstr(last, "number 9 (said 10 times, not again)\n"));
}

static void a_file_takes_no_descriptor_of_the_program(void **state)
{
	int saved[3], fd;

	(void)state;
	for (int low = 0; low < 3; low++) {
		saved[low] = fcntl(low, F_DUPFD, 10);
		close(low);
	}
	fd = gcp_file_open(log_pattern);
	for (int low = 0; low < 3; low++) {
		dup2(saved[low], low);
		close(saved[low]);
	}
	assert_true(fd > 2);
	gcp_file_close(fd);
	assert_int_equal(gcp_file_open("/nonexistent/file"), -1);
	assert_int_equal(gcp_file_open(""), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_defaults_are_those_of_the_pool),
	    cmocka_unit_test(every_default_lies_within_its_bounds),
	    cmocka_unit_test(numbers_beyond_their_bounds_are_wrong),
	    cmocka_unit_test(sizes_take_suffixes),
	    cmocka_unit_test(classes_are_a_list_of_sizes),
	    cmocka_unit_test(words_are_read_in_any_case),
	    cmocka_unit_test(an_unknown_name_gets_its_nearest),
	    cmocka_unit_test(a_long_name_and_value_do_no_harm),
	    cmocka_unit_test(sizes_that_do_not_fit_together_are_all_dropped),
	    cmocka_unit_test(a_larger_segment_takes_the_split_limit_along),
	    cmocka_unit_test(the_first_of_two_values_counts_and_an_empty_one_does_not),
	    cmocka_unit_test(the_help_shows_every_row_and_marks_changes),
	    cmocka_unit_test(strictness_ends_the_process),
	    cmocka_unit_test_setup_teardown(a_message_is_one_line_with_the_process_id,
					    log_begin, log_end),
	    cmocka_unit_test_setup_teardown(a_long_message_is_cut_and_still_a_line,
					    log_begin, log_end),
	    cmocka_unit_test_setup_teardown(a_place_repeats_itself_only_so_often,
					    log_begin, log_end),
	    cmocka_unit_test_setup_teardown(a_file_takes_no_descriptor_of_the_program,
					    log_begin, log_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
