/* SPDX-License-Identifier: MIT */
/*
 * test_waits.c - an allocation that finds the device full waits for nothing but what
 * plain cudaFree has waited for: the work that was there when its memory was freed. Nor
 * does anything wait where more epochs wait for their fences than the queue holds, and
 * no wait or barrier reaches later work.
 */
#include "../../pool/cache/cache.h"
#include "fake.h"
#include "cases.h"

/* Pools on a device that is soon full, whose work ends only when the host goes on. */
static bool vmm;

static int ordinary(void **state)
{
	vmm = false;
	return fake_setup(state);
}

static int mapped(void **state)
{
	vmm = true;
	return fake_setup(state);
}

/* Opens pools on a device of so much memory. */
static void open_of(uint64_t memory)
{
	struct gcp_config config;

	gcp_config_default(&config);
	config.backend = vmm ? GCP_BACKEND_MAPPED : GCP_BACKEND_SEGMENTS;
	fake.memory_limit = memory;
	fake_open(&config);
}

/* Work that ends only when the host goes on. */
static uint64_t stand(void)
{
	fake.stuck = true;
	return fake_submit();
}

#define TEST(name) CASE(name, ordinary, fake_close)
/* ... and once more with mapped memory. */
#define TEST_BOTH(name) CASE_TOO(name, mapped) TEST(name)

TEST_BOTH(what_is_completed_goes_back_beside_later_work)
{
	open_of(100 * MIB);
	gcp_addr addr = must_alloc(pool, 60 * MIB);

	uint64_t before = fake_submit();
	must_free(addr);
	fake.done = before;
	uint64_t later = stand();
	(void)must_alloc(pool, 70 * MIB);
	assert_true(fake.done < later);
	assert_true(fake_is_ordered(before));
	assert_false(fake_is_ordered(later));
}

static void must_be_out(uint64_t bytes)
{
	gcp_addr addr;

	assert_int_equal(gcp_pool_alloc(pool, bytes, &addr), GCP_CUDA_OUT_OF_MEMORY);
}

/* The driver has no memory for the stream in which segments go back. */
TEST(what_cannot_go_back_without_a_wait_stays)
{
	open_of(100 * MIB);
	gcp_addr addr = must_alloc(pool, 60 * MIB);

	must_free(addr);
	fake.done = fake.submitted;
	fake.unprepared = true;
	uint64_t later = stand();
	must_be_out(70 * MIB);
	assert_int_equal(gcp_pools_trim(pools, 0, 0, false), 0);
	assert_true(fake.done < later);
	assert_int_equal(fake.frees + fake.releases, 0);
	fake.unprepared = false;
	(void)must_alloc(pool, 70 * MIB);
	assert_true(fake.done < later);
}

/* An allocation waits for the first of the two pieces of work alone. */
static void must_wait_for(uint64_t bytes, uint64_t before, uint64_t later)
{
	(void)must_alloc(pool, bytes);
	assert_true(fake_is_ordered(before) && !fake_is_ordered(later));
	fake.done = later;
}

TEST_BOTH(work_of_the_free_alone_is_waited_for)
{
	open_of(100 * MIB);
	gcp_addr addr = must_alloc(pool, 60 * MIB);

	uint64_t before = fake_submit();
	must_free(addr);
	uint64_t later = stand();
	must_wait_for(70 * MIB, before, later);
}

/* Otherwise it would wait for a thread that is in its own free. */
TEST(the_oldest_epoch_is_waited_for_first)
{
	open_of(100 * MIB);
	gcp_addr first = must_alloc(pool, 40 * MIB),
		 second = must_alloc(pool, 40 * MIB);

	uint64_t before = fake_submit();
	must_free(first);
	uint64_t later = stand();
	must_free(second);
	must_wait_for(50 * MIB, before, later);
}

/* The pool knows by then that memory is tight. */
TEST_BOTH(each_free_on_a_full_device_closes_its_epoch)
{
	open_of(64 * MIB);
	gcp_addr addrs[64], addr;
	int count = 0;

	while (gcp_pool_alloc(pool, 4 * MIB, &addrs[count]) == 0)
		count++;
	for (int i = 0; i < 3; i++) {
		uint64_t before = fake_submit();
		must_free(addrs[i]);
		uint64_t later = stand();
		addr = must_alloc(pool, 4 * MIB);
		assert_int_equal(addr, addrs[i]);
		assert_false(fake_is_ordered(later));
		assert_true(fake_is_ordered(before));
		fake.done = later;
	}
}

/* A small block in a large idle segment would keep all of it from the device. */
TEST(an_idle_segment_is_not_cut_on_a_full_device)
{
	open_of(100 * MIB);
	gcp_addr addr = must_alloc(pool, 40 * MIB);

	(void)must_alloc(pool, 40 * MIB);
	must_free(addr);
	fake.done = fake_submit();
	(void)must_alloc(pool, 10 * MIB);
	(void)must_alloc(pool, 40 * MIB);
}

