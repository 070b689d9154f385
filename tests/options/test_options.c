/* SPDX-License-Identifier: MIT */
/*
 * test_options.c - the option table, and what the environment does to it.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../../interpose/base/options.h"
#include "../unit/cases.h"

#define TEST(name) CASE(name, NULL, NULL)

/* What was complained of in the last parse. */
static struct {
	int count;
	char last[GCP_LINE_MAX];
} complaints;

static void complain(void *arg, const char *sentence, const char *instead)
{
	assert_ptr_equal(arg, &complaints);
	complaints.count++;
	snprintf(complaints.last, sizeof(complaints.last), "%s, %s", sentence, instead);
}

static struct gcp_options options;

static int parse(char *const *environment)
{
	complaints.count = 0;
	complaints.last[0] = 0;
	return gcp_options_parse(&options, environment, complain, &complaints);
}

#define PARSE(...) parse((char *const[]){__VA_ARGS__, NULL})

#define ALONE_WRONG(...)                                                               \
	for (char *const *pair = (char *const[]){__VA_ARGS__, NULL}; *pair; pair++)    \
	assert_int_equal(PARSE(*pair), 1)

static uint64_t field(const struct gcp_option *option, const struct gcp_options *from)
{
	uint64_t number = 0;

	memcpy(&number, (const char *)from + option->offset, option->size);
	return number;
}

TEST(the_defaults_are_those_of_the_pool)
{
	struct gcp_config config;

	gcp_config_default(&config);
	config.backend = GCP_BACKEND_AUTO;
	OK(gcp_options_parse(&options, NULL, NULL, NULL));
	assert_memory_equal(&options.pool, &config, sizeof(config));
	assert_int_equal(options.mode, GCP_MODE_POOL);
	assert_int_equal(options.log_level, GCP_LOG_WARNING);
	assert_int_equal(options.stats, GCP_STATS_OFF);
}

TEST(every_default_is_what_is_shown_of_it)
{
	struct gcp_options defaults;
	char pair[80];

	gcp_options_default(&defaults);
	for (size_t i = 0; i < gcp_option_all_count; i++) {
		const struct gcp_option *option = &gcp_option_table[i];

		if (!option->standard[0])
			continue;
		snprintf(pair, sizeof(pair), "%s=%s", option->name, option->standard);
		OK(PARSE(pair));
		assert_int_equal(field(option, &options), field(option, &defaults));
	}
}

TEST(numbers_beyond_their_bounds_are_wrong)
{
	char pair[80];

	for (size_t i = 0; i < gcp_option_all_count; i++) {
		const struct gcp_option *option = &gcp_option_table[i];
		const char *bound = option->values, *max = strstr(bound, " to ");

		for (int way = -1; max && way <= 1; bound = max + 4, way += 2) {
			snprintf(pair, sizeof(pair), "%s=%.*s", option->name,
				 (int)strcspn(bound, " ,"), bound);
			OK(PARSE(pair));
			snprintf(pair, sizeof(pair), "%s=%llu", option->name,
				 (unsigned long long)field(option, &options) +
				     (unsigned long long)way);
			assert_int_equal(PARSE(pair), 1);
			assert_non_null(strstr(complaints.last, option->name));
		}
		snprintf(pair, sizeof(pair), "%s=99999999999999999999999",
			 option->name);
		assert_int_equal(max ? PARSE(pair) : 1, 1);
	}
}

TEST(sizes_take_suffixes)
{
	OK(PARSE("GCPOOL_QUOTA=3g", "GCPOOL_TEST_WINDOW=128MiB",
		 "GCPOOL_THREAD_CACHE=2kB", "GCPOOL_CACHE_LIMIT=1T",
		 "GCPOOL_TEST_CLASS_MIN=1024"));
	assert_int_equal(options.pool.quota, 3ull << 30);
	assert_int_equal(options.pool.window_bytes, 128 << 20);
	assert_int_equal(options.pool.thread_cache_bytes, 2048);
	assert_int_equal(options.pool.cache_limit, 1ull << 40);
	assert_int_equal(options.pool.class_min, 1024);
	ALONE_WRONG("GCPOOL_QUOTA=3Q", "GCPOOL_QUOTA=3M ", "GCPOOL_QUOTA=M",
		    "GCPOOL_TEST_FENCE_BATCH=1K");
}

