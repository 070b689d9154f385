/* SPDX-License-Identifier: MIT */
/*
 * fake.c - the driver of fake.h, and what the unit tests share.
 */
#include "fake_pinned.h"

#include <time.h>

#include "../memory_fails.h"

struct fake fake;
struct gcp_pools *pools;
struct gcp_pool *pool;

struct fence {
	uint64_t covers;
};

/* Segment sizes, so that frees can be counted: addresses are 1 << 32 apart. */
static uint64_t sizes[1 << 17];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void fake_reset(void)
{
	fake = (struct fake){.memory_limit = 1ull << 40, .next_addr = 1};
	fake_reset_vmm();
}

int fake_setup(void **state)
{
	fake_reset();
	return 0;
}

void fake_lock(void)
{
	pthread_mutex_lock(&lock);
}

void fake_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

/* --- memory of the host --------------------------------------------------------- */

void fake_fail_memory(unsigned at, bool onwards)
{
	memory_fail(at, onwards);
}

bool fake_memory_failed(void)
{
	return memory_failed;
}

static _Atomic(uint64_t) unmapped;

int __real_munmap(void *addr, size_t length);
int __wrap_munmap(void *addr, size_t length);

uint64_t fake_unmapped(void)
{
	return unmapped;
}

int __wrap_munmap(void *addr, size_t length)
{
	unmapped += length;
	return __real_munmap(addr, length);
}

/* --- the driver ------------------------------------------------------------------- */

int fake_begin(uint64_t *count)
{
	fake_lock();
	++*count;
	fake.calls++;
	return fake.fail_at && (fake.fail_on ? fake.calls >= fake.fail_at
					     : fake.calls == fake.fail_at)
		   ? (int)fake.fail_code
		   : 0;
}

int fake_end(int result)
{
	fake_unlock();
	return result;
}

static int fake_mem_alloc(void *ctx, uint64_t bytes, gcp_addr *ret_addr)
{
	int result = fake_begin(&fake.allocs);

	if (result == 0 && fake.memory_used + bytes > fake.memory_limit)
		result = GCP_CUDA_OUT_OF_MEMORY;
	if (result == 0) {
		fake.memory_used += bytes;
		sizes[fake.next_addr] = bytes;
		*ret_addr = fake.next_addr++ << 32;
	}
	return fake_end(result);
}

/* The work that is done when the memory is free. */
static int freed(uint64_t *count, gcp_addr addr, uint64_t done)
{
	fake_lock();
	++*count;
	assert_int_not_equal(sizes[addr >> 32], 0);
	fake.memory_used -= sizes[addr >> 32];
	sizes[addr >> 32] = 0;
	if (fake.done < done)
		fake.done = done;
	return fake_end(0);
}

static int fake_mem_free(void *ctx, gcp_addr addr)
{
	return freed(&fake.frees, addr, fake.submitted);
}

/* Waits for what barriers wait for, and for nothing else. */
static int fake_mem_release(void *ctx, gcp_addr addr)
{
	return freed(&fake.releases, addr, fake.barrier);
}

static bool fake_mem_release_prepare(void *ctx)
{
	return !fake.unprepared;
}

static int fake_mem_left(void *ctx, uint64_t *ret_bytes)
{
	fake_lock();
	*ret_bytes = fake.memory_limit > fake.memory_used
			 ? fake.memory_limit - fake.memory_used
			 : 0;
	return fake_end(0);
}

static void fake_mem_trim(void *ctx)
{
	fake.trims++;
}

static int fake_fence_create(void *ctx, void **ret_fence)
{
	int result = fake_begin(&fake.fences);

	if (result == 0)
		*ret_fence = __real_calloc(1, sizeof(struct fence));
	else
		fake.fences--;
	return fake_end(result);
}

static void fake_fence_discard(void *fence)
{
	fake_lock();
	fake.fences--;
	free(fence);
	fake_unlock();
}

static int fake_fence_record(void *ctx, void *fence)
{
	int result = fake_begin(&fake.records);

	fake.violations += fake.capturing > 0;
	result = result ? result : fake.record_result;
	if (result == 0)
		((struct fence *)fence)->covers = fake.submitted;
	return fake_end(result);
}

static int fake_fence_order(void *fence, bool alone)
{
	const struct fence *f = fence;
	int result;

	if (alone && fake.several)
		return -EXDEV;
	result = fake_begin(&fake.orders);
	fake.violations += fake.capturing > 0;
	result = result ? result : fake.order_result;
	if (result == 0 && fake.barrier < f->covers)
		fake.barrier = f->covers;
	return fake_end(result);
}

