/* SPDX-License-Identifier: MIT */
/*
 * debug_device.c - patterns in device memory: see debug.h. What is compared is copied
 * to the host first, a piece at a time.
 */
#include "debug.h"
#include "instrument.h"

/* For GCP_WITHIN. */
#define gcp_ctx_scope_begin gcp.ctx_scope_begin
#define gcp_ctx_scope_end   gcp.ctx_scope_end

enum {
	STAGE_BYTES = 1 << 20,
	MARGIN_BYTE = 0xa5,
};
#define FREED_WORD 0xfff5dea5u

static struct gcp_mutex stage_lock = GCP_MUTEX(GCP_RANK_DEBUG_STAGE);
static unsigned char stage[STAGE_BYTES]; /* stage_lock */

static unsigned char pattern_byte(enum gcp_debug_kind pattern, gcp_addr addr)
{
	assert(pattern <= GCP_DEBUG_FREED);
	return pattern == GCP_DEBUG_MARGIN
		   ? MARGIN_BYTE
		   : (unsigned char)(FREED_WORD >> addr % 4 * 8);
}

static void stage_compare(enum gcp_debug_kind pattern, gcp_addr addr, uint64_t count,
			  struct gcp_debug_found *found)
{
	gcp_assert_held(GCP_RANK_DEBUG_STAGE);
	for (uint64_t i = 0; i < count; i++) {
		if (stage[i] == pattern_byte(pattern, addr + i))
			continue;
		if (found->wrong++ == 0)
			found->first = addr + i;
	}
}

/* In a scope of ctx. */
static CUresult pattern_write(void *ctx, enum gcp_debug_kind pattern, gcp_addr addr,
			      uint64_t bytes)
{
	CUstream stream = gcp.contexts_release_stream(ctx);
	CUresult result;

	if (!stream)
		return CUDA_ERROR_NOT_SUPPORTED;
	result = pattern == GCP_DEBUG_MARGIN
		     ? gcp.real->cuMemsetD8Async(addr, MARGIN_BYTE, bytes, stream)
		     : gcp.real->cuMemsetD32Async(addr, FREED_WORD, bytes / 4, stream);
	return result == CUDA_SUCCESS ? gcp.real->cuStreamSynchronize(stream) : result;
}

int gcp_debug_write(void *ctx, enum gcp_debug_kind pattern, gcp_addr addr,
		    uint64_t bytes)
{
	assert(pattern == GCP_DEBUG_MARGIN || (addr % 4 == 0 && bytes % 4 == 0));
	return (int)GCP_WITHIN(ctx, pattern_write(ctx, pattern, addr, bytes));
}

int gcp_debug_wait_stream(void *ctx, void *stream)
{
	return (int)GCP_WITHIN(ctx, gcp.real->cuStreamSynchronize(stream));
}

/* In a scope of ctx. */
static CUresult pattern_compare(void *ctx, enum gcp_debug_kind pattern, gcp_addr addr,
				uint64_t bytes, struct gcp_debug_found *found)
{
	CUstream stream = gcp.contexts_release_stream(ctx);
	CUresult result = stream ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;

	assert(ctx && bytes > 0);
	GCP_LOCKED(&stage_lock);
	for (uint64_t step; result == CUDA_SUCCESS && bytes > 0; bytes -= step) {
		step = bytes < STAGE_BYTES ? bytes : STAGE_BYTES;
		result = gcp.real->cuMemcpyDtoHAsync_v2(stage, addr, step, stream);
		if (result == CUDA_SUCCESS)
			result = gcp.real->cuStreamSynchronize(stream);
		if (result == CUDA_SUCCESS)
			stage_compare(pattern, addr, step, found);
		addr += step;
	}
	return result;
}

int gcp_debug_compare(void *ctx, enum gcp_debug_kind pattern, gcp_addr addr,
		      uint64_t bytes, struct gcp_debug_found *ret_found)
{
	*ret_found = (struct gcp_debug_found){0};
	return (int)GCP_WITHIN(ctx,
			       pattern_compare(ctx, pattern, addr, bytes, ret_found));
}
