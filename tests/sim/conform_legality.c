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

static const CUDA_ARRAY_DESCRIPTOR array = {
    .Width = 64,
    .Height = 64,
    .NumChannels = 1,
    .Format = CU_AD_FORMAT_FLOAT,
};

static const char empty_ptx[] = ".version 6.4\n.target sm_52\n.address_size 64\n";

enum { MAP = 2 << 20 };

/* --- the calls -------------------------------------------------------------------- */

static CUresult do_nothing(struct scene *s)
{
	(void)s;
	return CUDA_SUCCESS;
}

static CUresult do_alloc(struct scene *s)
{
	CUdeviceptr p;
	CUresult result = cuMemAlloc(&p, 1000);

	(void)s;
	if (result == CUDA_SUCCESS) {
		CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

		cuThreadExchangeStreamCaptureMode(&mode);
		cuMemFree(p);
		cuThreadExchangeStreamCaptureMode(&mode);
	}
	return result;
}

static CUresult do_free(struct scene *s)
{
	CUresult result = cuMemFree(s->p);

	if (result == CUDA_SUCCESS)
		s->p = 0;
	return result;
}

static CUresult do_free_null(struct scene *s)
{
	(void)s;
	return cuMemFree(0);
}

static CUresult do_free_interior(struct scene *s)
{
	return cuMemFree(s->p + 256);
}

static CUresult do_alloc_zero(struct scene *s)
{
	CUdeviceptr p;

	(void)s;
	return cuMemAlloc(&p, 0);
}

static CUresult do_host_alloc(struct scene *s)
{
	void *p;

	(void)s;
	return cuMemHostAlloc(&p, 4096, 0);
}

static CUresult do_free_host(struct scene *s)
{
	CUresult result = cuMemFreeHost(s->pinned);

	if (result == CUDA_SUCCESS)
		s->pinned = NULL;
	return result;
}

static CUresult do_managed(struct scene *s)
{
	CUdeviceptr p;

	(void)s;
	return cuMemAllocManaged(&p, 4096, CU_MEM_ATTACH_GLOBAL);
}

static CUresult do_register(struct scene *s)
{
	CUresult result = cuMemHostRegister(s->pageable, sizeof(s->pageable), 0);

	return result;
}

static CUresult do_pitch(struct scene *s)
{
	CUdeviceptr p;
	size_t pitch;

	(void)s;
	return cuMemAllocPitch(&p, &pitch, 1000, 10, 4);
}

static CUresult do_array(struct scene *s)
{
	CUarray made;

	(void)s;
	return cuArrayCreate(&made, &array);
}

static CUresult do_create(struct scene *s)
{
	CUmemGenericAllocationHandle h;

	(void)s;
	return cuMemCreate(&h, MAP, &prop, 0);
}

static CUresult do_map(struct scene *s)
{
	return cuMemMap(s->range, MAP, 0, s->physical, 0);
}

static CUresult do_reserve(struct scene *s)
{
	CUdeviceptr p;

	(void)s;
	return cuMemAddressReserve(&p, MAP, 0, 0, 0);
}

static CUresult do_info(struct scene *s)
{
	size_t a, b;

	(void)s;
	return cuMemGetInfo(&a, &b);
}

static CUresult do_range(struct scene *s)
{
	CUdeviceptr base;
	size_t size;

	return cuMemGetAddressRange(&base, &size, s->q);
}

static CUresult do_ipc(struct scene *s)
{
	CUipcMemHandle handle;

	return cuIpcGetMemHandle(&handle, s->q);
}

static CUresult do_event_query(struct scene *s)
{
	return cuEventQuery(s->done);
}

static CUresult do_event_query_captured(struct scene *s)
{
	return cuEventQuery(s->captured);
}

static CUresult do_event_sync(struct scene *s)
{
	return cuEventSynchronize(s->done);
}

static CUresult do_event_sync_captured(struct scene *s)
{
	return cuEventSynchronize(s->captured);
}

static CUresult do_event_record(struct scene *s)
{
	return cuEventRecord(s->fresh, s->other);
}

static CUresult do_event_record_legacy(struct scene *s)
{
	return cuEventRecord(s->fresh, CU_STREAM_LEGACY);
}

static CUresult do_event_create(struct scene *s)
{
	CUevent e;

	(void)s;
	return cuEventCreate(&e, 0);
}

static CUresult do_wait_done(struct scene *s)
{
	return cuStreamWaitEvent(s->capturing, s->done, 0);
}

static CUresult do_wait_captured_legacy(struct scene *s)
{
	return cuStreamWaitEvent(CU_STREAM_LEGACY, s->captured, 0);
}

