/* SPDX-License-Identifier: MIT */
/*
 * probe.c - prints facts about CUDA that the library relies on or would like to
 * know: IPC handles, pointers of look-ups, alignments. Run plain, on a GPU.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

static CUresult (*address_range)(CUdeviceptr *, size_t *, CUdeviceptr);
static CUresult (*look_up)(const char *, void **, int, cuuint64_t,
			   CUdriverProcAddressQueryResult *);

static void print_handle(const char *what, void *p)
{
	cudaIpcMemHandle_t handle;
	cudaError_t result = cudaIpcGetMemHandle(&handle, p);
	CUdeviceptr base = 0;
	size_t size = 0;

	address_range(&base, &size, (CUdeviceptr)(uintptr_t)p);
	printf(
	    "ipc handle of %s: code %d, address %p, range base +%llu of %zu bytes\n ",
	    what, result, p, (unsigned long long)((uintptr_t)p - base), size);
	for (size_t i = 0; i < sizeof(handle); i++)
		printf(" %02x%s", ((unsigned char *)&handle)[i], i == 31 ? "\n " : "");
	printf("\n");
	cudaGetLastError();
}

static void handles(void)
{
	char *a, *b, *c, *d;

	cudaMalloc((void **)&a, 4096);
	cudaMalloc((void **)&b, 4096);
	cudaMalloc((void **)&c, 5 << 20);
	cudaMalloc((void **)&d, 5 << 20);
	print_handle("a small block", a);
	print_handle("the same again", a);
	print_handle("its interior + 256", a + 256);
	print_handle("a second small block", b);
	print_handle("a 5 MiB block", c);
	print_handle("its interior + 3 MiB", c + (3 << 20));
	print_handle("a second 5 MiB block", d);
	cudaFree(c);
	cudaMalloc((void **)&c, 5 << 20);
	print_handle("the 5 MiB block freed and allocated again", c);
	cudaFree(a);
	cudaFree(b);
	cudaFree(c);
	cudaFree(d);
}

static void pointers(void *driver)
{
	static const struct {
		const char *name, *symbol;
		int version;
	} wanted[] = {
	    {"cuMemAlloc", "cuMemAlloc_v2", 3020},
	    {"cuMemFree", "cuMemFree_v2", 3020},
	    {"cuMemAllocPitch", "cuMemAllocPitch_v2", 3020},
	    {"cuMemGetInfo", "cuMemGetInfo_v2", 3020},
	    {"cuMemGetAddressRange", "cuMemGetAddressRange_v2", 3020},
	    {"cuPointerGetAttribute", "cuPointerGetAttribute", 4000},
	    {"cuPointerGetAttributes", "cuPointerGetAttributes", 7000},
	    {"cuIpcGetMemHandle", "cuIpcGetMemHandle", 4010},
	    {"cuIpcOpenMemHandle", "cuIpcOpenMemHandle", 4010},
	    {"cuIpcOpenMemHandle", "cuIpcOpenMemHandle_v2", 11000},
	    {"cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset", 7000},
	    {"cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2", 11000},
	    {"cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease", 7000},
	    {"cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2", 11000},
	    {"cuStreamBeginCapture", "cuStreamBeginCapture", 10000},
	    {"cuStreamBeginCapture", "cuStreamBeginCapture_v2", 10010},
	    {"cuStreamBeginCaptureToGraph", "cuStreamBeginCaptureToGraph", 12030},
	    {"cuStreamEndCapture", "cuStreamEndCapture", 10000},
	    {"cuMemAllocAsync", "cuMemAllocAsync", 11020},
	    {"cuCtxDestroy", "cuCtxDestroy_v2", 4000},
	    {"cuGetProcAddress", "cuGetProcAddress", 11030},
	    {"cuGetProcAddress", "cuGetProcAddress_v2", 12000},
	    {"cuMemAlloc", "cuMemAlloc", 2000},
	};

	for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++) {
		void *p = NULL, *q = dlsym(driver, wanted[i].symbol);
		CUresult result =
		    look_up(wanted[i].name, &p, wanted[i].version, 0, NULL);

		printf("cuGetProcAddress(%s, %d) and dlsym(%s): %s (code %d)\n",
		       wanted[i].name, wanted[i].version, wanted[i].symbol,
		       !p       ? "no pointer"
		       : p == q ? "equal"
				: "DIFFERENT",
		       result);
	}
}

static void alignments(void)
{
	static const struct {
		const char *name;
		enum cudaDeviceAttr attr;
	} wanted[] = {
	    {"texture pitch alignment", cudaDevAttrTexturePitchAlignment},
	    {"texture alignment", cudaDevAttrTextureAlignment},
	    {"surface alignment", cudaDevAttrSurfaceAlignment},
	    {"maximum pitch", cudaDevAttrMaxPitch},
	    {"multiprocessors", cudaDevAttrMultiProcessorCount},
	};
	size_t least = 0, pitch;
	void *p;

	for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++) {
		int value = -1;

		cudaDeviceGetAttribute(&value, wanted[i].attr, 0);
		printf("%s: %d\n", wanted[i].name, value);
	}
	for (size_t width = 1; width < 3000; width += 13) {
		cudaMallocPitch(&p, &pitch, width, 3);
		cudaFree(p);
		if (pitch != (width + 511) / 512 * 512)
			printf("pitch of width %zu is %zu, no multiple of 512\n", width,
			       pitch);
		least = least && least < pitch ? least : pitch;
	}
	printf("least pitch: %zu\n", least);
}

int main(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);

	if (!driver) {
		printf("no driver: %s\n", dlerror());
		return 77;
	}
	address_range = (CUresult(*)(CUdeviceptr *, size_t *, CUdeviceptr))dlsym(
	    driver, "cuMemGetAddressRange_v2");
	look_up =
	    (CUresult(*)(const char *, void **, int, cuuint64_t,
			 CUdriverProcAddressQueryResult *))dlsym(driver,
								 "cuGetProcAddress_v2");
	if (cudaFree(NULL) || !address_range || !look_up) {
		printf("no device\n");
		return 77;
	}
	handles();
	pointers(driver);
	alignments();
	return 0;
}
