/* SPDX-License-Identifier: MIT */
/*
 * replay.c - the allocation traces of real programs (traces/), or recordings
 * (GCPOOL_TRACE), replayed on the pool over a driver made of numbers: how much memory
 * is reserved, how often the driver is asked.
 *
 *   replay TRACE...         prints the table, one row for each trace and lag
 *   replay --check TRACE... for each trace with all larger sizes scaled, the ratio on
 *                           average and how far it spreads; fails where an average is
 *                           worse than promised below
 *   replay --mapped ...     the same with segments that are mapped by the pool
 *
 * The model: time is the trace's clock; an event of the trace submits work, and
 * a fence recorded then is done `lag` later; so memory's last use is the time
 * of its free. A barrier costs the host nothing. A caller that waits for the device
 * (a fence, the driver's free) moves the clock to the end of the latest work.
 * The driver takes memory in pieces of 2 MiB. Each thread of the trace is a
 * thread here; they take turns, so that runs repeat exactly.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../../pool/check/check.h"

/* The pool tells the driver more than this one asks. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

enum {
	THREADS_MAX = 16,
	EXTENTS_MAX = 1 << 22,
	GRAIN = 2 << 20, /* bytes: what the driver's memory comes in */
	HANDLES = 1 << 20,
	CREATE_NS = 26000, /* what the calls cost the host, as measured on an H200 */
	MAP_NS = 5500,
	OPEN_NS = 22500,
	UNMAP_NS = 21500,
	RELEASE_NS = 11000,
};

static void die(const char *why)
{
	fprintf(stderr, "replay: %s\n", why);
	exit(2);
}

static void die_unread(const char *path)
{
	fprintf(stderr, "replay: cannot read %s\n", path);
	exit(2);
}

/* --- the trace ------------------------------------------------------------------ */

struct event {
	uint64_t us;
	uint32_t thread, id;
	uint64_t bytes;
	bool alloc; /* or a free */
};

static struct {
	char name[32];
	struct event *events;
	size_t count, allocs;
	uint32_t ids, threads;
	uint64_t peak_live;
} trace;

static void trace_add(struct event event)
{
	if ((trace.count & (trace.count - 1)) == 0) {
		size_t room = trace.count ? 2 * trace.count : 1;

		trace.events = realloc(trace.events, room * sizeof(event));
		if (!trace.events)
			die("out of memory");
	}
	if (event.thread >= THREADS_MAX)
		die("a trace has too many threads");
	trace.events[trace.count++] = event;
	trace.allocs += event.alloc;
	if (trace.ids <= event.id)
		trace.ids = event.id + 1;
	if (trace.threads <= event.thread)
		trace.threads = event.thread + 1;
}

/* What prints the trace: a text compressed with xz, or a recording (GCPOOL_TRACE). */
static void trace_command(const char *path, char *ret_command, size_t capacity)
{
	char magic[8] = "";
	FILE *file = fopen(path, "rb");

	if (!file || fread(magic, 1, sizeof(magic), file) == 0)
		die_unread(path);
	fclose(file);
	if (memcmp(magic, "GCPTRACE", sizeof(magic)) == 0)
		snprintf(ret_command, capacity, "python3 '%s' replay '%s'",
			 GCPT_TRACE_TOOL, path);
	else
		snprintf(ret_command, capacity,
			 "python3 -c 'import lzma, shutil, sys; shutil.copyfileobj("
			 "lzma.open(sys.argv[1]), sys.stdout.buffer)' '%s'",
			 path);
}

/* Memory of the device only: lines with op `a` and `f`. */
static void trace_read(const char *path)
{
	char command[4096], op[8];
	const char *base = strrchr(path, '/');
	struct event event;

	trace.count = trace.allocs = trace.ids = trace.threads = 0;
	snprintf(trace.name, sizeof(trace.name), "%s", base ? base + 1 : path);
	trace.name[strcspn(trace.name, ".")] = '\0';
	trace_command(path, command, sizeof(command));
	FILE *lines = popen(command, "r");
	if (!lines)
		die("cannot run what prints the trace");
	while (fgets(command, sizeof(command), lines)) {
		if (sscanf(command, "%lu %u %7s %u %lu", &event.us, &event.thread, op,
			   &event.id, &event.bytes) != 5)
			die("a line of the trace makes no sense");
		event.alloc = strcmp(op, "a") == 0;
		if (event.alloc || strcmp(op, "f") == 0)
			trace_add(event);
	}
	if (pclose(lines) != 0 || trace.count == 0)
		die_unread(path);
}

