/* SPDX-License-Identifier: MIT */
/*
 * test_reuse.c - reuse inside captures, pools that captures share, and
 * checkpoints.
 */
#include "capture_fake.h"

/* A test within one capture, of stream 0. */
static void *within;

static int setup_begun(void **state)
{
	setup(state);
	within = begin(0);
	return 0;
}

static int teardown_end(void **state)
{
	end_and_destroy(within);
	return teardown(state);
}

#define CAPTURED(name) CASE(name, setup_begun, teardown_end)

/* --- reuse inside a capture --------------------------------------------------- */

CAPTURED(a_capture_that_forked_does_not_reuse)
{
	gcp_addr before = capture_alloc(3 * MIB), after = capture_alloc(3 * MIB);
	gcp_addr small;

	use_up_what_is_shared();
	small = capture_alloc(5000);
	must_free(before); /* the fork may start before this free */
	must_free(small);
	kernel(0);
	cuda.streams[1] = cuda.streams[0]; /* from the capture's beginning */
	gcp_tracker_joined(tracker, stream_handle(1), NULL);
	must_free(after);
	assert_int_equal(must_stats().reuse_order_unknown, 1);
	for (int i = 0; i < 20; i++) {
		gcp_addr other = capture_alloc(3 * MIB);

		assert_int_not_equal(other, before);
		assert_int_not_equal(other, after);
		assert_int_not_equal(capture_alloc(5000), small);
	}
	must_be_sound();
}

CAPTURED(the_end_of_another_context_changes_no_order)
{
	gcp_addr addr = capture_alloc(3 * MIB);

	kernel(0);
	must_free(addr);
	gcp_tracker_context_gone(tracker, (char *)FAKE_CTX + 0x100);
	wait_for(1, 0);
	assert_true(is_given_again(addr, 3 * MIB));
}

CAPTURED(a_side_stream_that_lags_forbids_reuse_until_it_catches_up)
{
	gcp_addr addr = capture_alloc(3 * MIB);

	kernel(0);
	wait_for(1, 0);
	kernel(1);
	kernel(0); /* uses the block */
	must_free(addr);
	assert_false(is_given_again(addr, 3 * MIB)); /* side does not follow */
	wait_for(1, 0);
	assert_true(is_given_again(addr, 3 * MIB));
}

CAPTURED(a_capture_edited_by_the_program_proves_nothing)
{
	gcp_addr addr = capture_alloc(3 * MIB);

	kernel(0);
	gcp_tracker_order_unknown(tracker, false);
	must_free(addr);
	wait_for(1, 0);
	assert_false(is_given_again(addr, 3 * MIB));
}

/* The stream may be turned back to before the kernel that used the block. */
CAPTURED(what_was_proved_before_an_edit_by_the_program_holds_no_more)
{
	gcp_addr addr = capture_alloc(3 * MIB);

	kernel(0);
	must_free(addr);
	wait_for(1, 0); /* both streams follow the kernel */
	capture_alloc(5000);
	gcp_tracker_order_unknown(tracker, false);
	assert_false(is_given_again(addr, 3 * MIB));
}

/* More contexts than barriers are set in one turn. */
TEST(launches_wait_for_every_context_of_a_capture)
{
	enum { CONTEXTS = 40 };
	uint64_t orders = fake.orders;
	void *graph = begin(0);

	for (uintptr_t i = 0; i < CONTEXTS; i++) {
		void *ctx = (void *)(0x20000 + 0x10 * i);
		struct gcp_pool *other;
		gcp_addr addr;

		OK(gcp_pool_get(pools, ctx, 0, &other));
		for (int turn = 0; turn < 2; turn++) {
			OK(gcp_tracker_alloc(tracker, other, ctx, hint_of(NULL),
					     3 * MIB, &addr));
			fake_submit();
			must_free(addr);
		}
	}
	uint64_t frees = fake.frees;
	end(0);
	assert_int_equal(fake.orders - orders + fake.frees - frees, CONTEXTS);
	assert_false(gcp_tracker_capturing(tracker));
	graph_destroy(graph);
}

/* --- sharing ------------------------------------------------------------------ */

/* A pool of the program, which captures go into from now on. */
static uint64_t pool_used(void)
{
	uint64_t id;

	OK(gcp_graph_pool_create(tracker, &id), gcp_graph_pool_use(tracker, id));
	return id;
}

static int restored(uint64_t id, struct gcp_graph_checkpoint *checkpoint)
{
	return gcp_graph_pool_restore(tracker, id, checkpoint);
}

