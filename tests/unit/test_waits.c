/* SPDX-License-Identifier: MIT */
/*
 * test_waits.c - an allocation that finds the device full waits for nothing but what
 * plain cudaFree has waited for: the work that was there when its memory was freed.
 */
#include "../../pool/cache/cache.h"
#include "waits.h"
#include "cases.h"

#include <errno.h>
#include <pthread.h>

TEST_BOTH(what_is_completed_goes_back_beside_later_work)
{
	struct gcp_pools *pools = pools_of(100 * MIB);
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr addr = must_alloc(pool, 60 * MIB);

	uint64_t before = fake_submit();
	must_free(pools, addr);
	fake.done = before;
	uint64_t later = stand();
	(void)must_alloc(pool, 70 * MIB);
	assert_true(fake.done < later);
	assert_true(fake_is_ordered(before));
	assert_false(fake_is_ordered(later));
	fake.done = later;
	must_be_sound(pools);
}

/* The driver has no memory for the stream in which segments go back. */
TEST(what_cannot_go_back_without_a_wait_stays)
{
	struct gcp_pools *pools = pools_of(100 * MIB);
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr addr = must_alloc(pool, 60 * MIB);

	must_free(pools, addr);
	fake.done = fake.submitted;
	fake.unprepared = true;
	uint64_t later = stand();
	must_be_out(pool, 70 * MIB);
	assert_int_equal(gcp_pools_trim_completed(pools, 0, 0), 0);
	assert_true(fake.done < later);
	assert_int_equal(fake.frees + fake.releases, 0);
	fake.unprepared = false;
	(void)must_alloc(pool, 70 * MIB);
	assert_true(fake.done < later);
	fake.done = later;
	must_be_sound(pools);
}

/* An allocation waits for the first of the two pieces of work alone. */
static void must_wait_for(struct gcp_pool *pool, uint64_t bytes, uint64_t before,
			  uint64_t later)
{
	(void)must_alloc(pool, bytes);
	assert_true(fake_is_ordered(before) && !fake_is_ordered(later));
	fake.done = later;
}

TEST_BOTH(work_of_the_free_alone_is_waited_for)
{
	struct gcp_pools *pools = pools_of(100 * MIB);
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr addr = must_alloc(pool, 60 * MIB);

	uint64_t before = fake_submit();
	must_free(pools, addr);
	uint64_t later = stand();
	must_wait_for(pool, 70 * MIB, before, later);
}

/* Otherwise it would wait for a thread that is in its own free. */
TEST(the_oldest_epoch_is_waited_for_first)
{
	struct gcp_pools *pools = pools_of(100 * MIB);
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr first = must_alloc(pool, 40 * MIB),
		 second = must_alloc(pool, 40 * MIB);

	uint64_t before = fake_submit();
	must_free(pools, first);
	uint64_t later = stand();
	must_free(pools, second);
	must_wait_for(pool, 50 * MIB, before, later);
}

/* The pool knows by then that memory is tight. */
TEST_BOTH(each_free_on_a_full_device_closes_its_epoch)
{
	struct gcp_pools *pools = pools_of(64 * MIB);
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr addrs[64], addr;
	int count = 0;

	while (gcp_pool_alloc(pool, 4 * MIB, &addrs[count]) == 0)
		count++;
	for (int i = 0; i < 3; i++) {
		uint64_t before = fake_submit();
		must_free(pools, addrs[i]);
		uint64_t later = stand();
		addr = must_alloc(pool, 4 * MIB);
		assert_int_equal(addr, addrs[i]);
		assert_false(fake_is_ordered(later));
		assert_true(fake_is_ordered(before));
		fake.done = later;
	}
}

