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

TEST(a_full_host_waits_for_nothing_if_nothing_is_pending)
{
	void *held = take(MIB), *freed = take(MIB), *none;

	give(freed); /* and is done */
	fake_pinned.limit = fake_pinned.used;
	assert_int_equal(gcp_pinned_alloc(pool, 4 * MIB, 0, NULL, &none),
			 GCP_CUDA_OUT_OF_MEMORY);
	assert_int_equal(fake_pinned.used, MIB);
	fake_pinned.other_submitted++;
	uint64_t allocs = fake_pinned.allocs;
	assert_int_equal(gcp_pinned_alloc(pool, 4 * MIB, 0, NULL, &none),
			 GCP_CUDA_OUT_OF_MEMORY);
	assert_int_equal(fake_pinned.allocs, allocs + 2); /* and looked once */
	assert_int_equal(fake_pinned.waits, 0);
	assert_int_equal(gcp_pinned_trim(pools, 0), 0);
	assert_int_equal(fake_pinned.other_done, 0);
	give(held);
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

TEST(a_full_host_waits_for_what_no_fence_can_cover)
{
	wait_without_a_fence(900);
}

/* Each freed behind work of its own. */
TEST(a_full_host_waits_for_the_newest)
{
	struct gcp_config config = configured();
	void *p, *q;

	config.pinned_epoch_blocks = 1;
	open_with(&config);
	p = take(MIB);
	q = take(MIB);
	fake_submit();
	give(p);
	fake_submit();
	give(q);
	fake_pinned.limit = 2 * MIB;
	p = take(MIB);
	q = take(MIB);
	assert_int_equal(fake.done, 2);
	give(p);
	give(q);
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

/* A request that the pool does not serve: whatever can go back without a wait goes, and
 * what was freed last is not even looked for. */
TEST(a_request_that_is_not_pooled_waits_for_nothing)
{
	gcp_addr large = must_alloc(pool, 60 * MIB), small = must_alloc(pool, MIB);
	void *p = take(GCP_PINNED_LARGE);

	must_free(pools, large);
	must_free(pools, small);
	give(p);
	fake.done = fake_submit() - 1;
	fake.stuck = true;
	assert_true(
	    gcp_pools_relieve_host(pools, &(struct gcp_search){0})); /* the large one */
	assert_false(gcp_pools_relieve_host(pools, &(struct gcp_search){0}));
	assert_true(fake.done < fake.submitted);
	assert_int_equal(fake_pinned.used, GCP_PINNED_LARGE);
	assert_true(fake.queries < 1000);
	fake.done++;
	assert_true(gcp_pools_relieve_host(pools, &(struct gcp_search){0}));
	assert_int_equal(fake_pinned.used, 0);
}

TEST(out_of_memory_is_told)
{
	void *p = NULL;

	fake_pinned.limit = MIB;
	assert_int_equal(gcp_pinned_alloc(pool, 2 * MIB, 0, NULL, &p),
			 GCP_CUDA_OUT_OF_MEMORY);
	assert_null(p);
	assert_int_equal(stats().ooms, 1);
	must_be_sound(pools);
}

TEST(the_quota_is_kept)
{
	struct gcp_config config = configured();
	void *p, *q;

	config.pinned_quota = 4 * MIB;
	open_with(&config);
	p = take(2 * MIB);
	assert_int_equal(gcp_pinned_alloc(pool, 3 * MIB, 0, NULL, &q),
			 GCP_CUDA_OUT_OF_MEMORY);
	give(p);
	q = take(3 * MIB); /* p makes room */
	assert_true(fake_pinned.used <= 4 * MIB);
	give(q);
}

/* Unused memory goes back only as far as that makes room, and no wait is useless. */
TEST(the_quota_drains_and_waits_no_more_than_helps)
{
	struct gcp_config config = configured();
	void *blocks[4], *q = NULL;

	config.pinned_quota = 4 * MIB;
	open_with(&config);
	for (int i = 0; i < 4; i++)
		blocks[i] = take(MIB);
	give(blocks[0]);
	give(blocks[1]);
	fake_pinned.other_submitted++;
	assert_int_equal(gcp_pinned_alloc(pool, 3 * MIB, 0, NULL, &q),
			 GCP_CUDA_OUT_OF_MEMORY);
	assert_int_equal(fake_pinned.frees, 0);
	assert_int_equal(fake_pinned.waits, 0);
	fake_pinned.other_done++;
	q = take(MIB / 2);
	assert_int_equal(fake_pinned.frees, 1);
	assert_int_equal(fake_pinned.used, 3 * MIB + MIB / 2);
	give(q);
	give(blocks[2]);
	give(blocks[3]);
}

/* Within the quota the driver has no room: what the quota asks for is not enough. */
TEST(a_quota_and_a_full_host_are_both_made_room_for)
{
	struct gcp_config config = configured();
	void *blocks[4];

	config.pinned_quota = 5 * MIB;
	open_with(&config);
	fake_pinned.limit = 4 * MIB;
	for (int i = 0; i < 4; i++)
		blocks[i] = take(MIB);
	fake_pinned.other_submitted++; /* no fence is done */
	fake_submit();
	for (int i = 0; i < 4; i++)
		give(blocks[i]);
	fake_submit();
	give(take(2 * MIB));
	fake_pinned.other_done++;
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

/* The driver's free would wait for its work. */
TEST(the_cache_limit_takes_nothing_of_other_contexts)
{
	struct gcp_config config = configured();
	struct gcp_pool *other;
	void *p, *q;

	config.pinned_cache_limit = MIB;
	config.pinned_epoch_blocks = 1;
	open_with(&config);
	assert_int_equal(gcp_pool_get(pools, (void *)0x2000, 1, &other), 0);
	p = take_as(other, MIB, 0);
	q = take(MIB);
	give(p);
	give(q);
	assert_int_equal(fake_pinned.other_frees, 0);
	assert_int_equal(fake_pinned.used, MIB);
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

/* More epochs than the queue holds, of a device that gets nothing done. */
TEST(a_full_queue_of_fences_makes_room)
{
	enum { FREES = 3 * GCP_FENCE_QUEUE };
	struct gcp_config config = configured();
	static void *blocks[FREES];

	config.pinned_epoch_blocks = 1;
	open_with(&config);
	for (int i = 0; i < FREES; i++)
		blocks[i] = take(4 * KIB);
	for (int i = 0; i < FREES; i++) {
		fake_submit();
		give(blocks[i]);
	}
	assert_int_equal(fake_pinned.records, FREES);
	assert_int_equal(fake_pinned.waits, 0);
	must_be_sound(pools);
	gcp_pinned_trim(pools, 0);
	assert_int_equal(fake_pinned.blocks, 0);
}