static CUresult do_wait_other(struct scene *s)
{
	return cuStreamWaitEvent(s->other, s->done, 0);
}

static CUresult do_stream_query(struct scene *s)
{
	return cuStreamQuery(s->other);
}

static CUresult do_stream_query_capturing(struct scene *s)
{
	return cuStreamQuery(s->capturing);
}

static CUresult do_stream_query_legacy(struct scene *s)
{
	(void)s;
	return cuStreamQuery(CU_STREAM_LEGACY);
}

static CUresult do_stream_sync(struct scene *s)
{
	return cuStreamSynchronize(s->other);
}

static CUresult do_stream_sync_capturing(struct scene *s)
{
	return cuStreamSynchronize(s->capturing);
}

static CUresult do_stream_sync_legacy(struct scene *s)
{
	(void)s;
	return cuStreamSynchronize(CU_STREAM_LEGACY);
}

static CUresult do_stream_create(struct scene *s)
{
	CUstream stream;

	(void)s;
	return cuStreamCreate(&stream, 0);
}

static CUresult do_stream_destroy(struct scene *s)
{
	CUresult result = cuStreamDestroy(s->doomed);

	s->doomed = NULL;
	return result;
}

static CUresult do_is_capturing_legacy(struct scene *s)
{
	CUstreamCaptureStatus status;

	(void)s;
	return cuStreamIsCapturing(CU_STREAM_LEGACY, &status);
}

static CUresult do_capture_info_legacy(struct scene *s)
{
	CUstreamCaptureStatus status;

	(void)s;
	return cuStreamGetCaptureInfo(CU_STREAM_LEGACY, &status, NULL, NULL, NULL, NULL,
				      NULL);
}

static CUresult do_ctx_sync(struct scene *s)
{
	(void)s;
	return cuCtxSynchronize();
}

static CUresult do_ctx_record(struct scene *s)
{
	return cuCtxRecordEvent(conform_ctx, s->fresh);
}

static CUresult do_ctx_wait(struct scene *s)
{
	return cuCtxWaitEvent(conform_ctx, s->done);
}

static CUresult do_launch_other(struct scene *s)
{
	return conform_fill(s->q, 16, 1, s->other);
}

static CUresult do_launch_capturing(struct scene *s)
{
	return conform_fill(s->q, 16, 1, s->capturing);
}

static CUresult do_launch_legacy(struct scene *s)
{
	return conform_fill(s->q, 16, 1, CU_STREAM_LEGACY);
}

static CUresult do_launch_per_thread(struct scene *s)
{
	return conform_fill(s->q, 16, 1, CU_STREAM_PER_THREAD);
}

static CUresult do_copy_sync(struct scene *s)
{
	return cuMemcpyHtoD(s->q, s->pageable, 256);
}

static CUresult do_copy_back_sync(struct scene *s)
{
	return cuMemcpyDtoH(s->pageable, s->q, 256);
}

static CUresult do_copy_dtod_sync(struct scene *s)
{
	return cuMemcpyDtoD(s->q, s->q + 512, 256);
}

static CUresult do_set_sync(struct scene *s)
{
	return cuMemsetD8(s->q, 0, 256);
}

static CUresult do_copy_async(struct scene *s)
{
	return cuMemcpyHtoDAsync(s->q, s->pageable, 256, s->other);
}

static CUresult do_copy_capturing(struct scene *s)
{
	return cuMemcpyHtoDAsync(s->q, s->pageable, 256, s->capturing);
}

static CUresult do_copy_back_capturing(struct scene *s)
{
	return cuMemcpyDtoHAsync(s->pageable, s->q, 256, s->capturing);
}

static CUresult do_copy_bad_capturing(struct scene *s)
{
	return cuMemcpyDtoDAsync(s->q, s->range, 256, s->capturing);
}

static CUresult do_set_bad_capturing(struct scene *s)
{
	return cuMemsetD8Async(s->range, 0, 256, s->capturing);
}

static void callback(CUstream stream, CUresult status, void *data)
{
	(void)stream;
	(void)status;
	(void)data;
}

static CUresult do_callback_capturing(struct scene *s)
{
	return cuStreamAddCallback(s->capturing, callback, NULL, 0);
}

static CUresult do_alloc_async(struct scene *s)
{
	CUdeviceptr p;

	return cuMemAllocAsync(&p, 4096, s->other);
}

static CUresult do_alloc_async_capturing(struct scene *s)
{
	CUdeviceptr p;

	return cuMemAllocAsync(&p, 4096, s->capturing);
}