/* Memory was not tight when it was freed: its epoch is open. */
TEST(later_work_is_not_waited_for_without_end)
{
	struct gcp_pools *pools = pools_of(1024 * MIB);
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr addr = must_alloc(pool, 1 * MIB);

	must_free(pools, addr);
	uint64_t later = stand();
	must_be_out(pool, 1023 * MIB);
	assert_true(fake.done < later);
	fake.stuck = false;
	(void)must_alloc(pool, 1023 * MIB);
}

/* However many pools there are to look at. */
TEST(looks_are_those_in_all_pools)
{
	enum { LOOKS = 20000 };
	struct gcp_pools *pools = pools_of(1024 * MIB);
	struct gcp_pool *pool = fake_pool(pools), *other;

	assert_int_equal(gcp_pool_get(pools, FAKE_OTHER_CTX, 0, &other), 0);
	fake.several = true;
	gcp_addr addr = must_alloc(pool, MIB), another = must_alloc(other, MIB);
	must_free(pools, addr);
	must_free(pools, another);
	uint64_t later = stand(), queries = fake.queries;
	must_be_out(pool, 1023 * MIB);
	assert_in_range(fake.queries - queries, LOOKS, LOOKS + LOOKS / 2);
	struct gcp_search search = {0};
	queries = fake.queries;
	assert_int_equal(gcp_pools_relieve(pools, 0, &search), GCP_RELIEF_NONE);
	assert_in_range(fake.queries - queries, LOOKS, LOOKS + LOOKS / 2);
	queries = fake.queries;
	assert_int_equal(gcp_pools_relieve(pools, 0, &search), GCP_RELIEF_NONE);
	assert_in_range(fake.queries - queries, 0, LOOKS / 2);
	assert_true(fake.done < later);
	fake.done = later;
	must_be_sound(pools);
}

/* The driver has no memory for a fence. As in plain CUDA the free waits then, so that
 * the allocation need not. */
TEST_BOTH(where_no_fence_can_be_made_the_free_waits)
{
	struct gcp_pools *pools = pools_of(100 * MIB);
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr addr = must_alloc(pool, 60 * MIB);

	fake.record_result = GCP_CUDA_OUT_OF_MEMORY;
	uint64_t before = fake_submit();
	must_free(pools, addr);
	assert_true(fake.done >= before);
	uint64_t later = stand();
	(void)must_alloc(pool, 70 * MIB);
	assert_true(fake.done < later);
	fake.done = later;
	must_be_sound(pools);
}

/* Of a block whose free closed no epoch: it is looked for a fence while it is waited.
 */
TEST(where_no_fence_can_be_made_an_allocation_only_looks)
{
	struct gcp_pools *pools = pools_of(1024 * MIB);
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr addr = must_alloc(pool, 1 * MIB);

	must_free(pools, addr);
	fake.record_result = GCP_CUDA_OUT_OF_MEMORY;
	uint64_t later = stand();
	must_be_out(pool, 1023 * MIB);
	assert_true(fake.done < later);
	fake.record_result = 0;
	fake.stuck = false;
	(void)must_alloc(pool, 1023 * MIB);
	must_be_sound(pools);
}

TEST(what_cannot_succeed_waits_for_nothing)
{
	struct gcp_pools *pools = pools_of(100 * MIB);
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr addr = must_alloc(pool, 60 * MIB);

	(void)must_alloc(pool, 30 * MIB);
	uint64_t before = fake_submit();
	must_free(pools, addr);
	must_be_out(pool, 90 * MIB);
	assert_true(fake.done < before);
}

/* A heap of a graph that keeps 40 MiB; 20 MiB wait for work that was submitted before
 * they were freed, and for it the host; 70 MiB are asked for, 60 of them are there. */
