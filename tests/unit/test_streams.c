/* SPDX-License-Identifier: MIT */
/*
 * test_streams.c - memory that is allocated and freed in the order of a stream
 * (pool/device/stream_alloc.c).
 */
#include "waits.h"

#include "../../pool/cache/cache.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

enum { STREAM = 7, TURNS = 1000 };

/* The work of no turn is done before the next one. */
static void a_block_that_its_stream_takes_again_needs_no_fence(void **state)
{
	struct gcp_pools *pools = fake_pools(NULL);
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr addr, first = 0;

	(void)state;
	for (int i = 0; i < TURNS; i++) {
		assert_int_equal(gcp_pool_alloc_stream(pool, MIB, STREAM, &addr), 0);
		first = first ? first : addr;
		assert_int_equal(addr, first);
		fake_submit();
		assert_int_equal(gcp_pools_free_async(pools, addr, STREAM), 0);
		assert_int_equal(gcp_timeline_filled(&pool->timeline), 0);
	}
	assert_int_equal(fake.records, 0);
	must_be_sound(pools);
	fake.done = fake.submitted;
	fake_finish(pools);
}

/* No thread keeps any; and its work is not done. */
static void what_lies_in_the_heap_serves_its_stream_alone(void **state)
{
	static const struct {
		uint64_t bytes;
		int count; /* as many as fill what the driver gave for them */
	} blocks[] = {{MIB, 20}, {40 * MIB, 1}};
	gcp_addr addrs[20];
	struct gcp_config config;

	(void)state;
	gcp_config_default(&config);
	config.thread_cache_bytes = 0;
	for (int i = 0; i < 2; i++) {
		struct gcp_pools *pools = fake_pools(&config);
		struct gcp_pool *pool = fake_pool(pools);

		for (uint64_t turn = 0; turn < 3; turn++) {
			uint64_t used = fake.memory_used;

			for (int j = 0; j < blocks[i].count; j++)
				assert_int_equal(
				    gcp_pool_alloc_stream(pool, blocks[i].bytes,
							  STREAM + turn / 2, &addrs[j]),
				    0);
			/* The third is another stream's. */
			assert_int_equal(fake.memory_used > used, turn != 1);
			fake_submit();
			for (int j = 0; j < blocks[i].count; j++)
				assert_int_equal(
				    gcp_pools_free_async(pools, addrs[j],
							 STREAM + turn / 2),
				    0);
			must_be_sound(pools);
		}
		fake.done = fake.submitted;
		fake_finish(pools);
		fake_reset();
	}
}

/* Of a segment that is never split; up to an eighth may stay unused. */
static void a_huge_block_serves_what_nearly_fills_it(void **state)
{
	const uint64_t sizes[] = {3600 * MIB, 3200 * MIB, 3180 * MIB};
	struct gcp_config config;

	(void)state;
	gcp_config_default(&config);
	assert_true(sizes[2] > config.split_limit);
	for (int i = 0; i < 3; i++) {
		struct gcp_pools *pools = fake_pools(NULL);
		gcp_addr addr, again;

		assert_int_equal(
		    gcp_pool_alloc_stream(fake_pool(pools), sizes[0], STREAM, &addr),
		    0);
		fake_submit();
		assert_int_equal(gcp_pools_free_async(pools, addr, STREAM), 0);
		assert_int_equal(
		    gcp_pool_alloc_stream(fake_pool(pools), sizes[i], STREAM, &again),
		    0);
		assert_int_equal(again == addr, i < 2);
		must_be_sound(pools);
		fake.done = fake.submitted;
		fake_finish(pools);
		fake_reset();
	}
}

/* What is free already is that for every context. */
static void a_stream_frees_blocks_of_its_own_context(void **state)
{
	struct gcp_pools *pools = fake_pools(NULL);
	struct gcp_pool *pool = fake_pool(pools), *other;
	gcp_addr addr = must_alloc(pool, MIB);

	(void)state;
	assert_int_equal(gcp_pool_get(pools, FAKE_OTHER_CTX, 0, &other), 0);
	assert_int_equal(gcp_pool_free_stream(other, addr, STREAM), -EXDEV);
	assert_int_equal(gcp_pool_free_stream(pool, addr, STREAM), 0);
	assert_int_equal(gcp_pool_free_stream(pool, addr, STREAM), -EINVAL);
	assert_int_equal(gcp_pool_free_stream(other, addr, STREAM), -EINVAL);
	assert_int_equal(gcp_pool_free_stream(pool, 0xdead0000, STREAM), -ENOENT);
	must_be_sound(pools);
	fake_finish(pools);
}