/* Memory was not tight when it was freed: its epoch is open. */
TEST(later_work_is_not_waited_for_without_end)
{
	open_of(1024 * MIB);
	gcp_addr addr = must_alloc(pool, 1 * MIB);

	must_free(addr);
	uint64_t later = stand();
	must_be_out(1023 * MIB);
	assert_true(fake.done < later);
	fake.stuck = false;
	(void)must_alloc(pool, 1023 * MIB);
}

TEST(what_cannot_succeed_waits_for_nothing)
{
	open_of(100 * MIB);
	gcp_addr addr = must_alloc(pool, 60 * MIB);

	(void)must_alloc(pool, 30 * MIB);
	uint64_t before = fake_submit();
	must_free(addr);
	must_be_out(90 * MIB);
	assert_true(fake.done < before);
}

/* A graph has had 40 MiB; 20 MiB wait for work that was submitted before they were
 * freed, and for it the host. */
TEST_BOTH(what_a_graph_that_is_gone_had_is_waited_for)
{
	open_of(100 * MIB);
	struct gcp_heap *heap;
	gcp_addr kept, addr;
	uint64_t before;

	OK(gcp_heap_create(pool, &heap));
	OK(gcp_heap_alloc(heap, 40 * MIB, GCP_USE_CAPTURED, &kept));
	must_free(kept);
	addr = must_alloc(pool, 20 * MIB);
	before = fake_submit();
	must_free(addr);
	gcp_heap_release(heap);
	(void)must_alloc(pool, 70 * MIB);
	assert_true(fake.done >= before);
	assert_int_not_equal(must_stats().waits, 0);
}

/* All that is free is completed: later work has nothing to do with it. */
static struct {
	int (*wait)(void *fence, bool own);
	int waits;
} neighbour;

static void *take_and_free(void *arg)
{
	gcp_addr addr;

	if (gcp_pool_alloc(pool, 2 * MIB, &addr) == 0) {
		fake_submit();
		must_free(addr);
	}
	return NULL;
}

/* Meanwhile another thread takes memory, works and frees it. */
static int wait_beside_it(void *fence, bool own)
{

	assert_true(++neighbour.waits < 100);
	fake_elsewhere(take_and_free, NULL);
	return neighbour.wait(fence, own);
}

/* Enough is free, in pieces. Plain CUDA refuses at once, whatever neighbour threads do.
 */
TEST_BOTH(what_others_free_later_is_not_waited_for)
{
	enum { SMALL = 4096, COUNT = 8192, KEPT = 256 };
	static gcp_addr small[COUNT];

	open_of(64 * MIB);
	for (int i = 0; i < COUNT; i++)
		small[i] = must_alloc(pool, SMALL);
	(void)must_alloc(pool, 26 * MIB);
	for (int i = 0; i < COUNT; i++)
		if (i % KEPT != 0)
			must_free(small[i]);
	neighbour.wait = pools->driver.fence_wait;
	pools->driver.fence_wait = wait_beside_it;
	for (int i = 0; i < 2; i++) {
		neighbour.waits = 0;
		(void)take_and_free(NULL);
		must_be_out(16 * MIB);
		assert_true(neighbour.waits < 20);
	}
	(void)take_and_free(NULL);
	neighbour.waits = 0;
	(void)gcp_pools_relieve(pools, 0, &(struct gcp_search){0});
	assert_true(neighbour.waits < 20);
}

/* Between a free's stamp and its own close another thread's allocation closes the
 * epoch: for all that waits the free has closed it. */
TEST_BOTH(a_free_whose_epoch_an_allocation_closed_meanwhile)
{
	open_of(100 * MIB);
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
	OK(gcp_timeline_close_early(pool, false)); /* the other */
	OK(gcp_timeline_close(pool, epoch));
	uint64_t later = stand();
	(void)must_alloc(pool, 70 * MIB);
	assert_true(fake.done < later);
}

/* --- more epochs than the queue holds -------------------------------------------- */

/* Nor when fences are all under way. */
TEST(a_free_makes_room_in_a_full_queue)
{
	enum { COUNT = GCP_FENCE_QUEUE + 40 };
	/* Beside the heads of segments. */
	open_of((COUNT + 1 + !vmm * COUNT / 8) * 2 * MIB);
	static gcp_addr addrs[4 * COUNT];
	int count = 0;

	while (count < 4 * COUNT && gcp_pool_alloc(pool, 2 * MIB, &addrs[count]) == 0)
		count++;
	assert_true(count >= COUNT);
	for (int i = 0; i < COUNT; i++) {
		fake_submit();
		must_free(addrs[i]);
	}
	uint64_t before = fake.submitted, later = stand();
	for (int i = 0; i < COUNT; i++)
		(void)must_alloc(pool, 2 * MIB);
	assert_true(fake.done >= before || fake.barrier >= before);
	assert_false(fake_is_ordered(later));
}

