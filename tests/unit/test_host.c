/*
 * test_host.c - pinned host memory: when a freed block may be given out again, to
 * whom, and when memory is given back.
 */
#include "fake_host.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define KIB (1ull << 10)
#define MIB (1ull << 20)

static struct gcp_pools *pools;
static struct gcp_pool *pool;

static void *take_as(struct gcp_pool *from, uint64_t bytes, uint32_t flags)
{
	void *p = NULL;

	assert_int_equal(gcp_host_alloc(from, bytes, flags, NULL, &p), 0);
	assert_non_null(p);
	return p;
}

static void *take(uint64_t bytes)
{
	return take_as(pool, bytes, 0);
}

static void give(void *p)
{
	assert_int_equal(gcp_host_free(pools, p), 0);
}

static struct gcp_host_stats stats(void)
{
	struct gcp_host_stats stats;

	assert_int_equal(gcp_host_stats(pools, &stats), 0);
	return stats;
}

static void open_with(const struct gcp_config *config)
{
	fake_reset();
	pools = fake_pools(config);
	pool = fake_pool(pools);
}

static int setup(void **state)
{
	(void)state;
	open_with(NULL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fake_finish(pools);
	assert_int_equal(fake_host.blocks, 0);
	return 0;
}

/* A configuration for one test. */
static struct gcp_config configured(void)
{
	struct gcp_config config;

	gcp_pools_destroy(pools);
	gcp_config_default(&config);
	return config;
}

/* --- reuse
 * ---------------------------------------------------------------------------- */

static void a_freed_block_is_used_again(void **state)
{
	void *p = take(4 * KIB);

	(void)state;
	give(p);
	assert_ptr_equal(take(4 * KIB), p);
	assert_int_equal(fake_host.allocs, 1);
	give(p);
}

/* Work that was submitted before the free. */
static void reuse_waits_for_work_of_its_context(void **state)
{
	void *p = take(4 * KIB), *q;

	(void)state;
	fake_submit();
	give(p);
	q = take(4 * KIB);
	assert_ptr_not_equal(q, p);
	fake.done = fake.submitted;
	assert_ptr_equal(take(4 * KIB), p);
	give(p);
	give(q);
}

/* All contexts can use pinned memory. */
static void reuse_waits_for_work_of_other_contexts(void **state)
{
	void *p = take(4 * KIB), *q;

	(void)state;
	fake_host.other_submitted++;
	give(p);
	q = take(4 * KIB);
	assert_ptr_not_equal(q, p);
	fake_host.other_done = fake_host.other_submitted;
	assert_ptr_equal(take(4 * KIB), p);
	give(p);
	give(q);
}

/* Work that comes after the free, but before the fence that an allocation sets, is
 * covered too: more than is needed, never less. */
static void a_barrier_is_not_enough(void **state)
{
	void *p = take(4 * KIB), *q;
	uint64_t work = fake_submit();

	(void)state;
	give(p);
	fake.barrier = work; /* as if another pool had ordered it */
	q = take(4 * KIB);
	assert_ptr_not_equal(q, p);
	assert_int_equal(fake.orders, 0);
	fake.done = fake.submitted;
	give(p == q ? p : q);
}

static void an_allocation_never_waits(void **state)
{
	void *blocks[64];

	(void)state;
	for (int i = 0; i < 64; i++) {
		blocks[i] = take(16 * MIB);
		fake_submit();
	}
	fake_host.waits = 0;
	for (int i = 0; i < 8; i++)
		give(blocks[i]);
	for (int i = 0; i < 8; i++)
		blocks[i] = take(16 * MIB);
	assert_int_equal(fake_host.waits, 0);
	fake.done = fake.submitted;
	for (int i = 0; i < 64; i++)
		give(blocks[i]);
}

/* The window bounds what is freed and not done, by waiting in the free; and only for
 * the block's own context, as plain CUDA does. */
static void a_free_beyond_the_window_waits_for_the_oldest(void **state)
{
	struct gcp_config config = configured();
	void *blocks[16];

	(void)state;
	config.host_window = 4 * MIB;
	open_with(&config);
	for (int i = 0; i < 16; i++)
		blocks[i] = take(MIB);
	for (int i = 0; i < 16; i++) {
		uint64_t before = fake.done;

		fake_submit();
		give(blocks[i]);
		if (i < 4)
			assert_int_equal(fake.done, before);
	}
	assert_true(fake_host.waits > 0);
	assert_true(fake.done >= 11); /* the oldest ones */
	assert_true(fake.done < 16);  /* and no more than that */
	assert_true(stats().waits > 0);
}

static void a_free_does_not_wait_for_other_contexts(void **state)
{
	struct gcp_config config = configured();
	void *blocks[16];

	(void)state;
	config.host_window = 4 * MIB;
	open_with(&config);
	for (int i = 0; i < 16; i++)
		blocks[i] = take(MIB);
	fake_host.other_submitted = 1;
	for (int i = 0; i < 16; i++)
		give(blocks[i]);
	assert_int_equal(fake_host.other_done, 0);
}

static void no_fence_while_a_capture_is_under_way(void **state)
{
	void *p = take(MIB), *q;

	(void)state;
	gcp_pools_fences_hold(pools);
	fake.capturing++;
	give(p);
	q = take(MIB); /* p waits for the end of the capture */
	assert_ptr_not_equal(q, p);
	for (int i = 1; i < 101; i++)
		give(take(MIB + (uint64_t)i * 128 * KIB));
	assert_int_equal(fake.violations, 0);
	assert_int_equal(fake_host.records, 0);
	assert_true(stats().held_frees > 100);
	fake.capturing--;
	gcp_pools_fences_release(pools);
	assert_ptr_equal(take(MIB), p);
	give(p);
	give(q);
}

/* --- kinds
 * --------------------------------------------------------------------------------
 */

static void a_block_keeps_its_flags(void **state)
{
	void *p = take_as(pool, 4 * KIB, 4), *q;

	(void)state;
	give(p);
	q = take_as(pool, 4 * KIB, 0);
	assert_ptr_not_equal(q, p);
	assert_ptr_equal(take_as(pool, 4 * KIB, 4), p);
	give(p);
	give(q);
}

static void a_block_stays_on_its_node(void **state)
{
	void *p = take(4 * KIB), *q;

	(void)state;
	give(p);
	fake_host.place = 2;
	q = take(4 * KIB);
	assert_ptr_not_equal(q, p);
	give(q);
	fake_host.place = 0;
	assert_ptr_equal(take(4 * KIB), p);
	give(p);
}

static void a_block_stays_in_its_context(void **state)
{
	struct gcp_pool *other;
	void *p = take(4 * KIB), *q;

	(void)state;
	assert_int_equal(gcp_pool_get(pools, (void *)0x2000, 1, &other), 0);
	give(p);
	q = take_as(other, 4 * KIB, 0);
	assert_ptr_not_equal(q, p);
	give(q);
}

static void memory_goes_with_its_context(void **state)
{
	void *held = take(4 * KIB), *freed = take(4 * KIB), *fresh;
	uint64_t allocs;

	(void)state;
	give(freed);
	gcp_pool_drop(pools, FAKE_CTX);
	must_be_sound(pools);
	assert_int_equal(fake_host.frees, 0); /* the context took it */
	assert_int_equal(gcp_host_free(pools, held), -ENOENT);
	assert_int_equal(gcp_host_free(pools, freed), -ENOENT);
	assert_int_equal(stats().active_requests.current, 0);
	assert_int_equal(stats().allocated_bytes.current, 0);
	pool = fake_pool(pools);
	allocs = fake_host.allocs;
	fresh = take(4 * KIB);
	assert_int_equal(fake_host.allocs, allocs + 1);
	give(fresh);
	fake_host.blocks -= 2; /* what the context took */
}

/* --- sizes
 * ---------------------------------------------------------------------------------
 */

static uint64_t size_for(uint64_t bytes)
{
	uint64_t before = fake_host.used, size;
	void *p = take(bytes);

	size = fake_host.used - before;
	give(p);
	gcp_host_trim(pools, 0);
	return size;
}

static void sizes_are_powers_of_two_and_then_finer(void **state)
{
	(void)state;
	assert_int_equal(size_for(1), 512);
	assert_int_equal(size_for(512), 512);
	assert_int_equal(size_for(513), 1024);
	assert_int_equal(size_for(600 * KIB), MIB);
	assert_int_equal(size_for(MIB), MIB);
	assert_int_equal(size_for(MIB + 1), MIB + 128 * KIB);
	assert_int_equal(size_for(2 * MIB), 2 * MIB);
	assert_int_equal(size_for(2 * MIB + 1), 2 * MIB + 256 * KIB);
	assert_int_equal(size_for(1000 * MIB), 1024 * MIB - 0 * MIB);
	for (uint64_t bytes = 700; bytes < 100 * MIB; bytes += bytes / 7) {
		uint64_t size = size_for(bytes);

		assert_true(size >= bytes);
		if (bytes > MIB)
			assert_true(size - bytes <= bytes / 8 + 512);
		assert_int_equal(size_for(size), size);
	}
}

static void steps_and_threshold_are_the_options(void **state)
{
	struct gcp_config config = configured();

	(void)state;
	config.host_pow2_max = 4 * KIB;
	config.host_steps = 3;
	open_with(&config);
	for (uint64_t bytes = 700; bytes < 3 * MIB; bytes += bytes / 9) {
		uint64_t size = size_for(bytes);

		assert_true(size >= bytes);
		if (bytes > 4 * KIB)
			assert_true(size - bytes <= bytes / 3 + 512);
	}
}

/* --- memory pressure
 * ---------------------------------------------------------------------------
 */

static void a_full_host_gets_back_what_is_unused(void **state)
{
	void *p = take(MIB), *q;

	(void)state;
	give(p);
	fake_host.limit = 2 * MIB;
	q = take(2 * MIB);
	assert_int_equal(stats().alloc_retries, 1);
	assert_int_equal(stats().ooms, 0);
	give(q);
}

static void a_full_host_waits_for_what_is_pending(void **state)
{
	void *p = take(MIB), *q;

	(void)state;
	fake_submit();
	fake_host.other_submitted++;
	give(p);
	fake_host.limit = 2 * MIB;
	q = take(2 * MIB);
	assert_int_equal(fake_host.other_done, 1);
	give(q);
}

static void out_of_memory_is_told(void **state)
{
	void *p = NULL;

	(void)state;
	fake_host.limit = MIB;
	assert_int_equal(gcp_host_alloc(pool, 2 * MIB, 0, NULL, &p),
			 GCP_CUDA_OUT_OF_MEMORY);
	assert_null(p);
	assert_int_equal(stats().ooms, 1);
	must_be_sound(pools);
}

static void the_quota_is_kept(void **state)
{
	struct gcp_config config = configured();
	void *p, *q;

	(void)state;
	config.host_quota = 4 * MIB;
	open_with(&config);
	p = take(2 * MIB);
	assert_int_equal(gcp_host_alloc(pool, 3 * MIB, 0, NULL, &q),
			 GCP_CUDA_OUT_OF_MEMORY);
	give(p);
	q = take(3 * MIB); /* p makes room */
	assert_true(fake_host.used <= 4 * MIB);
	give(q);
}

static void the_cache_limit_is_kept(void **state)
{
	struct gcp_config config = configured();
	void *blocks[16];

	(void)state;
	config.host_cache_limit = 4 * MIB;
	config.host_page_blocks = 1;
	open_with(&config);
	for (int i = 0; i < 16; i++)
		blocks[i] = take(MIB);
	for (int i = 0; i < 16; i++)
		give(blocks[i]);
	assert_true(fake_host.used <= 5 * MIB); /* the latest page may be open */
	assert_true(stats().trims >= 11);
}

static void trim_keeps_what_is_held(void **state)
{
	void *p = take(MIB), *q = take(MIB);

	(void)state;
	give(q);
	assert_int_equal(gcp_host_trim(pools, 0), MIB);
	assert_int_equal(fake_host.used, MIB);
	memset(p, 1, MIB);
	give(p);
	assert_int_equal(gcp_host_trim(pools, MIB), 0);
}

/* --- growing
 * ------------------------------------------------------------------------------------
 */

/* One fence for each pair is too many; a few blocks in turn share one. */
static void a_tight_loop_shares_fences(void **state)
{
	uint64_t records;

	(void)state;
	for (int i = 0; i < 20000; i++)
		give(take(MIB));
	records = fake_host.records;
	for (int i = 0; i < 1000; i++)
		give(take(MIB));
	assert_true(fake_host.records - records <= 1000 / 3);
	assert_true(fake_host.allocs <= 33);
}

/* --- misuse
 * ---------------------------------------------------------------------------------------
 */

static void wrong_frees_are_told_apart(void **state)
{
	char *p = take(MIB);
	int foreign;

	(void)state;
	assert_int_equal(gcp_host_free(pools, p + 512), -ENOENT);
	assert_int_equal(gcp_host_free(pools, p + 1), -ENOENT);
	assert_int_equal(gcp_host_free(pools, &foreign), -ENOENT);
	give(p);
	assert_int_equal(gcp_host_free(pools, p), -EINVAL);
	assert_int_equal(gcp_pools_free(pools, (gcp_addr)(uintptr_t)p), -ENOENT);
	must_be_sound(pools);
}

static void what_is_asked_for_is_known(void **state)
{
	char *p = take(1000);
	uint64_t bytes;

	(void)state;
	assert_int_equal(gcp_host_find(pools, p, &bytes), 0);
	assert_int_equal(bytes, 1000);
	assert_int_equal(gcp_host_find(pools, p + 512, &bytes), -ENOENT);
	give(p);
	assert_int_equal(gcp_host_find(pools, p, &bytes), -ENOENT);
}

/* --- without fences
 * -------------------------------------------------------------------------------
 */

static void without_context_fences_nothing_is_pooled(void **state)
{
	struct gcp_driver driver = fake_driver_without_fences();
	struct gcp_host_stats none;
	struct gcp_config config;
	void *p;

	(void)state;
	gcp_pools_destroy(pools);
	gcp_config_default(&config);
	assert_int_equal(gcp_pools_create(&config, &driver, &pools), 0);
	pool = fake_pool(pools);
	assert_int_equal(gcp_host_alloc(pool, MIB, 0, NULL, &p), -ENOSYS);
	assert_int_equal(gcp_host_stats(pools, &none), -ENOSYS);
}

/* They were thought to work, and do not: the driver frees, and waits as it does. */
static void where_fences_fail_the_driver_frees(void **state)
{
	void *p = take(MIB), *q = take(MIB), *none;

	(void)state;
	fake_host.record_result = 801;
	/* One of these finds out. */
	if (gcp_host_free(pools, p) == 0)
		assert_int_equal(gcp_host_alloc(pool, MIB, 0, NULL, &none), 801);
	assert_int_equal(gcp_host_alloc(pool, MIB, 0, NULL, &none), -ENOSYS);
	give(q);
	assert_int_equal(fake_host.used, 0);
	must_be_sound(pools);
}

static void a_capture_nobody_told_of_is_no_failure(void **state)
{
	void *p = take(MIB), *q;

	(void)state;
	fake_host.record_result = 900;
	give(p);
	q = take(MIB);
	assert_ptr_not_equal(q, p);
	fake_host.record_result = 0;
	assert_ptr_equal(take(MIB), p);
	give(p);
	give(q);
}

/* Every driver call fails once: nothing is lost, nothing is given out twice. */
static void any_failure_leaves_the_books_sound(void **state)
{
	(void)state;
	for (uint64_t at = 1; at < 40; at++) {
		void *held[6];
		int count = 0;

		fake.calls = 0;
		fake.fail_at = at;
		fake.fail_code = at % 2 ? GCP_CUDA_OUT_OF_MEMORY : 700;
		for (int i = 0; i < 12; i++) {
			void *p;

			if (count < 6 &&
			    gcp_host_alloc(pool, (uint64_t)(i + 1) * 64 * KIB, 0, NULL,
					   &p) == 0)
				held[count++] = p;
			fake_submit();
			if (count > 3)
				(void)gcp_host_free(pools, held[--count]);
			must_be_sound(pools);
		}
		fake.fail_at = 0;
		while (count > 0)
			(void)gcp_host_free(pools, held[--count]);
		must_be_sound(pools);
		fake_finish(pools);
		assert_int_equal(fake_host.blocks, 0);
		open_with(NULL);
	}
}

/* --- statistics
 * ------------------------------------------------------------------------------------
 */

static void the_figures_add_up(void **state)
{
	void *p = take(1000), *q = take(3 * MIB);
	struct gcp_host_stats s = stats();

	(void)state;
	assert_int_equal(s.allocations.current, 2);
	assert_int_equal(s.allocated_bytes.current, 1024 + 3 * MIB);
	assert_int_equal(s.active_requests.current, 2);
	assert_int_equal(s.requested_bytes.current, 1000 + 3 * MIB);
	assert_int_equal(s.misses, 2);
	assert_int_equal(s.host_alloc.count, 2);
	assert_true(s.host_alloc.min_ns <= s.host_alloc.max_ns);
	assert_int_equal(s.bucket_allocation[10], 1);
	assert_int_equal(s.bucket_active[21], 1);
	give(q);
	give(p);
	s = stats();
	assert_int_equal(s.active_bytes.current, 0);
	assert_int_equal(s.active_bytes.peak, 1024 + 3 * MIB);
	assert_int_equal(s.active_bytes.allocated, s.active_bytes.freed);
	gcp_host_reset_peaks(pools);
	gcp_host_reset_accumulated(pools);
	p = take(1000);
	s = stats();
	assert_int_equal(s.active_bytes.peak, 1024);
	assert_int_equal(s.active_requests.allocated, 1);
	assert_int_equal(s.hits, 1);
	assert_int_equal(s.misses, 0);
	assert_int_equal(s.host_alloc.count, 0);
	assert_int_equal(s.allocations.current, 2);
	give(p);
}

/* --- threads
 * ----------------------------------------------------------------------------------------
 */

enum { THREADS = 4, ROUNDS = 3000 };
static _Atomic(unsigned char *) parcel;

/* Each owner writes his own mark all over and finds it again. */
static void *churn(void *arg)
{
	unsigned mark = (unsigned)(uintptr_t)arg + 1;

	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t bytes = 512 << (i * 7 + mark) % 5;
		unsigned char *p = take(bytes), *other;

		memset(p, (int)mark, bytes);
		if (i % 3 == 0)
			fake_submit();
		if (i % 16 == 0)
			fake.done = fake.submitted;
		for (uint64_t n = 0; n < bytes; n += 97)
			assert_int_equal(p[n], mark);
		if (i % 4 == 0) {
			other = __atomic_exchange_n((unsigned char **)&parcel, p,
						    __ATOMIC_ACQ_REL);
			p = other;
		}
		if (p)
			give(p);
	}
	return NULL;
}

