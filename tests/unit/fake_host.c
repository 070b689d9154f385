/*
 * fake_host.c - see fake_host.h. Called by tests of one thread or of many.
 */
#include "fake_host.h"

#include <stdlib.h>

struct fake_host fake_host;

struct world {
	uint64_t covers, other_covers;
};

/* In front of each block, which the program may use wholly. */
struct header {
	uint64_t bytes;
};

enum { HEADER = 512 };

void *__real_calloc(size_t count, size_t bytes); /* never out of memory: fake.c */

static int fake_host_alloc(void *ctx, uint64_t bytes, uint32_t flags, void **ret_p)
{
	struct header *header;
	int result = 0;

	(void)ctx, (void)flags;
	fake_lock();
	fake_host.allocs++;
	if (fake_must_fail())
		result = (int)fake.fail_code;
	else if (fake_host.used + bytes > fake_host.limit)
		result = GCP_CUDA_OUT_OF_MEMORY;
	if (result == 0) {
		header = aligned_alloc(HEADER, HEADER + (bytes + 511) / 512 * 512);
		header->bytes = bytes;
		fake_host.used += bytes;
		fake_host.blocks++;
		*ret_p = (char *)header + HEADER;
	}
	fake_unlock();
	return result;
}

static int fake_host_free(void *ctx, void *p)
{
	struct header *header = (void *)((char *)p - HEADER);

	fake_lock();
	fake_host.frees++;
	fake_host.other_frees += ctx != FAKE_CTX;
	fake_host.used -= header->bytes;
	fake_host.blocks--;
	fake.done = fake.submitted; /* but not the other context's */
	free(header);
	fake_unlock();
	return fake_host.free_result;
}

static uint32_t fake_host_place(void)
{
	return fake_host.place;
}

static int fake_world_create(void **ret_world)
{
	int result = 0;

	fake_lock();
	if (fake_must_fail())
		result = (int)fake.fail_code;
	else
		*ret_world = __real_calloc(1, sizeof(struct world));
	fake_unlock();
	return result;
}

static void fake_world_destroy(void *world)
{
	free(world);
}

static int fake_world_record(void *handle)
{
	struct world *world = handle;
	int result = 0;

	fake_lock();
	fake_host.records++;
	if (fake.capturing)
		fake.violations++;
	if (fake_must_fail())
		result = (int)fake.fail_code;
	else if (fake_host.record_result)
		result = fake_host.record_result;
	else
		*world = (struct world){fake.submitted, fake_host.other_submitted};
	fake_unlock();
	return result;
}

static int fake_world_query(void *handle)
{
	const struct world *world = handle;
	int result;

	fake_lock();
	fake_host.queries++;
	result =
	    world->covers <= fake.done && world->other_covers <= fake_host.other_done
		? 0
		: GCP_CUDA_NOT_READY;
	if (fake_host.query_result)
		result = fake_host.query_result;
	if (fake_must_fail())
		result = (int)fake.fail_code;
	fake_unlock();
	return result;
}

static int fake_world_wait(void *handle, void *ctx)
{
	const struct world *world = handle;

	if (fake_host.waiting)
		fake_host.waiting();
	fake_lock();
	fake_host.waits++;
	if (fake.done < world->covers)
		fake.done = world->covers;
	if (!ctx && fake_host.other_done < world->other_covers)
		fake_host.other_done = world->other_covers;
	fake_unlock();
	return 0;
}

void fake_fill_host(struct gcp_driver *driver)
{
	fake_host = (struct fake_host){.limit = 1ull << 40};
	driver->host_alloc = fake_host_alloc;
	driver->host_free = fake_host_free;
	driver->host_place = fake_host_place;
	driver->world_create = fake_world_create;
	driver->world_destroy = fake_world_destroy;
	driver->world_record = fake_world_record;
	driver->world_query = fake_world_query;
	driver->world_wait = fake_world_wait;
}
