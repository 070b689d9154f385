/* SPDX-License-Identifier: MIT */
/*
 * pitch.c - see pitch.h. The granularity of the pitch is learnt once for each
 * device, from two real allocations of one row each. These rows are kept: to
 * free them would wait for the device, which the program did not ask for, and
 * they cost a kilobyte or two.
 */
#include <stdatomic.h>

#include "cuda_backend.h"
#include "process_life.h"
#include "hooks_memory.h"
#include "pitch.h"
#include "report.h"

enum { DEVICES_MAX = 256 };

/* Bytes, by device: 0 not learnt yet, 1 not a simple rounding (pass through). */
static _Atomic(size_t) granularity[DEVICES_MAX];

/* 0 also when memory is out, to try again. */
static size_t pitch_learn(void)
{
	size_t narrow = 0, wide = 0;
	CUdeviceptr ptr, second;

	/* Other elements, other widths: one rounding must explain both. */
	if (gcp_real.cuMemAllocPitch_v2(&ptr, &narrow, 1, 1, 4) != CUDA_SUCCESS)
		return 0;
	if (gcp_real.cuMemAllocPitch_v2(&second, &wide, narrow + 1, 1, 16) !=
	    CUDA_SUCCESS) {
		gcp_real.cuMemFree_v2(ptr);
		return 0;
	}
	if (narrow < 16 || (narrow & (narrow - 1)) != 0 || wide != 2 * narrow)
		return 1;
	return narrow;
}

size_t gcp_pitch_of(size_t width, unsigned int element)
{
	unsigned int device = (unsigned int)gcp_thread.device;
	struct gcp_ctx_scope scope;
	size_t step, pitch;

	if (device >= DEVICES_MAX || !gcp_pitch_known(element))
		return 0;
	step = atomic_load_explicit(&granularity[device], memory_order_relaxed);
	while (step == 0) {
		if (gcp_ctx_scope_begin(&scope, NULL) != CUDA_SUCCESS)
			return 0;
		step = pitch_learn();
		gcp_ctx_scope_end(&scope);
		if (step == 0 && !gcp_passthrough_reclaim(CUDA_ERROR_OUT_OF_MEMORY))
			return 0;
		atomic_store_explicit(&granularity[device], step, memory_order_relaxed);
	}
	if (step <= 1 || __builtin_add_overflow(width, step - 1, &pitch))
		return 0;
	return pitch & ~(step - 1);
}

CUresult gcp_pitch_pass(CUdeviceptr *ret_ptr, size_t *ret_pitch, size_t width,
			size_t height, unsigned int element)
{
	uint64_t start = gcp_call_stats_clock(), ns;
	CUcontext ctx = NULL;
	CUdevice device = -1;
	CUresult result;
	size_t bytes;

	do
		result = gcp_real.cuMemAllocPitch_v2(ret_ptr, ret_pitch, width, height,
						     element);
	while (gcp_passthrough_reclaim(result));
	ns = gcp_call_stats_clock() - start;
	bytes = result == CUDA_SUCCESS ? *ret_pitch * height : width * height;
	gcp_call_stats_add(GCP_COUNTED_mem_alloc_pitch, start, bytes, result);
	if (result == CUDA_SUCCESS && gcp_process_run_mode() == GCP_RUN_COUNT &&
	    gcp_real.cuCtxGetCurrent(&ctx) == CUDA_SUCCESS &&
	    gcp_real.cuCtxGetDevice(&device) == CUDA_SUCCESS)
		gcp_call_stats_alloc(ctx, device, *ret_ptr, bytes, ns);
	return result;
}
