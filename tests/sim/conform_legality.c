/* SPDX-License-Identifier: MIT */
/*
 * conform_legality.c - which calls a stream capture allows: the transcript.
 *
 * For every call, every mode of the capture, and callers in the capturing
 * thread and in another one with each mode of their own: the result code, with
 * "!" if the capture was lost by it.
 */
#include "conform_calls.h"

#include <pthread.h>

CUresult scene_fill(CUdeviceptr at, CUstream stream)
{
	return conform_fill(at, 16, 1, stream);
}

CUresult scene_function(void)
{
	CUfunction function;

	return cuModuleGetFunction(&function, conform_module, "gcpt_add");
}

CUcontext scene_ctx(void)
{
	return conform_ctx;
}

/* --- one cell of the table ------------------------------------------------ */

static void scene_open(struct scene *s, unsigned stream_flags)
{
	memset(s, 0, sizeof(*s));
	MUST(cuStreamCreate(&s->capturing, stream_flags));
	MUST(cuStreamCreate(&s->other, CU_STREAM_NON_BLOCKING));
	MUST(cuStreamCreate(&s->doomed, CU_STREAM_NON_BLOCKING));
	MUST(cuEventCreate(&s->done, CU_EVENT_DISABLE_TIMING));
	MUST(cuEventCreate(&s->fresh, CU_EVENT_DISABLE_TIMING));
	MUST(cuEventCreate(&s->captured, CU_EVENT_DISABLE_TIMING));
	MUST(cuEventRecord(s->done, s->other));
	MUST(cuMemAlloc(&s->p, 4096));
	MUST(cuMemAlloc(&s->q, 4096));
	MUST(cuMemHostAlloc(&s->pinned, 4096, 0));
	MUST(cuMemAddressReserve(&s->range, MAP, 0, 0, 0));
	MUST(cuMemCreate(&s->physical, MAP, &prop, 0));
	MUST(cuMemAddressReserve(&s->mapped, MAP, 0, 0, 0));
	MUST(cuMemMap(s->mapped, MAP, 0, s->physical, 0));
	MUST(cuArrayCreate(&s->array, &array));
	MUST(cuMemHostRegister(s->registered, sizeof(s->registered), 0));
	MUST(cuGraphCreate(&s->graph, 0));
	MUST(cuGraphInstantiate(&s->exec, s->graph, 0));
	MUST(cuCtxSynchronize());
}

static void scene_close(struct scene *s)
{
	cuCtxSynchronize();
	if (s->exec)
		cuGraphExecDestroy(s->exec);
	cuGraphDestroy(s->graph);
	cuMemUnmap(s->range, MAP);
	cuMemUnmap(s->mapped, MAP);
	cuMemAddressFree(s->mapped, MAP);
	cuMemHostUnregister(s->registered);
	if (s->array)
		cuArrayDestroy(s->array);
	if (s->physical)
		cuMemRelease(s->physical);
	cuMemAddressFree(s->range, MAP);
	cuMemHostUnregister(s->pageable);
	if (s->pinned)
		cuMemFreeHost(s->pinned);
	if (s->p)
		cuMemFree(s->p);
	cuMemFree(s->q);
	cuEventDestroy(s->captured);
	cuEventDestroy(s->fresh);
	if (s->done)
		cuEventDestroy(s->done);
	if (s->doomed)
		cuStreamDestroy(s->doomed);
	cuStreamDestroy(s->other);
	cuStreamDestroy(s->capturing);
}

struct cell {
	struct scene *scene;
	const struct call *call;
	CUstreamCaptureMode mode; /* of the caller */
	CUresult result;
};

static void *call_run(void *data)
{
	struct cell *cell = data;
	CUstreamCaptureMode mode = cell->mode;

	MUST(cuCtxSetCurrent(conform_ctx));
	MUST(cuThreadExchangeStreamCaptureMode(&mode));
	cell->result = cell->call->fn(cell->scene);
	MUST(cuThreadExchangeStreamCaptureMode(&mode));
	return NULL;
}

static void cell_print(const struct call *call, unsigned stream_flags,
		       CUstreamCaptureMode capture_mode, bool other_thread,
		       CUstreamCaptureMode caller_mode)
{
	struct scene s;
	struct cell cell = {&s, call, caller_mode, CUDA_SUCCESS};
	CUstreamCaptureStatus status;
	CUgraph graph = NULL;
	pthread_t thread;
	CUresult end;

	scene_open(&s, stream_flags);
	MUST(cuStreamBeginCapture(s.capturing, capture_mode));
	MUST(cuEventRecord(s.captured, s.capturing));
	if (other_thread) {
		pthread_create(&thread, NULL, call_run, &cell);
		pthread_join(thread, NULL);
	} else {
		call_run(&cell);
	}
	MUST(cuStreamIsCapturing(s.capturing, &status));
	end = cuStreamEndCapture(s.capturing, &graph);
	printf(" %3d%c", (int)cell.result,
	       status == CU_STREAM_CAPTURE_STATUS_INVALIDATED ? '!' : ' ');
	if ((status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) !=
	    (end == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED))
		printf("(end %d)", (int)end);
	if (graph)
		cuGraphDestroy(graph);
	scene_close(&s);
}

static void table_print(const char *title, unsigned stream_flags)
{
	static const char *const modes[] = {"global", "thread local", "relaxed"};

	for (int mode = 0; mode < 3; mode++) {
		printf("\n%s stream, capture mode %s\n", title, modes[mode]);
		printf("%-42s  capturing thread    another thread\n", "");
		printf("%-42s  glob tloc relx      glob tloc relx\n", "caller's mode:");
		for (size_t i = 0; calls[i].name; i++) {
			printf("%-42s", calls[i].name);
			for (int other = 0; other < 2; other++) {
				for (int own = 0; own < 3; own++)
					cell_print(&calls[i], stream_flags,
						   (CUstreamCaptureMode)mode, other,
						   (CUstreamCaptureMode)own);
				printf(other ? "\n" : "    ");
			}
		}
	}
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	table_print("non-blocking", CU_STREAM_NON_BLOCKING);
	table_print("blocking", CU_STREAM_DEFAULT);
	return 0;
}