/* The end of a capture behind a full queue of what frees have closed. */
/* While the driver frees, other frees are done by it too, or close their epoch. */
TEST(what_was_freed_before_a_real_free_counts_once)
{
	struct gcp_real_free first, second;

	open_of(1024 * MIB);
	atomic_store(&pool->timeline.filled, 20 * MIB);
	first = gcp_real_free_begin(pool);
	second = gcp_real_free_begin(pool);
	OK(gcp_real_free_end(pool, &second, true));
	OK(gcp_real_free_end(pool, &first, true));
	assert_int_equal(gcp_timeline_filled(&pool->timeline), 0);

	atomic_store(&pool->timeline.filled, 20 * MIB);
	first = gcp_real_free_begin(pool);
	OK(gcp_timeline_close(pool, gcp_timeline_stamp(pool)));
	OK(gcp_real_free_end(pool, &first, true));
	assert_int_equal(gcp_timeline_filled(&pool->timeline), 0);
}

TEST(a_barrier_behind_a_full_queue_does_not_stop_the_host)
{
	open_of(100 * MIB);
	for (int i = 0; i < GCP_FENCE_QUEUE; i++) {
		(void)fake_submit();
		OK(gcp_timeline_close(pool, gcp_timeline_stamp(pool)));
	}
	uint64_t later = stand();
	atomic_store(&pool->barriers_asked, 1);
	gcp_pools_barriers_due(pools);
	assert_true(fake.done < later);
	assert_true(fake_is_ordered(later));
}

/* Before memory is tight. */
TEST_BOTH(a_free_behind_a_full_queue_is_waited_for)
{
	open_of(1000 * MIB);
	gcp_addr addr = must_alloc(pool, 40 * MIB), other = must_alloc(pool, 560 * MIB);

	assert_false(gcp_pool_is_tight(pool));
	fake.stuck = true; /* ends only when it is waited for */
	(void)fake_submit();
	must_free(other);
	for (int i = 0; i < GCP_FENCE_QUEUE; i++)
		OK(gcp_timeline_close(pool, gcp_timeline_stamp(pool)));
	must_free(addr);
	uint64_t later = stand();
	(void)must_alloc(pool, 970 * MIB);
	assert_true(fake.done < later);
}

/* A context that joins has to stand behind what the latest barrier waits for, also
 * where that epoch stood at an odd place of a full queue. */
static int joins_behind(void *ctx, void *fence)
{
	struct gcp_driver driver = fake_driver();

	return driver.fence_order(fence, false);
}

TEST(a_full_queue_keeps_what_a_barrier_stands_behind)
{
	for (int place = 100; place < 102; place++) {
		uint64_t work = 0, epoch = 0;

		if (place > 100) {
			fake_close(state);
			ordinary(state);
		}
		open_of(100 * MIB);
		fake.stuck = true;
		for (int i = 0; i < GCP_FENCE_QUEUE; i++) {
			uint64_t now = fake_submit();

			if (i == place) {
				work = now;
				epoch = gcp_timeline_stamp(pool);
			}
			OK(gcp_timeline_close(pool, gcp_timeline_stamp(pool)));
		}
		OK(gcp_timeline_make_ready(pool, epoch));
		assert_int_equal(fake.barrier, work);
		for (int i = 0; i < GCP_FENCE_QUEUE; i++)
			OK(gcp_timeline_close(pool, gcp_timeline_stamp(pool)));
		fake.barrier = 0;
		OK(gcp_timeline_join(pool, FAKE_OTHER_CTX, joins_behind));
		assert_int_equal(fake.barrier, work);
	}
}

/* --- a search that is under way ------------------------------------------------- */

static struct {
	int count;
	int (*wait)(void *fence, bool own);
} closes;

/* What other threads close meanwhile. */
static int wait_beside_closes(void *fence, bool own)
{
	for (; closes.count > 0; closes.count--) {
		(void)fake_submit();
		OK(gcp_timeline_close(pool, gcp_timeline_stamp(pool)));
	}
	return closes.wait(fence, own);
}

/* It waits for all that was freed before it began, one after the other. */
TEST(what_was_freed_before_a_search_keeps_its_fence)
{
	for (int count = 500; count < 1200; count += 100) {
		if (count > 500) {
			fake_close(state);
			ordinary(state);
		}
		open_of(100 * MIB);
		gcp_addr first = must_alloc(pool, 20 * MIB),
			 second = must_alloc(pool, 64 * MIB);

		closes.count = count;
		closes.wait = pools->driver.fence_wait;
		pools->driver.fence_wait = wait_beside_closes;
		fake.stuck = true;
		(void)fake_submit();
		must_free(first);
		(void)fake_submit();
		must_free(second);
		(void)must_alloc(pool, 70 * MIB);
		assert_int_equal(closes.count, 0);
	}
}

/* Where searches are as many as epochs there is room all the same. */
TEST(searches_leave_room_in_a_full_queue)
{
	open_of(100 * MIB);
	(void)stand();
	for (int i = 0; i < 3 * GCP_FENCE_QUEUE; i++) {
		uint64_t epoch = gcp_timeline_stamp(pool);

		atomic_fetch_add(&pools->searches, 1);
		OK(gcp_timeline_close(pool, epoch));
		assert_true(gcp_timeline_stamp(pool) > epoch);
	}
}