static struct gcp_graph_checkpoint *checkpoint_of(uint64_t id)
{
	struct gcp_graph_checkpoint *checkpoint;

	OK(gcp_graph_pool_checkpoint(tracker, id, &checkpoint));
	return checkpoint;
}

/* A capture of one block. */
static void *captured(gcp_addr *ret_addr)
{
	void *graph = begin(0);

	*ret_addr = capture_alloc(3 * MIB);
	end(0);
	return graph;
}

TEST(captures_share_a_pool_that_the_program_names)
{
	struct gcp_graph_pool_info info;
	uint64_t id = pool_used();

	void *first = begin(0);
	gcp_addr addr = capture_alloc(3 * MIB);
	must_free(addr);
	end(0);
	void *second = begin(0);
	assert_int_equal(capture_alloc(3 * MIB), addr);
	end(0);
	assert_int_equal(gcp_graph_pools_list(tracker, &info, 1), 1);
	assert_int_equal(info.id, id);
	assert_int_equal(info.references, 3);
	graph_destroy(first);
	OK(gcp_graph_pool_release(tracker, id));
	assert_true(private_bytes() > 0);
	graph_destroy(second);
	assert_int_equal(private_bytes(), 0);
}

/* What is freed while both capture waits for the end of the later one, too. */
TEST(a_capture_that_ends_leaves_the_pool_to_the_other)
{
	uint64_t id = pool_used();

	void *first = begin(0), *second = begin(1);
	gcp_addr addr = capture_alloc(3 * MIB);
	must_free(addr);
	end(0);
	for (int i = 0; i < 8; i++)
		assert_int_not_equal(capture_alloc(3 * MIB), addr);
	end(1);
	graph_destroy(first);
	graph_destroy(second);
	OK(gcp_graph_pool_release(tracker, id));
}

TEST(a_pool_that_reached_zero_can_be_used_again)
{
	uint64_t id;

	OK(gcp_graph_pool_create(tracker, &id), gcp_graph_pool_release(tracker, id));
	assert_int_equal(gcp_graph_pool_release(tracker, id), -ENOENT);
	OK(gcp_graph_pool_use(tracker, id));
	for (int round = 0; round < 3; round++) {
		void *graph = begin(0);
		must_free(capture_alloc(3 * MIB));
		end(0);
		assert_true(private_bytes() > 0);
		graph_destroy(graph);
		assert_int_equal(private_bytes(), 0);
	}
	assert_int_equal(gcp_graph_pool_use(tracker, id + 100), -ENOENT);
}

/* --- checkpoint and restore --------------------------------------------------- */

TEST(a_restored_pool_keeps_off_what_was_live)
{
	uint64_t id = pool_used();

	void *first = begin(0);
	gcp_addr scratch = capture_alloc(3 * MIB);
	gcp_addr out1 = capture_alloc(5 * MIB), small1 = capture_alloc(5000);
	must_free(scratch);
	end(0);
	struct gcp_graph_checkpoint *after_first = checkpoint_of(id);

	/* The second capture follows the first and frees its outputs. */
	void *second = begin(0);
	must_free(out1);
	must_free(small1);
	gcp_addr out2 = capture_alloc(5 * MIB);
	assert_true(out2 < out1 + 5 * MIB && out1 < out2 + 5 * MIB);
	assert_int_equal(capture_alloc(5000), small1);
	end(0);

	/* Only the first is replayed: its outputs are live again. */
	OK(restored(id, after_first));
	must_be_sound();
	void *third = begin(0);
	for (int i = 0; i < 10; i++) {
		gcp_addr out3 = capture_alloc(5 * MIB);

		assert_false(out3 < out1 + 5 * MIB && out1 < out3 + 5 * MIB);
		assert_int_not_equal(capture_alloc(5000), small1);
	}
	end(0);
	must_free(out1);
	must_free(small1);
	must_be_sound();
	free(after_first);
	graph_destroy(first);
	graph_destroy(second);
	graph_destroy(third);
	OK(gcp_graph_pool_release(tracker, id));
}

