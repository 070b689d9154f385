/* SPDX-License-Identifier: MIT */
/*
 * eager_work.c - every function that submits work is seen while a capture is under way:
 * what another thread allocated for the capture is used again by it, unless eager work
 * was submitted in between. Each row is one such function.
 */
#include "scenarios.h"

#include <dlfcn.h>

static CUcontext ctx;
static CUstream captured, other;
static CUdeviceptr place, from;
static CUfunction function;
static CUgraphExec exec;
static char host[4096];
static unsigned long long ns = 1;
static void *parameters[] = {&ns};

static void CUDA_CB nothing(void *data)
{
}

static void CUDA_CB nothing_called(CUstream stream, CUresult result, void *data)
{
}

typedef CUresult later_fn(CUdeviceptr at, unsigned char value, size_t count,
			  CUstream stream);

/* A function of a driver that is newer than the library, looked up while captures are
 * under way or long before: it makes no difference. */
static CUresult invented(CUstream stream, bool driver)
{
	CUdriverProcAddressQueryResult status;
	void *found = NULL;

	if (driver)
		OK(cuGetProcAddress("cuMemsetInvented", &found, 13000, 0, &status));
	else
		found = dlsym(RTLD_DEFAULT, "cuMemsetInvented");
	return ((later_fn *)found)(place, 1, 64, stream);
}

static CUresult launched_by_config(CUstream stream)
{
	CUlaunchConfig config = {1, 1, 1, 1, 1, 1, .hStream = stream};

	return cuLaunchKernelEx(&config, function, parameters, NULL);
}

static CUresult copied_2D(CUstream stream)
{
	CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
			      .srcDevice = from,
			      .srcPitch = 64,
			      .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			      .dstDevice = place,
			      .dstPitch = 64,
			      .WidthInBytes = 64,
			      .Height = 2};

	return cuMemcpy2DAsync(&copy, stream);
}

static CUresult copied_in_a_batch(CUstream stream)
{
	CUmemcpyAttributes attributes = {.srcAccessOrder =
					     CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
	size_t bytes = 64, index = 0;

	return cuMemcpyBatchAsync(&place, &from, &bytes, 1, &attributes, &index, 1,
				  stream);
}

static CUresult copied_in_a_batch_of_boxes(CUstream stream)
{
	CUDA_MEMCPY3D_BATCH_OP box = {
	    .src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER},
	    .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER},
	    .extent = {.width = 64, .height = 1, .depth = 1},
	    .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
	};

	box.src.op.ptr.ptr = from;
	box.dst.op.ptr.ptr = place;
	return cuMemcpy3DBatchAsync(1, &box, 0, stream);
}

/* X(name, call): `on` is the stream. */
#define CALLS(X)                                                                       \
	X(launch, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, on, parameters, NULL)) \
	X(launch_by_config, launched_by_config(on))                                    \
	X(launch_together,                                                             \
	  cuLaunchCooperativeKernel(function, 1, 1, 1, 1, 1, 1, 0, on, parameters))    \
	X(host_function, cuLaunchHostFunc(on, nothing, NULL))                          \
	X(graph, cuGraphLaunch(exec, on))                                              \
	X(copy, cuMemcpyAsync(place, from, 64, on))                                    \
	X(copy_in, cuMemcpyHtoDAsync(place, host, 64, on))                             \
	X(copy_out, cuMemcpyDtoHAsync(host, from, 64, on))                             \
	X(copy_within, cuMemcpyDtoDAsync(place, from, 64, on))                         \
	X(copy_of_peers, cuMemcpyPeerAsync(place, ctx, from, ctx, 64, on))             \
	X(copy_2D, copied_2D(on))                                                      \
	X(fill_8, cuMemsetD8Async(place, 1, 64, on))                                   \
	X(fill_16, cuMemsetD16Async(place, 1, 64, on))                                 \
	X(fill_32, cuMemsetD32Async(place, 1, 64, on))                                 \
	X(fill_2D, cuMemsetD2D8Async(place, 64, 1, 64, 2, on))                         \
	X(write, cuStreamWriteValue32(on, place, 1, 0))

/* X(name, call): these cannot be captured. */
#define EAGER_CALLS(X)                                                                 \
	X(callback, cuStreamAddCallback(other, nothing_called, NULL, 0))               \
	X(copies, copied_in_a_batch(other))                                            \
	X(copies_of_boxes, copied_in_a_batch_of_boxes(other))                          \
	X(asked_of_the_driver, invented(other, true))                                  \
	X(found_in_the_library, invented(other, false))

