/* SPDX-License-Identifier: MIT */
/*
 * test_contexts.c - contexts that may end: what other threads do meanwhile must be
 * right whether the context ends or stays. And calls that do not wait on plain CUDA.
 */
#include <sys/resource.h>
#include <unistd.h>

#include "../../pool/timeline/timeline.h"
#include "fake_pinned.h"
#include "cases.h"

#define TEST(name) CASE(name, setup, NULL)

static int joins;

static int join(void *ctx, void *fence)
{
	joins++;
	return 0;
}

static int setup(void **state)
{
	struct gcp_config config;

	fake_setup(state);
	joins = 0;
	gcp_config_default(&config);
	config.window_bytes = 0;
	config.epoch_blocks = 1;
	config.thread_cache_bytes = 0;
	fake_open(&config);
	return 0;
}

/* Frees a block that work is pending on, and takes it again behind a barrier. */
static void order_one(void)
{
	gcp_addr addr = must_alloc(pool, 16 * MIB);

	fake_submit();
	must_free(addr);
	assert_int_equal(must_alloc(pool, 16 * MIB), addr);
	assert_int_equal(fake.orders, 1);
}

struct asker {
	struct gcp_pool *pool;
	_Atomic bool answered;
	bool gives_up; /* the context is in doubt for too long */
	pthread_t thread;
};

static void *ask(void *arg)
{
	struct asker *asker = arg;

	do
		asker->pool = NULL;
	while (gcp_pool_get(pools, FAKE_CTX, 0, &asker->pool) == -EBUSY &&
	       !asker->gives_up);
	asker->answered = true;
	return NULL;
}

/* Another thread asks for the pool while the context may be ending. */
static void ask_meanwhile(struct asker *asker)
{
	asker->answered = false;
	pthread_create(&asker->thread, NULL, ask, asker);
	usleep(20000);
	assert_true(!asker->answered || asker->gives_up);
}

static uint64_t pool_count(void)
{
	uint64_t count = 0;

	for (struct gcp_pool *each = pools->first; each; each = each->next)
		count++;
	return count;
}

/* A context has one pool, also when it may have ended a hundred times. */
TEST(a_context_that_stays_keeps_its_pool)
{
	struct asker asker = {.gives_up = false};

	for (int i = 0; i < 10; i++) {
		gcp_pool_detach(pools, FAKE_CTX);
		ask_meanwhile(&asker);
		gcp_pool_reattach(pools, FAKE_CTX);
		pthread_join(asker.thread, NULL);
		assert_ptr_equal(asker.pool, pool);
	}
	assert_int_equal(pool_count(), 1);
	must_be_sound();
}

/* A thread that asks meanwhile gets the pool of the next context, if that one ends. */
TEST(a_context_that_ends_takes_its_pool_along)
{
	struct asker asker = {.gives_up = false};
	gcp_addr addr = must_alloc(pool, 4 * MIB), next;

	gcp_pool_detach(pools, FAKE_CTX);
	ask_meanwhile(&asker);
	gcp_pool_reset(pools, FAKE_CTX);
	pthread_join(asker.thread, NULL);
	assert_int_equal(gcp_pools_free(pools, addr), -ENOENT);
	assert_true(asker.pool->live);
	uint64_t before = fake.allocs;
	next = must_alloc(asker.pool, 4 * MIB);
	assert_int_equal(fake.allocs, before + 1);
	must_free(next);
	must_be_sound();
}

/* The call that may end it may wait for work that waits for the thread that asks. */
TEST(a_context_in_doubt_is_not_waited_for_long)
{
	struct gcp_pool *after;
	struct asker asker = {.gives_up = true};

	gcp_pool_detach(pools, FAKE_CTX);
	ask_meanwhile(&asker);
	for (int i = 0; i < 2000 && !asker.answered; i++)
		usleep(5000);
	bool answered = asker.answered;
	gcp_pool_reattach(pools, FAKE_CTX);
	pthread_join(asker.thread, NULL);
	assert_true(answered);
	assert_null(asker.pool);
	OK(gcp_pool_get(pools, FAKE_CTX, 0, &after));
	assert_ptr_equal(after, pool);
	must_be_sound();
}

/* Until a destroyed context is known to be gone, the driver may have given its
 * addresses to another one, whose blocks stay where they are whatever becomes of the
 * pool. */
