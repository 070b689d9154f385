/* SPDX-License-Identifier: MIT */
/*
 * chances.c - calls that take memory of the device by themselves, where the library
 * has it: what the program has freed, on plain CUDA they would have had.
 *
 *   chances SCENARIO    plays one; 0: all is as on plain CUDA
 *
 * Environment: GCPSIM_MEMORY=256M GCPSIM_DEVICES=2
 * Ways: GCPOOL_BACKEND=segments, GCPOOL_BACKEND=vmm
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "scenarios.h"

#include "../../../interpose/gcpool.h"

enum { HELD = 192, NEEDED = 96 }; /* MiB of the 256 that the device has */

static CUmodule module;
static CUfunction function;
static CUstream stream;
static CUgraph graph;
static CUgraphExec exec;

/* --- the calls -------------------------------------------------------------------- */

#define CALL(name, call)                                                               \
	static CUresult make_##name(void)                                              \
	{                                                                              \
		return call;                                                           \
	}

static CUcontext context;
static CUmodule loaded;
static CUlibrary library;
static CUfunction found;
static CUstream made;
static CUevent event;
static CUgraphExec instance;
static CUgreenCtx green;
static int number;
static CUDA_GRAPH_INSTANTIATE_PARAMS instantiation;
static CUgraphExecUpdateResultInfo update;
static unsigned long long ns = 1;
static void *parameters[] = {&ns};

static CUdevResourceDesc resources(void)
{
	CUdevResourceDesc description;
	CUdevResource all;

	OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	OK(cuDevResourceGenerateDesc(&description, &all, 1));
	return description;
}

CALL(cuCtxCreate, cuCtxCreate(&context, NULL, 0, 0))
CALL(cuGreenCtxCreate,
     cuGreenCtxCreate(&green, resources(), 0, CU_GREEN_CTX_DEFAULT_STREAM))
CALL(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain(&context, 0))
CALL(cuCtxSetLimit, cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096))
CALL(cuModuleLoad, cuModuleLoad(&loaded, "file"))
CALL(cuModuleLoadData, cuModuleLoadData(&loaded, ""))
CALL(cuModuleLoadDataEx, cuModuleLoadDataEx(&loaded, "", 0, NULL, NULL))
CALL(cuModuleLoadFatBinary, cuModuleLoadFatBinary(&loaded, ""))
CALL(cuModuleGetFunction, cuModuleGetFunction(&found, module, "gcpt_spin"))
CALL(cuLibraryLoadData, cuLibraryLoadData(&library, "", NULL, NULL, 0, NULL, NULL, 0))
CALL(cuKernelGetFunction, cuKernelGetFunction(&found, (CUkernel)function))
CALL(cuFuncGetAttribute,
     cuFuncGetAttribute(&number, CU_FUNC_ATTRIBUTE_NUM_REGS, function))
CALL(cuFuncSetAttribute,
     cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
			0))
CALL(cuStreamCreate, cuStreamCreate(&made, CU_STREAM_NON_BLOCKING))
CALL(cuStreamCreateWithPriority,
     cuStreamCreateWithPriority(&made, CU_STREAM_NON_BLOCKING, 0))
CALL(cuEventCreate, cuEventCreate(&event, 0))
CALL(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags(&instance, graph, 0))
CALL(cuGraphInstantiateWithParams,
     cuGraphInstantiateWithParams(&instance, graph, &instantiation))
CALL(cuGraphExecUpdate, cuGraphExecUpdate(exec, graph, &update))
CALL(cuGraphUpload, cuGraphUpload(exec, stream))
CALL(cuGraphLaunch, cuGraphLaunch(exec, stream))
CALL(cuLaunchKernel,
     cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL))
CALL(cuLaunchCooperativeKernel,
     cuLaunchCooperativeKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters))

static const struct {
	const char *name;
	CUresult (*make)(void);
} calls[] = {
#define ROW(name)                                                                      \
	{                                                                              \
#name, make_##name                                                     \
	}
    ROW(cuCtxSetLimit),
    ROW(cuModuleLoad),
    ROW(cuModuleLoadData),
    ROW(cuModuleLoadDataEx),
    ROW(cuModuleLoadFatBinary),
    ROW(cuModuleGetFunction),
    ROW(cuLibraryLoadData),
    ROW(cuKernelGetFunction),
    ROW(cuFuncGetAttribute),
    ROW(cuFuncSetAttribute),
    ROW(cuStreamCreate),
    ROW(cuStreamCreateWithPriority),
    ROW(cuEventCreate),
    ROW(cuGraphInstantiateWithFlags),
    ROW(cuGraphInstantiateWithParams),
    ROW(cuGraphExecUpdate),
    ROW(cuGraphUpload),
    ROW(cuGraphLaunch),
    ROW(cuLaunchKernel),
    ROW(cuLaunchCooperativeKernel),
    ROW(cuGreenCtxCreate),
    ROW(cuDevicePrimaryCtxRetain),
    ROW(cuCtxCreate), /* and current from then on */
};

enum { CALLS = sizeof(calls) / sizeof(*calls) };

/* --- the device ------------------------------------------------------------------- */

/* The call takes NEEDED of the device. */
static void plan(const char *name, int device)
{
	char text[100];

	snprintf(text, sizeof(text), "%s:<%dM@%d", name, NEEDED, device);
	must(gcpsim_fail(text) == 0, "no such plan");
}

static void begin(void)
{
	primary();
	OK(cuModuleLoadData(&module, ""));
	OK(cuModuleGetFunction(&function, module, "gcpt_spin"));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuCtxSynchronize());
}

/* On plain CUDA that much would be free. */
static void hold_freed_memory(void)
{
	OK(cuMemFree(allocated(HELD * MIB)));
	must(gcpsim_memory_used(0) >= HELD * MIB, "the library holds nothing");
}

static void calls_are_served(void)
{
	for (int i = 0; i < CALLS; i++) {
		hold_freed_memory();
		plan(calls[i].name, 0);
		if (calls[i].make() != CUDA_SUCCESS) {
			printf("%s: refused\n", calls[i].name);
			wrong = true;
		}
		must(gcpsim_fail(NULL) == 0, "no plan");
	}
}

SCENARIO(calls_on_a_device_full_of_cache)
{
	begin();
	calls_are_served();
	primary();
	calls_are_served(); /* with several contexts */
}

/* A call that plain CUDA would refuse is refused, once, and breaks nothing. */
SCENARIO(calls_on_a_device_full_of_blocks)
{
	CUdeviceptr block;

	begin();
	block = allocated(HELD * MIB);
	for (int i = 0; i < CALLS; i++) {
		plan(calls[i].name, 0);
		if (calls[i].make() != CUDA_ERROR_OUT_OF_MEMORY) {
			printf("%s: not refused\n", calls[i].name);
			wrong = true;
		}
		must(gcpsim_fail(NULL) == 0, "no plan");
	}
	OK(cuMemFree(block));
}

/* --- work that ends by the program's next step ------------------------------------ */

enum { LOOKS = 20000 }; /* those of two seconds */
