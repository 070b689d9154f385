/* SPDX-License-Identifier: MIT */
/*
 * test_shortage.c - the host runs out of memory, at each call of malloc, calloc and
 * mmap in turn, once and from then on: the program's call gives an error or works, the
 * books stay sound, and what the driver gave is accounted for or given back. And a
 * device, or a quota, that has no room for all.
 */
#include "../../pool/pool_types.h"
#include "capture_fake.h"
#include "cases.h"

#include <pthread.h>
#include <time.h>

enum { CALLS_MAX = 200 };

/* Takes a block if there is memory for it. */
static gcp_addr take(void *stream, uint64_t bytes)
{
	gcp_addr addr = 0;
	int result =
	    gcp_tracker_alloc(tracker, pool, FAKE_CTX, hint_of(stream), bytes, &addr);

	assert_true(result == 0 || result == -ENOMEM ||
		    result == GCP_CUDA_OUT_OF_MEMORY);
	assert_int_equal(result == 0, addr != 0);
	return addr;
}

static void give(gcp_addr addr)
{
	if (addr)
		must_free(pools, addr);
}

static void accounts_must_fit(void)
{
	must_be_sound(pools);
	assert_int_equal(must_stats(pools).reserved_bytes.current, fake.memory_used);
}

static void eager_work(void)
{
	gcp_addr a = take(NULL, 3000), b = take(NULL, 300 << 10),
		 c = take(NULL, 9 * MIB);

	accounts_must_fit();
	fake_submit();
	give(b);
	b = take(NULL, 200 * MIB);
	give(c);
	give(a);
	give(b);
	accounts_must_fit();
}

static void captured_work(void)
{
	struct gcp_capture *capture;
	gcp_addr a = 0, b = 0;

	if (gcp_tracker_begin_prepare(tracker, &capture) != 0)
		return;
	fake.capturing++;
	cuda.streams[0] =
	    (struct gcp_capture_state){true, false, ++cuda.last_id, &cuda};
	gcp_tracker_begin_done(tracker, capture, FAKE_CTX, stream_handle(0),
			       GCP_CAPTURE_GLOBAL, 0);
	a = take(stream_handle(0), 3000);
	assert_true(!a || is_private(a));
	kernel(0);
	give(a);
	wait_for(1, 0);
	b = take(stream_handle(1), 3 * MIB);
	assert_true(!b || is_private(b));
	accounts_must_fit();
	memset(&cuda.streams[1], 0, sizeof(cuda.streams[1]));
	end(0);
	give(b);
	graph_destroy(&cuda);
	accounts_must_fit();
}

/* True: a call has failed. */
static bool failing_at(unsigned at, bool onwards, void (*work)(void))
{
	bool failed;

	setup(NULL);
	fake_fail_memory(at, onwards);
	work();
	failed = fake_memory_failed();
	fake_fail_memory(0, false);
	/* And all is well when there is memory again. */
	work();
	fake.done = fake.submitted;
	gcp_tracker_collect(tracker);
	gcp_pools_trim(pools, 0, 0);
	assert_int_equal(fake.memory_used, 0);
	teardown(NULL);
	return failed;
}

static void each_fails_in_turn(void (*work)(void))
{
	unsigned at = 1;

	for (int onwards = 0; onwards < 2; onwards++)
		for (at = 1; failing_at(at, onwards, work); at++)
			assert_true(at < CALLS_MAX);
	assert_true(at > 1);
}

CASE(the_host_runs_out_of_memory, NULL, NULL)
{
	each_fails_in_turn(eager_work);
}

CASE(the_host_runs_out_of_memory_in_a_capture, NULL, NULL)
{
	each_fails_in_turn(captured_work);
}

/* A shared segment does not fit on the device; what is asked for does. */
TEST(a_device_with_little_room_gives_what_is_needed)
{
	fake.memory_limit = 6 * MIB;
	gcp_addr small = must_alloc(pool, 300 << 10), large = must_alloc(pool, 3 * MIB);
	give(small);
	give(large);
}

static struct gcp_driver real;

/* So long that another thread would ask meanwhile. */
static int slow_alloc(void *ctx, uint64_t bytes, gcp_addr *ret_addr)
{
	const struct timespec pause = {.tv_nsec = 50 * 1000 * 1000};

	nanosleep(&pause, NULL);
	return real.mem_alloc(ctx, bytes, ret_addr);
}

static void *ask(void *arg)
{
	gcp_addr addr;

	(void)gcp_pool_alloc(pool, 64 << 20, &addr);
	return arg;
}

CASE(two_threads_do_not_share_what_a_quota_leaves_for_one, NULL, NULL)
{
	struct gcp_config config;
	struct gcp_driver driver;
	pthread_t threads[2];

	fake_reset();
	gcp_config_default(&config);
	config.quota = 64 << 20;
	real = driver = fake_driver();
	driver.mem_alloc = slow_alloc;
	assert_int_equal(gcp_pools_create(&config, &driver, &pools), 0);
	pool = fake_pool(pools);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, ask, NULL), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(must_stats(pools).reserved_bytes.current, config.quota);
}

/* The device is full, and all that is left is a small block beside others in use. */
TEST(a_small_block_that_waits_is_waited_for)
{
	gcp_addr last = 0, addr = must_alloc(pool, 700);

	fake.memory_limit = fake.memory_used;
	fake.several = true; /* no barrier may be set */
	while (gcp_pool_alloc(pool, 700, &addr) == 0)
		last = addr;
	fake_submit();
	must_free(pools, last);
	assert_int_equal(must_alloc(pool, 700), last);
	must_be_sound(pools);
}

/* Another thread is about to give it back, behind all work. */
TEST(what_others_give_back_is_waited_for)
{
	gcp_addr addr;

	(void)must_alloc(pool, 3 * MIB);
	fake.memory_limit = fake.memory_used;
	fake_submit();
	assert_int_equal(gcp_pool_alloc(pool, 90 * MIB, &addr), GCP_CUDA_OUT_OF_MEMORY);
	assert_int_equal(must_stats(pools).waits, 0);
	pool->giving = 1;
	assert_int_equal(gcp_pool_alloc(pool, 90 * MIB, &addr), GCP_CUDA_OUT_OF_MEMORY);
	/* Before anything else is waited for, and at the end. */
	assert_int_equal(must_stats(pools).waits, 2);
	pool->giving = 0;
}
