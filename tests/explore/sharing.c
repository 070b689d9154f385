/* SPDX-License-Identifier: MIT */
/*
 * sharing.c - graphs that may share memory: launches from several threads at the same
 * time, and how much is held by graphs that never run at the same time, in one context
 * or several.
 */
#include "explore.h"

#include <pthread.h>
#include <unistd.h>

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

enum { TURN_GRAPHS = 6, STEPS = 32 };

struct turn_graph {
	CUgraphExec exec;
	uint64_t plain, bytes, flags;
	bool again; /* launched since the trim */
};

/* Every function that the library needs to give graphs common memory. In the relaxed
 * mode plain CUDA would have allocated: the memory is for anything. */
static bool may_take_turns(struct thread *t)
{
	const struct model *w = t->model;
	const struct setting *setting = w->setting;
	unsigned live = 0;

	for (int i = 0; i < CONTEXTS_MAX; i++)
		live += w->contexts[i].live;
	return live == 1 && plain_option("GCPOOL_GRAPH_SHARE", 1) && setting->vmm &&
	       !w->ordinary && !setting->plain && !setting->leak &&
	       !setting->memory_small && !setting->quota && !setting->count &&
	       !setting->filter && !w->filtered && setting->devices == 1 &&
	       library.trim && library.active && library.active() && all_is_calm(w) &&
	       !t->pool && t->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
	       may_be_unsafe(t) && all_is_done(t);
}

static bool turn_capture(struct thread *t, CUstream stream, struct turn_graph *graph)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS upload = {graph->flags, stream, NULL, 0};
	CUgraphExecUpdateResultInfo info;
	int device = t->model->contexts[t->context].device;
	CUdeviceptr addr;
	CUgraph made;
	bool good;

	if (!graph->plain)
		graph->plain = plain_take(t->model, device, graph->bytes);
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
	if (good && graph->exec)
		good = FINE(t, cuGraphExecUpdate(graph->exec, made, &info));
	else if (good && graph->flags)
		good =
		    FINE(t, cuGraphInstantiateWithParams(&graph->exec, made, &upload));
	else if (good)
		good = FINE(t, cuGraphInstantiateWithFlags(&graph->exec, made, 0));
	return FINE(t, cuGraphDestroy(made)) && good;
}

static void trim_now(int device)
{
	gcpsim_plain_asks(1);
	library.trim(device, 0);
	gcpsim_plain_asks(-1);
}

/* Graphs that are captured one after the other and launched in turn on one stream
 * (`stay`); or that are captured anew, updated and launched at each step, on one stream
 * or on two, which the host waits for or runs ahead of. */
static void share_steps(struct thread *t, const struct op *op)
{
	struct turn_graph graphs[TURN_GRAPHS] = {0};
	CUstream streams[TURN_GRAPHS] = {0};
	struct model *w = t->model;
	int device = w->contexts[t->context].device;
	bool stay = op->how & 1, good = true;
	uint64_t mapped = 0, before, most;
	unsigned may_map = STEPS / 2; /* the last step that may */

	plain_may_wait(w, EXCUSE_WAIT_CAPTURE);
	trim_now(device);
	before = gcpsim_memory_used(device);
	for (unsigned i = 0; good && i < STEPS; i++) {
		unsigned at = op->value >> i & op->how >> 1 & 1;
		CUstream *stream = &streams[stay ? 0 : at];
		struct turn_graph *graph = &graphs[stay ? i % TURN_GRAPHS : at];

		graph->bytes = 16ull * MIB + (op->bytes << 8 & ~511u) +
			       (graph - graphs) * stay * MIB / 2;
		if (i == TURN_GRAPHS)
			trim_now(device);
		alarm(w->setting->step_s); /* each writes a lot of memory */
		gcpsim_plain_asks(1);
		good = (*stream ||
			FINE(t, cuStreamCreate(stream, CU_STREAM_NON_BLOCKING))) &&
		       ((stay && graph->exec) || turn_capture(t, *stream, graph)) &&
		       FINE(t, cuGraphLaunch(graph->exec, *stream)) &&
		       FINE(t, cuStreamSynchronize(*stream));
		gcpsim_plain_asks(-1);
		/* What was trimmed comes again when it is needed, which for the second
		 * graph may be late. */
		if (i >= TURN_GRAPHS && !graph->again && i + STEPS / 8 > may_map)
			may_map = i + STEPS / 8;
		graph->again = i >= TURN_GRAPHS;
		if (i <= may_map)
			mapped = gcpsim_calls("cuMemMap");
	}
	/* The largest rounded up, 2 MiB of each, and what was trimmed comes again; or
	 * what may wait, and one more of each, which takes its place. */
	most = stay ? graphs[TURN_GRAPHS - 1].bytes * 9 / 8 +
			  (2ull * TURN_GRAPHS + 4) * MIB
		    : 4 * (plain_option("GCPOOL_TEST_WINDOW", 56 * MIB) +
			   graphs[0].bytes + graphs[1].bytes + 2ull * MIB);
	good = good && !fault_excuses(w);
	if (good && gcpsim_memory_used(device) > before + most &&
	    (stay || !getenv("GCPOOL_REUSE")))
		failure(w, "device %d: graphs that run in turn hold %lu bytes", device,
			gcpsim_memory_used(device) - before);
	/* In a few milliseconds memory goes back by itself. */
	if (good && gcpsim_calls("cuMemMap") != mapped &&
	    plain_option("GCPOOL_DECAY", 0) == 0)
		failure(w, "graphs that run in turn map memory at each step");
	for (unsigned i = 0; i < TURN_GRAPHS; i++) {
		if (graphs[i].exec)
			FINE(t, cuGraphExecDestroy(graphs[i].exec));
		gcpsim_plain_free(graphs[i].plain);
		w->streams_gone += streams[i] && FINE(t, cuStreamDestroy(streams[i]));
	}
	w->frees++;
}

