/* SPDX-License-Identifier: MIT */
/*
 * conform_legality.c - which calls a stream capture allows: the transcript.
 *
 * For every call, every mode of the capture, and callers in the capturing
 * thread and in another one with each mode of their own: the result code, with
 * "!" if the capture was lost by it.
 */
#include "conform.h"

#include <pthread.h>

struct scene {
	CUstream capturing, other, doomed;
	CUevent done, fresh, captured;
	CUdeviceptr p, q; /* device memory */
	void *pinned;
	char pageable[4096];
	CUgraph graph;
	CUgraphExec exec;
	CUdeviceptr range, mapped;
	CUarray array;
	char registered[4096];
	CUmemGenericAllocationHandle physical;
};

static const CUmemAllocationProp prop = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
};

static const CUDA_ARRAY_DESCRIPTOR array = {64, 64, CU_AD_FORMAT_FLOAT, 1};

static const char empty_ptx[] = ".version 6.4\n.target sm_52\n.address_size 64\n";

enum { MAP = 2 << 20 };

struct call {
	const char *name;
	CUresult (*fn)(struct scene *s);
};

static struct call calls[100]; /* up to one without a name */
static int call_count;

/* What calls give; unused. */
static struct {
	CUdeviceptr p;
	size_t size, total;
	void *host;
	unsigned type;
	CUarray array;
	CUmemGenericAllocationHandle physical;
	CUipcMemHandle ipc;
	CUmemoryPool pool;
	CUmodule module;
	CUgraph graph;
	CUgraphExec exec;
	CUevent event;
	CUstream stream;
	CUcontext ctx;
	CUstreamCaptureStatus status;
	CUfunction function;
} x;

#define JOIN(a, b) a##b
#define CALL_AT(line, name_, call)                                                     \
	static CUresult JOIN(call_, line)(struct scene * s)                            \
	{                                                                              \
		(void)s;                                                               \
		return call;                                                           \
	}                                                                              \
	__attribute__((constructor)) static void JOIN(list_, line)(void)               \
	{                                                                              \
		calls[call_count].name = name_;                                        \
		calls[call_count++].fn = JOIN(call_, line);                            \
	}
#define CALL_ON(line, name, call) CALL_AT(line, name, call)
#define CALL(name, call)          CALL_ON(__LINE__, name, call)

/* The scene has it no more if the call was good; or whatever it gave. */
#define GIVEN(field, call)                                                             \
	({                                                                             \
		CUresult result_ = (call);                                             \
		field = result_ ? field : 0;                                           \
		result_;                                                               \
	})
#define LEFT(field, call)                                                              \
	({                                                                             \
		CUresult result_ = (call);                                             \
		field = 0;                                                             \
		result_;                                                               \
	})

static CUresult alloc_and_free(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUresult result = cuMemAlloc(&x.p, 1000);

	if (result == CUDA_SUCCESS) {
		cuThreadExchangeStreamCaptureMode(&mode);
		cuMemFree(x.p);
		cuThreadExchangeStreamCaptureMode(&mode);
	}
	return result;
}

static void callback(CUstream stream, CUresult status, void *data)
{
	(void)stream;
	(void)status;
	(void)data;
}

static void CUDA_CB little(void *data)
{
	(void)data;
}

static CUresult user_object(CUstream stream)
{
	CUuserObject user;
	CUresult result = cuUserObjectCreate(&user, NULL, little, 1,
					     CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);

	if (result == CUDA_SUCCESS)
		result = cuStreamGetCaptureInfo(stream, &x.status, NULL, &x.graph, NULL,
						NULL, NULL);
	return result ? result
		      : cuGraphRetainUserObject(x.graph, user, 1,
						CU_GRAPH_USER_OBJECT_MOVE);
}

static CUresult fill(CUdeviceptr at, CUstream stream)
{
	return conform_fill(at, 16, 1, stream);
}

static const CUmemAccessDesc access = {
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
};

