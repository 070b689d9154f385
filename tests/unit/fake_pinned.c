/* SPDX-License-Identifier: MIT */
/*
 * fake_pinned.c - see fake_pinned.h. Called by tests of one thread or of many.
 */
#include "fake_pinned.h"

#include <stdlib.h>

struct fake_pinned fake_pinned;

struct fence_all {
	uint64_t covers, other_covers;
};

/* In front of each block, which the program may use wholly. */
struct header {
	uint64_t bytes;
};

enum { HEADER = 512 };

void *__real_calloc(size_t count, size_t bytes); /* never out of memory: fake.c */

static int fake_pinned_alloc(void *ctx, uint64_t bytes, uint32_t flags, void **ret_p)
{
	struct header *header;
	int result = fake_begin(&fake_pinned.calls);

	if (result == 0) {
		header = aligned_alloc(HEADER, HEADER + (bytes + 511) / 512 * 512);
		header->bytes = bytes;
		fake_pinned.used += bytes;
		fake_pinned.blocks++;
		*ret_p = (char *)header + HEADER;
	}
	return fake_end(result);
}

static int fake_pinned_free(void *ctx, void *p)
{
	struct header *header = (void *)((char *)p - HEADER);

	fake_lock();
	fake_pinned.used -= header->bytes;
	fake_pinned.blocks--;
	if (ctx == FAKE_CTX)
		fake.done = fake.submitted;
	else
		fake_pinned.other_done = fake_pinned.other_submitted;
	free(header);
	return fake_end(fake_pinned.free_result);
}

static uint32_t fake_pinned_place(void)
{
	return fake_pinned.place;
}

static int fake_fence_all_create(void **ret_fence)
{
	int result = fake_begin(&fake_pinned.calls);

	if (result == 0)
		*ret_fence = __real_calloc(1, sizeof(struct fence_all));
	return fake_end(result);
}

static void fake_fence_all_destroy(void *fence)
{
	free(fence);
}

static int fake_fence_all_record(void *handle)
{
	struct fence_all *fence = handle;
	int result = fake_begin(&fake_pinned.calls);

	fake.violations += fake.capturing > 0;
	result = result ? result : fake_pinned.record_result;
	if (result == 0)
		*fence =
		    (struct fence_all){fake.submitted, fake_pinned.other_submitted};
	return fake_end(result);
}

static int fake_fence_all_query(void *handle, void *ctx)
{
	const struct fence_all *fence = handle;
	int result = fake_begin(&fake_pinned.calls);

	result = result ? result : fake_pinned.query_result;
	if (result == 0 &&
	    ((ctx != FAKE_OTHER_CTX && fence->covers > fake.done) ||
	     (ctx != FAKE_CTX && fence->other_covers > fake_pinned.other_done)))
		result = GCP_CUDA_NOT_READY;
	return fake_end(result);
}

static int fake_fence_all_wait(void *handle, void *ctx)
{
	const struct fence_all *fence = handle;

	fake_lock();
	fake_pinned.waits++;
	if (ctx != FAKE_OTHER_CTX && fake.done < fence->covers)
		fake.done = fence->covers;
	if (ctx != FAKE_CTX && fake_pinned.other_done < fence->other_covers)
		fake_pinned.other_done = fence->other_covers;
	return fake_end(0);
}

void fake_fill_pinned(struct gcp_driver *driver)
{
	fake_pinned = (struct fake_pinned){0};
	driver->host_alloc = fake_pinned_alloc;
	driver->host_free = fake_pinned_free;
	driver->host_place = fake_pinned_place;
	driver->fence_all_create = fake_fence_all_create;
	driver->fence_all_destroy = fake_fence_all_destroy;
	driver->fence_all_record = fake_fence_all_record;
	driver->fence_all_query = fake_fence_all_query;
	driver->fence_all_wait = fake_fence_all_wait;
}