/* --- where no fence covers the context ------------------------------------------ */

static struct gcp_pools *unfenced_pools(void)
{
	struct gcp_driver driver = fake_driver();
	struct gcp_config config;
	struct gcp_pools *pools;

	driver.fence_record = NULL;
	driver.fence_order = NULL;
	driver.host_alloc = NULL;
	gcp_config_default(&config);
	assert_int_equal(gcp_pools_create(&config, &driver, &pools), 0);
	assert_false(gcp_pool_is_fenced(fake_pool(pools)));
	return pools;
}

static void free_marked(struct gcp_pools *pools, gcp_addr addr, uint64_t stream)
{
	const struct gcp_free_order in = {.stream = stream, .marks = true};

	assert_int_equal(gcp_pools_free_in(pools, addr, in), 0);
}

/* Each is done before the next one; the host waits for none. */
static void what_an_event_stands_behind_is_used_again(void **state)
{
	const uint64_t sizes[] = {512, 64 << 10, MIB, 64 * MIB, 300 * MIB};
	struct gcp_pools *pools = unfenced_pools();
	struct gcp_pool *pool = fake_pool(pools);
	uint64_t used = 0;

	(void)state;
	for (int i = 0; i < TURNS; i++) {
		gcp_addr addr = must_alloc(pool, sizes[i % 5]);

		fake_submit();
		free_marked(pools, addr, STREAM + (uint64_t)i % 3);
		must_be_sound(pools);
		fake.done = fake.submitted;
		if (i == 50)
			used = fake.memory_used;
	}
	assert_int_equal(fake.memory_used, used);
	assert_int_equal(fake.syncs + fake.waits, 0);
	fake_finish(pools);
}

/* Not while the work runs, but in the stream itself. */
static void what_waits_for_an_event_serves_its_stream_alone(void **state)
{
	struct gcp_pools *pools = unfenced_pools();
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr addr = must_alloc(pool, 3 * MIB), other, same;

	(void)state;
	fake_submit();
	free_marked(pools, addr, STREAM);
	other = must_alloc(pool, 3 * MIB);
	assert_int_not_equal(other, addr);
	assert_int_equal(gcp_pool_alloc_stream(pool, 3 * MIB, STREAM + 1, &same), 0);
	assert_int_not_equal(same, addr);
	assert_int_equal(gcp_pool_alloc_stream(pool, 3 * MIB, STREAM, &same), 0);
	assert_int_equal(same, addr);
	assert_int_equal(must_stats(pools).async_bytes.current, 6 * MIB);
	must_be_sound(pools);
	/* Freed again, and behind more work, by the same event. */
	fake.done = fake.submitted;
	fake_submit();
	free_marked(pools, addr, STREAM);
	assert_int_equal(must_stats(pools).async_bytes.current, 3 * MIB);
	assert_int_not_equal(must_alloc(pool, 3 * MIB), addr);
	fake.done = fake.submitted;
	assert_int_equal(must_alloc(pool, 3 * MIB), addr);
	assert_int_equal(fake.syncs + fake.waits, 0);
	fake_finish(pools);
}

/* So many small ones share an event that all of them together fill an epoch. */
static void frees_of_a_stream_share_an_event(void **state)
{
	struct gcp_pools *pools = unfenced_pools();
	struct gcp_pool *pool = fake_pool(pools);
	const struct gcp_stream_event *event;
	gcp_addr addrs[TURNS];
	uint64_t bytes = 0, count = 0;

	(void)state;
	for (int i = 0; i < TURNS; i++)
		addrs[i] = must_alloc(pool, 256 << 10);
	for (int i = 0; i < TURNS; i++) {
		fake_submit();
		free_marked(pools, addrs[i], STREAM + (uint64_t)i % 2);
	}
	TAILQ_FOREACH (event, &pool->stream_events, link) {
		assert_true(event->bytes < gcp_window(pool).epoch_bytes + (256 << 10));
		bytes += event->bytes;
		count++;
	}
	assert_int_equal(bytes, TURNS * (256ull << 10));
	assert_true(count <= 2 + bytes / gcp_window(pool).epoch_bytes);
	must_be_sound(pools);
	fake.done = fake.submitted;
	fake_finish(pools);
}

