/* SPDX-License-Identifier: MIT */
/*
 * promises.c - plays at the end of a history, each around one promise that a mixture of
 * operations hardly ever puts to the test: pinned memory at its quota and beside a
 * capture, a thread that ends by pthread_cancel, a capture that begins in a way the
 * library does not know, memory that is freed while another process has it open.
 */
#include "explore.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include "gcpool.h"

enum { LONG_NS = 1 << 30, SHORT_NS = 5000, SLOT = 0 };

/* The current context's own stream of the thread, and one that is made for a play. */
enum { STREAM_OWN = 1, STREAM_MADE = 3 };

/* A kernel that touches no memory. */
static void spin(struct thread *t, unsigned stream, uint64_t ns)
{
	struct op op = {.kind = OP_SPIN, .c = (uint8_t)stream, .bytes = ns};

	op_play(t, &op);
}

/* A live context but the current one; -1: there is none. */
static int context_other(const struct thread *t)
{
	const struct model *w = t->model;

	for (int i = 0; i < CONTEXTS_MAX; i++)
		if (w->contexts[i].live && i != t->context)
			return i;
	return -1;
}

/* --- pinned memory at its quota -------------------------------------------------- */

/* Half of the quota or more, and as large as the library takes for it. */
static uint64_t quota_filling(uint64_t quota)
{
	uint64_t bytes = 1;

	while (2 * bytes <= quota)
		bytes *= 2;
	return bytes;
}

/* One block that fills the quota is freed behind a short kernel, and then a long one
 * begins. The next block of that size has to wait for the short one alone; and one of
 * another context, for which the first would have to go back, for neither. */
static void pinned_full(struct thread *t, const struct op *op)
{
	struct model *w = t->model;
	uint64_t bytes = quota_filling(w->setting->host_quota);
	int mine = t->context, other = context_other(t);
	bool elsewhere = op->how & 1;

	if (!w->setting->host_quota || !all_is_calm(w) || w->setting->leak ||
	    w->setting->host_thread || (elsewhere && other < 0))
		return;
	pinned_end(t);
	context_use(t, elsewhere ? other : mine);
	if (!pinned_take(t, SLOT, bytes))
		return; /* rounded up it is too large */
	spin(t, STREAM_OWN, SHORT_NS);
	pinned_give(t, SLOT);
	spin(t, STREAM_OWN, LONG_NS);
	plain_waits_check(w);
	context_use(t, mine);
	if (pinned_take_beside(t, SLOT, bytes))
		pinned_give(t, SLOT);
}

enum { LIMIT_BLOCKS = 6, LIMIT_PART = 4, LIMIT_LEAST = 4096 };

/* More than the limit of unused memory is freed behind a long kernel: pinned_give looks
 * whether the limit holds. */
static void pinned_limit(struct thread *t)
{
	uint64_t limit = plain_option("GCPOOL_HOST_CACHE_LIMIT", UINT64_MAX);
	uint64_t bytes = LIMIT_LEAST + limit / LIMIT_PART;

	if (limit == UINT64_MAX || !all_is_calm(t->model) || t->model->setting->leak)
		return;
	pinned_end(t);
	for (unsigned i = 0; i < LIMIT_BLOCKS; i++)
		(void)pinned_take(t, i, bytes);
	spin(t, STREAM_OWN, LONG_NS);
	for (unsigned i = 0; i < LIMIT_BLOCKS; i++)
		pinned_give(t, i);
}

/* --- pinned memory beside a capture ---------------------------------------------- */

enum { BESIDE_TURNS = 120, WINDOW_MAX = 512 << 10, WINDOW_MIN = 4096 };

/* In two contexts by turns, in the one more than the window and in the other a
 * part of it: neither may keep more than its own window. */
