/* SPDX-License-Identifier: MIT */
/*
 * conform_order.c - what waits for what, and which calls wait: the transcript.
 *
 * A long kernel runs where a line says so; then a call is made, and the line
 * tells its result and whether the host waited for the kernel: whether the kernel
 * was done when the call returned.
 *
 * On a GPU the kernel ends when the host says so. So a call that returns has not
 * waited, however long it took; one that waits is held for a while (HELD_MS).
 */
#include "conform.h"

#include <pthread.h>

enum { LONG_NS = 60000000, HELD_MS = 250, CHECK_NS = 1000000 };

static CUstream a, b, blocking;
static CUdeviceptr p;
static CUevent ended; /* recorded behind the long kernel */
static bool ended_before;

/* --- the long kernel ------------------------------------------------------ */

static const char until_ptx[] = ".version 6.4\n.target sm_52\n.address_size 64\n"
				".visible .entry until(.param .u64 flag)\n"
				"{\n"
				".reg .pred %p<2>;\n"
				".reg .b32 %r<2>;\n"
				".reg .b64 %rd<3>;\n"
				"ld.param.u64 %rd1, [flag];\n"
				"cvta.to.global.u64 %rd2, %rd1;\n"
				"again:\n"
				"ld.volatile.global.u32 %r1, [%rd2];\n"
				"setp.eq.s32 %p1, %r1, 0;\n"
				"@%p1 bra again;\n"
				"ret;\n"
				"}\n";
static CUfunction until;
static int *end_now; /* pinned: the kernel ends when it is 1 */

/* Ends a kernel that a call waits for. */
static void *end_late(void *unused)
{
	struct timespec pause = {0, CHECK_NS};
	int left = HELD_MS;

	for (;;) {
		nanosleep(&pause, NULL);
		if (!__atomic_load_n(end_now, __ATOMIC_SEQ_CST) && --left > 0)
			continue;
		__atomic_store_n(end_now, 1, __ATOMIC_SEQ_CST);
		left = HELD_MS;
	}
	return unused;
}

