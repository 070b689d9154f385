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

#include "scenarios.h"

#include "../../../interpose/gcpool.h"

enum { HELD = 192, NEEDED = 96 }; /* MiB of the 256 that the device has */

static CUmodule module;
static CUfunction function;
static CUstream stream;
static CUgraph graph;
static CUgraphExec exec;

/* --- the calls -------------------------------------------------------------------- */

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

#define CALLS_OF(X)                                                                    \
	X(cuCtxSetLimit, (CU_LIMIT_STACK_SIZE, 4096))                                  \
	X(cuModuleLoad, (&loaded, "file"))                                             \
	X(cuModuleLoadData, (&loaded, ""))                                             \
	X(cuModuleLoadDataEx, (&loaded, "", 0, NULL, NULL))                            \
	X(cuModuleLoadFatBinary, (&loaded, ""))                                        \
	X(cuModuleGetFunction, (&found, module, "gcpt_spin"))                          \
	X(cuLibraryLoadData, (&library, "", NULL, NULL, 0, NULL, NULL, 0))             \
	X(cuKernelGetFunction, (&found, (CUkernel)function))                           \
	X(cuFuncGetAttribute, (&number, CU_FUNC_ATTRIBUTE_NUM_REGS, function))         \
	X(cuFuncSetAttribute,                                                          \
	  (function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 0))           \
	X(cuStreamCreate, (&made, CU_STREAM_NON_BLOCKING))                             \
	X(cuStreamCreateWithPriority, (&made, CU_STREAM_NON_BLOCKING, 0))              \
	X(cuEventCreate, (&event, 0))                                                  \
	X(cuGraphInstantiateWithFlags, (&instance, graph, 0))                          \
	X(cuGraphInstantiateWithParams, (&instance, graph, &instantiation))            \
	X(cuGraphExecUpdate, (exec, graph, &update))                                   \
	X(cuGraphUpload, (exec, stream))                                               \
	X(cuGraphLaunch, (exec, stream))                                               \
	X(cuLaunchKernel, (function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL))   \
	X(cuLaunchCooperativeKernel,                                                   \
	  (function, 1, 1, 1, 1, 1, 1, 0, stream, parameters))                         \
	X(cuGreenCtxCreate, (&green, resources(), 0, CU_GREEN_CTX_DEFAULT_STREAM))     \
	X(cuDevicePrimaryCtxRetain, (&context, 0))                                     \
	X(cuCtxCreate, (&context, NULL, 0, 0)) /* and current from then on */

#define MAKE(name, arguments)                                                          \
	static CUresult make_##name(void)                                              \
	{                                                                              \
		return name arguments;                                                 \
	}
CALLS_OF(MAKE)

static const struct {
	const char *name;
	CUresult (*make)(void);
} calls[] = {
#define CALLS_OF_ROW(name, arguments) {#name, make_##name},
    CALLS_OF(CALLS_OF_ROW)};

static CUdeviceptr managed;
MAKE(cuMemAllocManaged, (&managed, MIB, CU_MEM_ATTACH_GLOBAL))

enum { CALLS = sizeof(calls) / sizeof(*calls) };

/* --- the device ------------------------------------------------------------------- */

/* The call takes NEEDED of the device. */
static void plan(const char *name, int device)
{
	char text[100];

	snprintf(text, sizeof(text), "%s:<%dM@%d", name, NEEDED, device);
	calls_fail(text);
}

static void begin(void)
{
	primary();
	OK(cuModuleLoadData(&module, ""));
	OK(cuModuleGetFunction(&function, module, "gcpt_spin"));
	stream = stream_new();
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
	graph = capture_end(stream);
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0), cuCtxSynchronize());
}

BEGIN_WITH(begin)

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
		calls_fail(NULL);
	}
}

SCENARIO(calls_on_a_device_full_of_cache)
{
	calls_are_served();
	primary();
	calls_are_served(); /* with several contexts */
}

