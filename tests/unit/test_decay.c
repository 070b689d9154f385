/* SPDX-License-Identifier: MIT */
/*
 * test_decay.c - memory that nothing has used for a while goes back; and what a
 * program uses again stays.
 */
#include "../../pool/cache/cache.h"
#include "fake.h"
#include "cases.h"

#include <pthread.h>
#include <semaphore.h>

#define MS (1000ull * 1000)

/* Memory that is idle for a second goes back; each free closes an epoch. */
static int setup(void **state)
{
	struct gcp_config config;

	fake_setup(state);
	gcp_config_default(&config);
	config.decay_ms = 1000;
	config.epoch_blocks = 1;
	fake_open(&config);
	return 0;
}

#define TEST(name) CASE(name, setup, fake_close)

static void spike(void)
{
	gcp_addr addrs[16];

	for (int i = 0; i < 16; i++)
		addrs[i] = must_alloc(pool, 20 * MIB);
	for (int i = 0; i < 16; i++)
		must_free(addrs[i]);
}

/* A block every 10 ms, on a device that is done at once. */
static void idle(int ms)
{
	for (int i = 0; i < ms; i += 10) {
		gcp_addr addr = must_alloc(pool, 64 << 10);

		fake.done = fake_submit();
		must_free(addr);
		fake_pass(10 * MS);
	}
}

TEST(nothing_goes_back_while_a_stream_captures)
{
	spike();
	idle(100);
	gcp_pools_fences_hold(pools);
	uint64_t used = fake.memory_used;
	idle(5000);
	assert_int_equal(fake.memory_used, used); /* real frees that only wait aside */
	gcp_pools_fences_release(pools);
}

/* An error of the device is found by the call that asks first, and the program hears of
 * it, as it would from the cudaFree that it called. */
TEST(what_decay_finds_broken_is_reported)
{
	spike();
	idle(500);
	fake.fence_result = 700;
	fake_pass(2000 * MS);
	int result = 0;

	for (int i = 0; i < 10 && result == 0; i++) {
		fake_pass(300 * MS);
		gcp_addr addr = 0;

		/* A hit asks the driver nothing. */
		assert_int_equal(gcp_pool_alloc(pool, 64 << 10, &addr), 0);
		result = gcp_pools_free(pools, addr);
	}
	assert_int_equal(result, 700);
	fake.fence_result = 0;
}