/* --- in another context ------------------------------------------------------- */

CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice device);

/* A stream of another context of the device, which need not be a green one's primary.
 */
struct elsewhere {
	CUgreenCtx green;
	CUcontext ctx;
	CUstream stream;
};

static bool elsewhere_open(struct thread *t, int device, bool green,
			   struct elsewhere *there)
{
	CUdevResourceDesc all;
	CUdevResource sms;

	if (!green)
		return FINE(t, cuCtxCreate_v2(&there->ctx, 0, device)) &&
		       FINE(t, cuStreamCreate(&there->stream, CU_STREAM_NON_BLOCKING));
	return FINE(t, cuDeviceGetDevResource(device, &sms, CU_DEV_RESOURCE_TYPE_SM)) &&
	       FINE(t, cuDevResourceGenerateDesc(&all, &sms, 1)) &&
	       FINE(t, cuGreenCtxCreate(&there->green, all, device,
					CU_GREEN_CTX_DEFAULT_STREAM)) &&
	       FINE(t, cuGreenCtxStreamCreate(&there->stream, there->green,
					      CU_STREAM_NON_BLOCKING, 0));
}

static void elsewhere_close(struct thread *t, struct elsewhere *there)
{
	if (there->stream)
		t->model->streams_gone += FINE(t, cuStreamDestroy(there->stream));
	if (there->green)
		FINE(t, cuGreenCtxDestroy(there->green));
	if (there->ctx)
		FINE(t, cuCtxDestroy(there->ctx));
}

/* What an eager allocation is given has no work on it. */
static bool allocate_beside(struct thread *t, uint64_t bytes, CUstream stream)
{
	CUdeviceptr addr;

	if (!FINE(t, cuMemAlloc(&addr, bytes)))
		return false;
	FINE(t, cuMemsetD32Async(addr, 2, bytes / 4, stream));
	return FINE(t, cuMemFree(addr));
}

/* Graphs that are captured in one context, launched in it or in another one and
 * destroyed: waited for, their memory serves the next captures, with no allocation
 * outside; not waited for, it serves nothing else yet. */
static void context_steps(struct thread *t, const struct op *op)
{
	struct turn_graph graph = {.bytes = 16ull * MIB, .flags = op->value & 2};
	struct elsewhere there = {0};
	struct model *w = t->model;
	int home = t->context, device = w->contexts[home].device;
	bool waits = op->how & 1, good;
	CUstream stream = NULL;
	uint64_t before;

	plain_may_wait(w, EXCUSE_WAIT_CAPTURE);
	w->contexts_peak += w->contexts_peak < 2;
	gcpsim_plain_asks(1);
	good = elsewhere_open(t, device, op->value & 1 && w->contexts[home].primary,
			      &there);
	t->context = -1;
	context_use(t, home);
	trim_now(device);
	before = gcpsim_memory_used(device);
	good = good && FINE(t, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (unsigned i = 0; good && i < STEPS; i++) {
		CUstream to = op->value >> i & 1 ? there.stream : stream;

		alarm(w->setting->step_s);
		/* A free waits for no work of another context: its graph keeps that. */
		w->graphs_held[device] += to == stream || waits ? 0 : graph.bytes;
		good = turn_capture(t, stream, &graph) &&
		       FINE(t, cuGraphLaunch(graph.exec, to)) &&
		       (!waits || FINE(t, cuStreamSynchronize(to)));
		if (graph.exec && FINE(t, cuGraphExecDestroy(graph.exec)))
			graph.exec = NULL;
		good = good && (waits || allocate_beside(t, graph.bytes, stream));
	}
	if (good && waits && !fault_excuses(w) &&
	    gcpsim_memory_used(device) > before + 8 * graph.bytes)
		failure(w, "device %d: graphs that are gone hold %lu bytes", device,
			gcpsim_memory_used(device) - before);
	w->streams_gone += stream && FINE(t, cuStreamDestroy(stream));
	elsewhere_close(t, &there);
	gcpsim_plain_free(graph.plain);
	gcpsim_plain_asks(-1);
	w->frees++;
	race_wait(t);
}

void sharing_play(struct thread *t, const struct op *op)
{
	if (op->kind == OP_LAUNCH_RACE)
		race(t, op);
	else if (may_take_turns(t) && op->b % 4 == 1)
		context_steps(t, op);
	else if (may_take_turns(t))
		share_steps(t, op);
}