TEST(a_wrong_restore_changes_nothing)
{
	struct gcp_block_info info;
	struct gcp_graph_checkpoint *checkpoint;
	uint64_t id, other;

	gcp_graph_pool_create(tracker, &id);
	gcp_graph_pool_create(tracker, &other);
	gcp_graph_pool_use(tracker, id);
	void *graph = begin(0);
	gcp_addr addr = capture_alloc(3 * MIB);
	assert_int_equal(gcp_graph_pool_checkpoint(tracker, id, &checkpoint), -EBUSY);
	end(0);
	assert_int_equal(gcp_graph_pool_checkpoint(tracker, id + 9, &checkpoint),
			 -ENOENT);
	assert_int_equal(gcp_graph_pool_checkpoint(tracker, 0, &checkpoint), -ENOENT);
	OK(gcp_graph_pool_checkpoint(tracker, id, &checkpoint));
	assert_int_equal(restored(other, checkpoint), -ESTALE);
	assert_int_equal(restored(id + 9, checkpoint), -ENOENT);
	OK(gcp_pools_held(pools, addr, &info));
	/* The pool loses its last reference: the checkpoint is of a past life. */
	graph_destroy(graph);
	gcp_tracker_collect(tracker);
	gcp_graph_pool_release(tracker, id);
	assert_int_equal(restored(id, checkpoint), -ESTALE);
	graph = begin(0);
	capture_alloc(3 * MIB);
	assert_int_equal(restored(id, checkpoint), -EBUSY);
	end(0);
	assert_int_equal(restored(id, checkpoint), -ESTALE);
	graph_destroy(graph);
	free(checkpoint);
	gcp_graph_pool_release(tracker, other);
}

/* Nothing was live, so no heap tells one life from the next. */
TEST(an_empty_checkpoint_does_not_outlive_its_pool)
{
	uint64_t id = pool_used();
	struct gcp_graph_checkpoint *checkpoint = checkpoint_of(id);
	gcp_addr addr;
	struct gcp_block_info info;

	OK(restored(id, checkpoint));
	gcp_graph_pool_release(tracker, id);
	void *graph = captured(&addr);
	assert_int_equal(restored(id, checkpoint), -ESTALE);
	OK(gcp_pools_held(pools, addr, &info));
	free(checkpoint);
	graph_destroy(graph);
}

TEST(what_came_after_a_checkpoint_is_free_after_the_restore)
{
	uint64_t id = pool_used();
	struct gcp_graph_checkpoint *checkpoint = checkpoint_of(id);
	gcp_addr addr, again;
	void *first = captured(&addr), *second;

	OK(restored(id, checkpoint));
	second = captured(&again);
	assert_int_equal(again, addr);
	free(checkpoint);
	graph_destroy(first);
	graph_destroy(second);
	gcp_graph_pool_release(tracker, id);
}

/* The context goes, and the heap begins a new life in its next one. */
TEST(a_checkpoint_does_not_outlive_its_context)
{
	uint64_t id = pool_used();
	gcp_addr addr;
	void *graph = captured(&addr);
	struct gcp_graph_checkpoint *checkpoint = checkpoint_of(id);

	gcp_pool_reset(pools, FAKE_CTX);
	fake.memory_used = 0; /* it went with the context */
	assert_int_equal(restored(id, checkpoint), -ESTALE);
	free(checkpoint);
	graph_destroy(graph);
	gcp_graph_pool_release(tracker, id);
}

/* The host has no memory, at any point of it. */
TEST(a_checkpoint_that_fails_leaves_nothing)
{
	struct gcp_graph_checkpoint *checkpoint;
	bool failed = true;
	uint64_t id = pool_used();
	gcp_addr addr;
	void *graph = captured(&addr);

	for (unsigned at = 1; failed; at++) {
		int result;

		fake_fail_memory(at, false);
		result = gcp_graph_pool_checkpoint(tracker, id, &checkpoint);
		failed = fake_memory_failed();
		fake_fail_memory(0, false);
		assert_int_equal(result, failed ? -ENOMEM : 0);
		assert_true(!failed || at < 10);
	}
	OK(restored(id, checkpoint));
	free(checkpoint);
	graph_destroy(graph);
	gcp_graph_pool_release(tracker, id);
}

/* --- out of memory ------------------------------------------------------------ */

TEST(a_full_device_in_a_capture_gives_back_what_is_cached)
{
	gcp_addr addr = must_alloc(pool, 90 * MIB);

	fake.memory_limit = 100 * MIB;
	must_free(addr);
	void *graph = begin(0);
	addr = capture_alloc(90 * MIB);
	assert_int_equal(
	    gcp_tracker_alloc(tracker, pool, FAKE_CTX, hint_of(NULL), 90 * MIB, &addr),
	    GCP_CUDA_OUT_OF_MEMORY);
	end_and_destroy(graph);
}