static struct gcp_heap *kept_by_a_graph(struct gcp_pools *pools, bool shared,
					uint64_t *ret_before)
{
	struct gcp_pool *pool = fake_pool(pools);
	struct gcp_heap *heap;
	struct gcp_lane *lane;
	gcp_addr kept, addr;

	assert_int_equal(gcp_heap_create(pool, &heap), 0);
	assert_int_equal(gcp_heap_alloc(heap, 40 * MIB, GCP_USE_CAPTURED, &kept), 0);
	must_free(pools, kept);
	if (shared) {
		assert_int_equal(gcp_timeline_complete(pool, gcp_timeline_stamp(pool)),
				 0);
		assert_int_equal(gcp_lane_create(pool, &lane), 0);
		gcp_heap_seal(heap);
		assert_int_equal(gcp_heap_share(heap, lane), 0);
	}
	addr = must_alloc(pool, 20 * MIB);
	*ret_before = fake_submit();
	must_free(pools, addr);
	return heap;
}

static void must_not_be_waited_for(bool shared)
{
	struct gcp_pools *pools = pools_of(100 * MIB);
	uint64_t before;

	(void)kept_by_a_graph(pools, shared, &before);
	assert_int_equal(must_stats(pools).lane_bytes.current, shared ? 40 * MIB : 0);
	must_be_out(fake_pool(pools), 70 * MIB);
	assert_true(fake.done < before);
	assert_int_equal(must_stats(pools).waits, 0);
}

TEST_BOTH(what_a_graph_keeps_is_not_waited_for)
{
	must_not_be_waited_for(false);
}

CASE(what_graphs_share_is_not_waited_for, mapped, NULL)
{
	(void)state;
	must_not_be_waited_for(true);
}

/* Nothing but work that is under way keeps it then. */
TEST_BOTH(what_a_graph_that_is_gone_keeps_is_waited_for)
{
	struct gcp_pools *pools = pools_of(100 * MIB);
	struct gcp_pool *pool = fake_pool(pools);
	uint64_t before;

	gcp_heap_ends(kept_by_a_graph(pools, false, &before), true);
	must_be_out(pool, 70 * MIB);
	assert_true(fake.done >= before);
	assert_int_not_equal(must_stats(pools).waits, 0);
}

/* Blocks of slabs, too: of their epochs the youngest is known without looking at each.
 */
TEST(the_youngest_epoch_of_small_blocks_is_known)
{
	enum { COUNT = 40 };
	struct gcp_pools *pools = pools_of(100 * MIB);
	struct gcp_pool *pool = fake_pool(pools);
	uint64_t ready = atomic_load(&pool->timeline.ready), epoch;
	gcp_addr addrs[COUNT], others[COUNT];

	for (int i = 0; i < COUNT; i++) {
		addrs[i] = must_alloc(pool, 4096);
		others[i] = must_alloc(pool, 4096); /* its slab stays in use */
	}
	for (int i = 0; i < COUNT; i++) {
		epoch = gcp_timeline_advance(pool);
		fake_submit();
		must_free(pools, addrs[i]);
		gcp_caches_flush(pool);
		gcp_mutex_lock(&pool->lock);
		assert_int_equal(gcp_slab_youngest_epoch(pool, ready), epoch + 1);
		gcp_mutex_unlock(&pool->lock);
		must_be_sound(pools);
	}
	/* Slabs that are not in use become one block. */
	for (int i = 0; i < COUNT; i++)
		must_free(pools, others[i]);
	gcp_caches_flush(pool);
	must_be_sound(pools);
}

/* All that is free is completed: later work has nothing to do with it. */
/* Takes all, and frees each second MiB: no more is found to be missing for good. */
static void free_in_pieces(struct gcp_pools *pools, struct gcp_pool *pool)
{
	gcp_addr addrs[64];
	int count = 0;

	while (count < 64 && gcp_pool_alloc(pool, MIB, &addrs[count]) == 0)
		count++;
	for (int i = 0; i < count; i += 2)
		must_free(pools, addrs[i]);
	fake.done = fake_submit();
	must_be_out(pool, 16 * MIB);
}