static gcp_addr freed_beside;
static atomic_bool freed;

static void *frees_beside(void *pools)
{
	free_marked(pools, freed_beside, STREAM);
	atomic_store(&freed, true);
	return NULL;
}

/* The other thread waits for the context, with the lock held. */
static void a_free_waits_for_no_other_threads_wait(void **state)
{
	struct gcp_pools *pools = unfenced_pools();
	struct gcp_pool *pool = fake_pool(pools);
	pthread_t thread;

	(void)state;
	freed_beside = must_alloc(pool, 3 * MIB);
	gcp_mutex_lock(&pools->fence_lock);
	assert_int_equal(pthread_create(&thread, NULL, frees_beside, pools), 0);
	for (int i = 0; i < 5000 && !atomic_load(&freed); i++)
		usleep(1000);
	bool waited = !atomic_load(&freed);
	gcp_mutex_unlock(&pools->fence_lock);
	pthread_join(thread, NULL);
	assert_false(waited);
	must_be_sound(pools);
	fake_finish(pools);
}

/* Then it waits for the context, as what cudaFree frees. */
static void a_block_without_an_event_waits_in_its_epoch(void **state)
{
	struct gcp_pools *pools = unfenced_pools();
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr addr = must_alloc(pool, 3 * MIB), next;

	(void)state;
	for (int i = 0; i < 2; i++) {
		fake.mark_result = i ? 0 : 400;
		fake_submit();
		free_marked(pools, addr, i ? 0 : STREAM);
		fake.done = fake.submitted;
		next = must_alloc(pool, 3 * MIB);
		assert_int_not_equal(next, addr);
		addr = next;
		must_be_sound(pools);
	}
	must_free(pools, addr);
	fake_finish(pools);
}

static void what_waits_for_an_event_goes_back(void **state)
{
	struct gcp_pools *pools = unfenced_pools();
	struct gcp_pool *pool = fake_pool(pools);

	(void)state;
	for (int i = 0; i < 4; i++) {
		gcp_addr addr;

		fake.memory_limit = i == 3 ? 100 * MIB : fake.memory_limit;
		addr = must_alloc(pool, 64 * MIB);
		fake_submit();
		free_marked(pools, addr, STREAM);
		if (i == 0) { /* not before its work is done */
			assert_int_equal(gcp_pools_trim_completed(pools, -1, 0), 0);
			fake.done = fake.submitted;
			assert_true(gcp_pools_trim_completed(pools, -1, 0) >= 64 * MIB);
		} else if (i == 1) { /* the program asks, and waits */
			assert_true(gcp_pools_trim(pools, -1, 0) >= 64 * MIB);
		} else { /* memory is out */
			fake.stuck = true;
			(void)must_alloc(pool, i == 2 ? 3 * MIB : 90 * MIB);
			fake.stuck = false;
		}
		must_be_sound(pools);
		if (i == 2)
			assert_true(gcp_pools_trim(pools, -1, 0) > 0);
	}
	fake_finish(pools);
}

/* Looked at by the next free, if not by the same. */
static void what_waits_for_an_event_keeps_the_limit(void **state)
{
	struct gcp_driver driver = fake_driver();
	struct gcp_config config;
	struct gcp_pools *pools;
	struct gcp_pool *pool;
	gcp_addr addrs[8];

	(void)state;
	driver.fence_record = NULL;
	driver.fence_order = NULL;
	driver.host_alloc = NULL;
	gcp_config_default(&config);
	config.cache_limit = 64 * MIB;
	assert_int_equal(gcp_pools_create(&config, &driver, &pools), 0);
	pool = fake_pool(pools);
	for (int i = 0; i < 8; i++)
		addrs[i] = must_alloc(pool, 64 * MIB);
	for (int i = 0; i < 8; i++) {
		fake_submit();
		free_marked(pools, addrs[i], STREAM);
		fake.done = fake.submitted;
	}
	assert_true(fake.memory_used <= 128 * MIB);
	assert_int_equal(fake.syncs, 0);
	fake_finish(pools);
}

