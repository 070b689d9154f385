/* SPDX-License-Identifier: MIT */
/*
 * test_pinned_memory.c - pinned host memory: when it is given back, what happens when
 * memory is out or the driver fails, misuse, figures and threads.
 */
#include "../../pool/pinned/pinned_types.h"
#include "pinned_scene.h"
#include "cases.h"

#include <time.h>

/* --- memory pressure --- */

TEST(a_full_host_gets_back_what_is_unused)
{
	void *p = take(MIB), *q;

	give(p);
	fake_pinned.limit = 2 * MIB;
	q = take(2 * MIB);
	assert_int_equal(stats().alloc_retries, 1);
	assert_int_equal(stats().ooms, 0);
	give(q);
}

/* No epoch counts what is freed when a fence fails; it is waited for all the same. */
static void wait_without_a_fence(int failure)
{
	void *p = take(MIB), *q;

	fake_pinned.record_result = failure;
	fake_submit();
	fake_pinned.other_submitted++;
	give(p);
	(void)gcp_pinned_poll(pools);
	fake_pinned.record_result = 0;
	fake_pinned.limit = 2 * MIB;
	q = take(2 * MIB);
	assert_int_equal(fake.done, fake.submitted);
	assert_int_equal(fake_pinned.other_done, 0);
	give(q);
}

TEST(a_full_host_waits_for_what_no_fence_covers_yet)
{
	wait_without_a_fence(GCP_CUDA_OUT_OF_MEMORY); /* for now */
}

static void *meanwhile;

/* Another thread frees, when the device is done. */
static void free_meanwhile(void)
{
	fake_pinned.waiting = NULL;
	fake.done = fake.submitted;
	give(meanwhile);
	fake_submit();
	give(take(2 * MIB));
}

TEST(a_fence_is_not_used_again_while_a_thread_waits_for_it)
{
	struct gcp_config config = configured();
	void *blocks[4];

	config.pinned_epoch_blocks = 1;
	config.pinned_window = MIB;
	open_with(&config);
	for (int i = 0; i < 4; i++)
		blocks[i] = take(MIB);
	meanwhile = blocks[2];
	fake_submit();
	give(blocks[0]);
	fake_pinned.waiting = free_meanwhile;
	fake_submit();
	give(blocks[1]); /* waits for the oldest */
	assert_null(fake_pinned.waiting);
	int spare = 0;
	for (struct gcp_fence *fence = pools->pinned->timeline.spare;
	     fence && spare < 10; fence = fence->next)
		spare++;
	if (spare == 10) /* a ring: no walk over it ends */
		pools->pinned->timeline.spare = NULL;
	assert_true(spare < 10);
	fake.done = fake.submitted;
	give(blocks[3]);
	uint64_t used = fake_pinned.used; /* before: arguments have no order */
	assert_int_equal(gcp_pinned_trim(pools, 0), used);
	/* Two epochs, two fences. */
	blocks[0] = take(MIB);
	blocks[1] = take(MIB / 2);
	fake_submit();
	give(blocks[0]);
	fake_submit();
	give(blocks[1]);
	fake.done = fake.submitted - 1;
	uint64_t allocs = fake_pinned.allocs;
	assert_ptr_equal(take(MIB), blocks[0]);
	assert_int_equal(fake_pinned.allocs, allocs);
	give(blocks[0]);
	fake.done = fake.submitted;
}

/* What the context has unused is not what is missing. */
TEST(a_full_host_waits_only_where_that_helps)
{
	void *p = take(MIB), *none;

	give(p);
	fake.done = fake_submit() - 1;
	fake_pinned.limit = 4 * MIB;
	assert_int_equal(gcp_pinned_alloc(pool, 5 * MIB, 0, NULL, &none),
			 GCP_CUDA_OUT_OF_MEMORY);
	assert_true(fake.done < fake.submitted);
	assert_int_equal(fake_pinned.used, MIB);
	give(take(4 * MIB));
	assert_int_equal(fake.done, fake.submitted);
	fake_submit();
	give(take(2 * MIB));
	assert_int_equal(fake.done, fake.submitted);
}

/* The same where it is known what the quota leaves. */
TEST(a_quota_waits_only_where_that_helps)
{
	struct gcp_config config = configured();
	struct gcp_pool *other;
	void *p, *q, *none;

	config.pinned_quota = 4 * MIB;
	open_with(&config);
	assert_int_equal(gcp_pool_get(pools, FAKE_OTHER_CTX, 1, &other), 0);
	p = take(MIB);
	q = take_as(other, 3 * MIB, 0);
	give(p);
	give(q);
	fake.done = fake_submit() - 1;
	fake_pinned.other_done = fake_pinned.other_submitted++;
	assert_int_equal(gcp_pinned_alloc(pool, 2 * MIB, 0, NULL, &none),
			 GCP_CUDA_OUT_OF_MEMORY);
	assert_true(fake.done < fake.submitted);
	assert_int_equal(fake_pinned.used, 4 * MIB);
	fake_pinned.other_done++;
	give(take(2 * MIB)); /* what the other one has is enough */
	assert_true(fake.done < fake.submitted);
	fake.done++;
}

static struct gcp_driver real;

/* So long that another thread would ask meanwhile. */
static int slow_alloc(void *ctx, uint64_t bytes, uint32_t flags, void **ret_p)
{
	const struct timespec pause = {.tv_nsec = 50 * 1000 * 1000};

	nanosleep(&pause, NULL);
	return real.host_alloc(ctx, bytes, flags, ret_p);
}

static void *ask(void *arg)
{
	void *p;

	if (gcp_pinned_alloc(pool, MIB, 0, NULL, &p) == 0)
		give(p);
	return arg;
}

TEST(two_threads_do_not_share_what_the_quota_leaves_for_one)
{
	struct gcp_config config = configured();
	struct gcp_driver driver;
	pthread_t threads[2];

	fake_reset();
	config.pinned_quota = MIB;
	real = driver = fake_driver();
	driver.host_alloc = slow_alloc;
	assert_int_equal(gcp_pools_create(&config, &driver, &pools), 0);
	pool = fake_pool(pools);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, ask, NULL), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(stats().allocated_bytes.peak, MIB);
}

/* --- failures --- */

/* Its memory goes with it, and the addresses may be another's then. */
TEST(memory_of_a_context_that_may_be_ending_is_left_alone)
{
	void *p = take(MIB);

	give(p);
	fake.done = fake.submitted;
	gcp_pool_detach(pools, FAKE_CTX);
	assert_int_equal(gcp_pinned_trim(pools, 0), 0);
	assert_int_equal(fake_pinned.frees, 0);
	gcp_pool_reattach(pools, FAKE_CTX);
	assert_true(gcp_pinned_trim(pools, 0) >= MIB);
	assert_int_equal(fake_pinned.frees, 1);
}
