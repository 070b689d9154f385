/* SPDX-License-Identifier: MIT */
/*
 * nvtx.c - see nvtx.h. Without NVTX's headers (nvtx3/nvToolsExtMem.h of the CUDA
 * Toolkit) the library is built without it, and says so to a tool's user.
 *
 * NVTX is headers alone: they load the tool's library and read the environment.
 */
#include <stdlib.h>
#include <string.h>

#include "instrument.h"
#include "nvtx.h"
#include "ranges.h"

#define TOOL_VARIABLE "NVTX_INJECTION64_PATH"

#if !GCP_NVTX

bool gcp_nvtx_wanted(void)
{
	gcp.log(GCP_LOG_INFO, "built without NVTX's headers: a tool in $" TOOL_VARIABLE
			      " sees segments, not blocks");
	return false;
}

#else

/* A caller with fewer rights than the program decides nothing. */
#define getenv secure_getenv
#include <nvtx3/nvToolsExtMem.h>
#undef getenv

enum { LOAD_MS_MAX = 2000 };

/* A heap, a region or a handle that is mapped. */
struct entry {
	struct gcp_range range; /* first */
	void *handle;           /* of a heap; of a region: that of its heap */
};

static struct gcp_driver real; /* constant after gcp_nvtx_driver */
/* Held over calls of the tool: see cancel.h. */
static struct gcp_mutex lock = GCP_MUTEX(GCP_RANK_NVTX);
static struct gcp_treap heaps, regions;
static struct gcp_treap maps;     /* handles of mapped memory, where they are mapped */
static nvtxDomainHandle_t domain; /* NULL is one, too */
static _Atomic bool ready;        /* the tool may be asked */
static _Atomic bool deaf;         /* no tool listens to what is told here */

/* --- sets -------------------------------------------------------------------- */

/* Returns false if there is no memory for it. */
static bool set_add(struct gcp_treap *set, gcp_addr addr, uint64_t bytes, void *handle)
{
	gcp_assert_held(GCP_RANK_NVTX);
	struct entry *entry = malloc(sizeof(*entry));

	if (!entry)
		return false;
	*entry = (struct entry){{.at = addr, .bytes = bytes}, handle};
	gcp_ranges_insert(set, &entry->range);
	return true;
}

static void set_drop(struct gcp_treap *set, struct entry *entry)
{
	gcp_assert_held(GCP_RANK_NVTX);
	gcp_ranges_remove(set, &entry->range);
	free(entry);
}

/* --- what the tool is told --------------------------------------------------- */

static void *heap_register(gcp_addr addr, uint64_t bytes)
{
	gcp_assert_held(GCP_RANK_NVTX);
	nvtxMemVirtualRangeDesc_t range = {bytes, (void *)(uintptr_t)addr};
	nvtxMemHeapDesc_t desc = {
	    .extCompatID = NVTX_EXT_COMPATID_MEM,
	    .structSize = sizeof(desc),
	    .usage = NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR,
	    .type = NVTX_MEM_TYPE_VIRTUAL_ADDRESS,
	    .typeSpecificDescSize = sizeof(range),
	    .typeSpecificDesc = &range,
	};
	void *heap = nvtxMemHeapRegister(domain, &desc);

	return heap == (void *)NVTX_MEM_HEAP_HANDLE_NO_TOOL ? NULL : heap;
}

static void region_register(gcp_addr addr, uint64_t bytes, void *heap)
{
	gcp_assert_held(GCP_RANK_NVTX);
	nvtxMemVirtualRangeDesc_t range = {bytes, (void *)(uintptr_t)addr};
	nvtxMemRegionHandle_t handle = NULL;
	nvtxMemRegionsRegisterBatch_t batch = {
	    .extCompatID = NVTX_EXT_COMPATID_MEM,
	    .structSize = sizeof(batch),
	    .regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS,
	    .heap = heap,
	    .regionCount = 1,
	    .regionDescElementSize = sizeof(range),
	    .regionDescElements = &range,
	    .regionHandleElementsOut = &handle,
	};

	nvtxMemRegionsRegister(domain, &batch);
}

static void region_unregister(gcp_addr addr)
{
	gcp_assert_held(GCP_RANK_NVTX);
	nvtxMemRegionRef_t ref = {.pointer = (void *)(uintptr_t)addr};
	nvtxMemRegionsUnregisterBatch_t batch = {
	    .extCompatID = NVTX_EXT_COMPATID_MEM,
	    .structSize = sizeof(batch),
	    .refType = NVTX_MEM_REGION_REF_TYPE_POINTER,
	    .refCount = 1,
	    .refElementSize = sizeof(ref),
	    .refElements = &ref,
	};

	nvtxMemRegionsUnregister(domain, &batch);
}

/* Regions in [addr, addr + bytes) go. lock is held. */
static void regions_remove(gcp_addr addr, uint64_t bytes)
{
	gcp_assert_held(GCP_RANK_NVTX);
	struct entry *region;

	while ((region = gcp_ranges_behind(&regions, addr)) &&
	       region->range.at < addr + bytes) {
		region_unregister(region->range.at);
		set_drop(&regions, region);
	}
}

/* The heap of a segment, made when the first of its blocks is given out: pool/ may hold
 * locks when it takes a segment. lock is held. */
static void *heap_of(gcp_addr addr, uint64_t bytes)
{
	gcp_assert_held(GCP_RANK_NVTX);
	struct entry *heap = gcp_ranges_behind(&heaps, addr);
	void *handle;

	if (heap && heap->range.at == addr)
		return heap->handle;
	handle = heap_register(addr, bytes);
	if (!handle || !set_add(&heaps, addr, bytes, handle))
		deaf = true; /* a tool that knows nothing of memory, a profiler say */
	return deaf ? NULL : handle;
}

