/* SPDX-License-Identifier: MIT */
/*
 * scene.h - what the simulated driver's own tests share: a context per test,
 * and short words for kernels.
 */
#ifndef SIM_SCENE_H
#define SIM_SCENE_H

#include <stdlib.h>
#include <string.h>
#include <cuda.h>

#include "gcpsim.h"
#include "../unit/cases.h"

enum { WORDS = 1024, BYTES = WORDS * 4 };

static CUcontext scene_ctx;
static CUmodule scene_module;
static CUstream s, t;   /* two non-blocking streams */
static CUdeviceptr p;   /* a block of BYTES */
static CUdeviceptr bad; /* counter of wrong words */

static inline CUfunction scene_function(const char *name)
{
	CUfunction f;

	OK(cuModuleGetFunction(&f, scene_module, name));
	return f;
}

static inline CUresult scene_launch(const char *name, CUstream stream, void **args)
{
	return cuLaunchKernel(scene_function(name), 1, 1, 1, 1, 1, 1, 0, stream, args,
			      NULL);
}

static inline void fill_words(CUdeviceptr at, uint64_t words, uint32_t value,
			      CUstream stream)
{
	void *args[] = {&at, &words, &value};

	OK(scene_launch("gcpt_fill", stream, args));
}

static inline void fill(CUdeviceptr at, uint32_t value, CUstream stream)
{
	fill_words(at, WORDS, value, stream);
}

static inline void check(CUdeviceptr at, uint32_t value, CUstream stream)
{
	uint64_t words = WORDS;
	void *args[] = {&at, &words, &value, &bad};

	OK(scene_launch("gcpt_check", stream, args));
}

static inline void spin(uint64_t ns, CUstream stream)
{
	void *args[] = {&ns};

	OK(scene_launch("gcpt_spin", stream, args));
}

static inline uint64_t wrong_words(void)
{
	uint64_t value;

	assert_int_equal(gcpsim_peek(bad, &value, sizeof(value)), 0);
	return value;
}

static inline CUevent event_new(void)
{
	CUevent event;

	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	return event;
}

static inline CUstream stream_new(unsigned flags)
{
	CUstream stream;

	OK(cuStreamCreate(&stream, flags));
	return stream;
}

/* Nothing runs by itself: the order alone decides. */
static inline int scene_open(void **state)
{
	(void)state;
	OK(cuInit(0), cuDevicePrimaryCtxRetain(&scene_ctx, 0));
	OK(cuCtxSetCurrent(scene_ctx), cuModuleLoadData(&scene_module, "none"));
	gcpsim_set_speed(GCPSIM_NEVER);
	s = stream_new(CU_STREAM_NON_BLOCKING);
	t = stream_new(CU_STREAM_NON_BLOCKING);
	OK(cuMemAlloc(&p, BYTES), cuMemAlloc(&bad, 8), cuMemsetD32(bad, 0, 2));
	OK(cuCtxSynchronize());
	gcpsim_reset_findings();
	return 0;
}

static inline int scene_close(void **state)
{
	(void)state;
	gcpsim_fail(NULL);
	cuDevicePrimaryCtxReset(0);
	cuDevicePrimaryCtxRelease(0);
	cuCtxSetCurrent(NULL);
	return gcpsim_pending() == 0 && gcpsim_allocations(0) == 0 ? 0 : -1;
}

__attribute__((constructor)) static void findings_are_counted(void)
{
	setenv("GCPSIM_QUIET", "1", 1);
}

#define TEST(name) CASE(name, scene_open, scene_close)

#endif
