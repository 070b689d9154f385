/* SPDX-License-Identifier: MIT */
/*
 * captures.c - what allocating and freeing does to a stream capture: a table
 * of every capture mode, of the capturing and of another thread, and of each
 * call. Plain CUDA refuses many of these and loses the capture; with the
 * library each works and the captured graph runs.
 *
 *   --eager  only calls that plain CUDA allows too: same transcript with both
 *
 * A row: the code of the call, the state of the capture after it, the code of
 * the capture's end, whether the graph then computes what was captured, and
 * whether the calling thread's own capture mode is as it was.
 *
 * Styles: static shared linked dlsym ptsz
 * Tried: everywhere
 * Run: transcript.py @ --eager
 * Run: captures.py @
 */
#include <pthread.h>
#include <semaphore.h>

#include "api.h"
#include "kernels.h"
#include "pool.h"
#include "util.h"

enum { WORDS = 4096, ABSENT = -1 };

struct scene {
	struct gcpt_kernels kernels;
	CUstream stream;
	void *live;   /* a block that stays */
	void *victim; /* a block from before the capture, that a call may free */
	void *inner;  /* a block allocated in the capture, before the call */
	void *fresh;  /* a block that a call allocated */
	void *wrong;  /* device counter */
};

struct call {
	const char *name;
	int (*run)(struct scene *s);
	bool inner;  /* wants scene.inner */
	bool pooled; /* the library's own: nothing to call without it */
};

/* What one thread does during the capture, and what came of it. */
struct errand {
	const struct call *call;
	struct scene *scene;
	int code;
	bool mode_kept;
};

/* --- calls --------------------------------------------------------------------- */

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

static int call_free_common(struct scene *s)
{
	int code = gcpt_free(s->victim);

	if (!code)
		s->victim = NULL;
	return code;
}

