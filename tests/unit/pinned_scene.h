/* SPDX-License-Identifier: MIT */
/*
 * pinned_scene.h - what the tests of pinned memory share: pools over the driver of
 * fake_pinned.h, and short words. Included once by each of those programs.
 */
#ifndef GCP_TESTS_HOST_SCENE_H
#define GCP_TESTS_HOST_SCENE_H

#include "fake_pinned.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include "cases.h"

#define KIB (1ull << 10)
#define MIB (1ull << 20)

static struct gcp_pools *pools;
static struct gcp_pool *pool;

static inline void *take_as(struct gcp_pool *from, uint64_t bytes, uint32_t flags)
{
	void *p = NULL;

	assert_int_equal(gcp_pinned_alloc(from, bytes, flags, NULL, &p), 0);
	assert_non_null(p);
	return p;
}

static inline void *take(uint64_t bytes)
{
	return take_as(pool, bytes, 0);
}

static inline void give(void *p)
{
	assert_int_equal(gcp_pinned_free(pools, p), 0);
}

static inline struct gcp_pinned_stats stats(void)
{
	struct gcp_pinned_stats stats;

	assert_int_equal(gcp_pinned_stats(pools, &stats), 0);
	return stats;
}

static inline void open_with(const struct gcp_config *config)
{
	fake_reset();
	pools = fake_pools(config);
	pool = fake_pool(pools);
}

static inline int setup(void **state)
{
	(void)state;
	open_with(NULL);
	return 0;
}

static inline int teardown(void **state)
{
	(void)state;
	fake_finish(pools);
	assert_int_equal(fake_pinned.blocks, 0);
	return 0;
}

/* A configuration for one test. */
static inline struct gcp_config configured(void)
{
	struct gcp_config config;

	gcp_pools_destroy(pools);
	gcp_config_default(&config);
	return config;
}

#define TEST(name) CASE(name, setup, teardown)

#endif
