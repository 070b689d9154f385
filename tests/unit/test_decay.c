/* SPDX-License-Identifier: MIT */
/*
 * test_decay.c - memory that nothing has used for a while goes back; and what a
 * program uses again stays.
 */
#include "fake.h"
#include "../../pool/cache/cache.h"
#include "cases.h"

#include <pthread.h>
#include <semaphore.h>

#define TEST(name) CASE(name, fake_setup, NULL)

#define MIB (1ull << 20)
#define MS  (1000ull * 1000)

/* Memory that is idle for a second goes back; each free closes an epoch. */
static struct gcp_config decaying(void)
{
	struct gcp_config config;

	gcp_config_default(&config);
	config.decay_ms = 1000;
	config.epoch_blocks = 1;
	return config;
}

static void spike(struct gcp_pools *pools)
{
	gcp_addr addrs[16];

	for (int i = 0; i < 16; i++)
		addrs[i] = must_alloc(fake_pool(pools), 20 * MIB);
	for (int i = 0; i < 16; i++)
		must_free(pools, addrs[i]);
}

/* A block every 10 ms, on a device that is done at once. */
static void idle_with(struct gcp_pools *pools, int ms, uint64_t bytes)
{
	for (int i = 0; i < ms; i += 10) {
		gcp_addr addr = must_alloc(fake_pool(pools), bytes);

		fake.done = fake_submit();
		must_free(pools, addr);
		fake_pass(10 * MS);
	}
}

static void idle(struct gcp_pools *pools, int ms)
{
	idle_with(pools, ms, 64 << 10);
}

TEST(nothing_goes_back_while_a_stream_captures)
{
	struct gcp_config config = decaying();
	struct gcp_pools *pools = fake_pools(&config);

	spike(pools);
	idle(pools, 100);
	gcp_pools_fences_hold(pools);
	uint64_t used = fake.memory_used;
	idle(pools, 5000);
	assert_int_equal(fake.memory_used, used); /* real frees that only wait aside */
	gcp_pools_fences_release(pools);
	fake_finish(pools);
}

/* An error of the device is found by the call that asks first, and the program hears of
 * it, as it would from the cudaFree that it called. */
TEST(what_decay_finds_broken_is_reported)
{
	struct gcp_config config = decaying();
	struct gcp_pools *pools = fake_pools(&config);

	spike(pools);
	idle(pools, 500);
	fake.fence_result = 700;
	fake_pass(2000 * MS);
	int result = 0;

	for (int i = 0; i < 10 && result == 0; i++) {
		fake_pass(300 * MS);
		gcp_addr addr = 0;

		/* A hit asks the driver nothing. */
		assert_int_equal(gcp_pool_alloc(fake_pool(pools), 64 << 10, &addr), 0);
		result = gcp_pools_free(pools, addr);
	}
	assert_int_equal(result, 700);
	fake.fence_result = 0;
	fake_finish(pools);
}