TEST(what_is_free_in_pieces_waits_for_nothing)
{
	struct gcp_pools *pools = pools_of(64 * MIB);
	struct gcp_pool *pool = fake_pool(pools);

	free_in_pieces(pools, pool);
	uint64_t waits = must_stats(pools).waits, later = stand();
	must_be_out(pool, 16 * MIB);
	assert_int_equal(must_stats(pools).waits, waits);
	assert_true(fake.done < later);
}

/* And what a live graph has freed comes to no other allocation. */
TEST_BOTH(what_a_graph_has_freed_is_not_waited_for)
{
	struct gcp_pools *pools = pools_of(64 * MIB);
	struct gcp_pool *pool = fake_pool(pools);
	struct gcp_heap *heap;
	gcp_addr freed;

	assert_int_equal(gcp_heap_create(pool, &heap), 0);
	assert_int_equal(gcp_heap_alloc(heap, 2 * MIB, GCP_USE_CAPTURED, &freed), 0);
	free_in_pieces(pools, pool);
	uint64_t before = fake_submit();
	must_free(pools, freed);
	uint64_t waits = must_stats(pools).waits;
	must_be_out(pool, 16 * MIB);
	assert_int_equal(must_stats(pools).waits, waits);
	assert_true(fake.done < before);
}

static struct {
	struct gcp_pools *pools;
	int (*wait)(void *fence);
	int waits;
} neighbour;

static void *take_and_free(void *arg)
{
	gcp_addr addr;

	(void)arg;
	if (gcp_pool_alloc(fake_pool(neighbour.pools), 2 * MIB, &addr) == 0) {
		fake_submit();
		must_free(neighbour.pools, addr);
	}
	return NULL;
}

/* Meanwhile another thread takes memory, works and frees it. */
static int wait_beside_it(void *fence)
{
	pthread_t thread;

	assert_true(++neighbour.waits < 100);
	pthread_create(&thread, NULL, take_and_free, NULL);
	pthread_join(thread, NULL);
	return neighbour.wait(fence);
}

/* Enough is free, in pieces. Plain CUDA refuses at once, whatever neighbour threads do.
 */
TEST_BOTH(what_others_free_later_is_not_waited_for)
{
	enum { SMALL = 4096, COUNT = 8192, KEPT = 256 };
	static gcp_addr small[COUNT];

	neighbour.pools = pools_of(64 * MIB);
	struct gcp_pool *pool = fake_pool(neighbour.pools);
	for (int i = 0; i < COUNT; i++)
		small[i] = must_alloc(pool, SMALL);
	(void)must_alloc(pool, 26 * MIB);
	for (int i = 0; i < COUNT; i++)
		if (i % KEPT != 0)
			must_free(neighbour.pools, small[i]);
	neighbour.wait = neighbour.pools->driver.fence_wait_own;
	neighbour.pools->driver.fence_wait_own = neighbour.pools->driver.fence_wait =
	    wait_beside_it;
	neighbour.wait = neighbour.wait ? neighbour.wait : fake_driver().fence_wait;
	for (int i = 0; i < 2; i++) {
		neighbour.waits = 0;
		(void)take_and_free(NULL);
		must_be_out(pool, 16 * MIB);
		assert_true(neighbour.waits < 20);
	}
	(void)take_and_free(NULL);
	neighbour.waits = 0;
	(void)gcp_pools_relieve(neighbour.pools, 0, &(struct gcp_search){0});
	assert_true(neighbour.waits < 20);
}

