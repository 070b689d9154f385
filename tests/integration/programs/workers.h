/* SPDX-License-Identifier: MIT */
/*
 * workers.h - the threads of stress.c, staging.c and exchange.c: each draws from its
 * own seed, works on its own streams and counts the wrong words that its checks find.
 *
 *   --threads N --streams N (each thread) --rounds N (each thread)
 *   --max BYTES    largest block
 *   --work NS      longest time that the device works before it touches memory
 *   --keep N       blocks that each thread holds on to and checks later (stress.c)
 *   --seed N
 *   --async        stream-ordered memory, freed in the stream that has used it
 * (stress.c)
 *
 * Exit code: 0 no wrong word, 1 wrong words, 2 an error of CUDA.
 */
#ifndef GCPT_WORKERS_H
#define GCPT_WORKERS_H

#include <pthread.h>
#include <stdatomic.h>

#include "api.h"
#include "kernels.h"
#include "util.h"

enum { STREAMS_MAX = 64, KEEP_MAX = 256 };

struct setting {
	unsigned threads, streams, rounds, keep;
	uint64_t bytes_max, work_ns, seed;
	bool async;
	int device;
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
	uint64_t random;
	CUstream streams[STREAMS_MAX];
	struct held held[KEEP_MAX];
	void *counter;            /* device: wrong words of this thread */
	unsigned long long wrong; /* its value at the end, and what the CPU found */
};

/* A block on its way to a thread that did not allocate it. */
static _Atomic(void *) parcel;

static uint64_t pick(struct worker *w, uint64_t below)
{
	return gcpt_random(&w->random) % below;
}

static inline CUstream pick_stream(struct worker *w)
{
	return w->streams[pick(w, w->set->streams)];
}

/* Mostly from the allocating thread, sometimes from another. */
static void give_back(struct worker *w, void *p, int (*release)(void *))
{
	if (pick(w, 8) == 0)
		p = atomic_exchange(&parcel, p);
	if (p)
		GCPT_OK(release(p));
}

static void worker_open(struct worker *w)
{
	GCPT_OK(gcpt_use(w->set->device));
	for (unsigned i = 0; i < w->set->streams; i++)
		GCPT_OK(gcpt_stream_create(&w->streams[i]));
	GCPT_OK(gcpt_malloc(&w->counter, sizeof(w->wrong)));
	GCPT_OK(gcpt_copy(w->counter, &w->wrong, sizeof(w->wrong)));
}

static void worker_close(struct worker *w)
{
	unsigned long long wrong;

	GCPT_OK(gcpt_use(w->set->device));
	for (unsigned i = 0; i < w->set->streams; i++)
		GCPT_OK(gcpt_stream_sync(w->streams[i]));
	GCPT_OK(gcpt_copy(&wrong, w->counter, sizeof(wrong)));
	w->wrong += wrong;
	for (unsigned i = 0; i < w->set->streams; i++)
		GCPT_OK(gcpt_stream_destroy(w->streams[i]));
	GCPT_OK(gcpt_free(w->counter));
}

static unsigned long long run_all(const struct setting *set, void *(*run)(void *),
				  int (*release)(void *))
{
	struct worker *workers = calloc(set->threads, sizeof(*workers));
	unsigned long long wrong = 0;

	if (!workers)
		exit(2);
	for (unsigned i = 0; i < set->threads; i++) {
		workers[i].set = set;
		workers[i].random = set->seed * 1000 + i;
		if (pthread_create(&workers[i].thread, NULL, run, &workers[i]))
			exit(2);
	}
	for (unsigned i = 0; i < set->threads; i++) {
		pthread_join(workers[i].thread, NULL);
		wrong += workers[i].wrong;
	}
	if (parcel)
		GCPT_OK(release(parcel));
	GCPT_OK(gcpt_sync());
	free(workers);
	return wrong;
}

/* What main() does: `run` is a thread's function, `release` frees a parcel. */
static int workers_main(int argc, char **argv, const char *name, uint64_t bytes_max,
			void *(*run)(void *), int (*release)(void *))
{
	struct setting set = {
	    .threads = (unsigned)gcpt_arg(argc, argv, "--threads", 4),
	    .streams = (unsigned)gcpt_arg(argc, argv, "--streams", 4),
	    .rounds = (unsigned)gcpt_arg(argc, argv, "--rounds", 500),
	    .keep = (unsigned)gcpt_arg(argc, argv, "--keep", 16),
	    .bytes_max = gcpt_arg(argc, argv, "--max", bytes_max),
	    .work_ns = gcpt_arg(argc, argv, "--work", 20000),
	    .seed = gcpt_arg(argc, argv, "--seed", 1),
	    .async = gcpt_flag(argc, argv, "--async"),
	};
	unsigned long long wrong;

	if (!set.threads || !set.streams || set.streams > STREAMS_MAX ||
	    set.keep > KEEP_MAX || set.bytes_max < 64) {
		fprintf(stderr, "%s: an argument is out of bounds\n", name);
		return 2;
	}
	GCPT_OK(gcpt_use(0), gcpt_kernels_load(&set.kernels));
	wrong = run_all(&set, run, release);
	printf("%s: %u threads x %u streams x %u rounds: wrong words: %llu\n", name,
	       set.threads, set.streams, set.rounds, wrong);
	return wrong ? 1 : 0;
}

#endif