CALL("nothing", CUDA_SUCCESS)
CALL("cuMemAlloc", alloc_and_free())
CALL("cuMemAlloc(0 bytes)", cuMemAlloc(&x.p, 0))
CALL("cuMemFree", GIVEN(s->p, cuMemFree(s->p)))
CALL("cuMemFree(0)", cuMemFree(0))
CALL("cuMemFree(interior)", cuMemFree(s->p + 256))
CALL("cuMemAllocPitch", cuMemAllocPitch(&x.p, &x.size, 1000, 10, 4))
CALL("cuMemAllocManaged", cuMemAllocManaged(&x.p, 4096, CU_MEM_ATTACH_GLOBAL))
CALL("cuMemHostAlloc", cuMemHostAlloc(&x.host, 4096, 0))
CALL("cuMemFreeHost", GIVEN(s->pinned, cuMemFreeHost(s->pinned)))
CALL("cuMemHostRegister", cuMemHostRegister(s->pageable, sizeof(s->pageable), 0))
CALL("cuArrayCreate", cuArrayCreate(&x.array, &array))
CALL("cuMemCreate", cuMemCreate(&x.physical, MAP, &prop, 0))
CALL("cuMemMap", cuMemMap(s->range, MAP, 0, s->physical, 0))
CALL("cuMemAddressReserve", cuMemAddressReserve(&x.p, MAP, 0, 0, 0))
CALL("cuMemUnmap", cuMemUnmap(s->mapped, MAP))
CALL("cuMemSetAccess", cuMemSetAccess(s->mapped, MAP, &access, 1))
CALL("cuMemRelease", LEFT(s->physical, cuMemRelease(s->physical)))
CALL("cuArrayDestroy", GIVEN(s->array, cuArrayDestroy(s->array)))
CALL("cuMemHostUnregister", cuMemHostUnregister(s->registered))
CALL("cuMemGetInfo", cuMemGetInfo(&x.size, &x.total))
CALL("cuMemGetAddressRange", cuMemGetAddressRange(&x.p, &x.size, s->q))
CALL("cuPointerGetAttribute",
     cuPointerGetAttribute(&x.type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, s->q))
CALL("cuIpcGetMemHandle", cuIpcGetMemHandle(&x.ipc, s->q))
CALL("cuMemPoolTrimTo",
     cuDeviceGetDefaultMemPool(&x.pool, 0) ?: cuMemPoolTrimTo(x.pool, 0))
CALL("cuDeviceGraphMemTrim", cuDeviceGraphMemTrim(0))
CALL("cuIpcCloseMemHandle(foreign)", cuIpcCloseMemHandle(s->q))
CALL("cuModuleLoadData", cuModuleLoadData(&x.module, empty_ptx))
CALL("cuGraphCreate", cuGraphCreate(&x.graph, 0))
CALL("user object on the graph", user_object(s->capturing))
CALL("cuLaunchHostFunc(capturing)", cuLaunchHostFunc(s->capturing, little, NULL))
CALL("cuEventCreate", cuEventCreate(&x.event, 0))
CALL("cuEventDestroy", LEFT(s->done, cuEventDestroy(s->done)))
CALL("cuEventQuery", cuEventQuery(s->done))
CALL("cuEventQuery(captured)", cuEventQuery(s->captured))
CALL("cuEventSynchronize", cuEventSynchronize(s->done))
CALL("cuEventSynchronize(captured)", cuEventSynchronize(s->captured))
CALL("cuEventRecord(other)", cuEventRecord(s->fresh, s->other))
CALL("cuEventRecord(legacy)", cuEventRecord(s->fresh, CU_STREAM_LEGACY))
CALL("cuStreamWaitEvent(capturing, done)", cuStreamWaitEvent(s->capturing, s->done, 0))
CALL("cuStreamWaitEvent(other, done)", cuStreamWaitEvent(s->other, s->done, 0))
CALL("cuStreamWaitEvent(legacy, captured)",
     cuStreamWaitEvent(CU_STREAM_LEGACY, s->captured, 0))
CALL("cuStreamQuery(other)", cuStreamQuery(s->other))
CALL("cuStreamQuery(capturing)", cuStreamQuery(s->capturing))
CALL("cuStreamQuery(legacy)", cuStreamQuery(CU_STREAM_LEGACY))
CALL("cuStreamSynchronize(other)", cuStreamSynchronize(s->other))
CALL("cuStreamSynchronize(capturing)", cuStreamSynchronize(s->capturing))
CALL("cuStreamSynchronize(legacy)", cuStreamSynchronize(CU_STREAM_LEGACY))
CALL("cuStreamIsCapturing(legacy)", cuStreamIsCapturing(CU_STREAM_LEGACY, &x.status))
CALL("cuStreamGetCaptureInfo(legacy)",
     cuStreamGetCaptureInfo(CU_STREAM_LEGACY, &x.status, NULL, NULL, NULL, NULL, NULL))