/* A call that plain CUDA would refuse is refused, once, and breaks nothing. */
SCENARIO(calls_on_a_device_full_of_blocks)
{
	CUdeviceptr block;

	block = allocated(HELD * MIB);
	for (int i = 0; i < CALLS; i++) {
		plan(calls[i].name, 0);
		if (calls[i].make() != CUDA_ERROR_OUT_OF_MEMORY) {
			printf("%s: not refused\n", calls[i].name);
			wrong = true;
		}
		calls_fail(NULL);
	}
	OK(cuMemFree(block));
}

/* --- other threads ---------------------------------------------------------------- */

static void trims(void)
{
	__typeof__(gcpool_trim) *trim;

	*(void **)&trim = dlsym(RTLD_DEFAULT, "gcpool_trim");
	trim(0, 0);
}

/* The next call of `name`, of its newest version. */
static void newest_called(const char *name, void (*then)(void))
{
	static const char *const versions[] = {"_v4", "_v2", ""};
	char symbol[100];
	int result = -1;

	for (int i = 0; i < 3 && result != 0; i++) {
		snprintf(symbol, sizeof(symbol), "%s%s", name, versions[i]);
		result = gcpsim_when_called(symbol, then);
	}
	must(result == 0, "no such function");
}

static void (*meanwhile)(void);

static void *in_another_thread(void *current)
{
	OK(cuCtxSetCurrent(current));
	meanwhile();
	return NULL;
}

static void meanwhile_elsewhere(void)
{
	CUcontext current;

	OK(cuCtxGetCurrent(&current));
	(void)play_elsewhere(in_another_thread, current);
}

/* As an allocation of another thread does where memory is short. */
static void gives_cached_memory_back(void)
{
	OK(cuMemRelease(memory_made(HELD * MIB)));
}

static void *pinned;

static unsigned tries;
static const char *refused;

static void frees_more(void)
{
	tries++;
	OK(cuMemFree(allocated(2 * MIB)));
	newest_called(refused, frees_more);
}

static void gives_more_back(void)
{
	frees_more();
	meanwhile = trims;
	meanwhile_elsewhere();
	newest_called(refused, gives_more_back);
}

static CUresult make_cuMemAllocPitch(void)
{
	CUdeviceptr rows;
	size_t pitch;

	return cuMemAllocPitch(&rows, &pitch, (size_t)1 << 30, 1 << 18, 4);
}

/* A call that no memory helps ends, though other threads free and give back. */
SCENARIO(calls_end_beside_other_threads)
{
	void (*const others[])(void) = {gives_more_back, frees_more};

	for (int i = 0; i < 4; i++) {
		tries = 0;
		refused = i < 2 ? "cuMemAllocManaged" : "cuMemAllocPitch";
		calls_fail("cuMemAllocManaged:1+:2,cuMemAllocPitch:1+:2");
		newest_called(refused, others[i % 2]);
		must((i < 2 ? make_cuMemAllocManaged() : make_cuMemAllocPitch()) ==
			 CUDA_ERROR_OUT_OF_MEMORY,
		     "served");
		must(tries > 1 && tries <= 2100, "not so often");
		newest_called(refused, NULL);
		calls_fail(NULL);
	}
}

/* --- work that ends by the program's next step ------------------------------------ */

static atomic_bool stepped;

/* What is freed here waits for a fence behind work that does not end. */
static void free_behind_work(void)
{
	CUdeviceptr small = allocated(MIB);

	hold_freed_memory();
	OK(cuCtxSynchronize(), cuMemsetD8Async(small, 1, MIB, stream));
	OK(cuLaunchHostFunc(stream, wait_for_flag, &stepped), cuMemFree(small));
	gcpsim_queries_never_wait(true);
}

static void step(void)
{
	atomic_store(&stepped, true);
	OK(cuCtxSynchronize());
	must(gcpsim_hazards() == 0, "memory was given back too early");
}

enum { LOOKS = 20000 }; /* those of two seconds */

/* Pinned memory is no reason to wait for it: the driver's free would. */
SCENARIO(a_refused_call_waits_for_no_later_work)
{
	OK(cuMemHostAlloc(&pinned, MIB, 0), cuMemFreeHost(pinned), cuCtxSynchronize());
	OK(cuLaunchHostFunc(stream, wait_for_flag, &stepped));
	gcpsim_queries_never_wait(true);
	calls_fail("cuMemAllocManaged:1+:2");
	must(make_cuMemAllocManaged() == CUDA_ERROR_OUT_OF_MEMORY, "served");
	step();
}