static atomic_int turn;
static CUdeviceptr given;
static bool frees;

static void take_turns(int mine)
{
	while (atomic_load(&turn) != mine)
		sched_yield();
}

/* Works on the captured stream: allocates; frees; allocates again. */
static void *work(void *arg)
{
	OK(cuCtxSetCurrent(ctx), cuMemsetD8Async(place, 1, 64, captured));
	OK(cuMemAlloc(&given, 4 * MIB));
	atomic_store(&turn, 2);
	take_turns(3);
	CUdeviceptr before = given;
	OK(cuMemFree(given), cuMemsetD8Async(place, 1, 64, captured));
	OK(cuMemAlloc(&given, 4 * MIB));
	frees = given == before;
	return NULL;
}

static bool is_used_again(CUresult (*submit)(CUstream on), CUstream on,
			  const char *name)
{
	CUresult result = CUDA_SUCCESS;
	pthread_t thread;
	CUgraph graph;

	atomic_store(&turn, 1);
	capture_begin(captured);
	pthread_create(&thread, NULL, work, NULL);
	take_turns(2);
	if (submit)
		result = submit(on);
	if (result != CUDA_SUCCESS)
		printf("%s: error %d\n", name, (int)result);
	wrong |= result != CUDA_SUCCESS;
	atomic_store(&turn, 3);
	pthread_join(thread, NULL);
	graph = capture_end(captured);
	OK(cuMemFree(given), cuGraphDestroy(graph));
	return frees;
}

#define CALLS_ROW(name, call)                                                          \
	static CUresult submit_##name(CUstream on)                                     \
	{                                                                              \
		(void)on;                                                              \
		return call;                                                           \
	}
CALLS(CALLS_ROW)
EAGER_CALLS(CALLS_ROW)

static const struct {
	const char *name;
	CUresult (*submit)(CUstream on);
	bool capturable;
} calls[] = {
#define CALLS_CELL(name, call) {#name, submit_##name, true},
    CALLS(CALLS_CELL)
#define EAGER_CALLS_ROW(name, call) {#name, submit_##name, false},
	EAGER_CALLS(EAGER_CALLS_ROW)};

static void make_things(void)
{
	CUmodule module;
	CUgraph graph;

	ctx = primary();
	captured = stream_new();
	other = stream_new();
	place = allocated(MIB);
	from = allocated(MIB);
	OK(cuModuleLoadData(&module, ""));
	OK(cuModuleGetFunction(&function, module, "gcpt_spin"));
	capture_begin(captured);
	OK(cuMemsetD8Async(place, 1, 64, captured));
	graph = capture_end(captured);
	exec = instantiated(graph);
}

BEGIN_WITH(make_things)

SCENARIO(every_submission_is_seen)
{
	must(is_used_again(NULL, NULL, "none"), "without eager work it is used again");
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		if (is_used_again(calls[i].submit, other, calls[i].name)) {
			printf("%s: ", calls[i].name);
			must(false, "eager work was not seen");
		}
		if (calls[i].capturable && strcmp(calls[i].name, "graph") != 0 &&
		    !is_used_again(calls[i].submit, captured, calls[i].name)) {
			printf("%s: ", calls[i].name);
			must(false, "captured work counted as eager");
		}
	}
}

/* The thread's own default stream does not capture. */
SCENARIO(work_on_the_stream_of_a_thread_is_seen)
{
	must(!is_used_again(submit_fill_8, CU_STREAM_PER_THREAD, "per thread"),
	     "eager work was not seen");
	must(!is_used_again(submit_launch, CU_STREAM_PER_THREAD, "per thread"),
	     "eager work was not seen");
}

/* --- what a launch hands on ------------------------------------------------------ */

typedef CUresult launch_fn(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
			   unsigned, unsigned, CUstream, void **, void **);
typedef CUresult cooperative_fn(CUfunction, unsigned, unsigned, unsigned, unsigned,
				unsigned, unsigned, unsigned, CUstream, void **);
typedef CUresult config_fn(const CUlaunchConfig *, CUfunction, void **, void **);

static void sizes_check(const char *what)
{
	unsigned sizes[7];

	gcpsim_last_launch(sizes);
	for (unsigned i = 0; i < 7; i++) {
		if (sizes[i] != i + 2) {
			printf("%s: the size %u is %u: ", what, i, sizes[i]);
			must(false, "another launch than the program's");
		}
	}
	OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, other, parameters, NULL));
}

