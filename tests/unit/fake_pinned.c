/* SPDX-License-Identifier: MIT */
/*
 * fake_pinned.c - see fake_pinned.h. Called by tests of one thread or of many.
 */
#include "fake_pinned.h"

#include <stdlib.h>

struct fake_pinned fake_pinned;

/* In front of each block, which the program may use wholly. */
struct header {
	uint64_t bytes;
};

enum { HEADER = 512 };

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
	fake.done = fake.submitted;
	free(header);
	return fake_end(fake_pinned.free_result);
}

static uint32_t fake_pinned_place(void)
{
	return fake_pinned.place;
}

void fake_fill_pinned(struct gcp_driver *driver)
{
	fake_pinned = (struct fake_pinned){0};
	driver->host_alloc = fake_pinned_alloc;
	driver->host_free = fake_pinned_free;
	driver->host_place = fake_pinned_place;
}