TEST(addresses_pass_to_another_context)
{
	struct gcp_pool *other;
	uint64_t at = fake.next_addr;
	gcp_addr addr = must_alloc(pool, 1024), next;

	must_free(addr);
	gcp_pool_detach(pools, FAKE_CTX);
	assert_int_equal(gcp_pools_reclaimable(pools, -1), 0); /* it may be gone */
	fake.next_addr = at;
	OK(gcp_pool_get(pools, (void *)0x77, 0, &other));
	next = must_alloc(other, 1024);
	assert_int_equal(next, addr);
	gcp_mutex_lock(&pool->lock);
	gcp_heap_advance(&pool->common);
	gcp_mutex_unlock(&pool->lock);
	gcp_pool_reset(pools, FAKE_CTX);
	must_free(next);
	must_be_sound();
}

/* A thread whose wait gave nothing is not put behind them; they are set again when the
 * context stays all the same. */
TEST(barriers_are_set_again_when_a_context_stays)
{
	order_one();
	gcp_pool_detach(pools, FAKE_CTX);
	gcp_pools_context_joined(pools, (void *)0x2000, join);
	assert_int_equal(joins, 0);
	gcp_pool_reattach(pools, FAKE_CTX);
	assert_int_equal(fake.orders, 2);
	gcp_pools_context_joined(pools, (void *)0x2000, join);
	assert_int_equal(joins, 1);
}

/* It has joined in vain while the other was leaving, which then stays. */
TEST(a_joined_context_waits_by_a_free_where_waiting_fails)
{
	order_one();
	gcp_pool_detach(pools, FAKE_CTX);
	gcp_pools_fences_hold(pools);
	gcp_pools_context_joined(pools, (void *)0x2000, join);
	assert_int_equal(joins, 0);
	fake.fail_at = fake.calls + 1;
	fake.fail_code = 719;
	gcp_pool_reattach(pools, FAKE_CTX);
	gcp_pools_fences_release(pools);
	assert_int_equal(fake.done, fake.submitted);
}

/* Where a capture forbids the barrier, the epochs are waited for. */
TEST(epochs_are_completed_when_a_context_stays_in_a_capture)
{
	order_one();
	gcp_pool_detach(pools, FAKE_CTX);
	gcp_pools_fences_hold(pools);
	gcp_pool_reattach(pools, FAKE_CTX);
	gcp_pools_fences_release(pools);
	assert_int_equal(fake.orders, 1);
	assert_true(pool->timeline.completed >= pool->timeline.ordered);
}

/* cuMemFreeAsync does not wait, so nothing may wait behind it: no barrier is set on
 * its epoch before a free that does wait has closed another. */
TEST(nothing_waits_behind_an_asynchronous_free)
{
	gcp_addr addr = must_alloc(pool, 16 * MIB), next;

	fake_submit();
	OK(gcp_pools_free_async(pools, addr, 0));
	next = must_alloc(pool, 16 * MIB);
	assert_int_not_equal(next, addr);
	assert_int_equal(fake.orders, 0);
	must_free(next);
	assert_int_equal(must_alloc(pool, 16 * MIB), addr);
	assert_int_equal(fake.orders, 1);
}

/* A free waits for its own context only: nothing of another is held back. */
TEST(no_context_waits_for_another)
{
	gcp_addr addr = must_alloc(pool, 16 * MIB), next;

	fake.several = true;
	fake_submit();
	must_free(addr);
	next = must_alloc(pool, 16 * MIB);
	assert_int_not_equal(next, addr);
	assert_int_equal(fake.orders, 0);
	/* Any request may get what is completed. */
	fake.done = fake.submitted;
	assert_int_equal(must_alloc(pool, 16 * MIB), addr);
	/* And alone again, it may wait for itself. */
	fake.several = false;
	fake_submit();
	must_free(next);
	assert_int_equal(must_alloc(pool, 16 * MIB), next);
	assert_int_equal(fake.orders, 1);
}

/* Another thread ends the context meanwhile. */
static int wait_while_it_ends(void *fence, bool own)
{
	gcp_pool_detach(pools, FAKE_CTX);
	gcp_pool_reset(pools, FAKE_CTX);
	assert_int_equal(fake.fences, 1);
	return 709;
}

CASE(a_fence_that_is_waited_for_outlives_its_context, fake_setup, NULL)
{
	struct gcp_driver driver = fake_driver();

	driver.fence_wait = wait_while_it_ends;
	fake_open_over(NULL, &driver);
	fake_submit();
	OK(gcp_timeline_close_early(pool, false));
	assert_int_equal(fake.fences, 1);
	assert_int_equal(
	    gcp_timeline_complete(pool, gcp_timeline_stamp(pool) - 1, false), 709);
	assert_int_equal(fake.fences, 0);
}