static int call_free_private(struct scene *s)
{
	int code = gcpt_free(s->inner);

	if (!code)
		s->inner = NULL;
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

static int call_too_large(struct scene *s)
{
	return gcpt_malloc(&s->fresh, 1ull << 46);
}

static int call_trim(struct scene *s)
{
	uint64_t bytes;

	(void)s;
	return gcpt_pool_trim(&bytes) ? 0 : ABSENT;
}

static const struct call calls[] = {
    {.name = "malloc, miss", .run = call_malloc},
    {.name = "malloc, hit", .run = call_malloc, .inner = true},
    {.name = "malloc, large", .run = call_malloc_large},
    {.name = "malloc pitch", .run = call_malloc_pitch},
    {.name = "free, common", .run = call_free_common},
    {.name = "free, private", .run = call_free_private, .inner = true},
    {.name = "malloc + free", .run = call_malloc_free},
    {.name = "mem info", .run = call_mem_info},
    {.name = "out of memory", .run = call_too_large},
    {.name = "trim", .run = call_trim, .pooled = true},
};

/* --- threads --------------------------------------------------------------------- */

static CUstreamCaptureMode mode_swap(CUstreamCaptureMode mode)
{
	GCPT_OK(cu.cuThreadExchangeStreamCaptureMode(&mode));
	return mode;
}

/* The calling thread's own mode, which stays. */
static CUstreamCaptureMode mode_now(void)
{
	CUstreamCaptureMode mode = mode_swap(CU_STREAM_CAPTURE_MODE_RELAXED);

	mode_swap(mode);
	return mode;
}

static void errand_do(struct errand *errand)
{
	CUstreamCaptureMode mode = mode_now();

	errand->code = errand->call->run(errand->scene);
	errand->mode_kept = mode_now() == mode;
	gcpt_last_error();
}

/* The other thread. It enters CUDA before any capture begins: CUDA forbids some
 * ways of doing so (cudaSetDevice, cudaFree(0)) while one is under way. */
static struct helper {
	pthread_t thread;
	sem_t asked, done;
	struct errand *errand; /* NULL: end */
} helper;

static void *helper_run(void *arg)
{
	(void)arg;
	GCPT_OK(gcpt_use(0));
	sem_post(&helper.done);
	for (;;) {
		sem_wait(&helper.asked);
		if (!helper.errand)
			return NULL;
		errand_do(helper.errand);
		sem_post(&helper.done);
	}
}

static void helper_begin(void)
{
	sem_init(&helper.asked, 0, 0);
	sem_init(&helper.done, 0, 0);
	pthread_create(&helper.thread, NULL, helper_run, NULL);
	sem_wait(&helper.done);
}

static void helper_do(struct errand *errand)
{
	helper.errand = errand;
	sem_post(&helper.asked);
	sem_wait(&helper.done);
}

static void helper_end(void)
{
	helper.errand = NULL;
	sem_post(&helper.asked);
	pthread_join(helper.thread, NULL);
}

/* --- a row ------------------------------------------------------------------------ */

/* Launches the graph twice and counts wrong words in the blocks it fills. */
static const char *replay(struct scene *s, CUgraph graph, uint32_t value)
{
	unsigned long long wrong = 0;
	CUgraphExec exec;

	GCPT_OK(gcpt_copy(s->wrong, &wrong, sizeof(wrong)));
	if (gcpt_instantiate(&exec, graph))
		return "not instantiated";
	for (int i = 0; i < 2; i++) {
		GCPT_OK(gcpt_launch_fill(&s->kernels, s->stream, s->live, WORDS, 0));
		GCPT_OK(gcpt_graph_launch(exec, s->stream));
		GCPT_OK(gcpt_launch_check(&s->kernels, s->stream, s->live, WORDS, value,
					  s->wrong));
		if (s->fresh)
			GCPT_OK(gcpt_launch_check(&s->kernels, s->stream, s->fresh,
						  WORDS, value, s->wrong));
	}
	GCPT_OK(gcpt_stream_sync(s->stream));
	GCPT_OK(gcpt_copy(&wrong, s->wrong, sizeof(wrong)));
	GCPT_OK(cu.cuGraphExecDestroy(exec));
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
	s->fresh = s->inner = NULL;
	GCPT_OK(gcpt_malloc(&s->live, WORDS * 4), gcpt_malloc(&s->victim, WORDS * 4));
	GCPT_OK(gcpt_sync());
}

/* A block of the capture's own, which plain CUDA gives in relaxed mode alone. */
static void inner_allocate(struct scene *s)
{
	CUstreamCaptureMode mode = mode_swap(CU_STREAM_CAPTURE_MODE_RELAXED);

	GCPT_OK(gcpt_malloc(&s->inner, WORDS * 4));
	mode_swap(mode);
}

static void clean(struct scene *s)
{
	GCPT_OK(gcpt_sync(), gcpt_free(s->live));
	GCPT_OK(gcpt_free(s->victim)); /* each of them: or nothing */
	GCPT_OK(gcpt_free(s->inner), gcpt_free(s->fresh));
}

static void print_code(int code)
{
	if (code == ABSENT)
		printf("%4s  ", "-");
	else
		printf("%4d  ", code);
}

static void row(struct scene *s, CUstreamCaptureMode mode, const char *mode_name,
		bool elsewhere, const struct call *call)
{
	struct errand errand = {.call = call, .scene = s};
	const uint32_t value = 77;
	const char *state, *result = "-";
	CUgraph graph = NULL;
	int end;

	prepare(s);
	GCPT_OK(gcpt_capture_begin(s->stream, mode));
	gcpt_launch_fill(&s->kernels, s->stream, s->live, WORDS, value);
	if (call->inner)
		inner_allocate(s);
	if (elsewhere)
		helper_do(&errand);
	else
		errand_do(&errand);
	if (s->fresh)
		gcpt_launch_fill(&s->kernels, s->stream, s->fresh, WORDS, value);
	state = state_name(s);
	end = gcpt_capture_end(s->stream, &graph);
	if (!end && graph) {
		result = replay(s, graph, value);
		GCPT_OK(cu.cuGraphDestroy(graph));
	}
	gcpt_last_error();
	printf("%-13s %-16s %-14s", mode_name,
	       elsewhere ? "another thread" : "capturing thread", call->name);
	print_code(errand.code);
	printf("%-12s", state);
	print_code(end);
	printf("%-6s %s\n", result, errand.mode_kept ? "kept" : "CHANGED");
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

	GCPT_OK(gcpt_use(0), gcpt_kernels_load(&s.kernels));
	GCPT_OK(gcpt_stream_create(&s.stream));
	GCPT_OK(gcpt_malloc(&s.wrong, sizeof(unsigned long long)));
	helper_begin();
	for (unsigned m = eager ? 2 : 0; m < 3; m++)
		for (int elsewhere = 0; elsewhere < 2; elsewhere++)
			for (size_t c = 0; c < sizeof(calls) / sizeof(*calls); c++)
				if (!eager || !calls[c].pooled)
					row(&s, modes[m].mode, modes[m].name, elsewhere,
					    &calls[c]);
	helper_end();
	GCPT_OK(gcpt_free(s.wrong), gcpt_stream_destroy(s.stream));
	return 0;
}
