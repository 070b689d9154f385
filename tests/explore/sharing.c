/* SPDX-License-Identifier: MIT */
/*
 * sharing.c - graphs that may share memory: launches from several threads at the same
 * time, and how much is held by graphs that never run at the same time.
 */
#include "explore.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "gcpool.h"

enum { MIB = 1 << 20 };

/* --- several threads launch at the same time --------------------------------- */

enum { RACERS_MAX = 4, RACE_LAUNCHES = 12 };

struct racer {
	struct model *model;
	const struct context *context;
	struct exec *exec; /* NULL: allocates and gives back */
	CUstream stream;   /* of all, or NULL */
	pthread_t handle;
	bool started, left;
	unsigned launched; /* so often */
	const char *call;  /* that failed */
	CUresult result;
};

static bool went(struct racer *racer, CUresult result, const char *call)
{
	const struct fault *fault = racer->model->setting->fault;

	if (result == CUDA_SUCCESS)
		return true;
	if (!racer->call || (fault && (int)racer->result == fault->code)) {
		racer->call = call;
		racer->result = result;
	}
	return false;
}

/* Memory that a graph gave back may be given out, and a graph may want it again. */
static void allocate_meanwhile(struct racer *racer)
{
	for (unsigned i = 0; i < RACE_LAUNCHES && !racer->left; i++) {
		CUdeviceptr addr;

		if (i % 3 == 2 && library.trim)
			library.trim(racer->context->device, 0);
		if (cuMemAlloc(&addr, (1 + i % 3) * MIB) != CUDA_SUCCESS)
			continue;
		went(racer, cuMemsetD32Async(addr, i, MIB / 4, racer->stream), "fill");
		racer->left = !went(racer, cuMemFree(addr), "cuMemFree");
	}
}

static void *racer_run(void *data)
{
	struct racer *racer = data;
	CUstream own = racer->stream;

	gcpsim_plain_asks(1); /* no order says which of them waits for which */
	if (!went(racer, cuCtxSetCurrent(racer->context->ctx), "cuCtxSetCurrent") ||
	    (!own && !went(racer, cuStreamCreate(&own, CU_STREAM_NON_BLOCKING),
			   "cuStreamCreate")))
		return NULL;
	if (!racer->exec) {
		racer->stream = own;
		allocate_meanwhile(racer);
	}
	for (unsigned i = 0; racer->exec && i < RACE_LAUNCHES; i++)
		if (!went(racer, cuGraphLaunch(racer->exec->handle, own),
			  "cuGraphLaunch"))
			break;
		else
			racer->launched++;
	if (own && own != racer->stream)
		went(racer, cuStreamDestroy(own), "cuStreamDestroy");
	return NULL;
}

/* As many executables as may run at the same time. */
static unsigned racers_pick(struct thread *t, const struct op *op, struct racer *racers)
{
	struct model *w = t->model;
	unsigned count = 0;

	for (unsigned i = 0; i < EXEC_SLOTS && count < RACERS_MAX; i++) {
		struct exec *exec = &w->execs[(op->a + i) % EXEC_SLOTS];
		bool apart = exec->handle && exec->body->context == t->context &&
			     body_can_run(w, exec->body);

		for (unsigned j = 0; apart && j < count; j++)
			apart = bodies_are_apart(exec->body, racers[j].exec->body);
		if (apart)
			racers[count++].exec = exec;
	}
	return count;
}

/* All work so far is done, so that only they are in no order. */
static bool all_is_done(struct thread *t)
{
	for (int i = 0; i < CONTEXTS_MAX; i++)
		if (!host_wait_context(t, i))
			return false;
	return true;
}

static void race_run(struct racer *racers, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		racers[i].started =
		    pthread_create(&racers[i].handle, NULL, racer_run, &racers[i]) == 0;
		if (!racers[i].started)
			failure(racers[i].model, "no thread for the explorer itself");
	}
	for (unsigned i = 0; i < count; i++)
		pthread_join(racers[i].handle, NULL);
}

