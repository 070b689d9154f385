/* SPDX-License-Identifier: MIT */
/*
 * test_pinned_bounds.c - pinned host memory: how much waits for the device while
 * another context is at work, or while a capture holds fences back, and what is waited
 * for when memory is out: no other context, and no work that came after the free.
 */
#include "../../pool/pinned/pinned_types.h"
#include "pinned_scene.h"
#include "cases.h"

/* --- memory is out --- */

/* Plain CUDA waits in the free, for the block's own context; so the wait comes later
 * here, and is for the same work: none of it that came after the free. */
TEST(a_full_host_waits_for_what_the_free_would_have)
{
	void *p = take(8 * MIB), *q;

	fake_submit();
	fake_pinned.other_submitted++;
	give(p);
	fake_submit();
	fake_pinned.limit = 9 * MIB;
	q = take(8 * MIB);
	assert_ptr_equal(q, p);
	assert_int_equal(fake.done, 1);
	assert_int_equal(fake_pinned.other_done, 0);
	give(q);
}

static struct gcp_pool *other_pool(void)
{
	struct gcp_pool *other;

	assert_int_equal(gcp_pool_get(pools, FAKE_OTHER_CTX, 1, &other), 0);
	return other;
}

/* For what each of its contexts would have waited for, which is over on plain CUDA. */
TEST(a_full_host_waits_for_the_frees_of_other_contexts)
{
	void *p = take_as(other_pool(), 8 * MIB, 0), *q;

	fake_submit();
	fake_pinned.other_submitted++;
	give(p);
	fake_pinned.limit = 9 * MIB;
	q = take(9 * MIB);
	assert_int_equal(fake_pinned.other_done, 1);
	assert_int_equal(fake.done, 0);
	give(q);
}

/* The driver's free would wait for what the other context does now. */
TEST(a_full_host_leaves_a_busy_context_alone)
{
	void *p = take_as(other_pool(), 8 * MIB, 0), *none;

	fake_pinned.other_submitted++;
	give(p);
	fake_pinned.other_submitted++;
	fake_pinned.limit = 9 * MIB;
	assert_int_equal(gcp_pinned_alloc(pool, 9 * MIB, 0, NULL, &none),
			 GCP_CUDA_OUT_OF_MEMORY);
	assert_int_equal(fake_pinned.other_done, 1);
	fake_pinned.other_done = 2;
	give(take(9 * MIB));
}

/* One that an allocation has closed covers what came after the free. It is waited for
 * when all else has failed. */
TEST(an_epoch_that_an_allocation_closed_is_the_last_resort)
{
	void *first = take(64 * KIB), *p = take(MIB),
	     *same = take_as(other_pool(), MIB, 0), *q;

	give(first); /* and so the next free does not close its epoch */
	fake_submit();
	give(p);
	give(same);
	fake_submit();
	give(take(MIB)); /* grows: looks for p first */
	assert_true(fake_pinned.records > 0);
	fake_pinned.limit = fake_pinned.used;
	q = take_as(other_pool(), MIB, 0);
	assert_int_equal(fake.done, 0); /* not for another context */
	give(q);
	q = take(2 * MIB);
	assert_int_equal(fake.done, 2);
	give(q);
}

/* So many frees, each into an epoch of its own, that their queue is nearly full; the
 * last of them at an odd place, where a full queue loses fences. */
TEST(a_full_queue_keeps_what_a_free_closed)
{
	enum { FREES = GCP_FENCE_QUEUE - 2, MORE = 3 };
	struct gcp_config config = configured();
	void *blocks[FREES], *small[MORE], *p;
	uint64_t freed;

	config.pinned_window = 1ull << 40;
	open_with(&config);
	for (int i = 0; i < FREES; i++)
		blocks[i] = take(8 * MIB);
	for (int i = 0; i < MORE; i++)
		small[i] = take((64 << i) * KIB);
	for (int i = 0; i < FREES; i++) {
		fake_submit();
		give(blocks[i]);
	}
	freed = fake.submitted;
	assert_int_equal(fake_pinned.records, FREES);
	/* These are closed by allocations, and the third finds a full queue. */
	for (int i = 0; i < MORE; i++) {
		fake_submit();
		give(small[i]);
		small[i] = take((64 << i) * KIB);
	}
	assert_int_equal(fake_pinned.records, FREES + MORE);
	fake_pinned.limit = fake_pinned.used;
	p = take(8 * MIB);
	assert_int_equal(fake.done, freed);
	give(p);
	for (int i = 0; i < MORE; i++)
		give(small[i]);
}

/* Its fence could not be recorded; the next one is an allocation's. */
TEST(a_free_without_a_fence_is_not_waited_for)
{
	void *p = take(8 * MIB), *small = take(64 * KIB), *none;

	(void)other_pool();
	fake_pinned.record_result = GCP_CUDA_OUT_OF_MEMORY;
	fake_submit();
	give(p);
	fake_pinned.record_result = 0;
	fake_submit();
	give(small);
	give(take(64 * KIB));
	assert_true(fake_pinned.records > 0);
	fake_pinned.limit = fake_pinned.used;
	assert_int_equal(gcp_pinned_alloc(other_pool(), 8 * MIB, 0, NULL, &none),
			 GCP_CUDA_OUT_OF_MEMORY);
	assert_int_equal(fake.done, 0);
}

