/* SPDX-License-Identifier: MIT */
/*
 * scenarios.h - what the programs of rare situations share: each plays the scenario
 * that its argument names, on the simulated device. 0: all is as on plain CUDA, or as
 * the library promises.
 */
#ifndef GCP_TESTS_SCENARIOS_H
#define GCP_TESTS_SCENARIOS_H

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cuda.h>

#include "gcpsim.h"

#include "../../several.h"

/* Programs use some of the steps below, and threads and callbacks that need no
 * argument. */
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define MIB ((size_t)1 << 20)

/* Each call must be good. */
#define OK(...)      SEVERAL(OK_ONE, __VA_ARGS__)
#define OK_ONE(call) ok((CUresult)(call), #call, __LINE__)

static inline void ok(CUresult code, const char *call, int line)
{
	if (code == CUDA_SUCCESS)
		return;
	printf("line %d: %s: error %d\n", line, call, (int)code);
	exit(2);
}

/* Long for an emulated processor and for a machine that stands still now and then. */
enum { HANG_S = 100 };

/* Until it is so, or for twenty seconds. */
#define AWAIT(condition)                                                               \
	for (int turns_ = 0; turns_ < 2000 && !(condition); turns_++)                  \
	usleep(10 * 1000)

static bool wrong;

static void must(bool good, const char *what)
{
	if (!good)
		printf("WRONG: %s\n", what);
	wrong |= !good;
}

/* Device `number` is current, in its primary context. */
static CUcontext primary_of(int number)
{
	CUcontext ctx;

	OK(cuDevicePrimaryCtxRetain(&ctx, number), cuCtxSetCurrent(ctx));
	return ctx;
}

static CUcontext primary(void)
{
	return primary_of(0);
}

static CUdeviceptr allocated(size_t bytes)
{
	CUdeviceptr p;

	OK(cuMemAlloc(&p, bytes));
	return p;
}

/* Blocks that the stream writes into, one after the other. */
static void work_on_blocks(CUstream stream, int count, size_t bytes)
{
	for (int i = 0; i < count; i++) {
		CUdeviceptr p = allocated(bytes);

		OK(cuMemsetD8Async(p, 1, bytes, stream), cuMemFree(p));
	}
}

/* A pool of the program's own; memory to be mapped. */
static CUmemoryPool pool_new(int device)
{
	CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
	CUmemoryPool pool;

	OK(cuMemPoolCreate(&pool, &properties));
	return pool;
}

static CUmemGenericAllocationHandle memory_made(size_t bytes)
{
	CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle handle;

	OK(cuMemCreate(&handle, bytes, &properties, 0));
	return handle;
}

static CUstream stream_new(void)
{
	CUstream stream;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

static void capture_begin(CUstream stream)
{
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

static CUgraph capture_end(CUstream stream)
{
	CUgraph graph = NULL;

	OK(cuStreamEndCapture(stream, &graph));
	return graph;
}

static CUgraphExec instantiated(CUgraph graph)
{
	CUgraphExec exec;

	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	return exec;
}

/* Calls of the driver fail by this plan from now on; NULL: none does. */
static void calls_fail(const char *plan)
{
	must(gcpsim_fail(plan) == 0, "no such plan");
}

static void when_called(const char *call, void (*then)(void))
{
	must(gcpsim_when_called(call, then) == 0, "no such call");
}

/* A thread of its own plays that to its end, and gives what it returned. */
static void *play_elsewhere(void *(*play)(void *), void *arg)
{
	pthread_t thread;
	void *end;

	must(pthread_create(&thread, NULL, play, arg) == 0 &&
		 pthread_join(thread, &end) == 0,
	     "no thread");
	return end;
}

/* A host function: the stream does not get on before. */
static void wait_for_flag(void *flag)
{
	while (!atomic_load((atomic_bool *)flag))
		usleep(1000);
}

/* Of a thread, as /proc has it; 0: there is none. */
static char state_of(pid_t process, pid_t thread)
{
	char path[64], state = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", process, thread);
	file = fopen(path, "r");
	must(!file || fscanf(file, "%*d (%*[^)]) %c", &state) == 1, "no state");
	if (file)
		fclose(file);
	return state;
}

/* Until the thread sleeps on and on: it waits for another one. 0: it is not known yet.
 * Or until the flag, if any, is set. */
static void await_asleep(const atomic_int *thread, const atomic_bool *or_set)
{
	for (int looks = 0; looks < 20 && !(or_set && *or_set) && !wrong;) {
		usleep(5000);
		looks = *thread && state_of(getpid(), *thread) == 'S' ? looks + 1 : 0;
	}
}

/* --- scenarios ------------------------------------------------------------------ */

/*
 * SCENARIO(name, "VARIABLE=value ...", ...) { body } defines one. It is played once for
 * each string, with these variables set; once if there is none. SCENARIO_PRIMARY begins
 * with the primary context current. scenarios.py reads them, and what the first comment
 * of the program says of all its scenarios:
 *
 *   Needs: FILE.c ... cudart   what it is built with: sources of the library, the
 * runtime Environment: VARIABLE=value ...   set for all Ways: A, B                 each
 * is played once with A and once with B Says: LINE                 what the library
 * says where SAYS=1 is among the variables; else it says nothing
 *
 * Variables that are none: SAYS=1; LOADED=1 (the library is not preloaded); FORM=x (the
 * program PROGRAM_x plays it); BY=x (the script x plays it).
 */
enum beginning { BEFORE_CUDA, WITHOUT_CONTEXT, IN_PRIMARY };

struct scenario {
	const char *name;
	void (*play)(void);
	enum beginning begins;
	struct scenario *next;
};

static struct scenario *scenarios;

/* All scenarios of the program begin with that function. */
static void (*first_of_all)(void);
#define BEGIN_WITH(function)                                                           \
	__attribute__((constructor)) static void begin_with(void)                      \
	{                                                                              \
		first_of_all = function;                                               \
	}

#define SCENARIO_OF(name_, begins_)                                                    \
	static void name_(void);                                                       \
	__attribute__((constructor)) static void name_##_is_listed(void)               \
	{                                                                              \
		static struct scenario it = {#name_, name_, begins_, NULL};            \
		it.next = scenarios;                                                   \
		scenarios = &it;                                                       \
	}                                                                              \
	static void name_(void)
#define SCENARIO(name_, ...)             SCENARIO_OF(name_, WITHOUT_CONTEXT)
#define SCENARIO_PRIMARY(name_, ...)     SCENARIO_OF(name_, IN_PRIMARY)
#define SCENARIO_BEFORE_CUDA(name_, ...) SCENARIO_OF(name_, BEFORE_CUDA)

/* The exit code: 0 when all is as on plain CUDA. */
int main(int argc, char **argv)
{
	alarm(HANG_S);
	for (struct scenario *s = scenarios; s; s = s->next) {
		if (argc == 2 && !strcmp(argv[1], s->name)) {
			if (s->begins != BEFORE_CUDA)
				OK(cuInit(0));
			if (s->begins == IN_PRIMARY)
				(void)primary();
			if (first_of_all)
				first_of_all();
			s->play();
			return wrong;
		}
	}
	return 2;
}

#endif
