/*
 * captures.c - what allocating and freeing does to a stream capture: a table
 * of every capture mode, of the capturing and of another thread, and of each
 * call. Plain CUDA refuses many of these and loses the capture; with the
 * library each works and the captured graph runs.
 *
 *   --eager  only calls that plain CUDA allows too: same transcript with both
 *
 * A row: the code of the call, the state of the capture after it, the code of
 * the capture's end, and whether the graph then computes what was captured.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

#include "api.h"
#include "kernels.h"
#include "util.h"

enum { WORDS = 4096 };

struct scene {
	struct gcpt_kernels kernels;
	CUstream stream;
	void *live;   /* a block that stays */
	void *victim; /* a block that a call may free */
	void *fresh;  /* a block that a call allocated */
	void *wrong;  /* device counter */
};

struct call {
	const char *name;
	int (*run)(struct scene *s);
};

static int call_malloc(struct scene *s)
{
	return gcpt_malloc(&s->fresh, WORDS * 4);
}

static int call_malloc_large(struct scene *s)
{
	return gcpt_malloc(&s->fresh, 48 << 20);
}

static int call_malloc_pitch(struct scene *s)
{
	size_t pitch;

	return gcpt_malloc_pitch(&s->fresh, &pitch, 1000, 17);
}

static int call_free(struct scene *s)
{
	int code = gcpt_free(s->victim);

	if (!code)
		s->victim = NULL;
	return code;
}

static int call_malloc_free(struct scene *s)
{
	void *p;
	int code = gcpt_malloc(&p, WORDS * 4);

	(void)s;
	return code ? code : gcpt_free(p);
}

static int call_mem_info(struct scene *s)
{
	size_t unused, total;

	(void)s;
	return gcpt_mem_info(&unused, &total);
}

static const struct call calls[] = {
    {"malloc", call_malloc},
    {"malloc large", call_malloc_large},
    {"malloc pitch", call_malloc_pitch},
    {"free", call_free},
    {"malloc + free", call_malloc_free},
    {"mem info", call_mem_info},
};

struct errand {
	const struct call *call;
	struct scene *scene;
	CUcontext context;
	int code;
};

static void *run_errand(void *arg)
{
	struct errand *errand = arg;

	/* Harmless in a capture, which not every way to choose a device is. */
	GCPT_OK((int)cu.cuCtxSetCurrent(errand->context));
	errand->code = errand->call->run(errand->scene);
	gcpt_last_error();
	return NULL;
}

static int run_call(const struct call *call, struct scene *s, bool elsewhere)
{
	struct errand errand = {.call = call, .scene = s};
	pthread_t thread;

	if (!elsewhere) {
		errand.code = call->run(s);
		gcpt_last_error();
		return errand.code;
	}
	GCPT_OK((int)cu.cuCtxGetCurrent(&errand.context));
	pthread_create(&thread, NULL, run_errand, &errand);
	pthread_join(thread, NULL);
	return errand.code;
}

/* Launches the graph twice and counts wrong words in the blocks it fills. */
static const char *replay(struct scene *s, CUgraph graph, uint32_t value)
{
	unsigned long long wrong = 0;
	CUgraphExec exec;

	GCPT_OK(gcpt_copy(s->wrong, &wrong, sizeof(wrong)));
	if (cu.cuGraphInstantiateWithFlags(&exec, graph, 0))
		return "not instantiated";
	for (int i = 0; i < 2; i++) {
		GCPT_OK(gcpt_launch_fill(&s->kernels, s->stream, s->live, WORDS, 0));
		GCPT_OK((int)cu.cuGraphLaunch(exec, s->stream));
		GCPT_OK(gcpt_launch_check(&s->kernels, s->stream, s->live, WORDS, value,
					  s->wrong));
		if (s->fresh)
			GCPT_OK(gcpt_launch_check(&s->kernels, s->stream, s->fresh,
						  WORDS, value, s->wrong));
	}
	GCPT_OK(gcpt_stream_sync(s->stream));
	GCPT_OK(gcpt_copy(&wrong, s->wrong, sizeof(wrong)));
	GCPT_OK((int)cu.cuGraphExecDestroy(exec));
	return wrong ? "WRONG" : "right";
}

static const char *state_name(struct scene *s)
{
	CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;

	if (cu.cuStreamIsCapturing(s->stream, &state))
		return "unknown";
	return state == CU_STREAM_CAPTURE_STATUS_ACTIVE        ? "active"
	       : state == CU_STREAM_CAPTURE_STATUS_INVALIDATED ? "invalidated"
							       : "none";
}

static void prepare(struct scene *s)
{
	s->fresh = NULL;
	GCPT_OK(gcpt_malloc(&s->live, WORDS * 4));
	GCPT_OK(gcpt_malloc(&s->victim, WORDS * 4));
	GCPT_OK(gcpt_sync());
}

static void clean(struct scene *s)
{
	GCPT_OK(gcpt_sync());
	GCPT_OK(gcpt_free(s->live));
	if (s->victim)
		GCPT_OK(gcpt_free(s->victim));
	if (s->fresh)
		GCPT_OK(gcpt_free(s->fresh));
}

static void row(struct scene *s, CUstreamCaptureMode mode, const char *mode_name,
		bool elsewhere, const struct call *call)
{
	const uint32_t value = 77;
	const char *state, *result = "-";
	CUgraph graph = NULL;
	int code, end;

	prepare(s);
	GCPT_OK((int)cu.cuStreamBeginCapture(s->stream, mode));
	gcpt_launch_fill(&s->kernels, s->stream, s->live, WORDS, value);
	code = run_call(call, s, elsewhere);
	if (s->fresh)
		gcpt_launch_fill(&s->kernels, s->stream, s->fresh, WORDS, value);
	state = state_name(s);
	end = (int)cu.cuStreamEndCapture(s->stream, &graph);
	if (!end && graph) {
		result = replay(s, graph, value);
		GCPT_OK((int)cu.cuGraphDestroy(graph));
	}
	gcpt_last_error();
	printf("%-13s %-16s %-14s %3d  %-12s %3d  %s\n", mode_name,
	       elsewhere ? "another thread" : "capturing thread", call->name, code,
	       state, end, result);
	clean(s);
}

int main(int argc, char **argv)
{
	static const struct {
		CUstreamCaptureMode mode;
		const char *name;
	} modes[] = {
	    {CU_STREAM_CAPTURE_MODE_GLOBAL, "global"},
	    {CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, "thread-local"},
	    {CU_STREAM_CAPTURE_MODE_RELAXED, "relaxed"},
	};
	bool eager = gcpt_flag(argc, argv, "--eager");
	struct scene s = {0};

	GCPT_OK(gcpt_use(0));
	GCPT_OK(gcpt_kernels_load(&s.kernels));
	GCPT_OK(gcpt_stream_create(&s.stream));
	GCPT_OK(gcpt_malloc(&s.wrong, sizeof(unsigned long long)));
	for (unsigned m = eager ? 2 : 0; m < 3; m++)
		for (int elsewhere = 0; elsewhere < 2; elsewhere++)
			for (size_t c = 0; c < sizeof(calls) / sizeof(*calls); c++)
				row(&s, modes[m].mode, modes[m].name, elsewhere,
				    &calls[c]);
	GCPT_OK(gcpt_free(s.wrong));
	GCPT_OK(gcpt_stream_destroy(s.stream));
	return 0;
}
