/* SPDX-License-Identifier: MIT */
/*
 * peers.cpp - what a malloc and its free cost with each allocator that people use,
 * in one process and one table: CUDA's own two, PyTorch's, and this
 * library through the driver API, a static cudart and a shared one.
 *
 *   LD_PRELOAD=libgcpool.so peers peers-plain.so [--quick] [peers-torch.so ...]
 *
 * Prints Markdown: ns for malloc + free on each thread, median of the repeats; the
 * allocators take turns. With kernels in flight only the two calls are on the clock,
 * and the time of a whole round stands behind it. See peers.h for how plain CUDA
 * and the library can be in one process; that they are is checked by the library's
 * own counts, and what is not so ends with exit code 1.
 */
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <memory>
#include <pthread.h>
#include <string>
#include <thread>
#include <vector>

#include "peers.h"

/* --- what is compared ------------------------------------------------------------ */

enum class kind { pairs, mixed, kernels, mixed_kernels, handed_on };

struct workload {
	const char *name;
	enum kind kind;
	size_t bytes;
};

static const workload workloads[] = {
    {"4 KiB", kind::pairs, 4 << 10},
    {"1 MiB", kind::pairs, 1 << 20},
    {"mixed, 64 live", kind::mixed, 8 << 20},
    {"1 MiB, kernels in flight", kind::kernels, 1 << 20},
    {"mixed, kernels in flight", kind::mixed_kernels, 8 << 20},
    {"1 MiB, freed by another thread", kind::handed_on, 1 << 20},
};

static const int thread_counts[] = {1, 4, 16};
enum { LIVE = 64, RING = 64, COUNTS = 3 };

struct contender {
	const struct peer *peer;
	const struct peers_cuda *cuda; /* launches its kernels */
	bool ours;                     /* this library */
};

static std::vector<contender> contenders;

/* --- one run ---------------------------------------------------------------------- */

static double ticks_per_ns = 1;

static inline uint64_t ticks_now()
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#else
	return (uint64_t)std::chrono::steady_clock::now().time_since_epoch().count();
#endif
}

static double tick_cost; /* ns that a pair of readings adds */

static void ticks_measure()
{
	auto start = std::chrono::steady_clock::now();
	uint64_t from = ticks_now(), to, best = ~0ull;

	while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(50))
		;
	to = ticks_now();
	ticks_per_ns =
	    (double)(to - from) /
	    (double)std::chrono::nanoseconds(std::chrono::steady_clock::now() - start)
		.count();
	for (int i = 0; i < 1000; i++) {
		from = ticks_now();
		to = ticks_now();
		best = std::min(best, to - from);
	}
	tick_cost = (double)best / ticks_per_ns;
}

struct block {
	void *ptr;
	size_t bytes;
	void *stream;
};

/* Blocks on their way from one thread to the one that frees them. */
struct ring {
	std::atomic<unsigned> head{0};             /* written by the consumer */
	alignas(64) std::atomic<unsigned> tail{0}; /* written by the producer */
	block blocks[RING];
};

struct run {
	const contender *allocator;
	const workload *what;
	int threads;
	std::atomic<bool> warm{false}, stop{false};
	pthread_barrier_t barrier;
	std::vector<std::unique_ptr<ring>> rings;
};

struct worker {
	struct run *run;
	int index;
	void *stream = nullptr;
	uint32_t random;
	uint64_t pairs = 0, calls = 0; /* ticks in malloc and free */
	double wall = 0;               /* ns */
	block live[LIVE] = {};
};

static void must(int result, const char *what)
{
	if (result != 0) {
		fprintf(stderr, "peers: %s: error %d\n", what, result);
		_Exit(2);
	}
}

static uint32_t random_next(worker &self)
{
	self.random = self.random * 1664525u + 1013904223u;
	return self.random >> 8;
}

/* Between 512 bytes and the workload's, each power of two as often. */
static size_t mixed_size(worker &self, size_t most)
{
	size_t power = 512;

	for (size_t top = random_next(self) % 14; top && power < most; top--)
		power *= 2;
	return power + random_next(self) % power;
}

static void block_new(worker &self, block &block, size_t bytes)
{
	block = {nullptr, bytes, self.stream};
	must(self.run->allocator->peer->alloc(&block.ptr, bytes, self.stream),
	     "malloc");
}

static void block_drop(worker &self, block &block)
{
	must(self.run->allocator->peer->free(block.ptr, block.bytes, block.stream),
	     "free");
	block.ptr = nullptr;
}

/* One malloc and one free; `flight` puts a kernel between them. */
static void pair_once(worker &self, bool mixed, bool flight)
{
	block *slot = &self.live[mixed ? random_next(self) % LIVE : 0];
	size_t bytes =
	    mixed ? mixed_size(self, self.run->what->bytes) : self.run->what->bytes;
	uint64_t start = ticks_now();

	if (mixed && slot->ptr)
		block_drop(self, *slot);
	block_new(self, *slot, bytes);
	self.calls += ticks_now() - start;
	if (flight)
		must(self.run->allocator->cuda->launch(slot->ptr, self.stream),
		     "launch");
	if (mixed)
		return;
	start = ticks_now();
	block_drop(self, *slot);
	self.calls += ticks_now() - start;
}

