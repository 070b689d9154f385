/* SPDX-License-Identifier: MIT */
/*
 * replay_space.c - see replay_space.h. What counts is how much physical memory there
 * is, and what the calls cost the host: as measured on an H200.
 */
#include "replay_space.h"

#include <stdio.h>
#include <stdlib.h>

enum {
	GRAIN = 2 << 20,
	HANDLES = 1 << 20,
	CREATE_NS = 26000,
	MAP_NS = 5500,
	OPEN_NS = 22500,
	UNMAP_NS = 21500,
	RELEASE_NS = 11000,
};

static struct {
	void (*changed)(int64_t bytes);
	void (*spend)(uint64_t ns);
	uint64_t reserved, handles; /* ever */
	uint64_t made[HANDLES];     /* bytes */
} space;

static void must(bool good, const char *why)
{
	if (good)
		return;
	fprintf(stderr, "replay: %s\n", why);
	exit(2);
}

static bool space_device(int device, uint64_t *ret_granularity, uint64_t *ret_memory)
{
	(void)device;
	*ret_granularity = GRAIN;
	*ret_memory = 8ull << 30;
	return true;
}

static int space_reserve(uint64_t bytes, uint64_t alignment, gcp_addr *ret_addr)
{
	(void)alignment;
	*ret_addr = (1ull << 40) + space.reserved;
	space.reserved += bytes;
	return 0;
}

static int space_unreserve(gcp_addr addr, uint64_t bytes)
{
	(void)addr, (void)bytes;
	return 0;
}

static int space_create(int device, uint64_t bytes, uint64_t *ret_handle)
{
	(void)device;
	must(bytes % GRAIN == 0 && space.handles + 1 < HANDLES,
	     "strange physical memory");
	space.spend(CREATE_NS);
	*ret_handle = ++space.handles;
	space.made[*ret_handle] = bytes;
	space.changed((int64_t)bytes);
	return 0;
}

static int space_release(uint64_t handle)
{
	must(space.made[handle], "the pool releases what it does not have");
	space.spend(RELEASE_NS);
	space.changed(-(int64_t)space.made[handle]);
	space.made[handle] = 0;
	return 0;
}

static int space_map(gcp_addr addr, uint64_t bytes, uint64_t handle)
{
	(void)addr;
	space.spend(MAP_NS);
	must(space.made[handle] == bytes, "the pool maps what it does not have");
	return 0;
}

static int space_open(int device, gcp_addr addr, uint64_t bytes)
{
	(void)device, (void)addr, (void)bytes;
	space.spend(OPEN_NS);
	return 0;
}

static int space_unmap(gcp_addr addr, uint64_t bytes)
{
	(void)addr, (void)bytes;
	space.spend(UNMAP_NS);
	return 0;
}

void space_fill(struct gcp_driver *driver, void (*changed)(int64_t bytes),
		void (*spend)(uint64_t ns))
{
	space.changed = changed;
	space.spend = spend;
	driver->vm_device = space_device;
	driver->vm_reserve = space_reserve;
	driver->vm_unreserve = space_unreserve;
	driver->vm_create = space_create;
	driver->vm_release = space_release;
	driver->vm_map = space_map;
	driver->vm_open = space_open;
	driver->vm_unmap = space_unmap;
}
