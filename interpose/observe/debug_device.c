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
	CONTEXTS_MAX = 64,
	MARGIN_BYTE = 0xa5,
};
#define FREED_WORD 0xfff5dea5u

static struct gcp_mutex lock = GCP_MUTEX(GCP_RANK_DEBUG_DEVICE); /* owns */
static struct gcp_mutex stage_lock = GCP_MUTEX(GCP_RANK_DEBUG_STAGE);
static unsigned char stage[STAGE_BYTES]; /* stage_lock */

static struct {
	void *ctx;
	CUstream stream;
} owns[CONTEXTS_MAX];

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
static CUresult own_stream(void *ctx, CUstream *ret_stream)
{
	CUresult result = CUDA_SUCCESS;
	int at = -1;

	GCP_LOCKED(&lock);
	for (int i = CONTEXTS_MAX - 1; i >= 0; i--)
		if (owns[i].ctx == ctx || (!owns[i].ctx && (at < 0 || !owns[at].ctx)))
			at = i;
	if (at < 0)
		result = CUDA_ERROR_NOT_SUPPORTED;
	else if (!owns[at].ctx)
		result =
		    gcp.real->cuStreamCreate(&owns[at].stream, CU_STREAM_NON_BLOCKING);
	if (result == CUDA_SUCCESS) {
		owns[at].ctx = ctx;
		*ret_stream = owns[at].stream;
	}
	return result;
}

/* In a scope of ctx. */
static CUresult pattern_write(void *ctx, enum gcp_debug_kind pattern, gcp_addr addr,
			      uint64_t bytes)
{
	CUstream stream = NULL;
	CUresult result = own_stream(ctx, &stream);

	if (result != CUDA_SUCCESS)
		return result;
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
	gcp_assert_held(GCP_RANK_DEBUG_STAGE);
	CUstream stream = NULL;
	CUresult result = own_stream(ctx, &stream);

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
	GCP_LOCKED(&stage_lock);
	return (int)GCP_WITHIN(ctx,
			       pattern_compare(ctx, pattern, addr, bytes, ret_found));
}

void gcp_debug_context_gone(const void *ctx)
{
	GCP_LOCKED(&lock);
	for (int i = 0; i < CONTEXTS_MAX; i++)
		if (owns[i].ctx == ctx)
			owns[i].ctx = NULL;
}