static void pinned_beside(struct thread *t)
{
	struct model *w = t->model;
	uint64_t window = plain_option("GCPOOL_HOST_WINDOW", 0);
	uint64_t large = window + 1, small = window / 4, held = gcpsim_memory_used(-1);
	uint64_t bound = 2 * (2 * window + 2 * large + 2 * small);
	int mine = t->context, other = context_other(t);
	struct op make = {.kind = OP_STREAM_CREATE, .c = STREAM_MADE};
	struct op take = {.kind = OP_ALLOC, .a = SLOT, .bytes = 4096};
	struct op work = {.kind = OP_FILL, .a = SLOT, .c = STREAM_MADE};

	if (window < WINDOW_MIN || window > WINDOW_MAX || other < 0 || all_is_calm(w) ||
	    !may_be_unsafe(t) || w->setting->leak || w->setting->plain ||
	    w->setting->host_memory || w->setting->host_quota || pinned_is_slow())
		return;
	/* What it takes is not the capture's, which work on another stream says. */
	op_play(t, &make);
	op_play(t, &take);
	op_play(t, &work);
	if (capture_may_take(t))
		return;
	for (unsigned turn = 0; turn < BESIDE_TURNS; turn++) {
		context_use(t, turn & 1 ? mine : other);
		if (!w->pinned[SLOT] && pinned_take(t, SLOT, turn & 1 ? large : small))
			pinned_give(t, SLOT);
	}
	context_use(t, mine);
	if (gcpsim_memory_used(-1) > held + bound && !fault_excuses(w))
		failure(w,
			"beside a capture %lu bytes are pinned instead of %lu, and "
			"the bound is %lu more",
			gcpsim_memory_used(-1), held, bound);
}

/* --- a thread that is cancelled -------------------------------------------------- */

/* A thread that is cancelled. */
static struct {
	const struct model *model;
	CUcontext ctx;
	int device;
	CUresult result; /* of its first call that is no success */
	bool called;     /* all calls have come back */
	bool passed;     /* its block is CUDA's, which ends it where it waits */
} cancelled;

static void pauses(void *unused)
{
	(void)unused;
	usleep(1);
}

static bool went(CUresult result)
{
	if (cancelled.result == CUDA_SUCCESS)
		cancelled.result = result;
	return result == CUDA_SUCCESS;
}

/* The cancellation is pending while the library works, and while the driver waits in a
 * cancellation point for it. */
static void *cancelled_run(void *unused)
{
	uint64_t before = blocks_of_library(cancelled.model, cancelled.device);
	CUdeviceptr p = 0, more;
	CUstream stream;
	CUresult result;

	(void)unused;
	gcpsim_plain_asks(1);
	if (!went(cuCtxSetCurrent(cancelled.ctx)) ||
	    !went(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)))
		return NULL;
	result = cuMemAlloc(&p, 100000);
	if (result == CUDA_ERROR_OUT_OF_MEMORY || !went(result))
		return NULL;
	went(cuMemsetD8Async(p, 1, 100000, stream));
	went(cuLaunchHostFunc(stream, pauses, NULL));
	gcpsim_plain_waits(cancelled.ctx, false);
	cancelled.passed =
	    blocks_of_library(cancelled.model, cancelled.device) == before;
	cancelled.called = cancelled.passed;
	if (!cancelled.passed)
		pthread_cancel(pthread_self());
	if (!went(cuMemFree(p)))
		(void)cuMemFree(p);
	result = cuMemAlloc(&more, 1ull << 42);
	if (result != CUDA_ERROR_OUT_OF_MEMORY)
		went(result ? result : CUDA_ERROR_UNKNOWN);
	cancelled.called = true;
	pthread_testcancel();
	return NULL;
}

static void thread_cancel(struct thread *t)
{
	struct model *w = t->model;
	pthread_t thread;

	/* On plain CUDA the thread ends where the driver waits. */
	if (!all_is_calm(w) || w->setting->leak || w->setting->plain ||
	    w->setting->count || !library.active || !library.active())
		return;
	cancelled.model = w;
	cancelled.ctx = w->contexts[t->context].ctx;
	cancelled.device = w->contexts[t->context].device;
	cancelled.passed = false;
	cancelled.result = CUDA_SUCCESS;
	cancelled.called = true;
	if (pthread_create(&thread, NULL, cancelled_run, NULL) != 0)
		failure(w, "no thread for the explorer itself");
	pthread_join(thread, NULL);
	fine(w, cancelled.result, "what a thread that is cancelled calls");
	if (cancelled.passed && !w->setting->spill && !fault_excuses(w))
		failure(w, "a block is CUDA's that the library should have given");
	if (!cancelled.called)
		failure(w, "a thread that was cancelled has ended inside a call");
	w->frees++;
}