static void give_once(worker &self, ring &ring, const std::atomic<bool> &until)
{
	unsigned tail = ring.tail.load(std::memory_order_relaxed);

	while (tail - ring.head.load(std::memory_order_acquire) >= RING)
		if (until)
			return;
	block_new(self, ring.blocks[tail % RING], self.run->what->bytes);
	ring.tail.store(tail + 1, std::memory_order_release);
}

/* Whether there was something to take. */
static bool take_once(worker &self, ring &ring)
{
	unsigned head = ring.head.load(std::memory_order_relaxed);

	if (head == ring.tail.load(std::memory_order_acquire))
		return false;
	block_drop(self, ring.blocks[head % RING]);
	ring.head.store(head + 1, std::memory_order_release);
	return true;
}

static void turns(worker &self, const std::atomic<bool> &until)
{
	const enum kind kind = self.run->what->kind;
	ring *ring =
	    self.run->rings.empty() ? nullptr : self.run->rings[self.index / 2].get();

	while (!until.load(std::memory_order_relaxed)) {
		if (kind == kind::pairs) /* without a clock in between */
			for (int i = 0; i < 8; i++) {
				block_new(self, self.live[0], self.run->what->bytes);
				block_drop(self, self.live[0]);
			}
		else if (kind != kind::handed_on)
			pair_once(self, kind != kind::kernels, kind != kind::mixed);
		else if (self.index % 2 == 0)
			give_once(self, *ring, until);
		else if (!take_once(self, *ring))
			continue;
		self.pairs += kind == kind::pairs ? 8 : 1;
	}
}

static void work(worker &self)
{
	auto &run = *self.run;

	must(run.allocator->cuda->stream_create(&self.stream), "stream");
	turns(self, run.warm);
	pthread_barrier_wait(&run.barrier);
	self.pairs = self.calls = 0;
	auto start = std::chrono::steady_clock::now();
	turns(self, run.stop);
	self.wall =
	    (double)std::chrono::nanoseconds(std::chrono::steady_clock::now() - start)
		.count();
	pthread_barrier_wait(&run.barrier); /* what is reserved is read here */
	pthread_barrier_wait(&run.barrier);
	for (block &block : self.live)
		if (block.ptr)
			block_drop(self, block);
	while (run.what->kind == kind::handed_on && self.index % 2 &&
	       take_once(self, *run.rings[self.index / 2]))
		;
	pthread_barrier_wait(&run.barrier); /* streams live as long as their blocks */
	must(run.allocator->cuda->device_sync(), "synchronize");
	must(run.allocator->cuda->stream_destroy(self.stream), "stream");
}

struct figures {
	double ns = 0, round_us = 0;
	size_t reserved = 0, live = 0;
};

static figures sum_up(const run &run, const std::vector<worker> &workers)
{
	const enum kind kind = run.what->kind;
	double wall = 0, calls = 0, pairs = 0;
	figures found;

	for (const worker &worker : workers) {
		bool counts = kind != kind::handed_on || worker.index % 2;

		wall += counts ? worker.wall : 0;
		pairs += counts ? (double)worker.pairs : 0;
		calls += (double)worker.calls / ticks_per_ns;
		for (const block &block : worker.live)
			found.live += block.ptr ? block.bytes : 0;
	}
	pairs = std::max(pairs, 1.0);
	found.round_us = wall / pairs / 1000;
	if (kind == kind::pairs || kind == kind::handed_on)
		found.ns = wall / pairs;
	else /* with mixed sizes both calls stand between two readings */
		found.ns = calls / pairs - (kind == kind::kernels ? 2 : 1) * tick_cost;
	return found;
}

static figures run_once(const contender &allocator, const workload &what, int threads,
			int ms)
{
	std::vector<worker> workers(threads);
	std::vector<std::thread> ids;
	run run;
	figures found;

	run.allocator = &allocator, run.what = &what, run.threads = threads;
	pthread_barrier_init(&run.barrier, nullptr, threads + 1);
	for (int i = 0; what.kind == kind::handed_on && i < threads / 2; i++)
		run.rings.push_back(std::make_unique<ring>());
	for (int i = 0; i < threads; i++) {
		workers[i].run = &run, workers[i].index = i, workers[i].random = 1 + i;
		ids.emplace_back(work, std::ref(workers[i]));
	}
	std::this_thread::sleep_for(std::chrono::milliseconds(ms / 3 + 1));
	run.warm = true;
	pthread_barrier_wait(&run.barrier);
	std::this_thread::sleep_for(std::chrono::milliseconds(ms));
	run.stop = true;
	pthread_barrier_wait(&run.barrier);
	found = sum_up(run, workers);
	found.reserved = allocator.peer->reserved ? allocator.peer->reserved() : 0;
	pthread_barrier_wait(&run.barrier);
	pthread_barrier_wait(&run.barrier);
	for (std::thread &id : ids)
		id.join();
	pthread_barrier_destroy(&run.barrier);
	return found;
}