TEST(sizes_may_be_fractions)
{
	OK(PARSE("GCPOOL_QUOTA=1.5G", "GCPOOL_CACHE_LIMIT=0.3k",
		 "GCPOOL_TEST_CLASS_MAX=2.0M"));
	assert_int_equal(options.pool.quota, 3ull << 29);
	assert_int_equal(options.pool.cache_limit, 307);
	assert_int_equal(options.pool.class_max, 2 << 20);
	ALONE_WRONG("GCPOOL_QUOTA=1.5", "GCPOOL_QUOTA=1.G", "GCPOOL_QUOTA=.5G",
		    "GCPOOL_QUOTA=1.5.5G", "GCPOOL_TEST_FENCE_BATCH=1.5");
	assert_int_equal(PARSE("GCPOOL_TEST_CLASS_MAX=2.1M"), 1); /* not of 512 */
}

TEST(limits_may_be_shares_or_none)
{
	OK(PARSE("GCPOOL_QUOTA=80%", "GCPOOL_CACHE_LIMIT=12.5%",
		 "GCPOOL_HOST_QUOTA=100%"));
	assert_true(options.pool.quota == GCP_LIMIT_SHARES + 8000);
	assert_true(options.pool.cache_limit == GCP_LIMIT_SHARES + 1250);
	assert_true(options.pool.pinned_quota <= (uint64_t)sysconf(_SC_PHYS_PAGES) *
						     (uint64_t)sysconf(_SC_PAGESIZE));
	assert_true(options.pool.pinned_quota > 1 << 20);
	for (int i = 0; i < 2; i++) {
		OK(PARSE(i ? "GCPOOL_QUOTA=none" : "GCPOOL_QUOTA=Unlimited",
			 "GCPOOL_HOST_CACHE_LIMIT=none"));
		assert_true(options.pool.quota == GCP_LIMIT_NONE);
		assert_true(options.pool.pinned_cache_limit == GCP_LIMIT_NONE);
	}
	ALONE_WRONG("GCPOOL_QUOTA=101%", "GCPOOL_QUOTA=100.01%", "GCPOOL_QUOTA=80%%",
		    "GCPOOL_QUOTA=80 %", "GCPOOL_QUOTA=%", "GCPOOL_QUOTA=0%",
		    "GCPOOL_HOST_QUOTA=0.00%");
	assert_true(options.pool.pinned_quota == GCP_LIMIT_NONE);
	assert_int_equal(PARSE("GCPOOL_QUOTA=99999999999999999999%"), 1);
	assert_int_equal(PARSE("GCPOOL_TEST_WINDOW=50%"), 1);
	assert_int_equal(PARSE("GCPOOL_TEST_WINDOW=none"), 1);
}

TEST(choices_may_be_switched)
{
	OK(PARSE("GCPOOL_MODE=No", "GCPOOL_STATS=true", "GCPOOL_LIVE=on",
		 "GCPOOL_ASYNC=FALSE", "GCPOOL_HANDLES=off", "GCPOOL_WAKE=yes"));
	assert_true(options.mode == GCP_MODE_OFF && options.stats == GCP_STATS_TEXT);
	assert_true(options.live && !options.async && !options.handles);
	assert_int_equal(options.wake, 1);
	OK(PARSE("GCPOOL_HANDLES=yes", "GCPOOL_MODE=1"));
	assert_true(options.handles == 1 && options.mode == GCP_MODE_POOL);
	ALONE_WRONG("GCPOOL_BACKEND=off", "GCPOOL_LOG=on", "GCPOOL_LIVE=2");
}

TEST(the_first_of_two_values_counts_and_an_empty_one_does_not)
{
	OK(PARSE("GCPOOL_TEST_FENCE_BATCH=5", "GCPOOL_TEST_FENCE_BATCH=6",
		 "GCPOOL_MODE="));
	assert_int_equal(options.pool.epoch_blocks, 5);
	assert_int_equal(options.mode, GCP_MODE_POOL);
}

TEST(the_help_shows_every_row_and_marks_changes)
{
	char bytes[8192];
	struct gcp_text text;
	long now;

	PARSE("GCPOOL_MODE=off", "GCPOOL_QUOTA=1234567");
	gcp_text_init(&text, bytes, sizeof(bytes));
	gcp_options_show(&options, &text);
	assert_false(text.cut);
	for (size_t i = 0; i < gcp_option_count; i++) {
		assert_non_null(strstr(bytes, gcp_option_table[i].name));
		assert_non_null(strstr(bytes, gcp_option_table[i].meaning));
	}
	assert_non_null(strstr(bytes, "\n* GCPOOL_MODE              pool      off\n"));
	/* Values under their headings. */
	now = strstr(bytes, "NOW") - strstr(bytes, "  NAME");
	assert_memory_equal(strstr(bytes, "* GCPOOL_QUOTA") + now, "1234567\n", 8);
	assert_null(strstr(bytes, "GCPOOL_TEST_"));
}