/* --- the driver ------------------------------------------------------------------- */

static struct {
	uint64_t lag, now, submitted;  /* ns */
	uint64_t extents[EXTENTS_MAX]; /* bytes, by the grain of the address */
	uint64_t taken;                /* bytes of addresses, which do not come again */
	uint64_t reserved, peak_reserved, waited, spent; /* bytes, bytes, ns, ns */
	uint64_t waits;
} device;

static uint64_t device_idle_at(void)
{
	return device.submitted + device.lag;
}

static void device_wait(uint64_t until)
{
	if (device.now >= until)
		return;
	device.waited += until - device.now;
	device.waits++;
	device.now = until;
}

static void reserved_change(uint64_t bytes)
{
	device.reserved += bytes;
	if (device.peak_reserved < device.reserved)
		device.peak_reserved = device.reserved;
}

/* What a call costs the host. */
static void host_spend(uint64_t ns)
{
	device.now += ns;
	device.spent += ns;
}

static int mem_alloc(void *ctx, uint64_t bytes, gcp_addr *ret_addr)
{
	uint64_t size = (bytes + GRAIN - 1) / GRAIN * GRAIN;

	host_spend(45 * 1000 + bytes / 8192);
	if (device.taken / GRAIN >= EXTENTS_MAX)
		die("too many driver allocations");
	device.extents[device.taken / GRAIN] = size;
	reserved_change(size);
	*ret_addr = (1ull << 32) + device.taken;
	device.taken += size;
	return 0;
}

static int mem_release(void *ctx, gcp_addr addr)
{
	uint64_t *size = &device.extents[(addr - (1ull << 32)) / GRAIN];

	host_spend(26 * 1000);
	if (*size == 0)
		die("the pool frees what it does not have");
	reserved_change(-*size);
	*size = 0;
	return 0;
}

static int mem_free(void *ctx, gcp_addr addr)
{
	device_wait(device_idle_at());
	return mem_release(ctx, addr);
}

static void mem_trim(void *ctx)
{
}

/* A fence is the time at which it is done. */
static int fence_create(void *ctx, void **ret_fence)
{
	*ret_fence = calloc(1, sizeof(uint64_t));
	return *ret_fence ? 0 : -1;
}

static void fence_discard(void *fence)
{
	free(fence);
}

static int fence_record(void *ctx, void *fence)
{
	*(uint64_t *)fence = device_idle_at();
	return 0;
}

static int fence_order(void *fence, bool alone)
{
	return 0;
}

static int fence_query(void *fence)
{
	return device.now >= *(uint64_t *)fence ? 0 : GCP_CUDA_NOT_READY;
}

static int fence_wait(void *fence, bool own __attribute__((unused)))
{
	device_wait(*(uint64_t *)fence);
	return 0;
}

static bool no_third_party(void)
{
	return false;
}

static uint64_t clock_ns(void)
{
	return device.now;
}

/* Of the GPU on which the traces were recorded. */
static uint64_t device_memory(int which)
{
	return 140ull << 30;
}

/* --- the driver's virtual memory --- */

/* Physical memory in pieces of one grain, which count as reserved while they exist. */
static struct {
	uint64_t reserved, handles; /* ever */
	uint64_t made[HANDLES];     /* bytes */
} space;

static bool space_device(int which, uint64_t *ret_granularity)
{
	*ret_granularity = GRAIN;
	return true;
}

static int space_reserve(uint64_t bytes, uint64_t alignment, gcp_addr *ret_addr)
{
	*ret_addr = (1ull << 40) + space.reserved;
	space.reserved += bytes;
	return 0;
}

static int space_unreserve(gcp_addr addr, uint64_t bytes)
{
	return 0;
}

