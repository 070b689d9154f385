/* SPDX-License-Identifier: MIT */
/*
 * stress.c - threads x streams that allocate, fill, check and free at once,
 * with the work still pending.
 *
 * Plain CUDA makes this correct because cudaFree waits for the device. An
 * allocator that hands a block out again too early lets two streams write into
 * it together, and a check finds words that are not its own.
 *
 *   --threads N --streams N (each thread) --rounds N (each thread)
 *   --max BYTES    largest block
 *   --work NS      longest time that a kernel waits before it touches memory
 *   --keep N       blocks that each thread holds on to and checks later
 *   --seed N
 *   --async        stream-ordered memory, freed in the stream that has used it
 *
 * Exit code: 0 no wrong word, 1 wrong words, 2 an error of CUDA.
 *
 * Styles: static shared linked dlsym ptsz
 * Tried: everywhere
 * Run: schedules.py @ --threads 3 --streams 3 --rounds 100 --max 256k --keep 8
 * Run: trial.py @ --threads 3 --streams 3 --rounds 120 --max 256k --async GCPSIM_SEED=6
 * Run: mapped: schedules.py mapped @ --threads 3 --streams 3 --rounds 300 --max 32m
 * --keep 16
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "api.h"
#include "kernels.h"
#include "util.h"

enum { STREAMS_MAX = 64, KEEP_MAX = 256 };

struct setting {
	unsigned threads, streams, rounds, keep;
	uint64_t bytes_max, work_ns, seed;
	bool async;
	struct gcpt_kernels kernels;
};

struct held {
	void *p;
	size_t words;
	uint32_t value;
};

struct worker {
	pthread_t thread;
	const struct setting *set;
	unsigned number;
	uint64_t random;
	CUstream streams[STREAMS_MAX];
	struct held held[KEEP_MAX];
	void *counter;            /* device: wrong words of this thread */
	unsigned long long wrong; /* its value at the end */
};

/* A block on its way to a thread that did not allocate it. */
static _Atomic(void *) parcel;

static uint64_t pick(struct worker *w, uint64_t below)
{
	return gcpt_random(&w->random) % below;
}

static CUstream pick_stream(struct worker *w)
{
	return w->streams[pick(w, w->set->streams)];
}

static void *taken(struct worker *w, uint64_t bytes, CUstream stream)
{
	void *p;

	if (w->set->async)
		GCPT_OK(gcpt_malloc_async(&p, bytes, stream));
	else
		GCPT_OK(gcpt_malloc(&p, bytes));
	return p;
}

/* Mostly from the allocating thread, sometimes from another. */
static void release(struct worker *w, void *p, CUstream stream)
{
	void *other;

	if (w->set->async) {
		GCPT_OK(gcpt_free_async(p, stream));
		return;
	}
	if (pick(w, 8)) {
		GCPT_OK(gcpt_free(p));
		return;
	}
	other = atomic_exchange(&parcel, p);
	if (other)
		GCPT_OK(gcpt_free(other));
}

/* Allocates, fills, checks, frees: nothing waits for the device. */
static void round_once(struct worker *w)
{
	const struct gcpt_kernels *k = &w->set->kernels;
	uint64_t bytes = gcpt_random_size(&w->random, 4, w->set->bytes_max);
	uint32_t value = (uint32_t)gcpt_random(&w->random);
	CUstream stream = pick_stream(w);
	size_t words = bytes / 4;
	void *p = taken(w, bytes, stream);

	GCPT_OK(gcpt_launch_fill_slow(k, stream, p, words, value,
				      pick(w, w->set->work_ns + 1)));
	if (pick(w, 2))
		GCPT_OK(gcpt_launch_check(k, stream, p, words, value, w->counter));
	else
		GCPT_OK(gcpt_launch_check_slow(k, stream, p, words, value, w->counter,
					       pick(w, w->set->work_ns + 1)));
	release(w, p, stream);
}

/* Like round_once with a copy in between: two blocks, two kinds of work. */
static void round_copy(struct worker *w)
{
	const struct gcpt_kernels *k = &w->set->kernels;
	uint64_t bytes = gcpt_random_size(&w->random, 4, w->set->bytes_max / 2);
	uint32_t value = (uint32_t)gcpt_random(&w->random);
	CUstream stream = pick_stream(w);
	size_t words = bytes / 4;
	void *from = taken(w, bytes, stream), *to;

	GCPT_OK(gcpt_launch_fill(k, stream, from, words, value));
	to = taken(w, bytes, stream);
	if (pick(w, 2))
		GCPT_OK(gcpt_copy_async(to, from, words * 4, stream));
	else
		GCPT_OK(gcpt_launch_copy(k, stream, to, from, words));
	release(w, from, stream);
	GCPT_OK(gcpt_launch_check(k, stream, to, words, value, w->counter));
	release(w, to, stream);
}