/* Its events are gone, and no block is left that waits for them. */
static void a_context_that_ends_takes_its_events_along(void **state)
{
	struct gcp_pools *pools = unfenced_pools();
	struct gcp_pool *pool;
	gcp_addr addr;

	(void)state;
	for (int i = 0; i < 3; i++) {
		uint64_t queries;

		pool = fake_pool(pools);
		addr = must_alloc(pool, 8 * MIB);
		fake_submit();
		free_marked(pools, addr, STREAM);
		gcp_pool_detach(pools, FAKE_CTX);
		fake.done = fake.submitted;
		queries = fake.queries;
		gcp_stream_event_look(pool);
		assert_int_equal(fake.queries, queries);
		assert_true(gcp_stream_event_bytes(pool) > 0);
		assert_int_equal(fake.fences, 1);
		gcp_pool_reset(pools, FAKE_CTX);
		assert_int_equal(fake.fences, 0);
		fake.memory_used = 0; /* it went with the context */
		queries = fake.queries;
		(void)must_alloc(fake_pool(pools), 8 * MIB);
		assert_int_equal(fake.queries, queries);
		must_be_sound(pools);
	}
	fake_finish(pools);
}

static int count_of(const struct gcp_stream_events *events)
{
	const struct gcp_stream_event *event;
	int count = 0;

	TAILQ_FOREACH (event, events, link)
		count++;
	return count;
}

/* Each stream takes it, and gives it back in another way. */
static void an_event_that_no_block_waits_for_is_used_again(void **state)
{
	struct gcp_pools *pools = unfenced_pools();
	struct gcp_pool *pool = fake_pool(pools);

	(void)state;
	for (uint64_t i = 0; i < 10; i++) {
		gcp_addr addr = must_alloc(pool, 3 * MIB), same;

		fake_submit();
		free_marked(pools, addr, STREAM + i);
		assert_int_equal(
		    gcp_pool_alloc_stream(pool, 3 * MIB, STREAM + i, &same), 0);
		assert_int_equal(same, addr);
		must_be_sound(pools);
	}
	assert_int_equal(count_of(&pool->stream_events), 0);
	assert_int_equal(count_of(&pool->stream_events_spare), 1);
	fake_finish(pools);
}

/* An epoch's worth, so that the next free needs another event. */
static void free_much(struct gcp_pools *pools, uint64_t stream)
{
	gcp_addr addr = must_alloc(fake_pool(pools), 2048 * MIB);

	fake_submit();
	free_marked(pools, addr, stream);
}

/* Though there is room again at an earlier one. */
static void the_latest_event_alone_is_put_off(void **state)
{
	struct gcp_pools *pools = unfenced_pools();
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr small = must_alloc(pool, MIB), large = must_alloc(pool, 2000 * MIB);

	(void)state;
	fake.stuck = true;
	fake_submit();
	free_marked(pools, small, STREAM);
	free_marked(pools, large, STREAM);
	free_much(pools, STREAM);
	assert_int_equal(count_of(&pool->stream_events), 2);
	assert_int_equal(gcp_pool_alloc_stream(pool, 2000 * MIB, STREAM, &large), 0);
	small = must_alloc(pool, MIB);
	free_marked(pools, small, STREAM);
	assert_int_equal(count_of(&pool->stream_events), 3);
	must_be_sound(pools);
	fake.done = fake.submitted;
	fake_finish(pools);
}

/* In all of the stream's events. */
static void an_allocation_passes_so_many_blocks(void **state)
{
	struct gcp_pools *pools = unfenced_pools();
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr addrs[80], wanted = must_alloc(pool, 3 * MIB), other;

	(void)state;
	fake.stuck = true;
	for (int i = 0; i < 80; i++)
		addrs[i] = must_alloc(pool, 64 << 10);
	fake_submit();
	free_marked(pools, wanted, STREAM);
	for (int i = 0; i < 80; i++) {
		if (i == 40)
			free_much(pools, STREAM);
		free_marked(pools, addrs[i], STREAM);
	}
	assert_int_equal(count_of(&pool->stream_events), 2);
	assert_int_equal(gcp_pool_alloc_stream(pool, 3 * MIB, STREAM, &other), 0);
	assert_int_not_equal(other, wanted);
	fake.done = fake.submitted;
	fake_finish(pools);
}

/* --- what a look asks ------------------------------------------------------------- */

enum { STREAMS = 40 };

static void *fence_done; /* the only one that is */

static int asks_for_one(void *fence)
{
	fake.queries++;
	return fence == fence_done ? 0 : GCP_CUDA_NOT_READY;
}

