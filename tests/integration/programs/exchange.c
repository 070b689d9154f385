/* SPDX-License-Identifier: MIT */
/*
 * exchange.c - threads that copy between two devices. The source is freed while the
 * copy may still run, and its memory is taken and written again; the destination is
 * checked behind the copy. Memory that is used again too early makes wrong words.
 *
 * Options and exit code: workers.h; --access: with peer access; 77: one device.
 *
 * Styles: static linked
 * Run: trial.py @ --threads 2 --rounds 200 --max 1m GCPSIM_DEVICES=2
 * GCPSIM_SPEED=random Run: mapped: trial.py @ --rounds 60 --access GCPSIM_DEVICES=2
 * GCPSIM_SPEED=random
 */
#include "workers.h"

/* What `to` gets from now on comes after what `from` has. The device of `from` is
 * current. */
static void order(CUstream from, CUstream to)
{
	CUevent event;

	GCPT_OK(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	GCPT_OK(cu.cuEventRecord(event, from), cu.cuStreamWaitEvent(to, event, 0));
	GCPT_OK(cu.cuEventDestroy(event));
}

/* The copy is made by either device. The check waits for it: frees do not. */
static void round_once(struct worker *from, struct worker *to)
{
	struct worker *on = pick(from, 2) ? from : to;
	CUstream fill = pick_stream(from), copy = pick_stream(on);
	CUstream check = pick_stream(to);
	uint32_t value = (uint32_t)gcpt_random(&from->random);
	size_t n = gcpt_random_size(&from->random, 4, from->set->bytes_max) / 4;
	void *p, *q;

	GCPT_OK(gcpt_use(to->set->device), gcpt_malloc(&q, n * 4));
	GCPT_OK(gcpt_use(from->set->device), gcpt_malloc(&p, n * 4));
	GCPT_OK(gcpt_launch_fill_slow(&from->set->kernels, fill, p, n, value,
				      pick(from, from->set->work_ns + 1)));
	order(fill, copy);
	GCPT_OK(gcpt_use(on->set->device), gcpt_copy_async(q, p, n * 4, copy));
	order(copy, check);
	give_back(from, p, gcpt_free);
	GCPT_OK(gcpt_use(from->set->device), gcpt_malloc(&p, n * 4));
	GCPT_OK(gcpt_launch_fill(&from->set->kernels, pick_stream(from), p, n, 99));
	give_back(from, p, gcpt_free);
	GCPT_OK(gcpt_use(to->set->device));
	GCPT_OK(gcpt_launch_check(&to->set->kernels, check, q, n, value, to->counter));
	give_back(to, q, gcpt_free);
}

static void *worker_run(void *arg)
{
	struct worker *w = arg;
	struct setting set = *w->set;
	struct worker there = {.set = &set, .random = ~w->random};

	set.device = 1;
	worker_open(&there);
	GCPT_OK(gcpt_kernels_load(&set.kernels));
	worker_open(w);
	for (unsigned i = 0; i < set.rounds; i++)
		round_once(i % 2 ? w : &there, i % 2 ? &there : w);
	worker_close(&there);
	worker_close(w);
	w->wrong += there.wrong;
	return NULL;
}

int main(int argc, char **argv)
{
	CUcontext ctx;
	int count;

	GCPT_OK(gcpt_use(0), gcpt_device_count(&count));
	if (count < 2)
		return 77;
	for (int i = 0; i < 2 && gcpt_flag(argc, argv, "--access"); i++) {
		GCPT_OK(gcpt_use(1 - i), cu.cuCtxGetCurrent(&ctx));
		GCPT_OK(gcpt_use(i), cu.cuCtxEnablePeerAccess(ctx, 0));
	}
	return workers_main(argc, argv, "exchange", 4 << 20, worker_run, gcpt_free);
}