static void long_kernel_init(void)
{
	pthread_t thread;
	CUmodule module;
	CUdeviceptr flag;
	void *args[] = {&flag};

	MUST(cuEventCreate(&ended, CU_EVENT_DISABLE_TIMING));
	if (conform_simulated())
		return;
	MUST(cuMemHostAlloc((void **)&end_now, sizeof(*end_now),
			    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
	*end_now = 1;
	MUST(cuModuleLoadData(&module, until_ptx));
	MUST(cuModuleGetFunction(&until, module, "until"));
	MUST(cuMemHostGetDevicePointer(&flag, end_now, 0));
	MUST(cuLaunchKernel(until, 1, 1, 1, 1, 1, 1, 0, a, args, NULL)); /* loads it */
	if (pthread_create(&thread, NULL, end_late, NULL) != 0)
		abort();
}

static CUresult launch_until(CUstream stream)
{
	CUdeviceptr flag;
	void *args[] = {&flag};

	MUST(cuMemHostGetDevicePointer(&flag, end_now, 0));
	__atomic_store_n(end_now, 0, __ATOMIC_SEQ_CST);
	return cuLaunchKernel(until, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL);
}

/* A fresh long kernel on `stream`, nothing else pending. */
static void long_kernel(CUstream stream)
{
	if (end_now)
		__atomic_store_n(end_now, 1, __ATOMIC_SEQ_CST);
	MUST(cuCtxSynchronize());
	MUST(end_now ? launch_until(stream) : conform_spin(LONG_NS, stream));
	MUST(cuEventRecord(ended, stream));
	ended_before = false;
}

static void tell(const char *what, CUresult result)
{
	bool waited = cuEventQuery(ended) == CUDA_SUCCESS && !ended_before;

	printf("%-64s %3d %s\n", what, (int)result, waited ? "waits" : "returns");
}

#define TELL(what, call)                                                               \
	do {                                                                           \
		CUresult tell_ = (call);                                               \
		tell(what, tell_);                                                     \
	} while (0)

/* The same with a long kernel in this stream. */
#define BUSY(stream, what, call)                                                       \
	do {                                                                           \
		long_kernel(stream);                                                   \
		TELL(what, call);                                                      \
	} while (0)

/* --- orders between streams ----------------------------------------------- */

static CUresult record_and_query(CUstream stream)
{
	CUevent event;
	CUresult result;

	MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	MUST(cuEventRecord(event, stream));
	result = cuEventQuery(event);
	MUST(cuEventDestroy(event));
	return result;
}

static CUresult fill_and_query(CUstream stream)
{
	MUST(conform_fill(p, 16, 1, stream));
	for (int i = 0; i < 100; i++) {
		struct timespec pause = {0, 50000};

		if (cuStreamQuery(stream) == CUDA_SUCCESS)
			return CUDA_SUCCESS;
		if (!conform_simulated())
			nanosleep(&pause, NULL);
	}
	return cuStreamQuery(stream);
}

static void orders(const char *where, CUstream busy)
{
	static const char *const names[] = {"non-blocking", "blocking", "legacy",
					    "per thread"};
	CUstream streams[] = {b, blocking, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};

	for (int i = 0; i < 4; i++) {
		char what[100];

		if (streams[i] == busy)
			continue;
		snprintf(what, sizeof(what), "%s busy: cuStreamQuery(idle %s)", where,
			 names[i]);
		BUSY(busy, what, cuStreamQuery(streams[i]));
		snprintf(what, sizeof(what), "%s busy: event on idle %s, query", where,
			 names[i]);
		BUSY(busy, what, record_and_query(streams[i]));
		snprintf(what, sizeof(what), "%s busy: kernel on %s, query", where,
			 names[i]);
		BUSY(busy, what, fill_and_query(streams[i]));
		snprintf(what, sizeof(what), "%s busy: cuStreamSynchronize(idle %s)",
			 where, names[i]);
		BUSY(busy, what, cuStreamSynchronize(streams[i]));
	}
}

/* --- the fence of a context ----------------------------------------------- */

static void barrier_set(void)
{
	CUevent event;

	long_kernel(a);
	MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	MUST(cuCtxRecordEvent(conform_ctx, event), cuCtxWaitEvent(conform_ctx, event));
	MUST(cuEventDestroy(event));
}

#define BEHIND(what, call)                                                             \
	do {                                                                           \
		barrier_set();                                                         \
		TELL(what, call);                                                      \
	} while (0)

static void fences(void)
{
	CUcontext other;
	CUevent event;
	CUstream stream;

	BEHIND("barrier: cuStreamQuery(idle)", cuStreamQuery(b));
	BEHIND("barrier: event on idle, query", record_and_query(b));
	BEHIND("barrier: kernel, query", fill_and_query(b));
	BEHIND("barrier: cuStreamSynchronize(idle)", cuStreamSynchronize(b));
	BEHIND("barrier: cuMemcpyDtoD", cuMemcpyDtoD(p, p + 512, 64));
	barrier_set();
	MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	TELL("barrier: cuCtxRecordEvent", cuCtxRecordEvent(conform_ctx, event));
	TELL("barrier: cuEventQuery of it", cuEventQuery(event));
	MUST(cuCtxCreate(&other, NULL, 0, conform_device));
	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ended_before = cuEventQuery(ended) == CUDA_SUCCESS;
	TELL("fence: cuCtxRecordEvent(other context)", cuCtxRecordEvent(other, event));
	MUST(cuCtxSetCurrent(conform_ctx));
	long_kernel(a);
	MUST(cuCtxRecordEvent(conform_ctx, event));
	TELL("fence: cuCtxWaitEvent(other context)", cuCtxWaitEvent(other, event));
	MUST(cuCtxSetCurrent(other));
	TELL("fence: other context's stream, query", cuStreamQuery(stream));
	TELL("fence: other context synchronizes", cuCtxSynchronize());
	MUST(cuEventDestroy(event), cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	TELL("fence: cuCtxWaitEvent(never recorded)", cuCtxWaitEvent(other, event));
	TELL("fence: cuCtxRecordEvent(NULL)", cuCtxRecordEvent(NULL, event));
	TELL("fence: cuCtxWaitEvent(NULL)", cuCtxWaitEvent(NULL, event));
	MUST(cuEventDestroy(event), cuCtxDestroy(other), cuCtxSetCurrent(conform_ctx));
}

/* --- which calls wait ----------------------------------------------------- */

/* Whose work does a free wait for: the memory's context, or the current one? */
static void free_of_other(void)
{
	CUcontext other;
	CUdeviceptr q;
	CUstream stream;

	MUST(cuCtxCreate(&other, NULL, 0, conform_device));
	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), cuMemAlloc(&q, 4096));
	MUST(cuCtxSetCurrent(conform_ctx));
	BUSY(a, "current context busy: cuMemFree(other context's)", cuMemFree(q));
	MUST(cuCtxSynchronize(), cuMemAlloc(&q, 4096));
	long_kernel(a);
	MUST(cuCtxSetCurrent(other));
	TELL("owner context busy, not current: cuMemFree", cuMemFree(q));
	MUST(cuCtxDestroy(other), cuCtxSetCurrent(conform_ctx));
}

static void waits(void)
{
	CUdeviceptr q;
	CUstream doomed;
	CUevent event;
	CUmodule module;
	void *pinned;
	static char pageable[1 << 20];
	size_t x, y;

	BUSY(a, "busy: cuMemAlloc", cuMemAlloc(&q, 4096));
	TELL("busy: cuMemFree", cuMemFree(q));
	BUSY(a, "busy: cuMemGetInfo", cuMemGetInfo(&x, &y));
	BUSY(a, "busy: cuMemFree(0)", cuMemFree(0));
	BUSY(a, "busy: cuMemFree(interior)", cuMemFree(p + 256));
	MUST(cuMemHostAlloc(&pinned, 4096, 0));
	BUSY(a, "busy: cuMemFreeHost", cuMemFreeHost(pinned));
	MUST(cuMemAllocManaged(&q, 4096, CU_MEM_ATTACH_GLOBAL));
	BUSY(a, "busy: cuMemFree(managed)", cuMemFree(q));
	MUST(cuMemHostRegister(pageable, sizeof(pageable), 0));
	BUSY(a, "busy: cuMemHostUnregister", cuMemHostUnregister(pageable));
	MUST(cuStreamCreate(&doomed, CU_STREAM_NON_BLOCKING));
	BUSY(doomed, "busy: cuStreamDestroy of it", cuStreamDestroy(doomed));
	TELL("busy: cuCtxSynchronize after that", cuCtxSynchronize());
	MUST(cuEventCreate(&event, 0));
	long_kernel(a);
	MUST(cuEventRecord(event, a));
	TELL("busy: cuEventDestroy of a pending event", cuEventDestroy(event));
	MUST(cuModuleLoadData(&module,
			      ".version 6.4\n.target sm_52\n.address_size 64\n"));
	BUSY(a, "busy: cuModuleUnload of another module", cuModuleUnload(module));
	BUSY(a, "busy: cuMemcpyHtoD, 64 bytes", cuMemcpyHtoD(p, pageable, 64));
	BUSY(blocking, "blocking busy: cuMemcpyHtoD, 64 bytes",
	     cuMemcpyHtoD(p, pageable, 64));
	BUSY(blocking, "blocking busy: cuMemcpyHtoD, 1 MiB",
	     cuMemcpyHtoD(p, pageable, 1 << 20));
	BUSY(blocking, "blocking busy: cuMemcpyDtoH, 64 bytes",
	     cuMemcpyDtoH(pageable, p, 64));
	BUSY(blocking, "blocking busy: cuMemcpyDtoD", cuMemcpyDtoD(p, p + 4096, 64));
	BUSY(blocking, "blocking busy: cuMemsetD8", cuMemsetD8(p, 0, 64));
	BUSY(a, "busy: cuMemcpyHtoDAsync, pageable 64 bytes",
	     cuMemcpyHtoDAsync(p, pageable, 64, a));
	BUSY(a, "busy: cuMemcpyHtoDAsync, pageable 1 MiB",
	     cuMemcpyHtoDAsync(p, pageable, 1 << 20, a));
	BUSY(a, "busy: cuMemcpyDtoHAsync, pageable 64 bytes",
	     cuMemcpyDtoHAsync(pageable, p, 64, a));
	BUSY(a, "busy: cuMemcpyDtoHAsync, pageable 1 MiB",
	     cuMemcpyDtoHAsync(pageable, p, 1 << 20, a));
	free_of_other();
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	MUST(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	MUST(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	MUST(cuStreamCreate(&blocking, CU_STREAM_DEFAULT), cuMemAlloc(&p, 4 << 20));
	MUST(conform_spin(1000, a), conform_fill(p, 16, 0, b));
	long_kernel_init();
	orders("non-blocking", a);
	orders("blocking", blocking);
	orders("legacy", CU_STREAM_LEGACY);
	orders("per thread", CU_STREAM_PER_THREAD);
	fences();
	waits();
	if (end_now)
		__atomic_store_n(end_now, 1, __ATOMIC_SEQ_CST);
	return 0;
}
