/* SPDX-License-Identifier: MIT */
/*
 * memory.c - the memory of the devices: addresses, bytes behind them, and how
 * much is left.
 *
 * Each device has a range of addresses that the host may not touch, so
 * that a program that does faults as it would on a GPU, and a second mapping
 * of the same memfd through which the simulator reads and writes. Where in it
 * an allocation lies is space.c's.
 *
 * Called by the memory entry points and by work.c, under the big lock. Knows
 * nothing of streams: a caller that frees has waited before.
 */
#include "sim.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	SPAN_FACTOR = 16,       /* addresses per byte of memory */
	RELEASE_MIN = 64 << 10, /* smaller frees leave their bytes behind */
};

struct device {
	struct sim_space space; /* where allocations lie, and how much is used */
	uint64_t total;         /* bytes that it has; others may hold some of them */
	char *alias;            /* the second mapping */
	int fd;
};

static struct device devices[SIM_DEVICES_MAX];
static struct sim_alloc *allocs;       /* all, host memory too */
static struct sim_alloc **host_allocs; /* sorted by address */
static uint32_t host_count, host_capacity;
static uint64_t buffer_ids;
static uint64_t host_pinned, host_peak; /* bytes, now and at most */

/* --- devices -------------------------------------------------------------- */

/* What processes use of a device that they share, in the file GCPSIM_SHARED. One that
 * is killed leaves what it had. */
static _Atomic uint64_t *shared_open(int device)
{
	const char *path = getenv("GCPSIM_SHARED");
	int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
	_Atomic uint64_t *all = NULL;

	if (fd >= 0 && ftruncate(fd, 4096) == 0)
		all = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	return all && all != MAP_FAILED ? &all[device] : NULL;
}

