/* SPDX-License-Identifier: MIT */
/*
 * call_stats.c - counts of the program's calls, of handles of GPU libraries and, in
 * count mode, of what is alive on each device. See report.h.
 *
 * Count mode keeps one table of live pointers under one lock: every call there
 * is a call of the driver, which takes its own lock for far longer.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "../base/clock.h"
#include "report.h"
#include "call_stats.h"
#include "../cuda/handles_table.h"

/* Devices with a higher number are not counted apart. */
enum { DEVICES_MAX = 64 };

/* A live pointer of count mode. `addr` 0: an empty slot. */
struct live {
	gcp_addr addr;
	uint64_t bytes;
	void *ctx;
	int device;
};

static struct {
	_Atomic(uint64_t) start_ns;
	struct {
		_Atomic(uint64_t) count, failed, bytes, ns;
	} calls[GCP_COUNTED_CALL_COUNT];

	pthread_mutex_t lock; /* for all below */
	struct gcp_stats devices[DEVICES_MAX];
	bool seen[DEVICES_MAX];
	/* Open addressing with linear probing. Invariants: capacity is 0 or a
	 * power of two; at least a quarter of the slots is empty; no empty slot
	 * between a pointer's own slot and where it lies. */
	struct live *table;
	size_t capacity, used; /* slots */
} call_stats = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct live *table_find(gcp_addr addr);
static bool table_reserve(void);
static void table_remove(struct live *live);
static void live_end(struct live *live);
static void gauge_add(struct gcp_gauge *gauge, uint64_t amount);

/* --- calls --------------------------------------------------------------------- */

void gcp_call_stats_begin(void)
{
	uint64_t none = 0;

	atomic_compare_exchange_strong(&call_stats.start_ns, &none, gcp_clock_ns());
}

uint64_t gcp_call_stats_start_ns(void)
{
	return atomic_load(&call_stats.start_ns);
}

void gcp_call_stats_add(enum gcp_counted_call call, uint64_t start_ns, uint64_t bytes,
			int result)
{
	uint64_t ns = gcp_clock_ns() - start_ns;

	atomic_fetch_add_explicit(&call_stats.calls[call].count, 1,
				  memory_order_relaxed);
	atomic_fetch_add_explicit(&call_stats.calls[call].ns, ns, memory_order_relaxed);
	if (result != 0)
		atomic_fetch_add_explicit(&call_stats.calls[call].failed, 1,
					  memory_order_relaxed);
	else if (bytes > 0)
		atomic_fetch_add_explicit(&call_stats.calls[call].bytes, bytes,
					  memory_order_relaxed);
}

void gcp_call_stats_get(enum gcp_counted_call call, struct gcp_call_stats_sum *ret_sum)
{
	ret_sum->count = atomic_load(&call_stats.calls[call].count);
	ret_sum->failed = atomic_load(&call_stats.calls[call].failed);
	ret_sum->bytes = atomic_load(&call_stats.calls[call].bytes);
	ret_sum->ns = atomic_load(&call_stats.calls[call].ns);
}

/* --- live pointers ------------------------------------------------------------- */

void gcp_call_stats_alloc(void *ctx, int device, gcp_addr addr, uint64_t bytes,
			  uint64_t ns)
{
	struct gcp_stats *stats;
	struct live *live;

	if (addr == 0 || device < 0 || device >= DEVICES_MAX)
		return;
	pthread_mutex_lock(&call_stats.lock);
	stats = &call_stats.devices[device];
	call_stats.seen[device] = true;
	stats->mem_alloc.count++;
	stats->mem_alloc.ns += ns;
	stats->misses++;
	/* The address lives on in our table only if its end escaped us. */
	live = table_find(addr);
	if (live && live->addr)
		live_end(live);
	if (table_reserve()) {
		live = table_find(addr);
		*live = (struct live){addr, bytes, ctx, device};
		call_stats.used++;
		gauge_add(&stats->allocation, 1);
		gauge_add(&stats->segment, 1);
		gauge_add(&stats->requested_bytes, bytes);
		gauge_add(&stats->active_bytes, bytes);
		gauge_add(&stats->reserved_bytes, bytes);
		gauge_add(&stats->allocated_bytes, bytes);
		stats->reserved_at_peak_bytes = stats->allocated_bytes.peak;
	}
	pthread_mutex_unlock(&call_stats.lock);
}