static struct gcp_pools *asking_pools(void)
{
	struct gcp_driver driver = fake_driver();
	struct gcp_config config;
	struct gcp_pools *pools;

	driver.fence_record = NULL;
	driver.fence_order = NULL;
	driver.host_alloc = NULL;
	driver.fence_query = asks_for_one;
	fence_done = NULL;
	gcp_config_default(&config);
	assert_int_equal(gcp_pools_create(&config, &driver, &pools), 0);
	return pools;
}

static uint64_t queries_of_a_look(struct gcp_pool *pool)
{
	uint64_t queries = fake.queries;

	gcp_stream_event_look(pool);
	return fake.queries - queries;
}

/* The events of one stream are done one after the other. */
static void a_look_asks_for_the_first_event_of_a_stream(void **state)
{
	struct gcp_pools *pools = asking_pools();
	struct gcp_pool *pool = fake_pool(pools);

	(void)state;
	for (uint64_t i = 0; i < 6; i++)
		free_much(pools, STREAM + i % 2);
	assert_int_equal(count_of(&pool->stream_events), 6);
	assert_int_equal(queries_of_a_look(pool), 2);
	fence_done = TAILQ_FIRST(&pool->stream_events)->fence;
	assert_int_equal(queries_of_a_look(pool), 3);
	assert_int_equal(count_of(&pool->stream_events), 5);
	must_be_sound(pools);
	fake_finish(pools);
}

/* Any of them may be the one that is done: it is found soon. */
static void a_look_asks_few_streams_and_the_next_one_others(void **state)
{
	(void)state;
	for (int at = 0; at < STREAMS; at++) {
		struct gcp_pools *pools = asking_pools();
		struct gcp_pool *pool = fake_pool(pools);
		struct gcp_stream_event *event;
		gcp_addr addrs[STREAMS];
		int looks = 0, i = 0;

		for (int j = 0; j < STREAMS; j++)
			addrs[j] = must_alloc(pool, 64 << 10);
		for (int j = 0; j < STREAMS; j++)
			free_marked(pools, addrs[j], STREAM + (uint64_t)j);
		assert_int_equal(count_of(&pool->stream_events), STREAMS);
		assert_int_equal(queries_of_a_look(pool), 16);
		TAILQ_FOREACH (event, &pool->stream_events, link)
			if (i++ == at)
				fence_done = event->fence;
		for (; count_of(&pool->stream_events) == STREAMS && looks < 10; looks++)
			assert_true(queries_of_a_look(pool) <= 17);
		assert_true(looks <= (at < 8 ? 1 : 6));
		/* Where memory goes back all are asked. */
		fence_done = TAILQ_LAST(&pool->stream_events, gcp_stream_events)->fence;
		(void)gcp_pools_trim_completed(pools, -1, 0);
		assert_int_equal(count_of(&pool->stream_events), STREAMS - 2);
		must_be_sound(pools);
		fake_finish(pools);
		fake_reset();
	}
}

/* --- the end of a context beside a thread that moves blocks ----------------------- */

static atomic_bool detached;

static void *looks(void *pool)
{
	gcp_stream_event_look(pool);
	return NULL;
}

static void *takes(void *pool)
{
	gcp_addr addr;

	assert_int_equal(gcp_pool_alloc_stream(pool, 3 * MIB, STREAM, &addr), 0);
	return NULL;
}

static void *detaches(void *pools)
{
	gcp_pool_detach(pools, FAKE_CTX);
	atomic_store(&detached, true);
	return NULL;
}

/* The thread has taken them out of their event, and waits for the lock of the heap. */
static void a_context_waits_for_blocks_on_their_way(void **state)
{
	void *(*const moves[])(void *) = {looks, takes};

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct gcp_pools *pools = unfenced_pools();
		struct gcp_pool *pool = fake_pool(pools);
		gcp_addr addr = must_alloc(pool, 3 * MIB);
		pthread_t mover, ender;

		atomic_store(&detached, false);
		fake_submit();
		free_marked(pools, addr, STREAM);
		fake.done = fake.submitted;
		gcp_mutex_lock(&pool->lock);
		assert_int_equal(pthread_create(&mover, NULL, moves[i], pool), 0);
		for (int j = 0; j < 5000 && gcp_stream_event_bytes(pool) > 0; j++)
			usleep(1000);
		assert_int_equal(pthread_create(&ender, NULL, detaches, pools), 0);
		while (!atomic_load(&pool->detaching))
			usleep(1000);
		usleep(100 * 1000);
		bool early = atomic_load(&detached);
		bool moving = gcp_stream_event_bytes(pool) == 0;
		gcp_mutex_unlock(&pool->lock);
		pthread_join(mover, NULL);
		pthread_join(ender, NULL);
		assert_true(moving && !early);
		gcp_pool_reset(pools, FAKE_CTX);
		fake.memory_used = 0; /* it went with the context */
		must_be_sound(pools);
		fake_finish(pools);
		fake_reset();
	}
}