/* --- what happens ------------------------------------------------------------ */

bool gcp_nvtx_wanted(void)
{
	const char *path = secure_getenv(TOOL_VARIABLE);

	return path && *path;
}

/* No lock is held while the tool is loaded: the loader has one of its own, and holds it
 * while the constructors of a library run, which may come here. A thread that has it
 * waits for a while, then goes on, and the tool is not told of what it is given
 * meanwhile.
 */
void gcp_nvtx_ready(void)
{
	static __thread bool loading;
	static atomic_bool begun;

	if (ready || loading)
		return;
	if (atomic_exchange(&begun, true)) {
		for (int i = 0; i < LOAD_MS_MAX && !ready; i++)
			gcp.sleep(1000 * 1000);
		return;
	}
	loading = true;
	domain = nvtxDomainCreateA("libgcpool");
	loading = false;
	ready = true;
}

/* The part of a block that lies in [addr, addr + bytes), a heap. lock is held. */
static void part_add(const struct gcp_block_info *block, gcp_addr addr, uint64_t bytes)
{
	gcp_assert_held(GCP_RANK_NVTX);
	gcp_addr end = block->addr + block->requested;
	gcp_addr from = block->addr > addr ? block->addr : addr;
	void *heap = heap_of(addr, bytes);

	assert(from < end && from < addr + bytes);
	if (end > addr + bytes)
		end = addr + bytes;
	if (heap && set_add(&regions, from, end - from, heap))
		region_register(from, end - from, heap);
}

/* Of mapped memory each handle is a heap where it is mapped, and a block that lies in
 * several is a region in each. lock is held. */
static void parts_add(const struct gcp_block_info *block)
{
	gcp_assert_held(GCP_RANK_NVTX);
	gcp_addr end = block->addr + block->requested;

	for (struct gcp_range *map = gcp_ranges_behind(&maps, block->addr);
	     !deaf && map && map->at < end; map = gcp_ranges_next(map))
		part_add(block, map->at, map->bytes);
}

void gcp_nvtx_alloc(const struct gcp_block_info *block)
{
	if (deaf || !ready)
		return;
	GCP_LOCKED(&lock);
	regions_remove(block->addr, block->size);
	if (block->mapped)
		parts_add(block);
	else
		part_add(block, block->segment_addr, block->segment_size);
}

void gcp_nvtx_free(const struct gcp_block_info *block)
{
	if (deaf || !ready || block->heap)
		return;
	/* A capture forbids waiting; what was freed in one is seldom in use. */
	if (!gcp.process_capturing() && real.ctx_sync)
		(void)real.ctx_sync(block->ctx);
	GCP_LOCKED(&lock);
	regions_remove(block->addr, block->size);
}

/* The heap that begins there, and its regions. */
static void heap_remove(gcp_addr addr)
{
	gcp_assert_held(GCP_RANK_NVTX);
	struct entry *heap = gcp_ranges_behind(&heaps, addr);

	if (!heap || heap->range.at != addr)
		return;
	regions_remove(addr, heap->range.bytes);
	nvtxMemHeapUnregister(domain, heap->handle);
	set_drop(&heaps, heap);
}

static void segment_gone(gcp_addr addr)
{
	GCP_LOCKED(&lock);
	heap_remove(addr);
}

static int mem_free(void *ctx, gcp_addr addr)
{
	segment_gone(addr);
	return real.mem_free(ctx, addr);
}

static int mem_release(void *ctx, gcp_addr addr)
{
	segment_gone(addr);
	return real.mem_release(ctx, addr);
}

static int vm_map(gcp_addr addr, uint64_t bytes, uint64_t handle)
{
	int result = real.vm_map(addr, bytes, handle);

	if (result != 0)
		return result;
	GCP_LOCKED(&lock);
	(void)set_add(&maps, addr, bytes, NULL);
	return 0;
}

static int vm_unmap(gcp_addr addr, uint64_t bytes)
{
	struct entry *map;

	gcp.mutex_lock(&lock);
	while ((map = gcp_ranges_behind(&maps, addr)) && map->range.at < addr + bytes) {
		heap_remove(map->range.at);
		set_drop(&maps, map);
	}
	gcp.mutex_unlock(&lock);
	return real.vm_unmap(addr, bytes);
}

/* compute-sanitizer takes heaps in memory of cuMemAlloc alone (of CUDA 13.0, measured:
 * in mapped memory it refuses all of them, and would find nothing there). */
static bool tool_takes_mapped_heaps(void)
{
	const char *path = secure_getenv(TOOL_VARIABLE);
	const char *slash = strrchr(path, '/');

	return strncmp(slash ? slash + 1 : path, "libsanitizer-", 13) != 0;
}

void gcp_nvtx_driver(struct gcp_driver *driver)
{
	if (!tool_takes_mapped_heaps() && driver->vm_reserve) {
		gcp.log(GCP_LOG_INFO, "the tool in $" TOOL_VARIABLE " refuses heaps in "
				      "mapped memory, using ordinary segments");
		driver->vm_reserve = NULL;
	}
	real = *driver;
	driver->mem_free = mem_free;
	if (real.mem_release)
		driver->mem_release = mem_release;
	if (real.vm_map) {
		driver->vm_map = vm_map;
		driver->vm_unmap = vm_unmap;
	}
}

#endif