void gcp_call_stats_free(gcp_addr addr, uint64_t ns)
{
	struct live *live;

	pthread_mutex_lock(&call_stats.lock);
	live = addr ? table_find(addr) : NULL;
	if (live && live->addr) {
		struct gcp_stats *stats = &call_stats.devices[live->device];

		stats->mem_free.count++;
		stats->mem_free.ns += ns;
		live_end(live);
	}
	pthread_mutex_unlock(&call_stats.lock);
}

void gcp_call_stats_context_gone(void *ctx)
{
	pthread_mutex_lock(&call_stats.lock);
	/* Removing may move a later slot, also around the end, into this one:
	 * look at the same slot again, and go round twice. */
	for (size_t i = 0; i < 2 * call_stats.capacity; i++) {
		struct live *live = &call_stats.table[i & (call_stats.capacity - 1)];

		while (live->addr && live->ctx == ctx)
			live_end(live);
	}
	pthread_mutex_unlock(&call_stats.lock);
}

static void gauge_add(struct gcp_gauge *gauge, uint64_t amount)
{
	gauge->current += amount;
	gauge->allocated += amount;
	if (gauge->current > gauge->peak)
		gauge->peak = gauge->current;
}

static void gauge_sub(struct gcp_gauge *gauge, uint64_t amount)
{
	gauge->current -= amount;
	gauge->freed += amount;
}

static void live_end(struct live *live)
{
	struct gcp_stats *stats = &call_stats.devices[live->device];
	uint64_t bytes = live->bytes;

	table_remove(live);
	gauge_sub(&stats->allocation, 1);
	gauge_sub(&stats->segment, 1);
	gauge_sub(&stats->requested_bytes, bytes);
	gauge_sub(&stats->active_bytes, bytes);
	gauge_sub(&stats->reserved_bytes, bytes);
	gauge_sub(&stats->allocated_bytes, bytes);
}

/* --- statistics ---------------------------------------------------------------- */

int gcp_call_stats_stats(int device, struct gcp_stats *ret_stats)
{
	int result = -ENOENT;

	if (device < 0 || device >= DEVICES_MAX)
		return -ENOENT;
	pthread_mutex_lock(&call_stats.lock);
	if (call_stats.seen[device]) {
		*ret_stats = call_stats.devices[device];
		result = 0;
	}
	pthread_mutex_unlock(&call_stats.lock);
	return result;
}

void gcp_call_stats_blocks(int device,
			   void (*scope)(void *arg, const struct gcp_block_view *block),
			   void *arg)
{
	pthread_mutex_lock(&call_stats.lock);
	for (size_t i = 0; i < call_stats.capacity; i++) {
		const struct live *live = &call_stats.table[i];
		struct gcp_block_view view = {.addr = live->addr,
					      .size = live->bytes,
					      .requested = live->bytes,
					      .used = true};

		if (live->addr && live->device == device)
			scope(arg, &view);
	}
	pthread_mutex_unlock(&call_stats.lock);
}

int gcp_call_stats_device_max(void)
{
	int device;

	pthread_mutex_lock(&call_stats.lock);
	for (device = DEVICES_MAX - 1; device >= 0 && !call_stats.seen[device];
	     device--)
		;
	pthread_mutex_unlock(&call_stats.lock);
	return device;
}

void gcp_call_stats_reset_peaks(int device)
{
	struct gcp_stats *stats;

	if (device < 0 || device >= DEVICES_MAX)
		return;
	pthread_mutex_lock(&call_stats.lock);
	stats = &call_stats.devices[device];
#define GCP_X(name, meaning) stats->name.peak = stats->name.current;
	GCP_GAUGES(GCP_X)
#undef GCP_X
	stats->reserved_at_peak_bytes = stats->allocated_bytes.current;
	pthread_mutex_unlock(&call_stats.lock);
}

/* --- the table ----------------------------------------------------------------- */

static size_t slot_of(gcp_addr addr)
{
	return (size_t)(addr * 0x9e3779b97f4a7c15ull >> 20) & (call_stats.capacity - 1);
}

/* The slot that holds `addr`, or the empty one where it belongs. NULL: there is
 * no table yet. */
static struct live *table_find(gcp_addr addr)
{
	size_t slot;

	if (call_stats.capacity == 0)
		return NULL;
	slot = slot_of(addr);
	while (call_stats.table[slot].addr && call_stats.table[slot].addr != addr)
		slot = (slot + 1) & (call_stats.capacity - 1);
	return &call_stats.table[slot];
}