/* --- where fences fail ------------------------------------------------------------ */

/* A free in a stream finds that out, and does not wait. */
static void fences_that_fail_make_no_free_wait(void **state)
{
	struct gcp_pools *pools = fake_pools(NULL);
	struct gcp_pool *pool = fake_pool(pools);
	uint64_t used;
	gcp_addr addr;

	(void)state;
	fake.record_result = 801; /* not supported */
	for (int i = 0; i < 2; i++) {
		addr = must_alloc(pool, 64 * MIB);
		fake_submit();
		assert_int_equal(gcp_pools_free_async(pools, addr, 0), 0);
	}
	assert_false(gcp_pool_is_fenced(pool));
	assert_int_equal(fake.syncs, 0);
	assert_int_equal(fake.done, 0);
	used = fake.memory_used;
	for (int i = 0; i < TURNS; i++) {
		addr = must_alloc(pool, 64 * MIB);
		fake_submit();
		free_marked(pools, addr, STREAM);
		fake.done = fake.submitted;
	}
	assert_int_equal(fake.memory_used, used + 64 * MIB);
	assert_int_equal(fake.syncs, 0);
	must_be_sound(pools);
	fake_finish(pools);
}

/* --- blocks that serve as one --------------------------------------------------- */

enum { PARTS = 6000, PART = 64 << 10 };
static gcp_addr parts[PARTS];

/* Blocks side by side behind a head, and no free memory beside them. */
static struct gcp_pools *pools_of_parts(void)
{
	const uint64_t all = 512 * MIB;
	struct gcp_config config;
	struct gcp_pools *pools;
	struct gcp_pool *pool;
	gcp_addr addr;

	gcp_config_default(&config);
	config.thread_cache_bytes = 0;
	pools = fake_pools(&config);
	pool = fake_pool(pools);
	addr = must_alloc(pool, all);
	must_free(pools, addr);
	for (int i = 0; i < PARTS; i++) {
		assert_int_equal(gcp_pool_alloc_stream(pool, PART, STREAM, &parts[i]),
				 0);
		assert_int_equal(parts[i], addr + GCP_PAGE + (uint64_t)i * PART);
	}
	assert_int_equal(must_alloc(pool, all - GCP_PAGE - (uint64_t)PARTS * PART),
			 addr + GCP_PAGE + (uint64_t)PARTS * PART);
	fake.stuck = true;
	fake_submit();
	return pools;
}

static void parts_free(struct gcp_pools *pools, int from, int to)
{
	for (int i = from; i < to; i++)
		assert_int_equal(gcp_pools_free_async(pools, parts[i], STREAM), 0);
}

/* While there is other memory. */
static void an_allocation_joins_so_many_blocks(void **state)
{
	struct gcp_pools *pools = pools_of_parts();
	struct gcp_pool *pool = fake_pool(pools);
	uint64_t used = fake.memory_used;
	gcp_addr addr;

	(void)state;
	parts_free(pools, 0, PARTS);
	assert_int_equal(gcp_pool_alloc_stream(pool, 5000ull * PART, STREAM, &addr), 0);
	assert_true(fake.memory_used > used);
	fake.memory_limit = fake.memory_used;
	assert_int_equal(gcp_pool_alloc_stream(pool, 5000ull * PART, STREAM, &addr), 0);
	assert_int_equal(addr, parts[PARTS - 5000]);
	assert_int_equal(fake.waits + fake.syncs + fake.done, 0);
	must_be_sound(pools);
	fake.done = fake.submitted;
	fake_finish(pools);
}