static int space_create(int which, uint64_t bytes, uint64_t *ret_handle)
{
	if (bytes % GRAIN != 0 || space.handles + 1 >= HANDLES)
		die("strange physical memory");
	host_spend(CREATE_NS);
	*ret_handle = ++space.handles;
	space.made[*ret_handle] = bytes;
	reserved_change(bytes);
	return 0;
}

static int space_release(uint64_t handle)
{
	if (!space.made[handle])
		die("the pool releases what it does not have");
	host_spend(RELEASE_NS);
	reserved_change(-space.made[handle]);
	space.made[handle] = 0;
	return 0;
}

static int space_map(gcp_addr addr, uint64_t bytes, uint64_t handle)
{
	host_spend(MAP_NS);
	if (space.made[handle] != bytes)
		die("the pool maps what it does not have");
	return 0;
}

static int space_open(int which, gcp_addr addr, uint64_t bytes)
{
	host_spend(OPEN_NS);
	return 0;
}

static int space_unmap(gcp_addr addr, uint64_t bytes)
{
	host_spend(UNMAP_NS);
	return 0;
}

static const struct gcp_driver driver = {
    .mem_alloc = mem_alloc,
    .mem_free = mem_free,
    .mem_release = mem_release,
    .mem_trim = mem_trim,
    .fence_create = fence_create,
    .fence_discard = fence_discard,
    .fence_record = fence_record,
    .fence_order = fence_order,
    .fence_query = fence_query,
    .fence_wait = fence_wait,
    .third_party_writers = no_third_party,
    .device_memory = device_memory,
    .clock_ns = clock_ns,
    .vm_device = space_device,
    .vm_reserve = space_reserve,
    .vm_unreserve = space_unreserve,
    .vm_create = space_create,
    .vm_release = space_release,
    .vm_map = space_map,
    .vm_open = space_open,
    .vm_unmap = space_unmap,
};

/* --- one replay ----------------------------------------------------------- */

static struct {
	struct gcp_pools *pools;
	struct gcp_pool *pool;
	gcp_addr *addrs;   /* [id] */
	size_t at, allocs; /* the next event; allocations so far */
	uint64_t live, shift;
	uint64_t early_misses, wall_ns;
	pthread_mutex_t lock;
	pthread_cond_t turn;
} run = {.lock = PTHREAD_MUTEX_INITIALIZER, .turn = PTHREAD_COND_INITIALIZER};

static uint64_t wall_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct gcp_stats stats_now(void)
{
	struct gcp_stats stats = {0};

	if (gcp_pools_stats(run.pools, 0, &stats) != 0)
		die("no statistics");
	return stats;
}

/* --check: what sizes above 64 KiB are multiplied by, in percent. */
static uint64_t scale = 100;

static uint64_t bytes_of(const struct event *event)
{
	return event->bytes > 64 << 10 ? event->bytes * scale / 100 : event->bytes;
}

static void event_alloc(const struct event *event)
{
	if (run.allocs++ == trace.allocs / 10)
		run.early_misses = stats_now().misses;
	if (gcp_pool_alloc(run.pool, bytes_of(event), &run.addrs[event->id]) != 0)
		die("an allocation failed");
	run.live += bytes_of(event);
	if (trace.peak_live < run.live)
		trace.peak_live = run.live;
}

static void event_free(const struct event *event)
{
	if (gcp_pools_free(run.pools, run.addrs[event->id]) != 0)
		die("a free failed");
	run.live -= bytes_of(event);
}

/* The events up to the next one of another thread. */
static void turn_take(uint32_t thread)
{
	uint64_t start = wall_ns();

	while (run.at < trace.count && trace.events[run.at].thread == thread) {
		const struct event *event = &trace.events[run.at++];

		device.submitted = device.now =
		    event->us * 1000 + device.waited + device.spent;
		gcp_pools_stream_used(run.pools, 1);
		if (event->alloc)
			event_alloc(event);
		else
			event_free(event);
	}
	run.wall_ns += wall_ns() - start;
}