/* While the host does nothing but look the device gets on, unless it is stuck. */
enum { LOOKS_MOST = 24 };
static struct {
	uint64_t calls, count;
} looks;

static int fake_fence_query(void *fence)
{
	const struct fence *f = fence;
	int result = fake_begin(&fake.queries);

	if (fake.calls - 1 != looks.calls)
		looks.count = 0;
	looks.calls = fake.calls;
	if (!fake.stuck && ++looks.count >= LOOKS_MOST && fake.done < f->covers)
		fake.done = f->covers;
	result = result ? result : fake.fence_result;
	if (result == 0 && f->covers > fake.done)
		result = GCP_CUDA_NOT_READY;
	return fake_end(result);
}

static int fake_fence_wait(void *fence, bool own __attribute__((unused)))
{
	const struct fence *f = fence;
	int result = fake_begin(&fake.waits);

	if (result == 0 && fake.done < f->covers)
		fake.done = f->covers;
	return fake_end(result);
}

static bool fake_third_party(void)
{
	return fake.third_party;
}

static _Atomic uint64_t fake_now;

static uint64_t fake_clock(void)
{
	return atomic_fetch_add_explicit(&fake_now, 1, memory_order_relaxed);
}

void fake_pass(uint64_t ns)
{
	atomic_fetch_add_explicit(&fake_now, ns, memory_order_relaxed);
}

struct gcp_driver fake_driver(void)
{
	struct gcp_driver driver = {
	    .mem_alloc = fake_mem_alloc,
	    .mem_free = fake_mem_free,
	    .mem_release = fake_mem_release,
	    .mem_release_prepare = fake_mem_release_prepare,
	    .mem_left = fake_mem_left,
	    .mem_trim = fake_mem_trim,
	    .fence_create = fake_fence_create,
	    .fence_discard = fake_fence_discard,
	    .fence_record = fake_fence_record,
	    .fence_order = fake_fence_order,
	    .fence_query = fake_fence_query,
	    .fence_wait = fake_fence_wait,
	    .third_party_writers = fake_third_party,
	    .clock_ns = fake_clock,
	};

	fake_fill_vmm(&driver);
	fake_fill_pinned(&driver);
	return driver;
}

uint64_t fake_submit(void)
{
	uint64_t work;

	fake_lock();
	work = ++fake.submitted;
	fake_unlock();
	return work;
}

bool fake_is_ordered(uint64_t work)
{
	bool ordered;

	fake_lock();
	ordered = work <= fake.done || work <= fake.barrier;
	fake_unlock();
	return ordered;
}

void fake_elsewhere(void *(*run)(void *arg), void *arg)
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, run, arg), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

void fake_open_over(const struct gcp_config *config, const struct gcp_driver *driver)
{
	struct gcp_config defaults;

	gcp_config_default(&defaults);
	assert_int_equal(gcp_pools_create(config ? config : &defaults, driver, &pools),
			 0);
	assert_int_equal(gcp_pool_get(pools, FAKE_CTX, 0, &pool), 0);
}

void fake_open(const struct gcp_config *config)
{
	struct gcp_driver driver = fake_driver();

	fake_open_over(config, &driver);
}

int fake_setup_open(void **state)
{
	fake_setup(state);
	fake_open(NULL);
	return 0;
}

int fake_close(void **state)
{
	must_be_sound();
	assert_int_equal(fake.violations, 0);
	fake.done = fake.submitted;
	gcp_pools_destroy(pools);
	assert_int_equal(fake.memory_used, 0);
	return 0;
}

gcp_addr must_alloc(struct gcp_pool *from, uint64_t bytes)
{
	gcp_addr addr = 0;

	assert_int_equal(gcp_pool_alloc(from, bytes, &addr), 0);
	assert_int_not_equal(addr, 0);
	assert_int_equal(addr % 512, 0);
	return addr;
}

void must_free(gcp_addr addr)
{
	assert_int_equal(gcp_pools_free(pools, addr), 0);
}

void must_be_sound(void)
{
	const char *broken = gcp_pools_check(pools);

	if (broken)
		fail_msg("%s", broken);
}

struct gcp_stats must_stats(void)
{
	struct gcp_stats stats;

	assert_int_equal(gcp_pools_stats(pools, 0, &stats), 0);
	return stats;
}