/* Those freed last lie in one that is too small, which is looked at once. */
static void blocks_that_are_too_small_together_are_looked_at_once(void **state)
{
	struct gcp_pools *pools = pools_of_parts();
	struct gcp_pool *pool = fake_pool(pools);
	uint64_t used = fake.memory_used;
	gcp_addr addr;

	(void)state;
	parts_free(pools, 0, 150);
	parts_free(pools, 1000, 1300);
	parts_free(pools, 150, 200);
	assert_int_equal(gcp_pool_alloc_stream(pool, 300ull * PART, STREAM, &addr), 0);
	assert_int_equal(addr, parts[1000]);
	assert_int_equal(fake.memory_used, used);
	must_be_sound(pools);
	fake.done = fake.submitted;
	fake_finish(pools);
}

/* --- ids -------------------------------------------------------------------------- */

static uint64_t id_of_one(struct gcp_pool *pool, bool async)
{
	struct gcp_block_info info;
	gcp_addr addr;

	if (async)
		assert_int_equal(gcp_pool_alloc_stream(pool, MIB, STREAM, &addr), 0);
	else
		addr = must_alloc(pool, MIB);
	assert_int_equal(gcp_pools_find(pool->pools, addr, &info), 0);
	assert_int_equal(gcp_pools_free_async(pool->pools, addr, STREAM), 0);
	return info.id;
}

static void *ids_of_some(void *arg)
{
	static uint64_t ids[TURNS];

	for (int i = 0; i < TURNS; i++)
		ids[i] = id_of_one(arg, true);
	return ids;
}

/* Though it gets the same addresses in the same epoch. */
static void each_allocation_has_an_id_of_its_own(void **state)
{
	struct gcp_config config;

	(void)state;
	gcp_config_default(&config);
	for (int kept = 0; kept < 2; kept++) {
		config.thread_cache_bytes *= (uint64_t)kept;
		struct gcp_pools *pools = fake_pools(&config);
		struct gcp_pool *pool = fake_pool(pools);
		uint64_t first = id_of_one(pool, true), last = first, *others;
		pthread_t thread;
		void *ids;

		for (int i = 0; i < GCP_SERIALS + TURNS; i++) {
			uint64_t id = id_of_one(pool, true);

			assert_true(id > last);
			last = id;
		}
		assert_true(id_of_one(pool, false) < first);
		pthread_create(&thread, NULL, ids_of_some, pool);
		pthread_join(thread, &ids);
		others = ids;
		for (int i = 0; i < TURNS; i++)
			assert_false(others[i] >= first && others[i] <= last);
		fake_finish(pools);
		fake_reset();
		gcp_config_default(&config);
	}
}

/* The first place that is looked at takes all the looks at neighbours. */
static void a_whole_block_is_found_behind_small_ones(void **state)
{
	struct gcp_pools *pools = pools_of_parts();
	struct gcp_pool *pool = fake_pool(pools);
	uint64_t used;
	gcp_addr big, addr;

	(void)state;
	assert_int_equal(gcp_pool_alloc_stream(pool, 400 * MIB, STREAM, &big), 0);
	used = fake.memory_used;
	parts_free(pools, 0, PARTS - 5);
	assert_int_equal(gcp_pools_free_async(pools, big, STREAM), 0);
	parts_free(pools, PARTS - 5, PARTS);
	assert_int_equal(gcp_pool_alloc_stream(pool, 400 * MIB, STREAM, &addr), 0);
	assert_int_equal(addr, big);
	assert_int_equal(fake.memory_used, used);
	must_be_sound(pools);
	fake.done = fake.submitted;
	fake_finish(pools);
}

/* --- memory is out ------------------------------------------------------------ */

enum { OTHER = 8, OTHERS_MAX = 4096 };

static struct gcp_pools *pools_of_little(uint64_t memory)
{
	struct gcp_config config = config_of_backend();

	config.thread_cache_bytes = 0;
	fake.memory_limit = memory;
	return fake_pools(&config);
}

/* A stream frees a block; then another one frees many; then the first takes it again.
 */