static void launch_check(const char *name)
{
	launch_fn *launch = (launch_fn *)dlsym(RTLD_DEFAULT, name);

	OK(launch(function, 2, 3, 4, 5, 6, 7, 8, other, parameters, NULL));
	sizes_check(name);
}

static void cooperative_check(const char *name)
{
	cooperative_fn *launch = (cooperative_fn *)dlsym(RTLD_DEFAULT, name);

	OK(launch(function, 2, 3, 4, 5, 6, 7, 8, other, parameters));
	sizes_check(name);
}

/* Without a configuration the driver says what it says. */
static void config_check(const char *name)
{
	config_fn *launch = (config_fn *)dlsym(RTLD_DEFAULT, name);
	CUlaunchConfig config = {2, 3, 4, 5, 6, 7, 8, .hStream = other};

	OK(launch(&config, function, parameters, NULL));
	sizes_check(name);
	must(launch(NULL, function, parameters, NULL) == CUDA_ERROR_INVALID_VALUE,
	     "no configuration");
}

static void launches_check(void)
{
	launch_check("cuLaunchKernel");
	launch_check("cuLaunchKernel_ptsz");
	cooperative_check("cuLaunchCooperativeKernel");
	cooperative_check("cuLaunchCooperativeKernel_ptsz");
	config_check("cuLaunchKernelEx");
	config_check("cuLaunchKernelEx_ptsz");
}

/* Only beside captures does the library look at them. */
SCENARIO(launches_are_handed_on_as_they_are)
{
	CUgraph graph;

	launches_check();
	OK(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
	launches_check();
	graph = capture_end(captured);
	OK(cuGraphDestroy(graph));
}

/* --- kernels that may start early ----------------------------------------------  */

static uint64_t launches_early(CUstream stream, unsigned attribute_count)
{
	static CUlaunchAttribute attributes[80];
	CUlaunchConfig config = {1, 1, 1,      1,          1,
				 1, 0, stream, attributes, attribute_count};
	uint64_t before = gcpsim_early_launches();
	CUlaunchAttribute *last = &attributes[attribute_count - 1];

	memset(attributes, 0, sizeof(attributes));
	last->id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
	last->value.programmaticStreamSerializationAllowed = 1;
	OK(cuLaunchKernelEx(&config, function, parameters, NULL));
	must(last->value.programmaticStreamSerializationAllowed,
	     "the caller's attribute was written");
	return gcpsim_early_launches() - before;
}

/* A block that the capture frees behind a kernel is used again. */
static bool is_used_again_here(void)
{
	CUdeviceptr first = allocated(4 * MIB), second;

	OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, captured, parameters, NULL));
	OK(cuMemFree(first));
	second = allocated(4 * MIB);
	OK(cuMemFree(second));
	return second == first;
}

/* Only where the capture gives memory out again must a kernel stand in line. */
SCENARIO(kernels_that_may_start_early)
{
	CUgraph graph;

	must(launches_early(captured, 1) == 1, "beside captures it may");
	capture_begin(captured);
	must(launches_early(captured, 2) == 1, "a capture without memory lets it");
	must(is_used_again_here(), "that costs no memory");
	must(launches_early(captured, 1) == 0,
	     "it would start beside the block's user");
	must(launches_early(captured, 3) == 0,
	     "it would start beside the block's user");
	must(is_used_again_here(), "it stands in line: that costs no memory");
	must(launches_early(other, 1) == 1, "eager work is not concerned");
	graph = capture_end(captured);
	OK(cuGraphDestroy(graph));
}

/* So often, for submissions.py, which counts instructions. */
SCENARIO(each_call_often, "BY=submissions.py")
{
	const char *times = getenv("GCPT_TIMES");
	CUstream on = other;

	for (int i = 0; times && i < atoi(times); i++) {
		CUevent event;

#define CALLS_LINE(name, call) OK(call);
		CALLS(CALLS_LINE)
		OK(cuStreamAddCallback(other, nothing_called, NULL, 0));
		OK(copied_in_a_batch(other), copied_in_a_batch_of_boxes(other));
		OK(cuCtxSynchronize(), cuMemcpy(place, from, 64));
		OK(cuMemcpyHtoD(place, host, 64), cuMemcpyDtoH(host, from, 64));
		OK(cuMemsetD8(place, 1, 64), cuMemsetD32(place, 1, 16));
		OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
		OK(cuEventRecord(event, other), cuStreamWaitEvent(captured, event, 0));
		OK(cuEventDestroy(event), cuCtxSynchronize());
	}
}