static void thread_play(struct thread *t, const struct op *op)
{
	thread_cancel(t);
	destroyed_play(t, op);
}

/* --- a capture that the library does not know --------------------------------- */

enum { REQUIRES_NEWER_DRIVER = 36 };
static bool unknown_begun; /* from here on the library leaves all to CUDA */

typedef CUresult begin_fn(double half, CUstream stream, CUstreamCaptureMode mode);

/* What the program frees meanwhile must not end it. From then on the library leaves all
 * to CUDA, and keeps for good what graphs hold: nothing comes after this. */
static void capture_unknown(struct thread *t)
{
	struct model *w = t->model;
	begin_fn *begin;
	CUstream stream;
	CUgraph graph;
	CUresult result;

	*(void **)&begin = dlsym(RTLD_DEFAULT, "cuStreamBeginCaptureInvented");
	if (!begin || !all_is_calm(w) || w->setting->leak || w->freed_on_streams ||
	    !FINE(t, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)))
		return;
	for (unsigned i = 0; i < BLOCK_SLOTS / 2; i++) {
		struct op take = {.kind = OP_ALLOC, .a = (uint8_t)i, .bytes = 1 << 20};

		op_play(t, &take);
	}
	/* Waits for other contexts, which frees may want, are refused meanwhile. */
	for (unsigned i = 0; i < BLOCK_SLOTS; i++)
		if (w->slots[i] && !order_free(t, w->slots[i]))
			return;
	w->left |= w->capture_numbers > 0;
	unknown_begun = true; /* also where the driver refuses */
	result = begin(0.5, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	if ((int)result == REQUIRES_NEWER_DRIVER)
		return;
	if (!fine(w, result, "an unknown way to begin a capture"))
		return;
	for (unsigned i = 0; i < BLOCK_SLOTS; i++)
		if (w->slots[i] && !w->slots[i]->async && !w->slots[i]->borrowed &&
		    block_free(t, w->slots[i]))
			w->slots[i] = NULL;
	if (FINE(t, cuStreamEndCapture(stream, &graph)))
		FINE(t, cuGraphDestroy(graph));
}

/* --- nothing is kept ---------------------------------------------------------- */

static uint64_t reserved(int device)
{
	struct gcpool_stats stats;

	return library.get_stats(device, &stats, sizeof(stats)) == 0
		   ? stats.reserved_bytes.current
		   : 0;
}

/* With a limit of 0 a free gives back what was taken for the block. */
void promises_end(struct thread *t)
{
	static const uint64_t sizes[] = {1000, 100000, 3 << 20};
	struct model *w = t->model;
	int device = w->contexts[t->context < 0 ? 0 : t->context].device;
	struct block *block;

	if (plain_option("GCPOOL_CACHE_LIMIT", 1) != 0 || unknown_begun ||
	    w->setting->leak || w->setting->plain || t->context < 0 ||
	    !library.active || !library.active())
		return;
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		uint64_t before = reserved(device);

		block = block_create(t, sizes[i]);
		if (!block || !block_free(t, block))
			return;
		if (reserved(device) > before)
			failure(w, "%lu bytes are kept for a block that was freed",
				(reserved(device) - before));
	}
}

void promises_play(struct thread *t, const struct op *op)
{
	if (op->kind == OP_PINNED_FULL && !t->model->setting->host_quota)
		pinned_limit(t);
	else if (op->kind == OP_PINNED_FULL)
		pinned_full(t, op);
	else if (op->kind == OP_PINNED_BESIDE)
		pinned_beside(t);
	else if (op->kind == OP_THREAD_CANCEL)
		thread_play(t, op);
	else
		capture_unknown(t);
}