CALL("cuStreamCreate", cuStreamCreate(&x.stream, 0))
CALL("cuStreamDestroy(other)", LEFT(s->doomed, cuStreamDestroy(s->doomed)))
CALL("cuStreamBeginCapture(again)",
     cuStreamBeginCapture(s->capturing, CU_STREAM_CAPTURE_MODE_RELAXED))
CALL("cuStreamBeginCapture(legacy)",
     cuStreamBeginCapture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_RELAXED))
CALL("cuCtxSynchronize", cuCtxSynchronize())
CALL("cuCtxRecordEvent", cuCtxRecordEvent(conform_ctx, s->fresh))
CALL("cuCtxWaitEvent", cuCtxWaitEvent(conform_ctx, s->done))
CALL("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&x.ctx, 0))
CALL("cuModuleGetFunction",
     cuModuleGetFunction(&x.function, conform_module, "gcpt_add"))
CALL("cuLaunchKernel(other)", fill(s->q, s->other))
CALL("cuLaunchKernel(capturing)", fill(s->q, s->capturing))
CALL("cuLaunchKernel(legacy)", fill(s->q, CU_STREAM_LEGACY))
CALL("cuLaunchKernel(per thread)", fill(s->q, CU_STREAM_PER_THREAD))
CALL("cuMemcpyHtoD", cuMemcpyHtoD(s->q, s->pageable, 256))
CALL("cuMemcpyDtoH", cuMemcpyDtoH(s->pageable, s->q, 256))
CALL("cuMemcpyDtoD", cuMemcpyDtoD(s->q, s->q + 512, 256))
CALL("cuMemsetD8", cuMemsetD8(s->q, 0, 256))
CALL("cuMemcpyHtoDAsync(other, pageable)",
     cuMemcpyHtoDAsync(s->q, s->pageable, 256, s->other))
CALL("cuMemcpyHtoDAsync(capturing, pageable)",
     cuMemcpyHtoDAsync(s->q, s->pageable, 256, s->capturing))
CALL("cuMemcpyDtoHAsync(capturing, pageable)",
     cuMemcpyDtoHAsync(s->pageable, s->q, 256, s->capturing))
CALL("cuMemcpyDtoDAsync(capturing, unmapped)",
     cuMemcpyDtoDAsync(s->q, s->range, 256, s->capturing))
CALL("cuMemsetD8Async(capturing, unmapped)",
     cuMemsetD8Async(s->range, 0, 256, s->capturing))
CALL("cuStreamAddCallback(capturing)",
     cuStreamAddCallback(s->capturing, callback, NULL, 0))
CALL("cuMemAllocAsync(other)", cuMemAllocAsync(&x.p, 4096, s->other))
CALL("cuMemAllocAsync(capturing)", cuMemAllocAsync(&x.p, 4096, s->capturing))
CALL("cuMemFreeAsync(other)", GIVEN(s->p, cuMemFreeAsync(s->p, s->other)))
CALL("cuGraphLaunch(other)", cuGraphLaunch(s->exec, s->other))
CALL("cuGraphLaunch(capturing)", cuGraphLaunch(s->exec, s->capturing))
CALL("cuGraphInstantiate", cuGraphInstantiate(&x.exec, s->graph, 0))
CALL("cuGraphExecDestroy", LEFT(s->exec, cuGraphExecDestroy(s->exec)))

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
	MUST(cuEventRecord(s->done, s->other), cuMemAlloc(&s->p, 4096));
	MUST(cuMemAlloc(&s->q, 4096), cuMemHostAlloc(&s->pinned, 4096, 0));
	MUST(cuMemAddressReserve(&s->range, MAP, 0, 0, 0));
	MUST(cuMemCreate(&s->physical, MAP, &prop, 0));
	MUST(cuMemAddressReserve(&s->mapped, MAP, 0, 0, 0));
	MUST(cuMemMap(s->mapped, MAP, 0, s->physical, 0));
	MUST(cuArrayCreate(&s->array, &array));
	MUST(cuMemHostRegister(s->registered, sizeof(s->registered), 0));
	MUST(cuGraphCreate(&s->graph, 0), cuGraphInstantiate(&s->exec, s->graph, 0));
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

	MUST(cuCtxSetCurrent(conform_ctx), cuThreadExchangeStreamCaptureMode(&mode));
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
