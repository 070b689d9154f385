/* SPDX-License-Identifier: MIT */
/*
 * chances.c - calls that take memory of the device by themselves, where the library
 * has it: what the program has freed, on plain CUDA they would have had.
 *
 *   chances SCENARIO    plays one; 0: all is as on plain CUDA
 */
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>

#include "edge_cases.h"

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

static CUdeviceptr managed;
CALL(cuMemAllocManaged, cuMemAllocManaged(&managed, MIB, CU_MEM_ATTACH_GLOBAL))

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

static void calls_on_a_device_full_of_cache(void)
{
	begin();
	calls_are_served();
	primary();
	calls_are_served(); /* with several contexts */
}

/* A call that plain CUDA would refuse is refused, once, and breaks nothing. */
static void calls_on_a_device_full_of_blocks(void)
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

/* --- other threads ---------------------------------------------------------------- */

static void trims(void)
{
	__typeof__(gcpool_trim) *trim;

	*(void **)&trim = dlsym(RTLD_DEFAULT, "gcpool_trim");
	trim(0, 0);
}

/* The next call of `name`, of its newest version. */
static void when_called(const char *name, void (*then)(void))
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

static const char *awaited; /* the call */
static void (*meanwhile)(void);
static CUdeviceptr held;

static void *in_another_thread(void *current)
{
	OK(cuCtxSetCurrent(current));
	meanwhile();
	return NULL;
}

static void meanwhile_elsewhere(void)
{
	CUcontext current;
	pthread_t thread;

	OK(cuCtxGetCurrent(&current));
	must(pthread_create(&thread, NULL, in_another_thread, current) == 0 &&
		 pthread_join(thread, NULL) == 0,
	     "no thread");
}

/* A first try follows what was given back at any time. */
static void at_the_second_try(void)
{
	when_called(awaited, meanwhile_elsewhere);
}