/* --- the table -------------------------------------------------------------------- */

using runs = std::array<std::vector<figures>, COUNTS>;

static double median(std::vector<double> values)
{
	std::sort(values.begin(), values.end());
	return values[values.size() / 2];
}

static std::vector<std::string> dishonest; /* what went another way than it says */

/* Ours went to the library, and no other allocator's did. */
static void check_path(const contender &allocator, uint64_t before)
{
	uint64_t after = peers_library_allocations();

	if ((after != before) != allocator.ours) {
		dishonest.push_back(std::string(allocator.peer->name) + ": " +
				    std::to_string(after - before) +
				    " allocations went through the library");
	}
}

static void print_row(const workload &what, const contender &allocator,
		      const runs &found)
{
	bool flight = what.kind == kind::kernels || what.kind == kind::mixed_kernels;
	size_t reserved = 0, live = 0;

	printf("| %s | %s |", what.name, allocator.peer->name);
	for (const auto &repeats : found) {
		std::vector<double> ns, round;

		for (const figures &one : repeats) {
			ns.push_back(one.ns);
			round.push_back(one.round_us);
			if (one.reserved >= reserved)
				reserved = one.reserved, live = one.live;
		}
		printf(" %.0f", median(ns));
		if (flight)
			printf(" (%.1f us)", median(round));
		printf(" |");
	}
	if (!allocator.peer->reserved)
		printf(" |\n");
	else if (what.kind == kind::mixed || what.kind == kind::mixed_kernels)
		printf(" %zu (%zu live) |\n", reserved >> 20, live >> 20);
	else
		printf(" %zu |\n", reserved >> 20);
}

static void compare(const workload &what, int repeats, int ms)
{
	std::vector<runs> found(contenders.size());

	for (int repeat = 0; repeat < repeats; repeat++)
		for (size_t i = 0; i < contenders.size(); i++) {
			uint64_t before = peers_library_allocations();

			for (int t = 0; t < COUNTS; t++) {
				int threads = thread_counts[t];

				if (what.kind == kind::handed_on && threads == 1)
					threads = 2;
				found[i][t].push_back(
				    run_once(contenders[i], what, threads, ms));
			}
			check_path(contenders[i], before);
			if (contenders[i].peer->reset)
				contenders[i].peer->reset();
		}
	for (size_t i = 0; i < contenders.size(); i++)
		print_row(what, contenders[i], found[i]);
	fflush(stdout);
}

static void open_others(int argc, char **argv)
{
	for (int i = 2; i < argc; i++) {
		const struct peer *(*open)(const struct peers_cuda *);
		void *library;

		if (argv[i][0] == '-')
			continue;
		library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
		if (!library) {
			printf("%s\n\n", dlerror());
			continue;
		}
		*(void **)&open = dlsym(library, "peer_open");
		contenders.push_back(
		    {open(contenders[0].cuda), contenders[0].cuda, false});
	}
}

static void open_plain(const char *path)
{
	const struct peers_cuda *(*cuda)(void);
	const struct peer *(*peers)(void);
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);

	if (!library) {
		fprintf(stderr, "peers: %s\n", dlerror());
		exit(2);
	}
	*(void **)&cuda = dlsym(library, "peers_cuda");
	*(void **)&peers = dlsym(library, "peers_of_cuda");
	must(cuda()->start(), "no device");
	for (const struct peer *peer = peers(); peer->name; peer++)
		contenders.push_back({peer, cuda(), false});
}

int main(int argc, char **argv)
{
	bool quick = false;

	for (int i = 1; i < argc; i++)
		quick = quick || strcmp(argv[i], "--quick") == 0;
	if (argc < 2) {
		fprintf(stderr,
			"usage: peers peers-plain.so [--quick] [peers-*.so ...]\n");
		return 2;
	}
	ticks_measure();
	must(peers_cuda()->start(), "no device");
	if (!peers_library_cudart())
		printf("libgcpool, shared cudart: not here\n\n");
	open_plain(argv[1]);
	open_others(argc, argv);
	for (const struct peer *peer = peers_of_library(); peer->name; peer++)
		contenders.push_back({peer, peers_cuda(), true});
	if (!contenders.back().ours)
		printf("libgcpool: not preloaded\n\n");
	printf(
	    "| sizes | allocator | 1 thread | 4 threads | 16 threads | MiB reserved |\n"
	    "|---|---|---|---|---|---|\n");
	for (const workload &what : workloads)
		compare(what, quick ? 3 : 5, quick ? 20 : 35);
	for (const std::string &words : dishonest)
		printf("\n%s\n", words.c_str());
	return dishonest.empty() ? 0 : 1;
}
