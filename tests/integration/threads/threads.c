/* SPDX-License-Identifier: MIT */
/*
 * threads.c - everything at once, by real threads in no set turn: a
 * program that is correct on plain CUDA but for what it captures, to be run under a
 * library and a simulated driver that were built with ThreadSanitizer.
 *
 * Each thread draws from its own seed: allocations, work and frees on its streams;
 * blocks handed over, with an event, to another thread that uses and frees them;
 * pinned memory that is written, copied and freed at once;
 * captures of its own (thread-local or relaxed, forked or not), whose graphs it
 * launches; trims, statistics, questions about addresses. Threads end and others
 * begin. Another thread makes contexts of its own and destroys them.
 *
 *   --threads N --rounds N (each life of a thread) --lives N --seed N
 *
 * Exit code: 0 no wrong word, 1 wrong words, 2 an error of CUDA.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "api.h"
#include "kernels.h"
#include "pool.h"
#include "util.h"

enum { STREAMS = 2, KEPT = 8, SLOTS = 8, THREADS_MAX = 64, LINKS = 3, REPLAYS = 3 };

/* A block on its way to another thread; `used` stands behind all work on it. */
struct parcel {
	void *p;
	size_t words;
	uint32_t value;
	CUevent used;
};

struct worker {
	pthread_t thread;
	const struct gcpt_kernels *kernels;
	uint64_t random;
	unsigned rounds;
	CUstream streams[STREAMS];
	struct parcel kept[KEPT];
	void *counter;
	unsigned long long wrong;
};

static _Atomic(struct parcel *) slots[SLOTS];
static atomic_ullong wrong_words;
static atomic_bool stop;

static uint64_t pick(struct worker *w, uint64_t below)
{
	return gcpt_random(&w->random) % below;
}

static size_t pick_words(struct worker *w)
{
	return gcpt_random_size(&w->random, 4, pick(w, 8) ? 64 << 10 : 3 << 20) / 4;
}

/* --- memory --------------------------------------------------------------------- */

static void fill(struct worker *w, struct parcel *block, CUstream stream)
{
	block->words = pick_words(w);
	block->value = (uint32_t)gcpt_random(&w->random);
	GCPT_OK(gcpt_malloc(&block->p, block->words * 4));
	GCPT_OK(
	    gcpt_launch_fill(w->kernels, stream, block->p, block->words, block->value));
}

static void check(struct worker *w, const struct parcel *block, CUstream stream)
{
	GCPT_OK(gcpt_launch_check(w->kernels, stream, block->p, block->words,
				  block->value, w->counter));
}

static void round_once(struct worker *w)
{
	CUstream stream = w->streams[pick(w, STREAMS)];
	struct parcel block;

	fill(w, &block, stream);
	check(w, &block, stream);
	GCPT_OK(gcpt_free(block.p));
}

static void round_keep(struct worker *w)
{
	struct parcel *kept = &w->kept[pick(w, KEPT)];

	if (kept->p) {
		check(w, kept, w->streams[0]);
		GCPT_OK(gcpt_free(kept->p));
	}
	fill(w, kept, w->streams[0]);
}

/* The thread that gets it waits for the event on a stream of its own, uses the block
 * and frees it. */
static void parcel_open(struct worker *w, struct parcel *parcel)
{
	CUstream stream = w->streams[1];

	GCPT_OK(cu.cuStreamWaitEvent(stream, parcel->used, 0));
	check(w, parcel, stream);
	GCPT_OK(gcpt_free(parcel->p), cu.cuEventDestroy(parcel->used));
	free(parcel);
}

static void round_parcel(struct worker *w)
{
	struct parcel *parcel = calloc(1, sizeof(*parcel)), *other;

	if (!parcel)
		exit(2);
	fill(w, parcel, w->streams[0]);
	GCPT_OK(cu.cuEventCreate(&parcel->used, CU_EVENT_DISABLE_TIMING));
	GCPT_OK(cu.cuEventRecord(parcel->used, w->streams[0]));
	other = atomic_exchange(&slots[pick(w, SLOTS)], parcel);
	if (other)
		parcel_open(w, other);
}