/* Their streams are gone, and no region knows of their launches: what follows relies on
 * this wait alone. If it is the call that fails, no other one does from here on. */
static void race_wait(struct thread *t)
{
	if (all_is_done(t))
		return;
	fault_disarm();
	if (!all_is_done(t))
		failure(t->model, "launches of several threads cannot be waited for");
}

/* Launches at the same time need memory for all of them at once. */
static uint64_t race_bytes(const struct racer *racers, unsigned execs)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < execs; i++)
		bytes += body_freed(racers[i].model, racers[i].exec->body);
	return bytes;
}

static void race(struct thread *t, const struct op *op)
{
	static struct racer racers[RACERS_MAX + 1];
	struct model *w = t->model;
	int context = t->context;
	CUstream common = NULL;
	unsigned count, execs;

	memset(racers, 0, sizeof(racers));
	execs = count = racers_pick(t, op, racers);
	if (execs < 2 || !all_is_calm(w) || w->setting->leak || !all_is_done(t))
		return;
	context_use(t, context);
	if (op->how & 1 && !FINE(t, cuStreamCreate(&common, CU_STREAM_NON_BLOCKING)))
		return;
	count += op->how >> 1 & 1;
	for (unsigned i = 0; i < count; i++) {
		racers[i].model = w;
		racers[i].context = &w->contexts[context];
		racers[i].stream = i < execs ? common : NULL;
	}
	w->frees++;
	race_run(racers, count);
	w->streams_gone += count;
	if (common)
		FINE(t, cuStreamDestroy(common));
	for (unsigned i = 0; i < count; i++) {
		w->left |= racers[i].left;
		if (racers[i].result == CUDA_ERROR_OUT_OF_MEMORY && racers[i].exec &&
		    plain_lacks(w, w->contexts[context].device,
				race_bytes(racers, execs)))
			excused(EXCUSE_LAUNCH_FULL);
		else if (racers[i].call && !fault_gives(w, racers[i].result))
			failure(w, "with other threads %s gives %d", racers[i].call,
				(int)racers[i].result);
	}
	for (unsigned i = 0; i < execs; i++) /* on streams that are gone */
		launch_note(w, racers[i].exec, (struct mark){0}, w->streams_gone - 1);
	for (unsigned i = 0; i < execs; i++)
		for (unsigned k = 0; k < racers[i].launched; k++)
			body_ran(w, racers[i].exec->body);
	race_wait(t);
}

/* --- how much is held ---------------------------------------------------------- */

enum { TURN_GRAPHS = 6, TURN_ROUNDS = 2 };

struct turn_graph {
	CUgraphExec exec;
	uint64_t plain, bytes;
};

/* Every function that the library needs to give graphs common memory. */
static bool may_share(const struct model *w)
{
	const struct setting *setting = w->setting;
	unsigned live = 0;

	for (int i = 0; i < CONTEXTS_MAX; i++)
		live += w->contexts[i].live;
	return live == 1 && plain_option("GCPOOL_GRAPH_SHARE", 1) && setting->vmm &&
	       !w->ordinary && !setting->plain && !setting->leak &&
	       !setting->memory_small && !setting->quota && !setting->count &&
	       !setting->filter && !w->filtered && setting->devices == 1 &&
	       library.trim && library.active && library.active();
}

static bool turn_capture(struct thread *t, CUstream stream, struct turn_graph *graph)
{
	CUdeviceptr addr;
	CUgraph made;
	bool good;

	graph->plain =
	    gcpsim_plain_alloc(t->model->contexts[t->context].device, graph->bytes);
	if (!FINE(t, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL)))
		return false;
	good = FINE(t, cuMemAlloc(&addr, graph->bytes));
	if (good) {
		FINE(t, cuMemsetD32Async(addr, 1, graph->bytes / 4, stream));
		plain_waits(t->model, t->context);
		if (!FINE(t, cuMemFree(addr)))
			(void)cuMemFree(addr);
	}
	if (!FINE(t, cuStreamEndCapture(stream, &made)))
		return false;
	good = good && FINE(t, cuGraphInstantiateWithFlags(&graph->exec, made, 0));
	return FINE(t, cuGraphDestroy(made)) && good;
}

