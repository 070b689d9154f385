/* SPDX-License-Identifier: MIT */
/*
 * conform_codes.c - result codes of memory, contexts, lookups and handles that
 * are used in ways which are not quite right: the transcript.
 */
#include "conform_tell.h"

static void memory(void)
{
	CUdeviceptr q, base;
	size_t size, pitch;
	unsigned type = 77;
	void *host;

	section("memory");
	TELL(cuMemAlloc(&q, 0), cuMemFree(0), cuMemFree(12345));
	MUST(cuMemAlloc(&q, 1000));
	TELL(q % 512, cuMemFree(q + 4), cuMemGetAddressRange(&base, &size, q + 4));
	TELL(base == q, size, cuMemFree(q), cuMemFree(q));
	TELL(cuMemGetAddressRange(&base, &size, q));
	TELL(cuMemGetAddressRange(&base, &size, 12345));
	TELL(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 12345));
	TELL(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				   (CUdeviceptr)(uintptr_t)&host));
	TELL(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, p));
	TELL(cuMemAlloc(&q, (size_t)1 << 50), cuMemAlloc(&q, (2 << 20) + 5));
	TELL(q % (2 << 20));
	MUST(cuMemGetAddressRange(&base, &size, q + 100));
	TELL(size, cuMemFree(q), cuMemAllocPitch(&q, &pitch, 1000, 3, 4), pitch);
	TELL(cuMemAllocPitch(&q, &pitch, 1000, 3, 3), cuMemcpyDtoH(&host, 12345, 4));
	TELL(cuMemsetD8(12345, 0, 4), cuMemsetD32(p + 1, 0, 4));
	TELL(cuMemcpyDtoH(&host, p, 0), cuMemAlloc(NULL, 4), cuMemGetInfo(NULL, NULL));
	TELL(cuMemGetAddressRange(NULL, NULL, p), cuMemFreeHost(NULL));
	TELL(cuMemFreeHost(&host), cuMemHostGetDevicePointer(&q, &host, 0));
	MUST(cuMemAllocAsync(&q, 4096, s));
	TELL(cuMemFree(q));
	MUST(cuMemAllocAsync(&q, 4096, s));
	TELL(cuMemFreeAsync(q + 512, s), cuMemFreeAsync(q, s));
	MUST(cuStreamSynchronize(s));
	TELL(cuMemFreeAsync(q, s));
	MUST(cuMemAlloc(&q, 4096));
	TELL(cuMemFreeAsync(q, s));
	MUST(cuStreamSynchronize(s));
}

