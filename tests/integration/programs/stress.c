/* SPDX-License-Identifier: MIT */
/*
 * stress.c - threads x streams that allocate, fill, check and free at once,
 * with the work still pending.
 *
 * Plain CUDA makes this correct because cudaFree waits for the device. An
 * allocator that hands a block out again too early lets two streams write into
 * it together, and a check finds words that are not its own.
 *
 * Options and exit code: workers.h.
 *
 * Styles: static shared linked dlsym ptsz
 * Tried: everywhere
 * Run: trial.py @ --threads 3 --streams 3 --rounds 120 --max 256k --async GCPSIM_SEED=6
 * Run: trial.py @ --threads 3 --rounds 100 --max 256k --keep 8 GCPSIM_SPEED=random
 * Once: schedules.py @ --threads 3 --streams 3 --rounds 100 --max 256k --keep 8
 * Once: mapped: schedules.py mapped @ --threads 3 --streams 3 --rounds 300 --max 32m
 * --keep 16
 */
#include "workers.h"

static void *taken(struct worker *w, uint64_t bytes, CUstream stream)
{
	void *p;

	if (w->set->async)
		GCPT_OK(gcpt_malloc_async(&p, bytes, stream));
	else
		GCPT_OK(gcpt_malloc(&p, bytes));
	return p;
}

static void release(struct worker *w, void *p, CUstream stream)
{
	if (w->set->async)
		GCPT_OK(gcpt_free_async(p, stream));
	else
		give_back(w, p, gcpt_free);
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

static void held_end(struct worker *w, struct held *h)
{
	GCPT_OK(gcpt_launch_check(&w->set->kernels, w->streams[0], h->p, h->words,
				  h->value, w->counter));
	release(w, h->p, w->streams[0]);
}

/* A block that stays: a write of another owner is found when it is checked. */
static void round_keep(struct worker *w)
{
	const struct gcpt_kernels *k = &w->set->kernels;
	struct held *h = &w->held[pick(w, w->set->keep)];
	uint64_t bytes = gcpt_random_size(&w->random, 4, w->set->bytes_max);
	CUstream stream = w->streams[0]; /* one stream: its order is enough */

	if (h->p)
		held_end(w, h);
	h->words = bytes / 4;
	h->value = (uint32_t)gcpt_random(&w->random);
	h->p = taken(w, bytes, stream);
	GCPT_OK(gcpt_launch_fill(k, stream, h->p, h->words, h->value));
}

static void *worker_run(void *arg)
{
	struct worker *w = arg;

	worker_open(w);
	for (unsigned i = 0; i < w->set->rounds; i++) {
		uint64_t kind = pick(w, 16);

		if (kind < 2 && w->set->keep)
			round_keep(w);
		else if (kind < 5)
			round_copy(w);
		else
			round_once(w);
	}
	for (unsigned i = 0; i < w->set->keep; i++)
		if (w->held[i].p)
			held_end(w, &w->held[i]);
	worker_close(w);
	return NULL;
}

int main(int argc, char **argv)
{
	return workers_main(argc, argv, "stress", 4 << 20, worker_run, gcpt_free);
}