/* --- other contexts, captures --- */

/* Frees in a row of `mib` MiB each, each behind work, while nothing can complete. */
static uint64_t held_after(unsigned turns, uint64_t mib)
{
	for (unsigned i = 0; i < turns; i++) {
		void *p = take(mib * MIB);

		fake_submit();
		give(p);
	}
	return fake_pinned.used;
}

/* Work of another context that does not end for long. */
TEST(another_context_does_not_make_it_grow)
{
	struct gcp_config config = configured();

	config.pinned_window = 16 * MIB;
	open_with(&config);
	(void)other_pool();
	fake_pinned.other_submitted = 1;
	assert_true(held_after(200, 2) <= config.pinned_window + 4 * MIB);
	assert_int_equal(fake_pinned.other_done, 0);
	assert_int_equal(fake_pinned.other_frees, 0);
	assert_true(fake.done < fake.submitted); /* no more than the window needs */
}

/* While fences are held the driver's free does the waiting: one in so many. */
TEST(a_capture_does_not_make_it_grow)
{
	struct gcp_config config = configured();

	config.pinned_window = 16 * MIB;
	open_with(&config);
	gcp_pools_fences_hold(pools);
	fake.capturing++;
	fake_pinned.other_submitted = 1;
	assert_true(held_after(200, 2) <= config.pinned_window + 4 * MIB);
	assert_true(fake_pinned.frees > 0 && fake_pinned.frees < 60);
	assert_int_equal(fake_pinned.other_done, 0);
	assert_int_equal(fake.violations, 0);
	fake.capturing--;
	gcp_pools_fences_release(pools);
}

/* What a capture has held back waits for fences again when it has ended. */
TEST(each_capture_has_its_own_window)
{
	struct gcp_config config = configured();
	void *blocks[8];

	config.pinned_window = 16 * MIB;
	open_with(&config);
	for (int round = 0; round < 3; round++) {
		gcp_pools_fences_hold(pools);
		fake.capturing++;
		for (int i = 0; i < 8; i++)
			blocks[i] = take(2 * MIB);
		fake_submit();
		for (int i = 0; i < 8; i++)
			give(blocks[i]);
		assert_true(fake.done < fake.submitted);
		fake.capturing--;
		gcp_pools_fences_release(pools);
		give(take(8 * MIB)); /* closes the epoch */
		fake.done = fake.submitted;
	}
	assert_int_equal(fake_pinned.frees, 0);
	assert_int_equal(fake.violations, 0);
}

/* What another context frees meanwhile is bounded, too, and counted apart. */
TEST(a_capture_makes_no_context_grow)
{
	struct gcp_config config = configured();
	struct gcp_pool *other;

	config.pinned_window = 16 * MIB;
	open_with(&config);
	other = other_pool();
	gcp_pools_fences_hold(pools);
	fake.capturing++;
	for (int i = 0; i < 200; i++) {
		void *p = take(2 * MIB), *q = take_as(other, 2 * MIB, 0);

		fake_submit();
		fake_pinned.other_submitted++;
		give(p);
		give(q);
	}
	assert_true(fake_pinned.used <= 2 * config.pinned_window + 8 * MIB);
	assert_true(fake_pinned.other_frees > 0);
	fake.capturing--;
	gcp_pools_fences_release(pools);
	must_be_sound(pools);
}

/* As while a context is ending: no fence can be recorded, for however long. */
TEST(fences_that_are_refused_do_not_make_it_grow)
{
	struct gcp_config config = configured();

	config.pinned_window = 16 * MIB;
	for (uint64_t mib = 1; mib <= 8; mib *= 2) {
		open_with(&config);
		(void)other_pool();
		fake_pinned.record_result = -EBUSY;
		fake_pinned.other_submitted = 1;
		assert_true(held_after(400 / (unsigned)mib, mib) <=
			    config.pinned_window + 8 * MIB);
		assert_true(fake_pinned.frees > 0 && fake_pinned.frees < 60);
		assert_int_equal(fake_pinned.other_done, 0);
		assert_int_equal(fake_pinned.other_frees, 0);
		fake_finish(pools);
	}
	open_with(&config);
}

/* One of them frees seldom, and waits for its own work, too, when its share is full. */
TEST(refused_fences_make_no_context_grow)
{
	struct gcp_config config = configured();
	struct gcp_pool *other;

	config.pinned_window = 16 * MIB;
	open_with(&config);
	other = other_pool();
	fake_pinned.record_result = -EBUSY;
	for (int i = 0; i < 400; i++) {
		void *p = take(2 * MIB), *q = i % 4 ? NULL : take_as(other, 2 * MIB, 0);

		fake_submit();
		fake_pinned.other_submitted++;
		give(p);
		if (q)
			give(q);
	}
	assert_true(fake_pinned.used <= 2 * config.pinned_window + 8 * MIB);
	assert_true(fake_pinned.other_frees > 0);
	must_be_sound(pools);
}