/* The end of a capture sets a barrier, and the host has not waited there. */
TEST(what_a_capture_has_closed_is_not_waited_for)
{
	struct gcp_pools *pools = pools_of(100 * MIB);
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr addr = must_alloc(pool, 60 * MIB);
	bool waited;

	must_free(pools, addr);
	uint64_t later = stand();
	assert_int_equal(gcp_timeline_barrier(pool, gcp_timeline_stamp(pool), true), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(gcp_timeline_wait_oldest(pool, UINT64_MAX, &waited),
				 0);
	assert_false(waited);
	assert_true(fake.done < later);
	fake.done = later;
}

/* Memory goes back in the order of a stream, and a barrier holds back all streams. */
TEST(what_a_barrier_holds_back_does_not_go_for_pinned_memory)
{
	struct gcp_pools *pools = pools_of(100 * MIB);
	struct gcp_pool *pool = fake_pool(pools);

	must_free(pools, must_alloc(pool, 60 * MIB));
	fake.done = fake.submitted;
	uint64_t later = stand();
	assert_int_equal(gcp_pool_barrier(pool), 0);
	assert_false(gcp_pools_relieve_host(pools, &(struct gcp_search){0}));
	assert_int_equal(gcp_pools_trim_completed(pools, 0, 0), 0);
	assert_true(fake.done < later);
	(void)must_alloc(pool, 70 * MIB); /* of the device: plain CUDA would serve it */
	assert_true(fake.done >= later);
	must_be_sound(pools);
}

/* A barrier of another context's pool stands in all contexts. */
TEST(what_another_barrier_holds_back_goes_only_at_last)
{
	struct gcp_pools *pools = pools_of(100 * MIB);
	struct gcp_pool *pool = fake_pool(pools), *other;

	assert_int_equal(gcp_pool_get(pools, FAKE_OTHER_CTX, 1, &other), 0);
	fake.several = true;
	must_free(pools, must_alloc(pool, 60 * MIB));
	fake.done = fake.submitted;
	uint64_t later = stand();
	assert_int_equal(gcp_pool_barrier(other), 0);
	assert_int_equal(gcp_pools_trim_completed(pools, 0, 0), 0);
	assert_true(fake.done < later);
	(void)must_alloc(pool, 70 * MIB);
	assert_true(fake.done >= later);
	must_be_sound(pools);
}

/* Between a free's stamp and its own close another thread's allocation closes the
 * epoch: for all that waits the free has closed it. */
TEST_BOTH(a_free_whose_epoch_an_allocation_closed_meanwhile)
{
	struct gcp_pools *pools = pools_of(100 * MIB);
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr addr = must_alloc(pool, 60 * MIB);

	(void)fake_submit();
	/* The three steps of gcp_pools_free, with one of another thread in between. */
	uint64_t epoch = gcp_timeline_stamp(pool);
	struct gcp_block *block = gcp_map_find(pools->map, addr);
	uint8_t used = GCP_BLOCK_USED;
	assert_true(
	    atomic_compare_exchange_strong(&block->state, &used, GCP_BLOCK_CACHED));
	block->epoch = epoch;
	gcp_mutex_lock(&pool->lock);
	gcp_stats_delta_free(&pool->delta, block->requested, block->size);
	gcp_stats_merge(pool, &pool->delta);
	gcp_heap_put(&pool->common, block);
	gcp_mutex_unlock(&pool->lock);
	assert_int_equal(gcp_timeline_close_early(pool, false), 0); /* the other */
	assert_int_equal(gcp_timeline_close(pool, epoch), 0);
	uint64_t later = stand();
	(void)must_alloc(pool, 70 * MIB);
	assert_true(fake.done < later);
	fake.done = later;
	must_be_sound(pools);
}

TEST(such_an_epoch_may_have_a_barrier)
{
	struct gcp_pools *pools = pools_of(100 * MIB);
	struct gcp_pool *pool = fake_pool(pools);
	uint64_t epoch = gcp_timeline_stamp(pool), work = fake_submit();

	assert_int_equal(gcp_timeline_close_early(pool, false), 0);
	assert_int_equal(gcp_timeline_make_ready(pool, epoch), -EBUSY);
	assert_int_equal(gcp_timeline_close(pool, epoch), 0);
	assert_int_equal(gcp_timeline_make_ready(pool, epoch), 0);
	assert_true(fake_is_ordered(work));
	fake.done = fake.submitted;
	must_be_sound(pools);
}