static void *thread_run(void *arg)
{
	uint32_t thread = (uint32_t)(uintptr_t)arg;

	pthread_mutex_lock(&run.lock);
	while (run.at < trace.count) {
		turn_take(thread);
		pthread_cond_broadcast(&run.turn);
		while (run.at < trace.count && trace.events[run.at].thread != thread)
			pthread_cond_wait(&run.turn, &run.lock);
	}
	pthread_cond_broadcast(&run.turn);
	gcp_pools_thread_exit(run.pools);
	pthread_mutex_unlock(&run.lock);
	return NULL;
}

static void threads_run(void)
{
	pthread_t threads[THREADS_MAX];

	for (uintptr_t i = 0; i < trace.threads; i++)
		if (pthread_create(&threads[i], NULL, thread_run, (void *)i) != 0)
			die("cannot make a thread");
	for (uint32_t i = 0; i < trace.threads; i++)
		pthread_join(threads[i], NULL);
}

struct row {
	double ratio, hits, late_hits; /* percent of allocations */
	double ns;                     /* per event */
	double wait_ms;
	struct gcp_stats stats;
};

static bool mapped; /* --mapped */

static struct row replay(uint64_t lag_us)
{
	struct gcp_config config;
	struct row row;

	memset(&device, 0, sizeof(device));
	device.lag = lag_us * 1000;
	run.at = run.allocs = 0;
	run.live = trace.peak_live = run.early_misses = run.wall_ns = 0;
	run.addrs = calloc(trace.ids, sizeof(run.addrs[0]));
	gcp_config_default(&config);
	if (mapped)
		config.backend = GCP_BACKEND_MAPPED;
	if (!run.addrs || gcp_pools_create(&config, &driver, &run.pools) != 0 ||
	    gcp_pool_get(run.pools, &device, 0, &run.pool) != 0)
		die("no pool");
	threads_run();
	const char *broken = gcp_pools_check(run.pools);
	if (broken)
		die(broken);
	row.stats = stats_now();
	row.ratio = (double)device.peak_reserved / (double)trace.peak_live;
	row.hits = 100 - 100.0 * (double)row.stats.misses / (double)trace.allocs;
	row.late_hits = 100 - 100.0 * (double)(row.stats.misses - run.early_misses) /
				  (double)(trace.allocs - trace.allocs / 10);
	row.ns = (double)run.wall_ns / (double)trace.count;
	row.wait_ms = (double)device.waited / 1e6;
	gcp_pools_destroy(run.pools);
	free(run.addrs);
	return row;
}

/* --- the table -------------------------------------------------------------------- */

static void head_print(void)
{
	printf("%-8s %6s %9s %9s %8s %8s %8s %6s %6s %6s %7s %7s %7s %6s\n", "trace",
	       "lag us", "live MiB", "reserved", "ratio", "hits %", "late %", "allocs",
	       "frees", "remaps", "fences", "orders", "queries", "ns");
	printf("%-8s %6s %9s %9s %8s %8s %8s %13s %30s %6s %8s\n", "", "", "peak",
	       "peak MiB", "", "", "", "of driver", "per 1,000 frees", "event",
	       "wait ms");
}

static void row_print(struct row row, uint64_t lag_us)
{
	const struct gcp_stats *stats = &row.stats;
	double per = 1000.0 / (double)(trace.count - trace.allocs);

	printf("%-8s %6lu %9.1f %9.1f %8.3f %8.2f %8.2f %6lu %6lu %6lu %7.1f %7.1f "
	       "%7.1f %6.0f %8.1f\n",
	       trace.name, lag_us, (double)trace.peak_live / (1 << 20),
	       (double)device.peak_reserved / (1 << 20), row.ratio, row.hits,
	       row.late_hits, stats->mem_alloc.count, stats->mem_free.count,
	       stats->remaps, (double)stats->fence_record.count * per,
	       (double)stats->fence_order.count * per,
	       (double)stats->fence_query.count * per, row.ns, row.wait_ms);
}

/* What has been reached, and must not get worse, on average over all scales: peak
 * reserved / peak live, over all lags, with none, and with the longest; and the
 * percentage of hits after the first tenth of the trace. One row says little: the
 * ratio is a chaotic function of the sizes. */