static CUresult do_free_async(struct scene *s)
{
	CUresult result = cuMemFreeAsync(s->p, s->other);

	if (result == CUDA_SUCCESS)
		s->p = 0;
	return result;
}

static CUresult do_graph_launch(struct scene *s)
{
	return cuGraphLaunch(s->exec, s->other);
}

static CUresult do_graph_launch_capturing(struct scene *s)
{
	return cuGraphLaunch(s->exec, s->capturing);
}

static CUresult do_instantiate(struct scene *s)
{
	CUgraphExec exec;

	return cuGraphInstantiate(&exec, s->graph, 0);
}

static CUresult do_exec_destroy(struct scene *s)
{
	CUresult result = cuGraphExecDestroy(s->exec);

	s->exec = NULL;
	return result;
}

static CUresult do_begin_again(struct scene *s)
{
	return cuStreamBeginCapture(s->capturing, CU_STREAM_CAPTURE_MODE_RELAXED);
}

static CUresult do_begin_legacy(struct scene *s)
{
	(void)s;
	return cuStreamBeginCapture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_RELAXED);
}

static CUresult do_retain(struct scene *s)
{
	CUcontext ctx;

	(void)s;
	return cuDevicePrimaryCtxRetain(&ctx, conform_device);
}

static CUresult do_module(struct scene *s)
{
	CUfunction function;

	(void)s;
	return cuModuleGetFunction(&function, conform_module, "gcpt_add");
}

static CUresult do_pool_trim(struct scene *s)
{
	CUmemoryPool pool;

	(void)s;
	cuDeviceGetDefaultMemPool(&pool, conform_device);
	return cuMemPoolTrimTo(pool, 0);
}

static CUresult do_graph_trim(struct scene *s)
{
	(void)s;
	return cuDeviceGraphMemTrim(conform_device);
}

static CUresult do_attribute(struct scene *s)
{
	unsigned type;

	return cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, s->q);
}

static CUresult do_unmap(struct scene *s)
{
	return cuMemUnmap(s->mapped, MAP);
}