/* Makes room for one more. */
static bool table_reserve(void)
{
	struct live *old = call_stats.table;
	size_t old_capacity = call_stats.capacity;
	size_t capacity = old_capacity ? 2 * old_capacity : 4096;
	void *memory;

	if (call_stats.used + 1 <= old_capacity / 4 * 3)
		return true;
	memory = mmap(NULL, capacity * sizeof(*old), PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return false;
	call_stats.table = memory;
	call_stats.capacity = capacity;
	for (size_t i = 0; i < old_capacity; i++)
		if (old[i].addr)
			*table_find(old[i].addr) = old[i];
	if (old)
		munmap(old, old_capacity * sizeof(*old));
	return true;
}

/* Closes the gap: each later slot of the run that may lie here moves here. */
static void table_remove(struct live *live)
{
	size_t mask = call_stats.capacity - 1;
	size_t gap = (size_t)(live - call_stats.table);

	for (size_t slot = (gap + 1) & mask; call_stats.table[slot].addr;
	     slot = (slot + 1) & mask) {
		size_t home = slot_of(call_stats.table[slot].addr);

		if (((slot - home) & mask) < ((slot - gap) & mask))
			continue;
		call_stats.table[gap] = call_stats.table[slot];
		gap = slot;
	}
	call_stats.table[gap].addr = 0;
	call_stats.used--;
}

/* --- handles of GPU libraries: at exit, and by tests -------------------------- */

#define ULL(value) ((unsigned long long)(value))

static const struct row {
	const char *soname;
	enum gcp_handle_kind_id kind;
} rows[] = {
#define GCP_X(tag, soname, kind, create, destroy) {#soname, GCP_HANDLE_##kind},
    GCP_HANDLE_LIBRARIES(GCP_X)
#undef GCP_X
};

enum { ROW_COUNT = sizeof(rows) / sizeof(rows[0]) };

struct gcp_handle_counts gcp_handle_counts[ROW_COUNT];

void gcp_handle_counts_use(struct gcp_handle_counts *counts)
{
	uint64_t used = atomic_fetch_add(&counts->used, 1) + 1;
	uint64_t peak = atomic_load(&counts->peak);

	while (peak < used && !atomic_compare_exchange_weak(&counts->peak, &peak, used))
		;
}

void gcp_handle_counts_sum(uint64_t *ret_used, uint64_t *ret_kept)
{
	uint64_t used = 0, all = 0;

	for (int i = 0; i < ROW_COUNT; i++) {
		const struct gcp_handle_counts *counts = &gcp_handle_counts[i];

		used += counts->used;
		all += counts->created - counts->destroyed;
	}
	*ret_used = used;
	*ret_kept = all > used ? all - used : 0; /* counted one after another */
}

void gcp_handles_text(struct gcp_text *text)
{
	bool titled = false;

	for (int i = 0; i < ROW_COUNT; i++) {
		const struct gcp_handle_counts *counts = &gcp_handle_counts[i];

		if (counts->created == 0)
			continue;
		if (!titled)
			gcp_text_add(text, "%-19s %10s %10s %12s %12s\n", "handles",
				     "created", "reused", "in use", "peak");
		titled = true;
		gcp_text_add(text, "  %-17s %10llu %10llu %12llu %12llu  of %s\n",
			     gcp_handle_kinds[rows[i].kind].name, ULL(counts->created),
			     ULL(counts->reused), ULL(counts->used), ULL(counts->peak),
			     rows[i].soname);
	}
}

void gcp_handles_json(struct gcp_text *text)
{
	const char *comma = "";

	gcp_text_add(text, ", \"handles\": [");
	for (int i = 0; i < ROW_COUNT; i++) {
		const struct gcp_handle_counts *counts = &gcp_handle_counts[i];

		if (counts->created == 0)
			continue;
		gcp_text_add(text,
			     "%s{\"kind\": \"%s\", \"library\": \"%s\", "
			     "\"created\": %llu, \"reused\": %llu, "
			     "\"destroyed\": %llu, \"used\": %llu, \"peak\": %llu}",
			     comma, gcp_handle_kinds[rows[i].kind].name, rows[i].soname,
			     ULL(counts->created), ULL(counts->reused),
			     ULL(counts->destroyed), ULL(counts->used),
			     ULL(counts->peak));
		comma = ", ";
	}
	gcp_text_add(text, "]");
}