static void ipc(void)
{
	CUipcMemHandle handle;
	CUdeviceptr q, base;

	section("ipc");
	MUST(cuMemAlloc(&q, 4096));
	TELL(cuIpcGetMemHandle(&handle, q + 512));
	TELL(cuIpcOpenMemHandle(&base, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	handle.reserved[5] ^= 1;
	TELL(cuIpcCloseMemHandle(q), cuMemFree(q));
}

static void no_context(void)
{
	CUdeviceptr q, base;
	unsigned type;
	CUcontext ctx;
	size_t size;

	section("no context");
	MUST(cuCtxSetCurrent(NULL));
	TELL(cuCtxGetCurrent(&ctx), ctx == NULL, cuMemAlloc(&q, 4), cuMemFree(p));
	MUST(cuCtxSetCurrent(conform_ctx), cuMemAlloc(&p, 4096), cuCtxSetCurrent(NULL));
	TELL(cuMemFree(0), cuMemGetInfo(&size, &size));
	TELL(cuMemGetAddressRange(&base, &size, p));
	TELL(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
	TELL(cuCtxSynchronize(), cuStreamSynchronize(s), cuStreamQuery(s));
	TELL(cuCtxPopCurrent(&ctx));
	MUST(cuCtxSetCurrent(conform_ctx));
}

static void lookups(void)
{
	CUdriverProcAddressQueryResult found;
	void *pfn = &pfn;

	section("lookup");
	pfn = &pfn;
	TELL(cuGetProcAddress("", &pfn, 0, 0, &found), pfn == NULL, found);
	TELL(cuGetProcAddress("cuNoSuch", &pfn, 12000, 0, &found), found);
	TELL(cuGetProcAddress("cuMemAlloc", &pfn, 3020, 0, &found));
	TELL(pfn == (void *)cuMemAlloc);
	TELL(cuGetProcAddress("cuMemAlloc", &pfn, 13000, 2, &found));
	TELL(pfn == (void *)cuMemAlloc);
	TELL(cuGetProcAddress("cuMemAlloc_v2", &pfn, 13000, 0, &found), found);
	TELL(cuGetProcAddress("cuMemAlloc", &pfn, 99000, 0, &found));
	TELL(cuGetProcAddress("cuMemAlloc", &pfn, 12000, 8, &found));
	TELL(cuGetProcAddress("cuCtxRecordEvent", &pfn, 12040, 0, &found), found);
	TELL(cuGetProcAddress("cuCtxRecordEvent", &pfn, 12050, 0, &found));
}

static void contexts(void)
{
	CUcontext ctx, other;
	unsigned flags;
	int active;
	CUdeviceptr q;

	section("contexts");
	MUST(cuCtxCreate(&other, NULL, 0, conform_device), cuMemAlloc(&q, 4096));
	TELL(cuCtxDestroy(other), cuCtxGetCurrent(&ctx), ctx == NULL);
	MUST(cuCtxSetCurrent(conform_ctx));
	TELL(cuMemFree(q), cuCtxDestroy(conform_ctx));
	TELL(cuDevicePrimaryCtxGetState(conform_device, &flags, &active), active);
	TELL(cuDevicePrimaryCtxReset(conform_device));
	TELL(cuDevicePrimaryCtxGetState(conform_device, &flags, &active), active);
	TELL(cuCtxGetCurrent(&ctx), ctx == conform_ctx, cuMemAlloc(&q, 4096));
	TELL(cuMemFree(p), cuCtxSynchronize());
	TELL(cuDevicePrimaryCtxRetain(&ctx, conform_device), ctx == conform_ctx);
	MUST(cuCtxSetCurrent(ctx));
	TELL(cuMemAlloc(&q, 4096), cuDevicePrimaryCtxRelease(conform_device));
	TELL(cuDevicePrimaryCtxGetState(conform_device, &flags, &active), active);
	TELL(cuMemAlloc(&q, 4096), cuDevicePrimaryCtxRelease(conform_device));
	TELL(cuDevicePrimaryCtxGetState(conform_device, &flags, &active), active);
	TELL(cuMemAlloc(&q, 4096), cuDevicePrimaryCtxRelease(conform_device));
}

static void trap(void)
{
	CUdeviceptr q;
	CUevent event;

	section("a sticky error");
	MUST(cuDevicePrimaryCtxRetain(&conform_ctx, conform_device));
	MUST(cuCtxSetCurrent(conform_ctx));
	s = new_stream(CU_STREAM_NON_BLOCKING);
	MUST(cuMemAlloc(&p, 4096));
	event = new_event();
	FILE *file = fopen(getenv("CONFORM_PTX"), "r");
	static char image[1 << 20];
	if (!file || fread(image, 1, sizeof(image) - 1, file) == 0)
		exit(2);
	MUST(cuModuleLoadData(&conform_module, image));
	CUfunction f = conform_function("gcpt_trap");
	TELL(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL));
	TELL(cuStreamSynchronize(s) != 0, cuStreamQuery(s) != 0);
	TELL(cuMemAlloc(&q, 4096) != 0, cuMemFree(p) != 0);
	TELL(cuEventRecord(event, s) != 0, cuEventQuery(event) != 0);
	TELL(cuCtxSynchronize() != 0, cuCtxRecordEvent(conform_ctx, event) != 0);
	TELL(cuMemGetInfo(&(size_t){0}, &(size_t){0}) != 0);
	TELL(cuCtxGetDevice(&(int){0}) != 0, cuCtxSetCurrent(conform_ctx));
	printf("code %d\n", (int)cuCtxSynchronize());
}

int main(int argc, char **argv)
{
	tell_start(argc, argv);
	setenv("CONFORM_PTX", argv[1], 1);
	memory();
	ipc();
	no_context();
	lookups();
	contexts();
	trap();
	return 0;
}
