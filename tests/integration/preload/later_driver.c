/* SPDX-License-Identifier: MIT */
/*
 * later_driver.c - what an unmodified program meets on a driver that is newer than the
 * library: captures that begin in other ways, and functions that are not known; and on
 * one that is too old.
 *
 *   later_driver SCENARIO    plays one; 0: all is as it should be
 *
 * Says: cuStreamBeginCaptureInvented may begin a capture that this version does not
 * see: from now on every allocation goes to CUDA
 */
#include <dlfcn.h>

#include "scenarios.h"

typedef CUresult begin_fn(double half, CUstream stream, CUstreamCaptureMode mode);
typedef CUresult recapture_fn(CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
			      void *callback, void *user_data);

enum { TURNS = 2000, HELD = 64 };

static CUdeviceptr held[HELD]; /* blocks of the pool, from before the capture */

/* Frees beside a capture that binds the other thread only, as plain CUDA allows. */
static void *frees_often(void *ctx)
{
	OK(cuCtxSetCurrent(ctx));
	for (int i = 0; i < HELD && held[i]; i++) {
		OK(cuMemFree(held[i]));
		held[i] = 0;
	}
	for (int i = 0; i < TURNS; i++)
		OK(cuMemFree(allocated(MIB)));
	return NULL;
}

static void ends_well(CUstream stream)
{
	CUgraph graph;

	must(cuStreamEndCapture(stream, &graph) == 0, "the capture was destroyed");
	OK(cuGraphDestroy(graph));
}