static void threads_share_the_buckets(void **state)
{
	pthread_t threads[THREADS];

	(void)state;
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, churn, (void *)i),
				 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	if (parcel)
		give(parcel);
	parcel = NULL;
	must_be_sound(pools);
	assert_int_equal(stats().active_requests.current, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(a_freed_block_is_used_again),
	    TEST(reuse_waits_for_work_of_its_context),
	    TEST(reuse_waits_for_work_of_other_contexts),
	    TEST(a_barrier_is_not_enough),
	    TEST(an_allocation_never_waits),
	    TEST(a_free_beyond_the_window_waits_for_the_oldest),
	    TEST(a_free_does_not_wait_for_other_contexts),
	    TEST(no_fence_while_a_capture_is_under_way),
	    TEST(a_block_keeps_its_flags),
	    TEST(a_block_stays_on_its_node),
	    TEST(a_block_stays_in_its_context),
	    TEST(memory_goes_with_its_context),
	    TEST(sizes_are_powers_of_two_and_then_finer),
	    TEST(steps_and_threshold_are_the_options),
	    TEST(a_full_host_gets_back_what_is_unused),
	    TEST(a_full_host_waits_for_what_is_pending),
	    TEST(out_of_memory_is_told),
	    TEST(the_quota_is_kept),
	    TEST(the_cache_limit_is_kept),
	    TEST(trim_keeps_what_is_held),
	    TEST(a_tight_loop_shares_fences),
	    TEST(wrong_frees_are_told_apart),
	    TEST(what_is_asked_for_is_known),
	    TEST(without_context_fences_nothing_is_pooled),
	    TEST(where_fences_fail_the_driver_frees),
	    TEST(a_capture_nobody_told_of_is_no_failure),
	    TEST(any_failure_leaves_the_books_sound),
	    TEST(the_figures_add_up),
	    TEST(threads_share_the_buckets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
