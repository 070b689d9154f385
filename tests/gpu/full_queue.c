/* SPDX-License-Identifier: MIT */
/*
 * full_queue.c - which calls return while another thread waits in a launch because the
 * queue of its stream is full, behind a wait for a word that the host writes at the
 * end.
 *
 *   full_queue fills|graphs [--memory]
 *
 * --memory: the graph takes memory in its capture and gives it back, which only the
 * library serves. Prints a line for each call, "returns" or
 * "waits", and says first whether the launches wait at all. Exit code: 0, or 2 for an
 * error.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cuda.h>

enum { LAUNCHES = 200000, LOOKS = 100, LOOK_US = 10000, MIB = 1 << 20 };

#define OK(call)                                                                       \
	do {                                                                           \
		int code_ = (int)(call);                                               \
		if (code_ != 0) {                                                      \
			printf("%s: %d\n", #call, code_);                              \
			fflush(stdout);                                                \
			_exit(2);                                                      \
		}                                                                      \
	} while (0)

static CUcontext context;
static CUstream busy, other, captured, recorded, destroyed;
static CUevent event;
static CUdeviceptr memory;
static CUgraphExec exec;
static _Atomic unsigned int launched;

static void launch_one(void)
{
	if (exec)
		OK(cuGraphLaunch(exec, busy));
	else
		OK(cuMemsetD8Async(memory, 1, 1, busy));
}

static void *launch(void *arg)
{
	(void)arg;
	OK(cuCtxSetCurrent(context));
	for (int i = 0; i < LAUNCHES; i++) {
		launch_one();
		atomic_fetch_add(&launched, 1);
	}
	return NULL;
}

/* Whether the count stands still for a second. */
static bool stands(_Atomic unsigned int *count)
{
	unsigned int seen = ~0u;

	for (int i = 0; i < LOOKS;) {
		unsigned int now = atomic_load(count);

		i = now == seen ? i + 1 : 0;
		if (now >= LAUNCHES)
			return false;
		seen = now;
		usleep(LOOK_US);
	}
	return true;
}

static void query(void)
{
	OK(cuStreamQuery(other));
}

static void query_busy(void)
{
	(void)cuStreamQuery(busy);
}

static void destroy(void)
{
	OK(cuStreamDestroy(destroyed));
}

static void capture(void)
{
	CUgraph graph;

	OK(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	OK(cuStreamEndCapture(captured, &graph));
}

static void record(void)
{
	OK(cuEventRecord(event, recorded));
}

static void allocate(void)
{
	CUdeviceptr more;

	OK(cuMemAlloc(&more, 3 * MIB));
}

static const struct {
	const char *name;
	void (*call)(void);
} calls[] = {
    {"query of an idle stream", query},
    {"allocation", allocate},
    {"event record on an idle stream", record},
    {"begin and end of a capture", capture},
    {"destruction of an idle stream", destroy},
    {"query of the busy stream", query_busy},
};

enum { CALLS = sizeof(calls) / sizeof(calls[0]) };

static _Atomic bool returned[CALLS];

static void *call_one(void *arg)
{
	size_t i = (size_t)arg;

	OK(cuCtxSetCurrent(context));
	calls[i].call();
	atomic_store(&returned[i], true);
	return NULL;
}

/* On a thread of its own: one that waits keeps no other from being made. */
static void try(size_t i)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, call_one, (void *)i) != 0)
		exit(2);
	for (int look = 0; look < LOOKS && !atomic_load(&returned[i]); look++)
		usleep(LOOK_US);
	printf("%s: %s\n", calls[i].name,
	       atomic_load(&returned[i]) ? "returns" : "waits");
}

static void graph_make(bool takes)
{
	CUdeviceptr temporary = memory;
	CUgraph graph;

	OK(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	if (takes)
		OK(cuMemAlloc(&temporary, 4 * MIB));
	OK(cuMemsetD8Async(temporary, 1, MIB, captured));
	if (takes)
		OK(cuMemFree(temporary));
	OK(cuStreamEndCapture(captured, &graph));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
}

int main(int argc, char **argv)
{
	pthread_t launching;
	CUdevice device;
	CUdeviceptr word;
	unsigned int *host;

	OK(cuInit(0));
	OK(cuDeviceGet(&device, 0));
	OK(cuDevicePrimaryCtxRetain(&context, device));
	OK(cuCtxSetCurrent(context));
	OK(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&recorded, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&destroyed, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	OK(cuMemAlloc(&memory, MIB));
	OK(cuMemHostAlloc((void **)&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	OK(cuMemHostGetDevicePointer(&word, host, 0));
	*(volatile unsigned int *)host = 0;
	if (argc > 1 && strcmp(argv[1], "graphs") == 0)
		graph_make(argc > 2);
	launch_one(); /* what is loaded at a first launch is there */
	OK(cuCtxSynchronize());
	OK(cuStreamWaitValue32(busy, word, 1, CU_STREAM_WAIT_VALUE_EQ));
	if (pthread_create(&launching, NULL, launch, NULL) != 0)
		return 2;
	printf("launches: %s\n", stands(&launched) ? "wait" : "do not wait");
	for (size_t i = 0; i < CALLS; i++)
		try(i);
	fflush(stdout);
	*(volatile unsigned int *)host = 1;
	_exit(0);
}