static void own_block_behind_others(struct gcp_pools *pools, uint64_t bytes,
				    uint64_t other_bytes, int most)
{
	static gcp_addr others[OTHERS_MAX];
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr addr;
	int count = 0;

	assert_int_equal(gcp_pool_alloc_stream(pool, bytes, STREAM, &addr), 0);
	while (count < most &&
	       gcp_pool_alloc_stream(pool, other_bytes, OTHER, &others[count]) == 0)
		count++;
	assert_true(count > 64);
	fake.stuck = true;
	uint64_t work = fake_submit();
	assert_int_equal(gcp_pools_free_async(pools, addr, STREAM), 0);
	for (int i = 0; i < 100 && i < count; i++)
		assert_int_equal(gcp_pools_free_async(pools, others[i], OTHER), 0);
	assert_int_equal(gcp_pool_alloc_stream(pool, bytes, STREAM, &addr), 0);
	assert_true(fake.done < work);
	must_be_sound(pools);
	fake.done = fake.submitted;
	fake_finish(pools);
}

static void its_own_block_is_found_behind_those_of_another_stream(void **state)
{
	(void)state;
	own_block_behind_others(pools_of_little(200 * MIB), 100 * MIB, MIB / 2, 100);
}

static void its_own_small_block_is_found_behind_those_of_another_stream(void **state)
{
	(void)state;
	own_block_behind_others(pools_of_little(2 * MIB), 4096, 4096, OTHERS_MAX);
}

/* So many looks in all, however often it looks. */
static void looks_for_its_own_block_come_to_an_end(void **state)
{
	struct gcp_pools *pools = pools_of_parts();
	struct gcp_pool *pool = fake_pool(pools);
	struct gcp_request request;
	gcp_addr small[8];

	(void)state;
	parts_free(pools, 0, PARTS);
	for (int i = 0; i < 8; i++)
		assert_int_equal(gcp_pool_alloc_stream(pool, 4096, STREAM, &small[i]),
				 0);
	for (int i = 0; i < 8; i++)
		assert_int_equal(gcp_pools_free_async(pools, small[i], STREAM), 0);
	assert_int_equal(gcp_request_init(&request, &pool->common, MIB), 0);
	request.stream = OTHER;
	request.more_looks = 2 * PARTS + 100;
	gcp_mutex_lock(&pool->lock);
	for (int left = PARTS + 100; left >= 0; left -= PARTS) {
		assert_null(gcp_heap_take_streamed(&pool->common, &request));
		assert_int_equal(request.more_looks, left);
	}
	assert_null(gcp_heap_take_streamed(&pool->common, &request));
	assert_int_equal(request.more_looks, 0);
	assert_int_equal(gcp_request_init(&request, &pool->common, 4096), 0);
	request.stream = OTHER;
	request.more_looks = 10;
	assert_null(gcp_heap_take_streamed(&pool->common, &request));
	assert_int_equal(request.more_looks, 0);
	gcp_mutex_unlock(&pool->lock);
	fake.done = fake.submitted;
	fake_finish(pools);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(a_block_that_its_stream_takes_again_needs_no_fence),
	    TEST(what_lies_in_the_heap_serves_its_stream_alone),
	    TEST(a_huge_block_serves_what_nearly_fills_it),
	    TEST(a_stream_frees_blocks_of_its_own_context),
	    TEST(what_an_event_stands_behind_is_used_again),
	    TEST(what_waits_for_an_event_serves_its_stream_alone),
	    TEST(frees_of_a_stream_share_an_event),
	    TEST(a_free_waits_for_no_other_threads_wait),
	    TEST(a_block_without_an_event_waits_in_its_epoch),
	    TEST(what_waits_for_an_event_goes_back),
	    TEST(what_waits_for_an_event_keeps_the_limit),
	    TEST(a_context_that_ends_takes_its_events_along),
	    TEST(an_event_that_no_block_waits_for_is_used_again),
	    TEST(the_latest_event_alone_is_put_off),
	    TEST(an_allocation_passes_so_many_blocks),
	    TEST(a_look_asks_for_the_first_event_of_a_stream),
	    TEST(a_look_asks_few_streams_and_the_next_one_others),
	    TEST(a_context_waits_for_blocks_on_their_way),
	    TEST(fences_that_fail_make_no_free_wait),
	    TEST(an_allocation_joins_so_many_blocks),
	    TEST(its_own_block_is_found_behind_those_of_another_stream),
	    MAPPED(its_own_block_is_found_behind_those_of_another_stream),
	    TEST(its_own_small_block_is_found_behind_those_of_another_stream),
	    TEST(looks_for_its_own_block_come_to_an_end),
	    TEST(a_whole_block_is_found_behind_small_ones),
	    TEST(blocks_that_are_too_small_together_are_looked_at_once),
	    TEST(each_allocation_has_an_id_of_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