/* --- pinned memory --------------------------------------------------------------- */

/* The CPU writes, the device copies, and the block is freed at once. */
static void round_stage(struct worker *w)
{
	CUstream stream = w->streams[pick(w, STREAMS)];
	struct parcel block = {.words = pick_words(w),
			       .value = (uint32_t)gcpt_random(&w->random)};
	uint32_t *staged;
	void *p;

	GCPT_OK(gcpt_malloc_host(&p, block.words * 4));
	staged = p;
	for (size_t i = 0; i < block.words; i++)
		staged[i] = block.value;
	GCPT_OK(gcpt_malloc(&block.p, block.words * 4));
	GCPT_OK(gcpt_copy_async(block.p, staged, block.words * 4, stream));
	GCPT_OK(gcpt_free_host(p));
	check(w, &block, stream);
	GCPT_OK(gcpt_free(block.p));
}

/* --- captures ------------------------------------------------------------------- */

static void capture_body(struct worker *w, CUstream side, CUevent fork, CUevent join)
{
	struct parcel block, other;

	for (int i = 0; i < LINKS; i++) {
		fill(w, &block, w->streams[0]);
		if (side) {
			GCPT_OK(cu.cuEventRecord(fork, w->streams[0]));
			GCPT_OK(cu.cuStreamWaitEvent(side, fork, 0));
			fill(w, &other, side);
			check(w, &other, side);
			GCPT_OK(gcpt_free(other.p), cu.cuEventRecord(join, side));
			GCPT_OK(cu.cuStreamWaitEvent(w->streams[0], join, 0));
		}
		check(w, &block, w->streams[0]);
		GCPT_OK(gcpt_free(block.p));
	}
}

