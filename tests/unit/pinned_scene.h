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

static inline void *take(uint64_t bytes)
{
	void *p = NULL;

	assert_int_equal(gcp_pinned_alloc(pool, bytes, 0, NULL, &p), 0);
	assert_non_null(p);
	return p;
}

static inline void give(void *p)
{
	assert_int_equal(gcp_pinned_free(pools, p), 0);
}

static inline int teardown(void **state)
{
	fake_close(state);
	assert_int_equal(fake_pinned.blocks, 0);
	return 0;
}

/* A configuration for one test, which opens the pools anew. */
static inline struct gcp_config configured(void)
{
	struct gcp_config config;

	gcp_pools_destroy(pools);
	fake_reset();
	gcp_config_default(&config);
	return config;
}

#define TEST(name) CASE(name, fake_setup_open, teardown)

#endif