/* A block that a real free has not waited for stays out of reach. */
TEST(what_is_freed_after_the_wait_is_not_done)
{
	struct gcp_config config = configured();
	void *blocks[9], *p;

	config.pinned_window = 16 * MIB;
	open_with(&config);
	gcp_pools_fences_hold(pools);
	fake.capturing++;
	for (int i = 0; i < 9; i++)
		blocks[i] = take(2 * MIB);
	fake_submit();
	for (int i = 0; i < 9; i++)
		give(blocks[i]); /* the last one waits */
	assert_int_equal(fake.done, 1);
	p = take(2 * MIB);
	fake_submit();
	give(p);
	for (int i = 0; i < 8; i++)
		assert_ptr_not_equal(blocks[i] = take(2 * MIB), p);
	for (int i = 0; i < 8; i++)
		give(blocks[i]);
	fake.capturing--;
	gcp_pools_fences_release(pools);
}

/* --- limits --- */

/* A limit holds while nothing can complete, too: the driver's free waits for its own
 * context, as on plain CUDA. */
TEST(the_cache_limit_holds_while_fences_wait)
{
	struct gcp_config config = configured();
	void *blocks[16];

	config.pinned_cache_limit = 2 * MIB;
	open_with(&config);
	fake_pinned.other_submitted = 1;
	for (int i = 0; i < 16; i++)
		blocks[i] = take(MIB);
	for (int i = 0; i < 16; i++) {
		if (i == 8) {
			gcp_pools_fences_hold(pools);
			fake.capturing++;
		}
		fake_submit();
		give(blocks[i]);
		assert_true(fake_pinned.used <= (uint64_t)(17 - i) * MIB);
	}
	assert_int_equal(fake_pinned.other_done, 0);
	assert_int_equal(fake.violations, 0);
	fake.capturing--;
	gcp_pools_fences_release(pools);
}

/* Where fences do not work nothing is used again, and is counted all the same. */
TEST(the_quota_holds_where_fences_fail)
{
	struct gcp_config config = configured();
	void *p, *none;

	config.pinned_quota = 4 * MIB;
	open_with(&config);
	fake_pinned.record_result = 801;
	give(take(MIB));
	p = take(3 * MIB);
	assert_int_equal(gcp_pinned_alloc(pool, 2 * MIB, 0, NULL, &none),
			 GCP_CUDA_OUT_OF_MEMORY);
	fake_submit();
	give(p);
	assert_int_equal(fake.done, fake.submitted);
	assert_int_equal(fake_pinned.used, 0);
	give(take(4 * MIB));
}

/* Of frees whose memory could not be given back in an allocation without a wait. */
TEST(a_quota_is_exact_beside_a_capture)
{
	struct gcp_config config = configured();
	void *p;

	config.pinned_quota = 4 * MIB;
	open_with(&config);
	gcp_pools_fences_hold(pools);
	fake.capturing++;
	p = take(3 * MIB);
	fake_submit();
	give(p);
	assert_int_equal(fake.done, 1); /* as plain CUDA */
	fake_submit();
	p = take(3 * MIB);
	assert_int_equal(fake.done, 1);
	give(p);
	fake.capturing--;
	gcp_pools_fences_release(pools);
}

/* Takes what the quota leaves, if it does, and the driver has it by now. */
static void takes_meanwhile(void)
{
	void *p = NULL;

	fake_pinned.limit = 1ull << 40;
	if (gcp_pinned_alloc(pool, 3 * MIB, 0, NULL, &p) == 0)
		give(p);
}

/* The driver has it still. */
TEST(the_quota_counts_what_is_on_its_way_back)
{
	struct gcp_config config = configured();

	config.pinned_quota = 4 * MIB;
	open_with(&config);
	give(take(2 * MIB));
	fake_pinned.freeing = takes_meanwhile;
	assert_int_equal(gcp_pinned_trim(pools, 0), 2 * MIB);
	assert_true(fake_pinned.peak <= config.pinned_quota);
}

/* The driver, which has less than the quota leaves, is asked how much. */
TEST(the_quota_counts_what_the_driver_is_asked_for)
{
	struct gcp_config config = configured();
	void *p, *none;

	config.pinned_quota = 4 * MIB;
	open_with(&config);
	p = take(MIB / 2);
	fake_submit();
	give(p);
	fake_submit();
	fake_pinned.other_submitted++; /* no fence is done */
	fake_pinned.limit = 3 * MIB + MIB / 4;
	fake_pinned.freeing = takes_meanwhile;
	if (gcp_pinned_alloc(pool, 3 * MIB, 0, NULL, &none) == 0)
		give(none);
	assert_null(fake_pinned.freeing);
	assert_true(fake_pinned.peak <= config.pinned_quota);
	fake_pinned.other_done++;
}
