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
 * Options and exit code: workers.h.
 *
 * Styles: static shared linked dlsym ptsz
 * Tried: everywhere
 * Run: trial.py @ --threads 3 --streams 3 --rounds 150 --max 64k GCPSIM_SPEED=random
 * Once: segments: schedules.py @ --threads 3 --streams 3 --rounds 150 --max 64k
 */
#include "touch.h"
#include "workers.h"

/* A buffer on the device for each stream, bytes_max long. */
static void *device(const struct worker *w, unsigned stream)
{
	return w->held[stream].p;
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
	GCPT_OK(gcpt_copy_async(device(w, i), p, words * 4, w->streams[i]));
	give_back(w, p, gcpt_free_host);
	GCPT_OK(gcpt_launch_check(k, w->streams[i], device(w, i), words, value,
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
	GCPT_OK(gcpt_launch_fill_slow(k, w->streams[i], device(w, i), words, 0xbad,
				      pick(w, w->set->work_ns + 1)));
	GCPT_OK(gcpt_copy_async(p, device(w, i), words * 4, w->streams[i]));
	give_back(w, p, gcpt_free_host);
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
	GCPT_OK(gcpt_launch_fill(k, w->streams[i], device(w, i), words, value));
	GCPT_OK(gcpt_copy_async(p, device(w, i), words * 4, w->streams[i]));
	GCPT_OK(gcpt_stream_sync(w->streams[i]));
	gcpt_host_reads(p, words * 4);
	for (size_t n = 0; n < words; n++)
		w->wrong += p[n] != value;
	give_back(w, p, gcpt_free_host);
}

static void *worker_run(void *arg)
{
	struct worker *w = arg;

	worker_open(w);
	for (unsigned i = 0; i < w->set->streams; i++)
		GCPT_OK(gcpt_malloc(&w->held[i].p, w->set->bytes_max));
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
		GCPT_OK(gcpt_stream_sync(w->streams[i]), gcpt_free(w->held[i].p));
	worker_close(w);
	return NULL;
}

int main(int argc, char **argv)
{
	return workers_main(argc, argv, "staging", 1 << 20, worker_run, gcpt_free_host);
}