/* As an allocation of another thread does where memory is short. */
static void gives_back(void)
{
	const CUmemAllocationProp properties = {
	    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
	CUmemGenericAllocationHandle handle;

	OK(cuMemFree(held));
	OK(cuMemCreate(&handle, HELD * MIB, &properties, 0));
	OK(cuMemRelease(handle));
}

/* When the call fails another thread gives back what is missing, before the library
 * looks for it. */
static void what_another_thread_gives_back(void)
{
	begin();
	hold_freed_memory();
	meanwhile = trims;
	meanwhile_elsewhere();
	meanwhile = gives_back;
	for (int i = 0; i < CALLS; i++) {
		held = allocated(HELD * MIB);
		awaited = calls[i].name;
		plan(awaited, 0);
		when_called(awaited, at_the_second_try);
		if (calls[i].make() != CUDA_SUCCESS) {
			printf("%s: refused\n", calls[i].name);
			wrong = true;
		}
		must(gcpsim_memory_used(0) < NEEDED * MIB, "nothing was given back");
		must(gcpsim_fail(NULL) == 0, "no plan");
	}
}

static void *pinned;

static void unpins(void)
{
	__typeof__(gcpool_trim_host) *trim;

	*(void **)&trim = dlsym(RTLD_DEFAULT, "gcpool_trim_host");
	OK(cuMemFreeHost(pinned));
	trim(0);
}

/* The same of pinned memory. */
static void what_another_thread_unpins(void)
{
	void *own = mmap(NULL, NEEDED * MIB, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	begin();
	must(own != MAP_FAILED, "no memory");
	hold_freed_memory();
	meanwhile = trims;
	meanwhile_elsewhere();
	OK(cuMemHostAlloc(&pinned, HELD * MIB, 0));
	must(gcpsim_fail("cuMemHostRegister:1:2,cuMemHostRegister:2:2") == 0,
	     "no such plan");
	awaited = "cuMemHostRegister";
	meanwhile = unpins;
	when_called(awaited, at_the_second_try);
	OK(cuMemHostRegister(own, NEEDED * MIB, 0));
	must(gcpsim_memory_used(-1) < HELD * MIB, "nothing was given back");
}

static unsigned tries;

static void frees_more(void)
{
	tries++;
	OK(cuMemFree(allocated(2 * MIB)));
	when_called("cuMemAllocManaged", frees_more);
}

static void gives_more_back(void)
{
	frees_more();
	meanwhile = trims;
	meanwhile_elsewhere();
	when_called("cuMemAllocManaged", gives_more_back);
}

/* A call that no memory helps ends, though other threads free and give back. */
static void calls_end_beside_other_threads(void)
{
	void (*const others[])(void) = {gives_more_back, frees_more};

	begin();
	for (int i = 0; i < 2; i++) {
		tries = 0;
		must(gcpsim_fail("cuMemAllocManaged:1+:2") == 0, "no such plan");
		when_called("cuMemAllocManaged", others[i]);
		alarm(10);
		must(make_cuMemAllocManaged() == CUDA_ERROR_OUT_OF_MEMORY, "served");
		must(tries > 1 && tries <= 1000, "not so often");
		when_called("cuMemAllocManaged", NULL);
		must(gcpsim_fail(NULL) == 0, "no plan");
	}
}

/* --- contexts --------------------------------------------------------------------- */

/* Only what the device of the new context has goes back. */
static void context_of_another_device(void)
{
	CUcontext other;

	begin();
	OK(cuCtxCreate(&other, NULL, 0, 1));
	OK(cuMemFree(allocated(HELD * MIB)));
	OK(cuCtxSetCurrent(NULL));
	primary();
	hold_freed_memory();
	plan("cuDevicePrimaryCtxRetain", 1);
	OK(cuDevicePrimaryCtxRetain(&other, 1));
	must(gcpsim_memory_used(0) >= HELD * MIB,
	     "memory of a device that is not full was given back");
	must(gcpsim_memory_used(1) < NEEDED * MIB, "device 1 has kept its memory");
	plan("cuCtxCreate_v4", 1);
	OK(cuCtxSetCurrent(other));
	OK(cuMemFree(allocated(HELD * MIB)));
	primary();
	OK(cuCtxCreate(&other, NULL, 0, 1));
	must(gcpsim_memory_used(0) >= HELD * MIB,
	     "memory of a device that is not full was given back");
}

/* --- captures --------------------------------------------------------------------- */

static atomic_bool stepped;

static void until_the_next_step(void *unused)
{
	(void)unused;
	while (!atomic_load(&stepped))
		usleep(1000);
}

/* What is done goes back beside a capture, and nothing waits for work that only the
 * host's next step ends. */
static void calls_beside_a_capture(void)
{
	CUdeviceptr block, small;
	CUstream busy, other;
	CUgraph result;

	begin();
	OK(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	hold_freed_memory();
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuLaunchHostFunc(busy, until_the_next_step, NULL));
	for (int i = 0; i < 3; i++) {
		plan(i == 0   ? "cuEventCreate"
		     : i == 1 ? "cuModuleLoadData"
			      : "cuStreamCreate",
		     0);
		alarm(10); /* a call that waits for the host */
		OK(i == 0   ? make_cuEventCreate()
		   : i == 1 ? make_cuModuleLoadData()
			    : make_cuStreamCreate());
		must(gcpsim_fail(NULL) == 0, "no plan");
	}
	/* What was freed last is not done with: refused, rather than waited for. */
	block = allocated(HELD * MIB);
	small = allocated(MIB);
	OK(cuMemsetD8Async(small, 1, MIB, busy));
	OK(cuMemFree(small));
	plan("cuEventCreate", 0);
	must(make_cuEventCreate() == CUDA_ERROR_OUT_OF_MEMORY, "served from nothing");
	must(gcpsim_fail(NULL) == 0, "no plan");
	atomic_store(&stepped, true);
	OK(cuStreamEndCapture(stream, &result));
	OK(cuCtxSynchronize());
	OK(cuMemFree(block));
	must(gcpsim_invalidated() == 0, "a capture was destroyed");
	must(gcpsim_hazards() == 0, "memory was given back too early");
}

/* --- graphs that share memory ----------------------------------------------------- */

static CUgraphExec sharing(CUstream in, size_t bytes)
{
	CUgraphExec result;
	CUgraph captured;
	CUdeviceptr p;

	OK(cuStreamBeginCapture(in, CU_STREAM_CAPTURE_MODE_GLOBAL));
	p = allocated(bytes);
	OK(cuMemsetD8Async(p, 1, MIB, in));
	OK(cuMemFree(p));
	OK(cuStreamEndCapture(in, &captured));
	OK(cuGraphInstantiateWithFlags(&result, captured, 0));
	OK(cuGraphDestroy(captured));
	return result;
}

/* Their memory may go back between two tries: a launch that never succeeds ends. */
static void launches_of_graphs_that_share(void)
{
	CUgraphExec first, second;

	begin();
	first = sharing(stream, 8 * MIB);
	second = sharing(stream, 16 * MIB);
	OK(cuCtxSynchronize());
	for (int i = 0; i < 3; i++) { /* again: by the short way */
		OK(cuGraphLaunch(first, stream));
		OK(cuGraphLaunch(second, stream));
		OK(cuStreamSynchronize(stream));
	}
	for (int i = 0; i < 2; i++) {
		hold_freed_memory();
		plan("cuGraphLaunch", 0);
		OK(cuGraphLaunch(second, stream));
		must(gcpsim_fail(NULL) == 0, "no plan");
		OK(cuStreamSynchronize(stream));
		OK(cuGraphLaunch(second, stream));
		OK(cuStreamSynchronize(stream));
	}
	must(gcpsim_fail("cuGraphLaunch:1+:2") == 0, "no such plan");
	alarm(10); /* a call that never returns */
	must(cuGraphLaunch(second, stream) == CUDA_ERROR_OUT_OF_MEMORY,
	     "launched by nothing");
	must(gcpsim_fail(NULL) == 0, "no plan");
	OK(cuGraphLaunch(first, stream));
	OK(cuGraphLaunch(second, stream));
	OK(cuCtxSynchronize());
	must(gcpsim_hazards() == 0, "memory was given back too early");
}

/* The same of a launch whose graph shares memory that has gone back. */
static void a_launch_while_another_thread_gives_back(void)
{
	CUgraphExec shares;

	begin();
	shares = sharing(stream, NEEDED * MIB);
	OK(cuCtxSynchronize());
	OK(cuGraphLaunch(shares, stream));
	OK(cuCtxSynchronize());
	meanwhile = trims;
	meanwhile_elsewhere();
	must(gcpsim_memory_used(0) < NEEDED * MIB, "the graph has kept its memory");
	held = allocated(HELD * MIB);
	meanwhile = gives_back;
	/* When the library has looked for what the pools have unused. */
	when_called("cuDeviceGraphMemTrim", meanwhile_elsewhere);
	OK(cuGraphLaunch(shares, stream));
	OK(cuCtxSynchronize());
	must(gcpsim_memory_used(0) < HELD * MIB, "nothing was given back");
	must(gcpsim_hazards() == 0, "memory was given back too early");
}

/* What frees left pending is waited for, one after the other, until the launch has what
 * it needs: on plain CUDA the frees would have waited. */
static void a_launch_after_many_frees(void)
{
	CUdeviceptr blocks[HELD / 2];
	CUgraphExec shares;

	begin();
	shares = sharing(stream, NEEDED * MIB);
	OK(cuCtxSynchronize());
	OK(cuGraphLaunch(shares, stream));
	OK(cuCtxSynchronize());
	trims();
	for (int i = 0; i < HELD / 2; i++)
		blocks[i] = allocated(2 * MIB);
	gcpsim_set_speed(GCPSIM_NEVER);
	for (int i = 0; i < HELD / 2; i++) {
		OK(cuMemsetD8Async(blocks[i], 1, MIB, stream));
		OK(cuMemFree(blocks[i]));
	}
	OK(cuGraphLaunch(shares, stream));
	OK(cuCtxSynchronize());
	must(gcpsim_hazards() == 0, "memory was given back too early");
}

/* --- the run ---------------------------------------------------------------------- */

static const struct scenario scenarios[] = {
    SCENARIO(calls_on_a_device_full_of_cache),
    SCENARIO(calls_on_a_device_full_of_blocks),
    SCENARIO(what_another_thread_gives_back),
    SCENARIO(what_another_thread_unpins),
    SCENARIO(calls_end_beside_other_threads),
    SCENARIO(a_launch_while_another_thread_gives_back),
    SCENARIO(a_launch_after_many_frees),
    SCENARIO(context_of_another_device),
    SCENARIO(calls_beside_a_capture),
    SCENARIO(launches_of_graphs_that_share),
};

int main(int argc, char **argv)
{
	return scenario_play(scenarios, sizeof(scenarios) / sizeof(*scenarios), argc,
			     argv);
}
