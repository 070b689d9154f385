/* SPDX-License-Identifier: MIT */
/*
 * staging.c - threads x streams that stage data through pinned host memory:
 * allocate, fill, copy to the device, free at once, with the copy still pending.
 *
 * Plain CUDA makes this correct because cudaFreeHost waits for the device. An
 * allocator that hands a pinned block out again too early lets the next owner's CPU
 * write into what a copy still reads: the device then checks words that are not its
 * own. Some rounds copy the other way and never look at what arrives, so that a copy
 * which comes too late writes into data of another owner.
 *
 *   --threads N --streams N (each thread) --rounds N (each thread)
 *   --max BYTES    largest block
 *   --work NS      longest time that the device works before a copy
 *   --seed N
 *
 * Exit code: 0 no wrong word, 1 wrong words, 2 an error of CUDA.
 *
 * Styles: static shared linked dlsym ptsz
 * Tried: everywhere
 * Run: segments: schedules.py @ --threads 3 --streams 3 --rounds 150 --max 64k
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "api.h"
#include "kernels.h"
#include "touch.h"
#include "util.h"

enum { STREAMS_MAX = 64 };

struct setting {
	unsigned threads, streams, rounds;
	uint64_t bytes_max, work_ns, seed;
	struct gcpt_kernels kernels;
};

struct worker {
	pthread_t thread;
	const struct setting *set;
	uint64_t random;
	CUstream streams[STREAMS_MAX];
	void *device[STREAMS_MAX]; /* a buffer for each stream, bytes_max long */
	void *counter;             /* device: wrong words of this thread */
	unsigned long long wrong;  /* its value at the end */
};

/* A block on its way to a thread that did not allocate it. */
static _Atomic(void *) parcel;

static uint64_t pick(struct worker *w, uint64_t below)
{
	return gcpt_random(&w->random) % below;
}

static void release(struct worker *w, void *p)
{
	void *other;

	if (pick(w, 8)) {
		GCPT_OK(gcpt_free_host(p));
		return;
	}
	other = atomic_exchange(&parcel, p);
	if (other)
		GCPT_OK(gcpt_free_host(other));
}

static void fill(uint32_t *p, size_t words, uint32_t value)
{
	gcpt_host_writes(p, words * 4);
	for (size_t i = 0; i < words; i++)
		p[i] = value;
}

static void round_once(struct worker *w)
{
	const struct gcpt_kernels *k = &w->set->kernels;
	unsigned i = (unsigned)pick(w, w->set->streams);
	uint64_t bytes = gcpt_random_size(&w->random, 4, w->set->bytes_max);
	uint32_t value = (uint32_t)gcpt_random(&w->random);
	size_t words = bytes / 4;
	void *p;

	GCPT_OK(gcpt_malloc_host(&p, bytes));
	fill(p, words, value);
	if (w->set->work_ns)
		GCPT_OK(gcpt_launch_spin(k, w->streams[i], pick(w, w->set->work_ns)));
	GCPT_OK(gcpt_copy_async(w->device[i], p, words * 4, w->streams[i]));
	release(w, p);
	GCPT_OK(gcpt_launch_check(k, w->streams[i], w->device[i], words, value,
				  w->counter));
}

/* Comes back from the device into a block that is freed before it arrives. */
static void round_back(struct worker *w)
{
	const struct gcpt_kernels *k = &w->set->kernels;
	unsigned i = (unsigned)pick(w, w->set->streams);
	uint64_t bytes = gcpt_random_size(&w->random, 4, w->set->bytes_max);
	size_t words = bytes / 4;
	void *p;

	GCPT_OK(gcpt_malloc_host(&p, bytes));
	GCPT_OK(gcpt_launch_fill_slow(k, w->streams[i], w->device[i], words, 0xbad,
				      pick(w, w->set->work_ns + 1)));
	GCPT_OK(gcpt_copy_async(p, w->device[i], words * 4, w->streams[i]));
	release(w, p);
}

/* Comes back, is waited for, and must be right. */
static void round_checked(struct worker *w)
{
	const struct gcpt_kernels *k = &w->set->kernels;
	unsigned i = (unsigned)pick(w, w->set->streams);
	uint64_t bytes = gcpt_random_size(&w->random, 4, w->set->bytes_max / 4);
	uint32_t value = (uint32_t)gcpt_random(&w->random);
	size_t words = bytes / 4;
	uint32_t *p;

	GCPT_OK(gcpt_malloc_host((void **)&p, bytes));
	GCPT_OK(gcpt_launch_fill(k, w->streams[i], w->device[i], words, value));
	GCPT_OK(gcpt_copy_async(p, w->device[i], words * 4, w->streams[i]));
	GCPT_OK(gcpt_stream_sync(w->streams[i]));
	gcpt_host_reads(p, words * 4);
	for (size_t n = 0; n < words; n++)
		w->wrong += p[n] != value;
	release(w, p);
}

static void worker_open(struct worker *w)
{
	GCPT_OK(gcpt_use(0));
	for (unsigned i = 0; i < w->set->streams; i++) {
		GCPT_OK(gcpt_stream_create(&w->streams[i]));
		GCPT_OK(gcpt_malloc(&w->device[i], w->set->bytes_max));
	}
	GCPT_OK(gcpt_malloc(&w->counter, sizeof(w->wrong)));
	GCPT_OK(gcpt_copy(w->counter, &w->wrong, sizeof(w->wrong)));
}

static void *worker_run(void *arg)
{
	struct worker *w = arg;
	unsigned long long wrong;

	worker_open(w);
	for (unsigned i = 0; i < w->set->rounds; i++) {
		uint64_t kind = pick(w, 16);

		if (kind < 3)
			round_back(w);
		else if (kind < 4)
			round_checked(w);
		else
			round_once(w);
	}
	for (unsigned i = 0; i < w->set->streams; i++)
		GCPT_OK(gcpt_stream_sync(w->streams[i]));
	GCPT_OK(gcpt_copy(&wrong, w->counter, sizeof(wrong)));
	w->wrong += wrong;
	for (unsigned i = 0; i < w->set->streams; i++) {
		GCPT_OK(gcpt_free(w->device[i]), gcpt_stream_destroy(w->streams[i]));
	}
	GCPT_OK(gcpt_free(w->counter));
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
		GCPT_OK(gcpt_free_host(last));
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
	    .bytes_max = gcpt_arg(argc, argv, "--max", 1 << 20),
	    .work_ns = gcpt_arg(argc, argv, "--work", 20000),
	    .seed = gcpt_arg(argc, argv, "--seed", 1),
	};
	unsigned long long wrong;

	if (!set.threads || !set.streams || set.streams > STREAMS_MAX ||
	    set.bytes_max < 64) {
		fprintf(stderr, "staging: an argument is out of bounds\n");
		return 2;
	}
	GCPT_OK(gcpt_use(0), gcpt_kernels_load(&set.kernels));
	wrong = run_all(&set);
	printf("staging: %u threads x %u streams x %u rounds: wrong words: %llu\n",
	       set.threads, set.streams, set.rounds, wrong);
	return wrong ? 1 : 0;
}
