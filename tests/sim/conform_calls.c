/* SPDX-License-Identifier: MIT */
/*
 * conform_calls.c - one small function for each call whose legality during a
 * capture conform_legality.c asks for.
 */
#include "conform_calls.h"

#define CALL(name, call)                                                               \
	static CUresult name(struct scene *s)                                          \
	{                                                                              \
		(void)s;                                                               \
		return call;                                                           \
	}

/* --- the calls -------------------------------------------------------------------- */

CALL(do_nothing, CUDA_SUCCESS)

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

CALL(do_free_null, cuMemFree(0))
CALL(do_free_interior, cuMemFree(s->p + 256))

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

CALL(do_map, cuMemMap(s->range, MAP, 0, s->physical, 0))

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

CALL(do_event_query, cuEventQuery(s->done))
CALL(do_event_query_captured, cuEventQuery(s->captured))
CALL(do_event_sync, cuEventSynchronize(s->done))
CALL(do_event_sync_captured, cuEventSynchronize(s->captured))
CALL(do_event_record, cuEventRecord(s->fresh, s->other))
CALL(do_event_record_legacy, cuEventRecord(s->fresh, CU_STREAM_LEGACY))

static CUresult do_event_create(struct scene *s)
{
	CUevent e;

	(void)s;
	return cuEventCreate(&e, 0);
}

CALL(do_wait_done, cuStreamWaitEvent(s->capturing, s->done, 0))
CALL(do_wait_captured_legacy, cuStreamWaitEvent(CU_STREAM_LEGACY, s->captured, 0))
CALL(do_wait_other, cuStreamWaitEvent(s->other, s->done, 0))
CALL(do_stream_query, cuStreamQuery(s->other))
CALL(do_stream_query_capturing, cuStreamQuery(s->capturing))
CALL(do_stream_query_legacy, cuStreamQuery(CU_STREAM_LEGACY))
CALL(do_stream_sync, cuStreamSynchronize(s->other))
CALL(do_stream_sync_capturing, cuStreamSynchronize(s->capturing))
CALL(do_stream_sync_legacy, cuStreamSynchronize(CU_STREAM_LEGACY))

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

CALL(do_ctx_sync, cuCtxSynchronize())
CALL(do_ctx_record, cuCtxRecordEvent(scene_ctx(), s->fresh))
CALL(do_ctx_wait, cuCtxWaitEvent(scene_ctx(), s->done))
CALL(do_launch_other, scene_fill(s->q, s->other))
CALL(do_launch_capturing, scene_fill(s->q, s->capturing))
CALL(do_launch_legacy, scene_fill(s->q, CU_STREAM_LEGACY))
CALL(do_launch_per_thread, scene_fill(s->q, CU_STREAM_PER_THREAD))
CALL(do_copy_sync, cuMemcpyHtoD(s->q, s->pageable, 256))
CALL(do_copy_back_sync, cuMemcpyDtoH(s->pageable, s->q, 256))
CALL(do_copy_dtod_sync, cuMemcpyDtoD(s->q, s->q + 512, 256))
CALL(do_set_sync, cuMemsetD8(s->q, 0, 256))
CALL(do_copy_async, cuMemcpyHtoDAsync(s->q, s->pageable, 256, s->other))
CALL(do_copy_capturing, cuMemcpyHtoDAsync(s->q, s->pageable, 256, s->capturing))
CALL(do_copy_back_capturing, cuMemcpyDtoHAsync(s->pageable, s->q, 256, s->capturing))
CALL(do_copy_bad_capturing, cuMemcpyDtoDAsync(s->q, s->range, 256, s->capturing))
CALL(do_set_bad_capturing, cuMemsetD8Async(s->range, 0, 256, s->capturing))

static void callback(CUstream stream, CUresult status, void *data)
{
	(void)stream;
	(void)status;
	(void)data;
}

CALL(do_callback_capturing, cuStreamAddCallback(s->capturing, callback, NULL, 0))

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

CALL(do_graph_launch, cuGraphLaunch(s->exec, s->other))
CALL(do_graph_launch_capturing, cuGraphLaunch(s->exec, s->capturing))

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

CALL(do_begin_again, cuStreamBeginCapture(s->capturing, CU_STREAM_CAPTURE_MODE_RELAXED))
CALL(do_begin_legacy,
     cuStreamBeginCapture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_RELAXED))

static CUresult do_retain(struct scene *s)
{
	CUcontext ctx;

	(void)s;
	return cuDevicePrimaryCtxRetain(&ctx, 0);
}

CALL(do_module, scene_function())

static CUresult do_pool_trim(struct scene *s)
{
	CUmemoryPool pool;

	(void)s;
	cuDeviceGetDefaultMemPool(&pool, 0);
	return cuMemPoolTrimTo(pool, 0);
}

CALL(do_graph_trim, cuDeviceGraphMemTrim(0))

static CUresult do_attribute(struct scene *s)
{
	unsigned type;

	return cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, s->q);
}

CALL(do_unmap, cuMemUnmap(s->mapped, MAP))

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

CALL(do_unregister, cuMemHostUnregister(s->registered))

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

CALL(do_host_function, cuLaunchHostFunc(s->capturing, do_little, NULL))
CALL(do_ipc_close, cuIpcCloseMemHandle(s->q))
const struct call calls[] = {
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
    {NULL, NULL},
};