static CUresult do_set_access(struct scene *s)
{
	CUmemAccessDesc access = {.location = prop.location,
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	return cuMemSetAccess(s->mapped, MAP, &access, 1);
}

static CUresult do_release(struct scene *s)
{
	CUresult result = cuMemRelease(s->physical);

	s->physical = 0;
	return result;
}

static CUresult do_array_destroy(struct scene *s)
{
	CUresult result = cuArrayDestroy(s->array);

	if (result == CUDA_SUCCESS)
		s->array = NULL;
	return result;
}

static CUresult do_unregister(struct scene *s)
{
	return cuMemHostUnregister(s->registered);
}

static CUresult do_module_load(struct scene *s)
{
	CUmodule module;

	(void)s;
	return cuModuleLoadData(&module, empty_ptx);
}

static CUresult do_event_destroy(struct scene *s)
{
	CUresult result = cuEventDestroy(s->done);

	s->done = NULL;
	return result;
}

static CUresult do_graph_create(struct scene *s)
{
	CUgraph graph;

	(void)s;
	return cuGraphCreate(&graph, 0);
}

static void CUDA_CB do_little(void *data)
{
	(void)data;
}

static CUresult do_user_object(struct scene *s)
{
	CUuserObject user;
	CUgraph graph;
	CUstreamCaptureStatus status;
	CUresult result;

	result = cuUserObjectCreate(&user, NULL, do_little, 1,
				    CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
	if (result != CUDA_SUCCESS)
		return result;
	result = cuStreamGetCaptureInfo(s->capturing, &status, NULL, &graph, NULL, NULL,
					NULL);
	if (result != CUDA_SUCCESS)
		return result;
	return cuGraphRetainUserObject(graph, user, 1, CU_GRAPH_USER_OBJECT_MOVE);
}

static CUresult do_host_function(struct scene *s)
{
	return cuLaunchHostFunc(s->capturing, do_little, NULL);
}

static CUresult do_ipc_close(struct scene *s)
{
	return cuIpcCloseMemHandle(s->q);
}

struct call {
	const char *name;
	CUresult (*fn)(struct scene *s);
};

static const struct call calls[] = {
    {"nothing", do_nothing},
    {"cuMemAlloc", do_alloc},
    {"cuMemAlloc(0 bytes)", do_alloc_zero},
    {"cuMemFree", do_free},
    {"cuMemFree(0)", do_free_null},
    {"cuMemFree(interior)", do_free_interior},
    {"cuMemAllocPitch", do_pitch},
    {"cuMemAllocManaged", do_managed},
    {"cuMemHostAlloc", do_host_alloc},
    {"cuMemFreeHost", do_free_host},
    {"cuMemHostRegister", do_register},
    {"cuArrayCreate", do_array},
    {"cuMemCreate", do_create},
    {"cuMemMap", do_map},
    {"cuMemAddressReserve", do_reserve},
    {"cuMemUnmap", do_unmap},
    {"cuMemSetAccess", do_set_access},
    {"cuMemRelease", do_release},
    {"cuArrayDestroy", do_array_destroy},
    {"cuMemHostUnregister", do_unregister},
    {"cuMemGetInfo", do_info},
    {"cuMemGetAddressRange", do_range},
    {"cuPointerGetAttribute", do_attribute},
    {"cuIpcGetMemHandle", do_ipc},
    {"cuMemPoolTrimTo", do_pool_trim},
    {"cuDeviceGraphMemTrim", do_graph_trim},
    {"cuIpcCloseMemHandle(foreign)", do_ipc_close},
    {"cuModuleLoadData", do_module_load},
    {"cuGraphCreate", do_graph_create},
    {"user object on the graph", do_user_object},
    {"cuLaunchHostFunc(capturing)", do_host_function},
    {"cuEventCreate", do_event_create},
    {"cuEventDestroy", do_event_destroy},
    {"cuEventQuery", do_event_query},
    {"cuEventQuery(captured)", do_event_query_captured},
    {"cuEventSynchronize", do_event_sync},
    {"cuEventSynchronize(captured)", do_event_sync_captured},
    {"cuEventRecord(other)", do_event_record},
    {"cuEventRecord(legacy)", do_event_record_legacy},
    {"cuStreamWaitEvent(capturing, done)", do_wait_done},
    {"cuStreamWaitEvent(other, done)", do_wait_other},
    {"cuStreamWaitEvent(legacy, captured)", do_wait_captured_legacy},
    {"cuStreamQuery(other)", do_stream_query},
    {"cuStreamQuery(capturing)", do_stream_query_capturing},
    {"cuStreamQuery(legacy)", do_stream_query_legacy},
    {"cuStreamSynchronize(other)", do_stream_sync},
    {"cuStreamSynchronize(capturing)", do_stream_sync_capturing},
    {"cuStreamSynchronize(legacy)", do_stream_sync_legacy},
    {"cuStreamIsCapturing(legacy)", do_is_capturing_legacy},
    {"cuStreamGetCaptureInfo(legacy)", do_capture_info_legacy},
    {"cuStreamCreate", do_stream_create},
    {"cuStreamDestroy(other)", do_stream_destroy},
    {"cuStreamBeginCapture(again)", do_begin_again},
    {"cuStreamBeginCapture(legacy)", do_begin_legacy},
    {"cuCtxSynchronize", do_ctx_sync},
    {"cuCtxRecordEvent", do_ctx_record},
    {"cuCtxWaitEvent", do_ctx_wait},
    {"cuDevicePrimaryCtxRetain", do_retain},
    {"cuModuleGetFunction", do_module},
    {"cuLaunchKernel(other)", do_launch_other},
    {"cuLaunchKernel(capturing)", do_launch_capturing},
    {"cuLaunchKernel(legacy)", do_launch_legacy},
    {"cuLaunchKernel(per thread)", do_launch_per_thread},
    {"cuMemcpyHtoD", do_copy_sync},
    {"cuMemcpyDtoH", do_copy_back_sync},
    {"cuMemcpyDtoD", do_copy_dtod_sync},
    {"cuMemsetD8", do_set_sync},
    {"cuMemcpyHtoDAsync(other, pageable)", do_copy_async},
    {"cuMemcpyHtoDAsync(capturing, pageable)", do_copy_capturing},
    {"cuMemcpyDtoHAsync(capturing, pageable)", do_copy_back_capturing},
    {"cuMemcpyDtoDAsync(capturing, unmapped)", do_copy_bad_capturing},
    {"cuMemsetD8Async(capturing, unmapped)", do_set_bad_capturing},
    {"cuStreamAddCallback(capturing)", do_callback_capturing},
    {"cuMemAllocAsync(other)", do_alloc_async},
    {"cuMemAllocAsync(capturing)", do_alloc_async_capturing},
    {"cuMemFreeAsync(other)", do_free_async},
    {"cuGraphLaunch(other)", do_graph_launch},
    {"cuGraphLaunch(capturing)", do_graph_launch_capturing},
    {"cuGraphInstantiate", do_instantiate},
    {"cuGraphExecDestroy", do_exec_destroy},
};

/* --- one cell of the table
 * ------------------------------------------------------------ */

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
		for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
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
