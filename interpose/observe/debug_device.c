/* SPDX-License-Identifier: MIT */
/*
 * debug_device.c - patterns in device memory: see debug_device.h. What is compared is
 * copied to the host first, a piece at a time.
 */

#include "debug_device.h"
#include "instrument.h"

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
static int own_stream(void *ctx, CUstream *ret_stream)
{
	int result = CUDA_SUCCESS, at = -1;

	gcp.mutex_lock(&lock);
	for (int i = CONTEXTS_MAX - 1; i >= 0; i--)
		if (owns[i].ctx == ctx || (!owns[i].ctx && (at < 0 || !owns[at].ctx)))
			at = i;
	if (at < 0)
		result = CUDA_ERROR_NOT_SUPPORTED;
	else if (!owns[at].ctx)
		result = (int)gcp.real->cuStreamCreate(&owns[at].stream,
						       CU_STREAM_NON_BLOCKING);
	if (result == CUDA_SUCCESS) {
		owns[at].ctx = ctx;
		*ret_stream = owns[at].stream;
	}
	gcp.mutex_unlock(&lock);
	return result;
}

/* Begins a scope of the context, and finds its stream. */
static int queue_begin(void *ctx, struct gcp_ctx_scope *scope, CUstream *ret_stream)
{
	int result = (int)gcp.ctx_scope_begin(scope, ctx);

	if (result != 0)
		return result;
	result = own_stream(ctx, ret_stream);
	if (result != 0)
		gcp.ctx_scope_end(scope);
	return result;
}

int gcp_debug_write(void *ctx, enum gcp_debug_kind pattern, gcp_addr addr,
		    uint64_t bytes)
{
	struct gcp_ctx_scope scope;
	CUstream stream = NULL;
	int result = queue_begin(ctx, &scope, &stream);

	assert(pattern == GCP_DEBUG_MARGIN || (addr % 4 == 0 && bytes % 4 == 0));
	if (result != 0)
		return result;
	if (pattern == GCP_DEBUG_MARGIN)
		result =
		    (int)gcp.real->cuMemsetD8Async(addr, MARGIN_BYTE, bytes, stream);
	else
		result = (int)gcp.real->cuMemsetD32Async(addr, FREED_WORD, bytes / 4,
							 stream);
	gcp.ctx_scope_end(&scope);
	return result;
}

int gcp_debug_wait(void *ctx)
{
	struct gcp_ctx_scope scope;
	CUstream stream = NULL;
	int result = queue_begin(ctx, &scope, &stream);

	if (result != 0)
		return result;
	result = (int)gcp.real->cuStreamSynchronize(stream);
	gcp.ctx_scope_end(&scope);
	return result;
}

int gcp_debug_wait_stream(void *ctx, void *stream)
{
	struct gcp_ctx_scope scope;
	int result = (int)gcp.ctx_scope_begin(&scope, ctx);

	if (result != 0)
		return result;
	result = (int)gcp.real->cuStreamSynchronize(stream);
	gcp.ctx_scope_end(&scope);
	return result;
}

/* In a scope of the stream's context. */
static int stage_fill(CUstream stream, gcp_addr addr, uint64_t bytes)
{
	gcp_assert_held(GCP_RANK_DEBUG_STAGE);
	CUresult result = gcp.real->cuMemcpyDtoHAsync_v2(stage, addr, bytes, stream);

	return (int)(result == CUDA_SUCCESS ? gcp.real->cuStreamSynchronize(stream)
					    : result);
}

int gcp_debug_compare(void *ctx, enum gcp_debug_kind pattern, gcp_addr addr,
		      uint64_t bytes, struct gcp_debug_found *ret_found)
{
	struct gcp_ctx_scope scope;
	CUstream stream = NULL;
	int result = queue_begin(ctx, &scope, &stream);

	*ret_found = (struct gcp_debug_found){0};
	if (result != 0)
		return result;
	gcp.mutex_lock(&stage_lock);
	for (uint64_t done = 0, step; result == 0 && done < bytes; done += step) {
		step = bytes - done < STAGE_BYTES ? bytes - done : STAGE_BYTES;
		result = stage_fill(stream, addr + done, step);
		if (result == 0)
			stage_compare(pattern, addr + done, step, ret_found);
	}
	gcp.mutex_unlock(&stage_lock);
	gcp.ctx_scope_end(&scope);
	return result;
}

void gcp_debug_device_context_gone(const void *ctx)
{
	gcp.mutex_lock(&lock);
	for (int i = 0; i < CONTEXTS_MAX; i++)
		if (owns[i].ctx == ctx)
			owns[i].ctx = NULL;
	gcp.mutex_unlock(&lock);
}