static void round_capture(struct worker *w)
{
	CUstreamCaptureMode mode = pick(w, 2) ? CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
					      : CU_STREAM_CAPTURE_MODE_RELAXED;
	CUevent fork, join;
	CUgraphExec exec;
	CUgraph graph;

	GCPT_OK(cu.cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
	GCPT_OK(cu.cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
	GCPT_OK(gcpt_capture_begin(w->streams[0], mode));
	capture_body(w, pick(w, 2) ? w->streams[1] : NULL, fork, join);
	GCPT_OK(gcpt_capture_end(w->streams[0], &graph));
	GCPT_OK(gcpt_instantiate(&exec, graph), cu.cuGraphDestroy(graph));
	for (int i = 0; i < REPLAYS; i++) {
		GCPT_OK(gcpt_graph_launch(exec, w->streams[pick(w, STREAMS)]));
		GCPT_OK(gcpt_stream_sync(w->streams[0]));
		GCPT_OK(gcpt_stream_sync(w->streams[1]));
	}
	GCPT_OK(cu.cuGraphExecDestroy(exec), cu.cuEventDestroy(fork));
	GCPT_OK(cu.cuEventDestroy(join));
}

/* --- questions ------------------------------------------------------------------ */

static void round_ask(struct worker *w)
{
	struct parcel *kept = &w->kept[pick(w, KEPT)];
	struct gcpool_stats stats;
	size_t available, total;
	CUdeviceptr base;
	uint64_t bytes;

	switch (pick(w, 4)) {
	case 0:
		gcpt_pool_stats(&stats);
		break;
	case 1:
		gcpt_pool_trim(&bytes);
		break;
	case 2:
		GCPT_OK(gcpt_mem_info(&available, &total));
		break;
	default:
		if (!kept->p)
			break;
		GCPT_OK(cu.cuMemGetAddressRange(&base, &total,
						(CUdeviceptr)(uintptr_t)kept->p));
		if (base != (CUdeviceptr)(uintptr_t)kept->p)
			atomic_fetch_add(&wrong_words, 1);
	}
}

/* --- threads -------------------------------------------------------------------- */

static void worker_finish(struct worker *w)
{
	for (int i = 0; i < KEPT; i++) {
		if (!w->kept[i].p)
			continue;
		check(w, &w->kept[i], w->streams[0]);
		GCPT_OK(gcpt_free(w->kept[i].p));
	}
	for (int i = 0; i < STREAMS; i++)
		GCPT_OK(gcpt_stream_sync(w->streams[i]));
	GCPT_OK(gcpt_copy(&w->wrong, w->counter, sizeof(w->wrong)));
	atomic_fetch_add(&wrong_words, w->wrong);
	GCPT_OK(gcpt_free(w->counter));
	for (int i = 0; i < STREAMS; i++)
		GCPT_OK(gcpt_stream_destroy(w->streams[i]));
}

static void *worker_run(void *arg)
{
	struct worker *w = arg;

	GCPT_OK(gcpt_use(0));
	for (int i = 0; i < STREAMS; i++)
		GCPT_OK(gcpt_stream_create(&w->streams[i]));
	GCPT_OK(gcpt_malloc(&w->counter, sizeof(w->wrong)));
	GCPT_OK(gcpt_copy(w->counter, &w->wrong, sizeof(w->wrong)));
	for (unsigned i = 0; i < w->rounds; i++) {
		uint64_t kind = pick(w, 36);

		if (kind < 14)
			round_once(w);
		else if (kind < 19)
			round_keep(w);
		else if (kind < 25)
			round_parcel(w);
		else if (kind < 30)
			round_capture(w);
		else if (kind < 32)
			round_ask(w);
		else
			round_stage(w);
	}
	worker_finish(w);
	return NULL;
}

/* Contexts come and go beside all that, with their blocks in them. */
static void *contexts_run(void *arg)
{
	CUcontext ctx, ignored;
	void *p[4];

	(void)arg;
	GCPT_OK(gcpt_use(0));
	for (unsigned turn = 0; cu.cuCtxCreate && !atomic_load(&stop); turn++) {
		GCPT_OK(cu.cuCtxCreate(&ctx, NULL, 0, 0));
		for (int i = 0; i < 4 && turn % 4 == 0; i++)
			GCPT_OK(gcpt_malloc(&p[i], 1000u << 3 * i));
		for (int i = 0; i < 2 && turn % 4 == 0; i++)
			GCPT_OK(gcpt_free(p[i]));
		GCPT_OK(cu.cuCtxDestroy(ctx));
		cu.cuCtxPopCurrent(&ignored);
		GCPT_OK(gcpt_use(0));
	}
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned threads = (unsigned)gcpt_arg(argc, argv, "--threads", 4);
	unsigned lives = (unsigned)gcpt_arg(argc, argv, "--lives", 4);
	static struct worker workers[THREADS_MAX];
	struct gcpt_kernels kernels;
	pthread_t contexts;

	if (threads > THREADS_MAX)
		return 2;
	GCPT_OK(gcpt_use(0), gcpt_kernels_load(&kernels));
	pthread_create(&contexts, NULL, contexts_run, NULL);
	for (unsigned life = 0; life < lives; life++) {
		for (unsigned i = 0; i < threads; i++) {
			workers[i] = (struct worker){
			    .kernels = &kernels,
			    .random = gcpt_arg(argc, argv, "--seed", 1) * 1000 +
				      life * threads + i,
			    .rounds = (unsigned)gcpt_arg(argc, argv, "--rounds", 200),
			};
			pthread_create(&workers[i].thread, NULL, worker_run,
				       &workers[i]);
		}
		for (unsigned i = 0; i < threads; i++)
			pthread_join(workers[i].thread, NULL);
	}
	atomic_store(&stop, true);
	pthread_join(contexts, NULL);
	printf("threads: %u threads, %u lives: wrong words: %llu\n", threads, lives,
	       (unsigned long long)atomic_load(&wrong_words));
	return atomic_load(&wrong_words) ? 1 : 0;
}