static bool turn_launch(struct thread *t, CUstream stream,
			const struct turn_graph *graph)
{
	bool good;

	gcpsim_plain_asks(1);
	good = FINE(t, cuGraphLaunch(graph->exec, stream)) &&
	       FINE(t, cuStreamSynchronize(stream));
	gcpsim_plain_asks(-1);
	return good;
}

static void trim_now(const struct model *w, int device)
{
	(void)w;
	gcpsim_plain_asks(1);
	library.trim(device, 0);
	gcpsim_plain_asks(-1);
}

static void turns_check(struct model *w, int device, uint64_t before,
			const struct turn_graph *graphs)
{
	uint64_t largest = 0, sum = 0, used = gcpsim_memory_used(device), bound;

	for (unsigned i = 0; i < TURN_GRAPHS; i++) {
		sum += graphs[i].bytes;
		if (largest < graphs[i].bytes)
			largest = graphs[i].bytes;
	}
	/* The last rounded up, 2 MiB of each graph, and what was trimmed comes again.
	 */
	bound = largest + largest / 8 + (2ull * TURN_GRAPHS + 4) * MIB;
	if (used > before + bound && !fault_excuses(w))
		failure(w,
			"device %d: graphs that never run at the same time hold %lu "
			"bytes; the largest needs %lu, all together %lu",
			device, (used - before), largest, sum);
}

static void turn_release(struct thread *t, struct turn_graph *graph)
{
	if (graph->exec)
		FINE(t, cuGraphExecDestroy(graph->exec));
	gcpsim_plain_free(graph->plain);
}

/* Captured one after the other, launched one after the other on one stream. */
static void share_turns(struct thread *t, const struct op *op)
{
	struct turn_graph graphs[TURN_GRAPHS] = {0};
	struct model *w = t->model;
	int device = w->contexts[t->context].device;
	uint64_t before;
	CUstream stream;
	bool good = true;

	/* In the relaxed mode plain CUDA would have allocated: the memory is for
	 * anything. */
	if (!may_share(w) || !all_is_calm(w) || t->pool ||
	    t->mode == CU_STREAM_CAPTURE_MODE_RELAXED || !may_be_unsafe(t) ||
	    !all_is_done(t) ||
	    !FINE(t, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)))
		return;
	plain_may_wait(w, EXCUSE_WAIT_CAPTURE);
	trim_now(w, device);
	before = gcpsim_memory_used(device);
	for (unsigned i = 0; good && i < TURN_GRAPHS; i++) {
		graphs[i].bytes =
		    (16ull * MIB + (op->bytes << 8) + op->value % MIB * i) &
		    ~(uint64_t)511;
		good = turn_capture(t, stream, &graphs[i]) &&
		       turn_launch(t, stream, &graphs[i]);
	}
	trim_now(w, device);
	for (unsigned i = 0; good && i < TURN_ROUNDS * TURN_GRAPHS; i++)
		good = turn_launch(t, stream, &graphs[i % TURN_GRAPHS]);
	if (good)
		turns_check(w, device, before, graphs);
	for (unsigned i = 0; i < TURN_GRAPHS; i++)
		turn_release(t, &graphs[i]);
	FINE(t, cuStreamDestroy(stream));
	w->streams_gone++;
	w->frees++;
}

void sharing_play(struct thread *t, const struct op *op)
{
	if (op->kind == OP_LAUNCH_RACE)
		race(t, op);
	else
		share_turns(t, op);
}