/* The capture begins by `begin`, while blocks of before are held. */
static void capture_by(begin_fn *begin)
{
	CUcontext ctx = primary();
	CUstream stream = stream_new();
	CUdeviceptr before = allocated(MIB);

	(void)play_elsewhere(frees_often, ctx);
	for (int i = 0; i < HELD; i++)
		held[i] = allocated(MIB);
	OK(begin(0.5, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	OK(cuMemsetD8Async(before, 1, MIB, stream));
	(void)play_elsewhere(frees_often, ctx);
	ends_well(stream);
	OK(cuMemFree(before), cuMemFree(allocated(MIB)));
}

static begin_fn *asked_of_the_driver(void)
{
	CUdriverProcAddressQueryResult status;
	void *found = NULL;

	OK(cuGetProcAddress("cuStreamBeginCaptureInvented", &found, 13000, 0, &status));
	return (begin_fn *)found;
}

SCENARIO(unknown_begin_asked_of_the_driver,
	 "SAYS=1 GCPOOL_TEST_WINDOW=0 GCPOOL_TEST_FENCE_BATCH=1")
{
	capture_by(asked_of_the_driver());
}

SCENARIO(unknown_begin_found_in_the_library,
	 "SAYS=1 GCPOOL_TEST_WINDOW=0 GCPOOL_TEST_FENCE_BATCH=1")
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

	(void)primary(); /* the driver is known by now */
	capture_by((begin_fn *)dlsym(library, "cuStreamBeginCaptureInvented"));
}

/* Asked for, as a runtime asks for all that it may need, and never called: nothing
 * changes. */
SCENARIO(unknown_begin_that_is_never_called,
	 "GCPOOL_TEST_WINDOW=0 GCPOOL_TEST_FENCE_BATCH=1")
{
	CUdeviceptr p;

	must(asked_of_the_driver() != NULL, "a function that is there");
	(void)primary();
	p = allocated(MIB);
	OK(cuMemFree(p));
	must(allocated(MIB) == p, "the pool is out of use");
}

/* Plain CUDA refuses it and destroys the capture; so does the library by now. */
SCENARIO_PRIMARY(allocation_in_an_unknown_capture, "SAYS=1")
{
	CUdeviceptr p;
	CUgraph graph;
	CUstream stream = stream_new();

	OK(cuMemFree(allocated(MIB)));
	OK(asked_of_the_driver()(0.5, stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	must(cuMemAlloc(&p, MIB) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
	     "memory that no graph keeps");
	must(cuStreamEndCapture(stream, &graph) ==
		 CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
	     "a capture that plain CUDA destroys");
}

SCENARIO(recapture_into_a_graph,
	 "GCPOOL_TEST_WINDOW=0 GCPOOL_TEST_FENCE_BATCH=1 GCPSIM_MEMORY=4g")
{
	CUcontext ctx = primary();
	CUdriverProcAddressQueryResult status;
	CUstream stream = stream_new();
	void *found = NULL;
	CUgraph graph;
	CUdeviceptr p;

	OK(cuGetProcAddress("cuStreamBeginRecaptureToGraph", &found, 13000, 0,
			    &status));
	OK(cuGraphCreate(&graph, 0));
	OK(((recapture_fn *)found)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, graph, NULL,
				   NULL));
	p = allocated(MIB);
	OK(cuMemsetD8Async(p, 1, MIB, stream), cuMemFree(p));
	(void)play_elsewhere(frees_often, ctx);
	must(cuStreamEndCapture(stream, &graph) == 0, "the capture was destroyed");
	must(allocated(MIB) != p, "memory that the graph addresses");
	OK(cuGraphDestroy(graph));
}

static bool is_from_the_driver(void *found)
{
	Dl_info from = {0};

	return found && dladdr(found, &from) && strstr(from.dli_fname, "libcuda");
}

static bool is_the_drivers(const char *name)
{
	return is_from_the_driver(dlsym(RTLD_DEFAULT, name));
}

static bool answers_the_drivers(const char *name, int version)
{
	CUdriverProcAddressQueryResult status;
	void *found = NULL;

	OK(cuGetProcAddress(name, &found, version, 0, &status));
	return is_from_the_driver(found);
}

/* A version of a known function that is younger than the library. */
SCENARIO_PRIMARY(later_versions_are_unknown, "GCPSIM_DRIVER_VERSION=13040")
{
	must(is_the_drivers("cuGraphNodeGetType"), "the known one");
	must(!is_the_drivers("cuGraphNodeGetType_v2"), "it is not seen");
	must(answers_the_drivers("cuGraphNodeGetType", 12000), "the known one");
	must(answers_the_drivers("cuGraphNodeGetType", 13000), "the known one");
	must(!answers_the_drivers("cuGraphNodeGetType", 13040), "it is not seen");
	must(answers_the_drivers("cuModuleUnload", 13040), "it is the known one");
}

/* Nothing stands between the program and what the library knows to give the device no
 * work, in any version and stream flavour; all else is seen. */
SCENARIO_PRIMARY(known_functions_are_the_drivers)
{
	static const char *const names[] = {
	    "cuModuleUnload",     "cuStreamGetPriority", "cuStreamGetPriority_ptsz",
	    "cuDeviceGetUuid_v2", "cuEventElapsedTime",  "cuEventElapsedTime_v2",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		must(is_the_drivers(names[i]), names[i]);
	must(!is_the_drivers("cuMemsetInvented"), "it is not seen");
	must(!is_the_drivers("cuMemsetInvented_ptsz"), "it is not seen");
}

/* Nor a form of it with other parameters in its place. */
SCENARIO(an_earlier_driver_has_no_newer_form,
	 "GCPSIM_DRIVER_VERSION=12050 GCPSIM_HIDE=1")
{
	CUresult (*newer)(CUcontext);
	CUcontext ctx = primary();

	*(void **)&newer = dlsym(RTLD_DEFAULT, "cuCtxSynchronize_v2");
	must(!newer || newer(ctx) == CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND,
	     "an older form was called");
}

/* Of all kinds of memory, on a driver before CUDA 12.5, which lacks functions or
 * refuses them. */
SCENARIO(all_passes_through_on_an_old_driver,
	 "GCPSIM_DRIVER_VERSION=12040 GCPSIM_HIDE=1", "GCPSIM_DRIVER_VERSION=12040")
{
	CUstream stream = (primary(), CU_STREAM_PER_THREAD);
	CUdeviceptr p, q;
	void *host;

	for (uint64_t i = 1; i <= 40; i++) {
		OK(cuMemAlloc(&p, MIB), cuMemAllocAsync(&q, MIB, stream));
		OK(cuMemHostAlloc(&host, MIB, 0), cuMemFreeAsync(q, stream));
		OK(cuMemFreeHost(host), cuMemFree(p));
		must(gcpsim_calls("cuMemAlloc_v2") == i &&
			 gcpsim_calls("cuMemFree_v2") == i &&
			 gcpsim_calls("cuMemAllocAsync") == i &&
			 gcpsim_calls("cuMemHostAlloc") == i,
		     "memory is pooled");
	}
}