enum { LAGS = 3 };
static const uint64_t lags_us[LAGS] = {0, 100, 5000};

static const struct promise {
	const char *trace;
	bool mapped;
	double ratio, at_once, behind, late_hits;
} promises[] = {
    {"gpt2", false, 1.31, 1.17, 1.6, 99.9},
    {"gpt2", true, 1.055, 1.055, 1.06, 99.9},
    {"llama", false, 1.18, 1.18, 1.18, 99.9},
    {"llama", true, 1.06, 1.055, 1.065, 99.9},
    {"resnet", false, 1.18, 1.15, 1.25, 99.5},
    {"resnet", true, 1.045, 1.04, 1.05, 99},
};

/* What one trace came to, over all scales and lags. */
struct sums {
	double ratio, squares, best, worst, late_hits;
	double of_lag[LAGS]; /* ratios */
	int count;
};

static void sums_add(struct sums *sums, const struct row *row, int lag)
{
	if (sums->count == 0 || row->ratio < sums->best)
		sums->best = row->ratio;
	if (row->ratio > sums->worst)
		sums->worst = row->ratio;
	sums->ratio += row->ratio;
	sums->squares += row->ratio * row->ratio;
	sums->of_lag[lag] += row->ratio;
	sums->late_hits += row->late_hits;
	sums->count++;
}

static struct sums scales_replay(void)
{
	static const uint64_t scales[] = {85, 93, 100, 107, 115, 125};
	struct sums sums = {0};

	for (int i = 0; i < 6; i++) {
		scale = scales[i];
		for (int lag = 0; lag < LAGS; lag++) {
			struct row row = replay(lags_us[lag]);

			sums_add(&sums, &row, lag);
		}
	}
	scale = 100;
	return sums;
}

static bool promise_is_kept(double ratio, double at_once, double behind,
			    double late_hits)
{
	for (size_t i = 0; i < sizeof(promises) / sizeof(promises[0]); i++) {
		const struct promise *promise = &promises[i];

		if (strcmp(promise->trace, trace.name) != 0 ||
		    promise->mapped != mapped)
			continue;
		if (ratio <= promise->ratio && at_once <= promise->at_once &&
		    behind <= promise->behind && late_hits >= promise->late_hits)
			return true;
		printf("%s: promised are on average a ratio of %.3f, %.3f with no lag, "
		       "%.3f with 5 ms, and %.2f %% of hits\n",
		       trace.name, promise->ratio, promise->at_once, promise->behind,
		       promise->late_hits);
		return false;
	}
	printf("%s: nothing is promised\n", trace.name);
	return false;
}

static bool scales_print(void)
{
	struct sums sums = scales_replay();
	double ratio = sums.ratio / sums.count, hits = sums.late_hits / sums.count;
	double variance = sums.squares / sums.count - ratio * ratio;
	double at_once = sums.of_lag[0] / (sums.count / LAGS);
	double behind = sums.of_lag[LAGS - 1] / (sums.count / LAGS);

	printf(
	    "%-8s scaled by 0.85 to 1.25: ratio %.3f on average, %.3f to %.3f, "
	    "standard deviation %.3f; %.3f with no lag, %.3f with 5 ms; %.2f %% late "
	    "hits\n",
	    trace.name, ratio, sums.best, sums.worst, variance > 0 ? sqrt(variance) : 0,
	    at_once, behind, hits);
	return promise_is_kept(ratio, at_once, behind, hits);
}

int main(int argc, char **argv)
{
	bool kept = true, check = false;
	int first = 1;

	for (; first < argc && argv[first][0] == '-'; first++) {
		check |= strcmp(argv[first], "--check") == 0;
		mapped |= strcmp(argv[first], "--mapped") == 0;
	}
	if (first >= argc)
		die("usage: replay [--check] [--mapped] TRACE...");
	if (!check)
		head_print();
	for (int i = first; i < argc; i++) {
		trace_read(argv[i]);
		if (check)
			kept &= scales_print();
		for (int lag = 0; !check && lag < LAGS; lag++)
			row_print(replay(lags_us[lag]), lags_us[lag]);
	}
	free(trace.events);
	return !kept;
}
