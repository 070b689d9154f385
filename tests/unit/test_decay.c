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

TEST(what_a_spike_left_goes_back)
{
	struct gcp_config config = decaying();
	struct gcp_pools *pools = fake_pools(&config);

	idle(pools, 100);
	spike(pools);
	idle(pools, 950);
	assert_true(fake.memory_used >= 16 * 20 * MIB);
	idle(pools, 600);
	assert_true(fake.memory_used <= 32 * MIB);
	assert_int_equal(fake.waits, 0);
	must_be_sound(pools);
	fake_finish(pools);
}

TEST(what_comes_again_in_time_stays)
{
	struct gcp_config config = decaying();
	struct gcp_pools *pools = fake_pools(&config);

	spike(pools);
	idle(pools, 900);
	uint64_t allocs = fake.allocs, frees = fake.frees;

	for (int i = 0; i < 20; i++) {
		spike(pools);
		idle(pools, 900);
	}
	assert_int_equal(fake.allocs, allocs);
	assert_int_equal(fake.frees, frees);
	assert_int_equal(must_stats(pools).trims, 0);
	fake_finish(pools);
}

static struct guest {
	struct gcp_pools *pools;
	sem_t quiet, ends;
	uint64_t stream; /* all in the order of that stream; 0: of none */
} guest;

static gcp_addr guest_alloc(void)
{
	struct gcp_pool *pool = fake_pool(guest.pools);
	gcp_addr addr;

	if (!guest.stream)
		return must_alloc(pool, 64 << 10);
	assert_int_equal(gcp_pool_alloc_stream(pool, 64 << 10, guest.stream, &addr), 0);
	return addr;
}

static void guest_free(gcp_addr addr)
{
	if (guest.stream)
		assert_int_equal(gcp_pools_free_async(guest.pools, addr, guest.stream),
				 0);
	else
		must_free(guest.pools, addr);
}

/* A thread that fills its cache, and then calls nothing until the test ends. */
static void *guest_run(void *arg)
{
	gcp_addr addrs[384];

	(void)arg;
	for (int i = 0; i < 384; i++)
		addrs[i] = guest_alloc();
	for (int i = 0; i < 384; i++)
		guest_free(addrs[i]);
	sem_post(&guest.quiet);
	sem_wait(&guest.ends);
	gcp_pools_thread_exit(guest.pools);
	return NULL;
}

/* Of no stream, and in the order of one. */
TEST(a_thread_that_frees_is_not_quiet)
{
	for (uint64_t stream = 0; stream < 2; stream++) {
		struct gcp_config config = decaying();
		pthread_t thread;

		fake_reset();
		guest = (struct guest){.pools = fake_pools(&config), .stream = stream};
		sem_init(&guest.quiet, 0, 0);
		sem_init(&guest.ends, 0, 0);
		struct gcp_pool *pool = fake_pool(guest.pools);
		gcp_timeline_advance(pool);
		uint64_t before = gcp_timeline_stamp(pool);
		pthread_create(&thread, NULL, guest_run, NULL);
		sem_wait(&guest.quiet);
		assert_false(gcp_caches_flush_quiet(pool, before));
		gcp_timeline_advance(pool);
		assert_true(gcp_caches_flush_quiet(pool, gcp_timeline_stamp(pool)));
		sem_post(&guest.ends);
		pthread_join(thread, NULL);
		fake_finish(guest.pools);
	}
}

/* A device that always has work: a free waits for it, as plain CUDA's does. */
TEST(a_busy_program_gives_back_in_time)
{
	struct gcp_config config = decaying();
	struct gcp_pools *pools = fake_pools(&config);
	uint64_t gone = 0;

	spike(pools);
	for (int i = 0; i < 400; i++) {
		gcp_addr addr = must_alloc(fake_pool(pools), 64 << 10);

		fake.done = fake_submit() - 1; /* not the latest work */
		must_free(pools, addr);
		fake_pass(10 * MS);
		if (gone == 0 && fake.frees > 0)
			gone = (uint64_t)i * 10;
	}
	assert_true(gone >= 1000);
	assert_true(gone <= 1500);
	assert_true(fake.memory_used <= 32 * MIB);
	assert_int_equal(fake.waits, 0);
	fake_finish(pools);
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

static struct gcp_pools *mapped_pools(void)
{
	struct gcp_config config;

	gcp_config_default_mapped(&config);
	config.decay_ms = 1000;
	config.epoch_blocks = 1;
	fake_reset_vmm();
	return fake_pools(&config);
}

static void in_its_context(void *ctx, void (*step)(void *arg), void *arg)
{
	assert_ptr_equal(ctx, FAKE_CTX);
	step(arg);
}

/* A thread that comes by every 10 ms. */
static void come_by(struct gcp_pools *pools, int ms)
{
	for (int i = 0; i < ms; i += 10) {
		gcp_pools_decay(pools, in_its_context);
		fake_pass(10 * MS);
	}
}

/* The program calls nothing, and its kernel does not end; and some of its memory is in
 * the thread's cache and in the open epoch. */
static void quiet(bool vmm)
{
	struct gcp_config config = decaying();

	if (vmm)
		gcp_config_default_mapped(&config);
	config.decay_ms = 1000;
	config.epoch_blocks = 1000;
	config.backend = vmm ? GCP_BACKEND_MAPPED : GCP_BACKEND_SEGMENTS;
	fake_reset_vmm();
	struct gcp_pools *pools = fake_pools(&config);
	gcp_addr small = must_alloc(fake_pool(pools), 4096);

	spike(pools);
	must_free(pools, small);
	fake.done = fake.submitted;
	come_by(pools, 900);
	assert_true(fake.memory_used >= 16 * 20 * MIB);
	uint64_t later = fake_submit();
	fake.stuck = true;
	come_by(pools, 700);
	assert_int_equal(fake.memory_used, 0);
	assert_true(fake.done < later);
	assert_int_equal(fake.waits, 0);
	must_be_sound(pools);
	fake_finish(pools);
}

TEST(a_quiet_program_gives_back)
{
	quiet(false);
}

TEST(a_quiet_program_gives_mapped_memory_back)
{
	quiet(true);
}

/* A pool that maps memory has segments of the driver's, too, here of a graph that is
 * gone. Where their end would be a wait they go in a free, and not in an allocation. */
TEST(no_allocation_waits_to_give_a_segment_back)
{
	struct gcp_pools *pools = mapped_pools();
	struct gcp_heap *heap;
	gcp_addr addr;

	pools->driver.mem_release = NULL;
	assert_int_equal(gcp_heap_create(fake_pool(pools), &heap), 0);
	assert_int_equal(gcp_heap_alloc(heap, 20 * MIB, GCP_USE_ANY, &addr), 0);
	must_free(pools, addr);
	gcp_heap_release(heap);
	idle_with(pools, 20, 4096); /* not in that segment */
	assert_int_equal(fake.allocs, 1);
	uint64_t later = fake_submit();

	for (int i = 0; i < 40; i++) {
		(void)must_alloc(fake_pool(pools), 24 * MIB);
		fake_pass(100 * MS);
	}
	assert_int_equal(fake.frees, 0);
	assert_true(fake.done < later);
	idle_with(pools, 2500, 4096);
	assert_int_equal(fake.frees, 1);
	must_be_sound(pools);
}