/* A block that stays: a write of another owner is found when it is checked. */
static void round_keep(struct worker *w)
{
	const struct gcpt_kernels *k = &w->set->kernels;
	struct held *h = &w->held[pick(w, w->set->keep)];
	uint64_t bytes = gcpt_random_size(&w->random, 4, w->set->bytes_max);
	CUstream stream = w->streams[0]; /* one stream: its order is enough */

	if (h->p) {
		GCPT_OK(
		    gcpt_launch_check(k, stream, h->p, h->words, h->value, w->counter));
		release(w, h->p, stream);
	}
	h->words = bytes / 4;
	h->value = (uint32_t)gcpt_random(&w->random);
	h->p = taken(w, bytes, stream);
	GCPT_OK(gcpt_launch_fill(k, stream, h->p, h->words, h->value));
}

static void worker_finish(struct worker *w)
{
	for (unsigned i = 0; i < w->set->keep; i++) {
		struct held *h = &w->held[i];

		if (!h->p)
			continue;
		GCPT_OK(gcpt_launch_check(&w->set->kernels, w->streams[0], h->p,
					  h->words, h->value, w->counter));
		release(w, h->p, w->streams[0]);
	}
	for (unsigned i = 0; i < w->set->streams; i++) {
		GCPT_OK(gcpt_stream_sync(w->streams[i]));
		GCPT_OK(gcpt_stream_destroy(w->streams[i]));
	}
	GCPT_OK(gcpt_copy(&w->wrong, w->counter, sizeof(w->wrong)));
	GCPT_OK(gcpt_free(w->counter));
}

static void *worker_run(void *arg)
{
	struct worker *w = arg;

	GCPT_OK(gcpt_use(0));
	for (unsigned i = 0; i < w->set->streams; i++)
		GCPT_OK(gcpt_stream_create(&w->streams[i]));
	GCPT_OK(gcpt_malloc(&w->counter, sizeof(w->wrong)));
	GCPT_OK(gcpt_copy(w->counter, &w->wrong, sizeof(w->wrong)));
	for (unsigned i = 0; i < w->set->rounds; i++) {
		uint64_t kind = pick(w, 16);

		if (kind < 2 && w->set->keep)
			round_keep(w);
		else if (kind < 5)
			round_copy(w);
		else
			round_once(w);
	}
	worker_finish(w);
	return NULL;
}

static unsigned long long run_all(const struct setting *set)
{
	struct worker *workers = calloc(set->threads, sizeof(*workers));
	unsigned long long wrong = 0;
	void *last;

	if (!workers)
		exit(2);
	for (unsigned i = 0; i < set->threads; i++) {
		workers[i].set = set;
		workers[i].number = i;
		workers[i].random = set->seed * 1000 + i;
		if (pthread_create(&workers[i].thread, NULL, worker_run, &workers[i]))
			exit(2);
	}
	for (unsigned i = 0; i < set->threads; i++) {
		pthread_join(workers[i].thread, NULL);
		wrong += workers[i].wrong;
	}
	last = atomic_exchange(&parcel, NULL);
	if (last)
		GCPT_OK(gcpt_free(last));
	GCPT_OK(gcpt_sync());
	free(workers);
	return wrong;
}

int main(int argc, char **argv)
{
	struct setting set = {
	    .threads = (unsigned)gcpt_arg(argc, argv, "--threads", 4),
	    .streams = (unsigned)gcpt_arg(argc, argv, "--streams", 4),
	    .rounds = (unsigned)gcpt_arg(argc, argv, "--rounds", 500),
	    .keep = (unsigned)gcpt_arg(argc, argv, "--keep", 16),
	    .bytes_max = gcpt_arg(argc, argv, "--max", 4 << 20),
	    .work_ns = gcpt_arg(argc, argv, "--work", 20000),
	    .seed = gcpt_arg(argc, argv, "--seed", 1),
	    .async = gcpt_flag(argc, argv, "--async"),
	};
	unsigned long long wrong;

	if (!set.threads || !set.streams || set.streams > STREAMS_MAX ||
	    set.keep > KEEP_MAX || set.bytes_max < 64) {
		fprintf(stderr, "stress: an argument is out of bounds\n");
		return 2;
	}
	GCPT_OK(gcpt_use(0), gcpt_kernels_load(&set.kernels));
	wrong = run_all(&set);
	printf("stress: %u threads x %u streams x %u rounds: wrong words: %llu\n",
	       set.threads, set.streams, set.rounds, wrong);
	return wrong ? 1 : 0;
}