int sim_memory_init(int device, uint64_t limit)
{
	struct device *d = &devices[device];
	void *base;

	d->total = limit;
	sim_space_init(&d->space, limit, limit / SIM_CHUNK * SIM_CHUNK * SPAN_FACTOR);
	d->space.all = shared_open(device);
	d->fd = memfd_create("gcpsim", MFD_CLOEXEC);
	if (d->fd < 0 || ftruncate(d->fd, (off_t)d->space.span) != 0)
		return -1;
	base = mmap(NULL, d->space.span + SIM_CHUNK, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	d->alias = mmap(NULL, d->space.span, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_NORESERVE, d->fd, 0);
	if (base == MAP_FAILED || d->alias == MAP_FAILED)
		return -1;
	d->space.base = (uintptr_t)base + SIM_CHUNK - (uintptr_t)base % SIM_CHUNK;
	madvise(d->alias, d->space.span, MADV_DONTDUMP);
	return 0;
}

static int device_of(uint64_t addr)
{
	for (int i = 0; i < sim.devices; i++)
		if (addr - devices[i].space.base < devices[i].space.span)
			return i;
	return -1;
}

bool sim_memory_is_device(uint64_t addr)
{
	return device_of(addr) >= 0;
}

bool sim_memory_account(int device, int64_t bytes)
{
	return sim_space_account(&devices[device].space, bytes);
}

uint64_t sim_memory_limit(int device)
{
	return devices[device].space.limit;
}

void gcpsim_set_memory(int device, uint64_t bytes)
{
	SIM_HOLD;

	if (device < 0)
		*(device == -2 ? &sim.numa_limit : &sim.host_limit) = bytes;
	else if (device < sim.devices)
		devices[device].space.limit = bytes;
}

uint64_t sim_memory_span(int device)
{
	return devices[device].space.span;
}

void sim_memory_info(int device, uint64_t *ret_free, uint64_t *ret_total)
{
	const struct device *d = &devices[device];
	const struct sim_space *space = &d->space;

	*ret_free = space->limit > sim_space_used(space)
			? space->limit - sim_space_used(space)
			: 0;
	*ret_total = d->total > space->limit ? d->total : space->limit;
}

/* --- allocations ---------------------------------------------------------- */

/* The range begins a new life: neither book of its accesses goes on. */
void sim_memory_reset(uint64_t addr, uint64_t bytes)
{
	sim_hazard_reset(addr, bytes);
	sim_tags_reset(addr, bytes);
}

static struct sim_alloc *alloc_new(struct sim_ctx *ctx, uint64_t bytes,
				   enum sim_memory kind)
{
	struct sim_alloc *alloc = sim_calloc(sizeof(*alloc));

	alloc->ctx = ctx;
	alloc->device = ctx ? ctx->device : 0;
	alloc->bytes = bytes;
	alloc->kind = kind;
	alloc->buffer_id = ++buffer_ids;
	return alloc;
}

static void alloc_link(struct sim_alloc *alloc)
{
	alloc->next = allocs;
	if (allocs)
		allocs->prev = alloc;
	allocs = alloc;
}

static void alloc_unlink(struct sim_alloc *alloc)
{
	if (alloc->prev)
		alloc->prev->next = alloc->next;
	else
		allocs = alloc->next;
	if (alloc->next)
		alloc->next->prev = alloc->prev;
}

CUresult sim_memory_alloc(struct sim_ctx *ctx, uint64_t bytes, enum sim_memory kind,
			  struct sim_alloc **ret_alloc)
{
	struct sim_space *space = &devices[ctx->device].space;
	struct sim_alloc *alloc;

	SIM_FAIL_IF(OUT_OF_MEMORY, bytes > space->span);
	alloc = alloc_new(ctx, bytes, kind);
	if (!sim_space_place(space, alloc)) {
		free(alloc);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	alloc_link(alloc);
	sim_memory_reset(alloc->addr, alloc->span);
	*ret_alloc = alloc;
	return CUDA_SUCCESS;
}

CUresult sim_memory_reserve(int device, uint64_t bytes, struct sim_alloc **ret_alloc)
{
	struct sim_space *space = &devices[device].space;
	struct sim_alloc *alloc;

	SIM_FAIL_IF(OUT_OF_MEMORY, bytes > space->span);
	alloc = alloc_new(NULL, bytes, SIM_MEMORY_RESERVED);
	alloc->device = device;
	if (!sim_space_reserve(space, alloc)) {
		free(alloc);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	alloc->mapped = sim_calloc(alloc->span / SIM_CHUNK * sizeof(*alloc->mapped));
	alloc->piece = sim_calloc(alloc->span / SIM_CHUNK * sizeof(*alloc->piece));
	alloc->open = sim_calloc(alloc->span / SIM_CHUNK * sizeof(*alloc->open));
	alloc_link(alloc);
	*ret_alloc = alloc;
	return CUDA_SUCCESS;
}

static uint32_t host_index(uint64_t addr)
{
	uint32_t a = 0, b = host_count;

	while (a < b) {
		uint32_t m = (a + b) / 2;

		if (host_allocs[m]->addr + host_allocs[m]->bytes <= addr)
			a = m + 1;
		else
			b = m;
	}
	return a;
}

struct sim_alloc *sim_memory_host(struct sim_ctx *ctx, void *p, uint64_t bytes,
				  enum sim_memory kind, unsigned flags)
{
	struct sim_alloc *alloc = alloc_new(ctx, bytes, kind);
	uint32_t i = host_index((uintptr_t)p);

	alloc->addr = (uintptr_t)p;
	alloc->span = bytes;
	alloc->flags = flags;
	host_pinned += kind == SIM_MEMORY_PINNED ? bytes : 0;
	if (host_peak < host_pinned)
		host_peak = host_pinned;
	host_allocs = sim_grow(host_allocs, &host_capacity, host_count + 1,
			       sizeof(struct sim_alloc *));
	memmove(host_allocs + i + 1, host_allocs + i,
		(host_count - i) * sizeof(struct sim_alloc *));
	host_allocs[i] = alloc;
	host_count++;
	alloc_link(alloc);
	sim_memory_reset(alloc->addr, alloc->span);
	return alloc;
}

static bool is_host(const struct sim_alloc *alloc)
{
	return alloc->kind == SIM_MEMORY_PINNED ||
	       alloc->kind == SIM_MEMORY_REGISTERED ||
	       alloc->kind == SIM_MEMORY_MANAGED;
}

static void host_remove(const struct sim_alloc *alloc)
{
	uint32_t i = host_index(alloc->addr);

	memmove(host_allocs + i, host_allocs + i + 1,
		(host_count - i - 1) * sizeof(struct sim_alloc *));
	host_count--;
	host_pinned -= alloc->kind == SIM_MEMORY_PINNED ? alloc->bytes : 0;
	if (alloc->kind != SIM_MEMORY_REGISTERED)
		munmap((void *)(uintptr_t)alloc->addr, alloc->span);
}

static void device_remove(struct sim_alloc *alloc)
{
	struct device *d = &devices[alloc->device];
	uint64_t offset = alloc->addr - d->space.base;

	if (alloc->kind == SIM_MEMORY_IPC || alloc->kind == SIM_MEMORY_RESERVED)
		sim_memory_map(alloc->addr, alloc->span, -1, 0);
	else if (alloc->touched && alloc->span >= RELEASE_MIN)
		fallocate(d->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			  (off_t)offset, (off_t)alloc->span);
	sim_space_remove(&d->space, alloc);
}

void sim_memory_free(struct sim_alloc *alloc)
{
	if (alloc->kind != SIM_MEMORY_HIDDEN)
		sim_memory_reset(alloc->addr, alloc->span);
	alloc_unlink(alloc);
	sim_ipc_release(alloc);
	if (is_host(alloc))
		host_remove(alloc);
	else
		device_remove(alloc);
	free(alloc->mapped);
	free(alloc->piece);
	free(alloc->open);
	free(alloc);
}

struct sim_alloc *sim_memory_first(void)
{
	return allocs;
}

/* Device -1: what the host has pinned. */
static bool counts_on(const struct sim_alloc *alloc, int device)
{
	if (is_host(alloc))
		return device < 0 && alloc->kind == SIM_MEMORY_PINNED;
	return alloc->device == device && alloc->kind != SIM_MEMORY_RESERVED &&
	       alloc->kind != SIM_MEMORY_IPC;
}

uint64_t sim_memory_live(int device, uint64_t *ret_count)
{
	uint64_t bytes = 0, count = 0;

	for (const struct sim_alloc *alloc = allocs; alloc; alloc = alloc->next) {
		if (!counts_on(alloc, device))
			continue;
		bytes += alloc->bytes;
		count++;
	}
	if (ret_count)
		*ret_count = count;
	return bytes;
}

uint64_t gcpsim_memory_used(int device)
{
	uint64_t used;
	SIM_HOLD;

	if (device < 0)
		used = device == -2 ? sim.numa_used : sim_memory_live(-1, NULL);
	else
		used = device < sim.devices ? devices[device].space.used : 0;
	return used;
}

uint64_t gcpsim_memory_peak(int device)
{
	uint64_t peak;
	SIM_HOLD;

	if (device < 0)
		peak = host_peak;
	else
		peak = device < sim.devices ? devices[device].space.peak : 0;
	return peak;
}

uint64_t gcpsim_memory_live(int device)
{
	SIM_HOLD;

	return sim_memory_live(device, NULL);
}

uint64_t gcpsim_allocations(int device)
{
	uint64_t count;
	SIM_HOLD;

	sim_memory_live(device, &count);
	return count;
}

/* --- finding, and reaching the bytes -------------------------------------- */

struct sim_alloc *sim_memory_find(uint64_t addr)
{
	int device = device_of(addr);

	if (device < 0) {
		uint32_t i = host_index(addr);

		return i < host_count && host_allocs[i]->addr <= addr ? host_allocs[i]
								      : NULL;
	}
	return sim_space_find(&devices[device].space, addr);
}

static bool all_mapped(const struct sim_alloc *alloc, uint64_t addr, uint64_t bytes)
{
	uint64_t first = (addr - alloc->addr) / SIM_CHUNK;
	uint64_t last = (addr + bytes - 1 - alloc->addr) / SIM_CHUNK;

	for (uint64_t i = first; i <= last; i++)
		if (!alloc->mapped[i])
			return false;
	return true;
}

/* Mapped memory: each device that touches it must have been given access. */
static bool all_open(const struct sim_alloc *alloc, uint64_t addr, uint64_t bytes,
		     int device)
{
	uint64_t first = (addr - alloc->addr) / SIM_CHUNK;
	uint64_t last = (addr + bytes - 1 - alloc->addr) / SIM_CHUNK;

	if (alloc->kind != SIM_MEMORY_RESERVED || bytes == 0 ||
	    addr + bytes > alloc->addr + alloc->bytes)
		return true; /* or refused elsewhere */
	for (uint64_t i = first; i <= last; i++)
		if (!(alloc->open[i] & 1u << device))
			return false;
	return true;
}

static void *view(struct sim_alloc *alloc, uint64_t addr, uint64_t bytes, bool writes)
{
	const struct device *d;

	if (!alloc || addr + bytes > alloc->addr + alloc->bytes || bytes == 0)
		return NULL;
	if (alloc->kind == SIM_MEMORY_RESERVED && !all_mapped(alloc, addr, bytes))
		return NULL;
	alloc->touched |= writes;
	if (is_host(alloc))
		return (void *)(uintptr_t)addr;
	d = &devices[alloc->device];
	return d->alias + (addr - d->space.base);
}

void *sim_memory_host_view(uint64_t addr, uint64_t bytes, bool writes)
{
	return view(sim_memory_find(addr), addr, bytes, writes);
}

void *sim_memory_device_view(struct sim_ctx *ctx, uint64_t addr, uint64_t bytes,
			     bool writes)
{
	struct sim_alloc *alloc = sim_memory_find(addr);

	if (alloc && !is_host(alloc) && alloc->device != ctx->device &&
	    alloc->kind != SIM_MEMORY_RESERVED && !(ctx->peers & 1u << alloc->device))
		return NULL;
	if (alloc && !all_open(alloc, addr, bytes, ctx->device))
		return NULL;
	return view(alloc, addr, bytes, writes);
}

bool sim_memory_is_foreign(uint64_t addr, int device)
{
	const struct sim_alloc *alloc = sim_memory_find(addr);

	return alloc && alloc->kind == SIM_MEMORY_RESERVED &&
	       sim_physical_device(alloc, addr) != device &&
	       !(alloc->open[(addr - alloc->addr) / SIM_CHUNK] & 1u << device);
}

bool sim_memory_is_closed(uint64_t addr)
{
	const struct sim_alloc *alloc = sim_memory_find(addr);

	return alloc && alloc->kind == SIM_MEMORY_RESERVED &&
	       alloc->open[(addr - alloc->addr) / SIM_CHUNK] == 0;
}

bool sim_memory_synchronizes(uint64_t addr)
{
	const struct sim_alloc *alloc = sim_memory_find(addr);

	return alloc && alloc->sync_memops;
}

int sim_memory_map(uint64_t addr, uint64_t bytes, int fd, uint64_t offset)
{
	const struct device *d = &devices[device_of(addr)];
	uint64_t at = addr - d->space.base;
	void *p;

	if (fd < 0) {
		fd = d->fd;
		offset = at;
	}
	p = mmap(d->alias + at, bytes, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, (off_t)offset);
	return p == MAP_FAILED ? -1 : 0;
}

int sim_memory_fd(int device, uint64_t addr, uint64_t *ret_offset)
{
	*ret_offset = addr - devices[device].space.base;
	return devices[device].fd;
}
