/* SPDX-License-Identifier: MIT */
/*
 * fake_vmm.c - virtual memory of the driver of fake.h. Every rule of cuda.h is an
 * assertion: nothing is mapped over something else, unmapped in part, or unmapped
 * where nothing is.
 */
#include "fake.h"

enum { CHUNK = 2 << 20, CHUNKS = 1 << 17, HANDLES = 1 << 18 };

static const gcp_addr base = 3ull << 47;

static struct {
	struct {
		uint32_t handle; /* 0: nothing */
		uint32_t offset; /* chunks from the start of the handle */
		bool reserved, open;
	} at[CHUNKS];
	uint32_t used; /* of `at`, from the start */
	struct {
		uint32_t maps; /* chunks of it that are mapped, at all places */
		uint32_t chunks;
		bool live;
	} handles[HANDLES];
	uint32_t last_handle;
} space;

void fake_reset_vmm(void)
{
	memset(space.at, 0, space.used * sizeof(space.at[0]));
	memset(space.handles, 0, (space.last_handle + 1) * sizeof(space.handles[0]));
	space.used = space.last_handle = 0;
}

static uint32_t chunk_at(gcp_addr addr)
{
	assert_true(addr >= base && addr % CHUNK == 0);
	assert_true((addr - base) / CHUNK < space.used);
	return (uint32_t)((addr - base) / CHUNK);
}

static bool fake_vm_device(int device, uint64_t *ret_granularity)
{
	*ret_granularity = CHUNK;
	return true;
}

static int fake_vm_reserve(uint64_t bytes, uint64_t alignment, gcp_addr *ret_addr)
{
	uint32_t count = (uint32_t)(bytes / CHUNK);
	int result = fake_begin(&fake.reserves);

	assert_int_equal(bytes % CHUNK, 0);
	assert_int_equal(alignment, CHUNK);
	if (result == 0 && space.used + count > CHUNKS)
		result = GCP_CUDA_OUT_OF_MEMORY;
	for (uint32_t i = 0; i < count && result == 0; i++)
		space.at[space.used + i].reserved = true;
	if (result == 0) {
		*ret_addr = base + (uint64_t)space.used * CHUNK;
		space.used += count;
		fake.addresses += bytes;
	}
	return fake_end(result);
}

static int fake_vm_unreserve(gcp_addr addr, uint64_t bytes)
{
	uint32_t first = chunk_at(addr);

	fake_lock();
	for (uint32_t i = first; i < first + bytes / CHUNK; i++) {
		assert_true(space.at[i].reserved);
		assert_int_equal(space.at[i].handle, 0);
		space.at[i].reserved = false;
	}
	fake.addresses -= bytes;
	return fake_end(0);
}

static int fake_vm_create(int device, uint64_t bytes, uint64_t *ret_handle)
{
	int result = fake_begin(&fake.creates);

	assert_true(bytes > 0 && bytes % CHUNK == 0);
	if (result == 0 && fake.memory_used + bytes > fake.memory_limit)
		result = GCP_CUDA_OUT_OF_MEMORY;
	if (result == 0) {
		uint32_t chunks = (uint32_t)(bytes / CHUNK);

		/* Numbers of their own for all chunks: fake_physical. */
		assert_true(space.last_handle + chunks < HANDLES);
		*ret_handle = space.last_handle + 1;
		space.last_handle += chunks;
		space.handles[*ret_handle].chunks = chunks;
		space.handles[*ret_handle].live = true;
		fake.memory_used += bytes;
	}
	return fake_end(result);
}

/* Released memory goes when its last mapping does. */
static void handle_release(uint32_t handle)
{
	if (!space.handles[handle].live && space.handles[handle].maps == 0)
		fake.memory_used -= (uint64_t)space.handles[handle].chunks * CHUNK;
}

static int fake_vm_release(uint64_t handle)
{
	fake_lock();
	assert_true(handle > 0 && handle <= space.last_handle);
	assert_true(space.handles[handle].live);
	space.handles[handle].live = false;
	handle_release((uint32_t)handle);
	return fake_end(0);
}

static int fake_vm_map(gcp_addr addr, uint64_t bytes, uint64_t handle)
{
	uint32_t first = chunk_at(addr), count = (uint32_t)(bytes / CHUNK);
	int result = fake_begin(&fake.maps);

	assert_true(handle > 0 && handle <= space.last_handle);
	assert_true(space.handles[handle].live);
	assert_int_equal(bytes, (uint64_t)space.handles[handle].chunks * CHUNK);
	for (uint32_t i = first; i < first + count; i++) {
		assert_true(space.at[i].reserved);
		assert_int_equal(space.at[i].handle, 0);
		if (result != 0)
			continue;
		space.at[i].handle = (uint32_t)handle;
		space.at[i].offset = i - first;
		space.at[i].open = false;
		space.handles[handle].maps++;
	}
	return fake_end(result);
}

/* Whether no handle is mapped there, or opened, but in part. */
static bool is_whole(uint32_t first, uint32_t last)
{
	return space.at[first].handle && space.at[first].offset == 0 &&
	       space.at[last].offset + 1 == space.handles[space.at[last].handle].chunks;
}

static int fake_vm_open(int device, gcp_addr addr, uint64_t bytes)
{
	uint32_t first = chunk_at(addr), last = chunk_at(addr + bytes - CHUNK);
	int result = fake_begin(&fake.opens);

	assert_true(is_whole(first, last));
	for (uint32_t i = first; i < first + bytes / CHUNK && result == 0; i++) {
		assert_int_not_equal(space.at[i].handle, 0);
		space.at[i].open = true;
	}
	return fake_end(result);
}

static int fake_vm_unmap(gcp_addr addr, uint64_t bytes)
{
	uint32_t first = chunk_at(addr), last = chunk_at(addr + bytes - CHUNK);
	int result;

	if (fake.unmapping)
		fake.unmapping(addr, bytes);
	result = fake_begin(&fake.unmaps);
	assert_true(is_whole(first, last));
	for (uint32_t i = first; i < first + bytes / CHUNK && result == 0; i++) {
		uint32_t handle = space.at[i].handle;

		assert_int_not_equal(handle, 0);
		space.at[i].handle = 0;
		space.at[i].open = false;
		space.handles[handle].maps--;
		handle_release(handle);
	}
	return fake_end(result);
}

uint64_t fake_physical(gcp_addr addr)
{
	uint32_t i;

	if (addr < base)
		return addr;
	i = chunk_at(addr / CHUNK * CHUNK);
	assert_int_not_equal(space.at[i].handle, 0);
	assert_true(space.at[i].open);
	return base + (uint64_t)(space.at[i].handle + space.at[i].offset) * CHUNK +
	       addr % CHUNK;
}

void fake_fill_vmm(struct gcp_driver *driver)
{
	driver->vm_device = fake_vm_device;
	driver->vm_reserve = fake_vm_reserve;
	driver->vm_unreserve = fake_vm_unreserve;
	driver->vm_create = fake_vm_create;
	driver->vm_release = fake_vm_release;
	driver->vm_map = fake_vm_map;
	driver->vm_open = fake_vm_open;
	driver->vm_unmap = fake_vm_unmap;
}

struct gcp_config fake_mapped_config(void)
{
	struct gcp_config config;

	gcp_config_default(&config);
	config.backend = GCP_BACKEND_MAPPED;
	config.window_bytes = 0;
	config.epoch_blocks = 1;
	config.thread_cache_bytes = 0;
	return config;
}