/* What another thread gave back is there at once. */
SCENARIO(a_served_call_does_not_look)
{
	uint64_t before;

	free_behind_work();
	plan("cuEventCreate", 0);
	meanwhile = gives_cached_memory_back;
	before = gcpsim_calls("cuEventQuery");
	newest_called("cuEventCreate", meanwhile_elsewhere);
	OK(make_cuEventCreate());
	must(gcpsim_calls("cuEventQuery") - before < LOOKS / 2, "it has looked for it");
	calls_fail(NULL);
	step();
}

/* --- memory that is on its way ---------------------------------------------------- */

static pthread_t asking;
static CUcontext asking_in;
static const char *asked; /* the driver's call, which finds no memory meanwhile */

/* Another thread asks while the driver has the memory in hand, for as long as this
 * takes. */
static void in_the_drivers_hand(void)
{
	uint64_t before;

	calls_fail(asked);
	before = gcpsim_calls(NULL);
	must(pthread_create(&asking, NULL, in_another_thread, asking_in) == 0,
	     "no thread");
	for (int i = 0; i < 100 && gcpsim_calls(NULL) - before < 3; i++)
		usleep(1000);
	usleep(20 * 1000); /* it has found none */
	calls_fail(NULL);
}

static void asks_for_an_event(void)
{
	OK(make_cuEventCreate());
}

static void there_is_memory_soon(void)
{
	usleep(100 * 1000);
	calls_fail(NULL);
}

/* Mapped memory of the context is released after that. */
static void a_context_has_ended(void)
{
	in_the_drivers_hand();
	if (strcmp(getenv("GCPOOL_BACKEND"), "vmm") != 0)
		return;
	calls_fail(asked);
	newest_called("cuMemRelease", there_is_memory_soon);
}

/* A context ends, and its memory with it. */
SCENARIO(memory_of_a_context_that_ends)
{
	CUcontext other;

	OK(cuCtxGetCurrent(&asking_in)); /* it has no memory */
	OK(cuCtxCreate(&other, NULL, 0, 0));
	hold_freed_memory();
	asked = "cuEventCreate:1+:2";
	meanwhile = asks_for_an_event;
	newest_called("cuCtxDestroy", a_context_has_ended);
	OK(cuCtxDestroy(other));
	pthread_join(asking, NULL);
}

/* --- captures --------------------------------------------------------------------- */

/* Plain CUDA allows them then, and has the memory back at once. */
SCENARIO(blocks_that_no_captured_work_had)
{
	CUstream other = stream_new();

	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	for (int i = 0; i < 8; i++) {
		work_on_blocks(other, 1, NEEDED * MIB);
		OK(cuStreamQuery(other));
	}
	OK(cuGraphDestroy(capture_end(stream)));
}

/* --- contexts --------------------------------------------------------------------- */

/* Only what the device of the new context has goes back. */
SCENARIO(context_of_another_device)
{
	CUcontext other;

	OK(cuCtxCreate(&other, NULL, 0, 1), cuMemFree(allocated(HELD * MIB)));
	OK(cuCtxSetCurrent(NULL));
	primary();
	hold_freed_memory();
	plan("cuDevicePrimaryCtxRetain", 1);
	OK(cuDevicePrimaryCtxRetain(&other, 1));
	must(gcpsim_memory_used(0) >= HELD * MIB,
	     "memory of a device that is not full was given back");
	must(gcpsim_memory_used(1) < NEEDED * MIB, "device 1 has kept its memory");
	plan("cuCtxCreate_v4", 1);
	OK(cuCtxSetCurrent(other), cuMemFree(allocated(HELD * MIB)));
	primary();
	OK(cuCtxCreate(&other, NULL, 0, 1));
	must(gcpsim_memory_used(0) >= HELD * MIB,
	     "memory of a device that is not full was given back");
}
