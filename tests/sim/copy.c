/* SPDX-License-Identifier: MIT */
/*
 * copy.c - copies and sets: from entry points to work on a stream.
 *
 * Under the big lock. Copies check their addresses when called, as CUDA does;
 * what is freed between that and their running is a fault (work.c). Pageable
 * host memory is copied aside before the call returns, and a call that writes
 * to it returns when that is done; pinned memory is read and written when the
 * copy runs. Synchronous copies and sets go through the legacy (or the
 * thread's) stream; between device memory they do not wait.
 */
#include "copy.h"

enum { STAGED_MAX = 64 << 10 };

/* --- copies --------------------------------------------------------------- */

static uint64_t extent(const struct sim_copy *c, uint64_t pitch)
{
	return (c->rows - 1) * pitch + c->bytes;
}

static CUresult side_check(enum sim_side side, uint64_t addr, uint64_t bytes,
			   bool *ret_tracked)
{
	const struct sim_alloc *alloc = sim_memory_find(addr);

	*ret_tracked = alloc != NULL;
	SIM_FAIL_IF(INVALID_VALUE,
		    !alloc && (side == SIDE_DEVICE || sim_memory_is_device(addr)));
	SIM_FAIL_IF(INVALID_VALUE, !alloc && addr == 0);
	SIM_FAIL_IF(INVALID_VALUE, alloc && sim_memory_is_device(addr) &&
				       (side == SIDE_HOST ||
					!sim_memory_host_view(addr, bytes, false)));
	return CUDA_SUCCESS;
}

static void copy_declare(struct sim_work *work, const struct sim_copy *c)
{
	if (c->dst_tracked)
		work->access[work->accesses++] = (struct sim_access){
		    c->dst, c->bytes, c->dst_pitch, c->rows, SIM_WRITE};
	if (c->src_tracked && !c->during_call)
		work->access[work->accesses++] = (struct sim_access){
		    c->src, c->bytes, c->src_pitch, c->rows, SIM_READ};
}

static void copy_stage(struct sim_work *work, const struct sim_copy *c)
{
	const char *src = (const char *)(uintptr_t)c->src;

	if (c->src_tracked) { /* ordered by what the host waited for alone */
		src = sim_memory_host_view(c->src, extent(c, c->src_pitch), false);
		sim_hazard_host(c->src, extent(c, c->src_pitch), SIM_READ,
				"copy during the call");
		sim_tags_host(c->src, extent(c, c->src_pitch), SIM_READ);
	}
	work->copy.staged = sim_calloc(c->bytes * c->rows);
	for (uint64_t row = 0; row < c->rows; row++)
		memcpy((char *)work->copy.staged + row * c->bytes,
		       src + row * c->src_pitch, c->bytes);
}

/* --- between devices ------------------------------------------------------ */

/* The device of memory of a device; else -1. */
static int device_of(uint64_t addr)
{
	const struct sim_alloc *alloc =
	    sim_memory_is_device(addr) ? sim_memory_find(addr) : NULL;

	return alloc ? sim_physical_device(alloc, addr) : -1;
}

static struct sim_ctx *owner_of(uint64_t addr, int device)
{
	const struct sim_alloc *alloc = sim_memory_find(addr);

	return alloc->ctx && alloc->kind != SIM_MEMORY_RESERVED
		   ? sim_ctx_memory(alloc->ctx)
		   : sim_primary_known(device);
}

static bool is_mapped(uint64_t addr)
{
	return sim_memory_find(addr)->kind == SIM_MEMORY_RESERVED;
}

/* Whether `ctx` can use the memory, of another device, by itself. */
static bool reaches(const struct sim_ctx *ctx, uint64_t addr, int device)
{
	if (is_mapped(addr))
		return !sim_memory_is_foreign(addr, ctx->device);
	return ctx->peers & 1u << device;
}

static bool is_between(const struct sim_copy *c, const struct sim_ctx *ctx)
{
	int dst = device_of(c->dst), src = device_of(c->src);

	return (dst >= 0 && dst != ctx->device) || (src >= 0 && src != ctx->device);
}

/* Which device does a copy, as measured on driver 580
 * (tests/gpu/results/mapped-memory.md). Mapped memory that the stream's device can use
 * is its own business, unless the call names the contexts. */
static void copy_place(const struct sim_copy *c, const struct sim_stream *stream,
		       struct sim_work *work)
{
	struct sim_ctx *ctx = sim_ctx_memory(stream->ctx);

	int dst = device_of(c->dst), src = device_of(c->src), other;
	struct sim_ctx *there;
	uint64_t far;
	bool to, from, own;

	if (!is_between(c, ctx))
		return;
	other = dst >= 0 && dst != ctx->device ? dst : src;
	far = other == dst ? c->dst : c->src;
	there = owner_of(far, other);
	if (!there)
		return;
	own = is_mapped(far) && !c->peer;
	if ((!c->async || stream->legacy) && !own)
		work->waits = there; /* it is in the default stream */
	if (own)
		return;
	if (dst < 0 || src < 0 || dst == src) {
		work->by = there; /* of the host, or within the other device */
		return;
	}
	to = reaches(ctx, far, other);
	from = reaches(there, other == dst ? c->src : c->dst, ctx->device);
	if (!to && !from)
		work->also = there; /* through the host: each its part */
	else if (!to || (from && src == other))
		work->by = there;
}

bool sim_copy_waits(const struct sim_copy *c)
{
	bool to_device = sim_memory_is_device(c->dst);

	if (!c->dst_tracked)
		return true;
	if (!c->async &&
	    (sim_memory_synchronizes(c->dst) || sim_memory_synchronizes(c->src)))
		return true;
	if (c->async || (to_device && sim_memory_is_device(c->src)))
		return false;
	return !(sim.staging && to_device && !c->src_tracked &&
		 c->bytes * c->rows <= STAGED_MAX);
}

CUresult sim_copy_check(struct sim_copy *c, const struct sim_stream *stream)
{
	SIM_TRY(
	    side_check(c->dst_side, c->dst, extent(c, c->dst_pitch), &c->dst_tracked));
	SIM_TRY(
	    side_check(c->src_side, c->src, extent(c, c->src_pitch), &c->src_tracked));
	SIM_FAIL_IF(INVALID_VALUE, !c->async && (sim_memory_is_closed(c->dst) ||
						 sim_memory_is_closed(c->src)));
	SIM_FAIL_IF(INVALID_VALUE,
		    c->during_call && c->src_tracked &&
			!sim_memory_host_view(c->src, extent(c, c->src_pitch), false));
	/* tests/gpu/results/mapped-memory.md */
	SIM_FAIL_IF(INVALID_VALUE,
		    !c->peer && (sim_memory_is_foreign(c->dst, stream->ctx->device) ||
				 sim_memory_is_foreign(c->src, stream->ctx->device)));
	return CUDA_SUCCESS;
}

CUresult sim_copy_submit(const struct sim_copy *c, struct sim_stream *stream)
{
	struct sim_work work = {.kind = SIM_WORK_COPY, .duration_ns = 1000};
	CUresult result;

	work.copy.dst = c->dst;
	work.copy.src = c->src;
	work.copy.bytes = c->bytes;
	work.copy.rows = c->rows;
	work.copy.dst_pitch = c->dst_pitch;
	work.copy.src_pitch = c->src_pitch;
	copy_declare(&work, c);
	copy_place(c, stream, &work);
	if (stream->capture)
		work.by = work.waits = NULL;
	else if (c->during_call || (!c->src_tracked && !c->any_time))
		copy_stage(&work, c);
	result = sim_stream_submit(stream, &work, NULL);
	sim_work_finish(&work);
	return result;
}

static CUresult copy(struct sim_copy *c)
{
	SIM_STREAM(stream, c->stream);
	if ((!c->async || (c->peer && is_between(c, stream->ctx))) && stream->capture)
		return sim_capture_refuse(stream);
	if (c->bytes == 0 || c->rows == 0)
		return CUDA_SUCCESS;
	SIM_TRY(sim_copy_check(c, stream));
	SIM_TRY(sim_copy_submit(c, stream));
	if (stream->capture || !sim_copy_waits(c))
		return CUDA_SUCCESS;
	return sim_stream_wait(stream);
}

static CUresult copy_line(CUstream stream, bool async, enum sim_side dst_side,
			  uint64_t dst, enum sim_side src_side, uint64_t src,
			  size_t bytes)
{
	struct sim_copy c = sim_copy_line(dst_side, dst, src_side, src, bytes);

	c.stream = stream;
	c.async = async;
	return copy(&c);
}

#define HOST(p) ((uint64_t)(uintptr_t)(p))

#define COPY(symbol, stream, async, dst_side, src_side)                                \
	SIM_ENTRY(symbol)                                                              \
	{                                                                              \
		return copy_line(stream, async, dst_side, HOST(dst), src_side,         \
				 HOST(src), ByteCount);                                \
	}

COPY(cuMemcpy, NULL, false, SIDE_ANY, SIDE_ANY)
COPY(cuMemcpyHtoD_v2, NULL, false, SIDE_DEVICE, SIDE_HOST)
COPY(cuMemcpyDtoH_v2, NULL, false, SIDE_HOST, SIDE_DEVICE)
COPY(cuMemcpyDtoD_v2, NULL, false, SIDE_DEVICE, SIDE_DEVICE)
COPY(cuMemcpyAsync, hStream, true, SIDE_ANY, SIDE_ANY)
COPY(cuMemcpyHtoDAsync_v2, hStream, true, SIDE_DEVICE, SIDE_HOST)
COPY(cuMemcpyDtoHAsync_v2, hStream, true, SIDE_HOST, SIDE_DEVICE)
COPY(cuMemcpyDtoDAsync_v2, hStream, true, SIDE_DEVICE, SIDE_DEVICE)

/* --- between contexts ----------------------------------------------------- */

static CUresult copy_peer(CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src,
			  CUcontext src_ctx, size_t bytes, CUstream stream, bool async)
{
	struct sim_copy c = sim_copy_line(SIDE_DEVICE, dst, SIDE_DEVICE, src, bytes);
	SIM_GET(sim_ctx, ctx, sim_ctx_check, dst_ctx);
	SIM_TRY(sim_ctx_check(src_ctx, &ctx));
	c.stream = stream;
	c.async = async;
	c.peer = true;
	return copy(&c);
}

SIM_FORWARD(cuMemcpyPeer, copy_peer(dstDevice, dstContext, srcDevice, srcContext,
				    ByteCount, NULL, false))
SIM_FORWARD(cuMemcpyPeerAsync, copy_peer(dstDevice, dstContext, srcDevice, srcContext,
					 ByteCount, hStream, true))

/* --- rectangles ----------------------------------------------------------- */

static CUresult rectangle_side(CUmemorytype type, const void *host, CUdeviceptr device,
			       size_t x, size_t y, size_t pitch,
			       enum sim_side *ret_side, uint64_t *ret_addr)
{
	SIM_FAIL_IF(NOT_SUPPORTED, type == CU_MEMORYTYPE_ARRAY);
	*ret_side = type == CU_MEMORYTYPE_HOST     ? SIDE_HOST
		    : type == CU_MEMORYTYPE_DEVICE ? SIDE_DEVICE
						   : SIDE_ANY;
	*ret_addr = (type == CU_MEMORYTYPE_HOST ? HOST(host) : device) + y * pitch + x;
	return CUDA_SUCCESS;
}

/* Those whose slices follow one another on both sides are rectangles. */
static CUresult copy_box(const CUDA_MEMCPY3D_PEER *p, CUstream stream, bool async,
			 bool peer)
{
	struct sim_copy c = {.stream = stream, .async = async, .peer = peer};

	SIM_FAIL_IF(INVALID_VALUE, !p);
	SIM_FAIL_IF(NOT_SUPPORTED, p->Depth > 1 && (p->srcHeight != p->Height ||
						    p->dstHeight != p->Height));
	SIM_FAIL_IF(NOT_SUPPORTED, p->srcZ || p->dstZ || p->srcLOD || p->dstLOD);
	c.bytes = p->WidthInBytes;
	c.rows = p->Height * p->Depth;
	c.dst_pitch = p->dstPitch ? p->dstPitch : p->WidthInBytes;
	c.src_pitch = p->srcPitch ? p->srcPitch : p->WidthInBytes;
	SIM_FAIL_IF(INVALID_VALUE, c.dst_pitch < c.bytes || c.src_pitch < c.bytes);
	SIM_TRY(rectangle_side(p->dstMemoryType, p->dstHost, p->dstDevice,
			       p->dstXInBytes, p->dstY, c.dst_pitch, &c.dst_side,
			       &c.dst));
	SIM_TRY(rectangle_side(p->srcMemoryType, p->srcHost, p->srcDevice,
			       p->srcXInBytes, p->srcY, c.src_pitch, &c.src_side,
			       &c.src));
	return copy(&c);
}

static CUresult copy_rectangle(const CUDA_MEMCPY2D *p, CUstream stream, bool async)
{
	CUDA_MEMCPY3D_PEER box = {0};

	SIM_FAIL_IF(INVALID_VALUE, !p);
	box.dstMemoryType = p->dstMemoryType;
	box.dstHost = p->dstHost;
	box.dstDevice = p->dstDevice;
	box.dstXInBytes = p->dstXInBytes;
	box.dstY = p->dstY;
	box.dstPitch = p->dstPitch;
	box.srcMemoryType = p->srcMemoryType;
	box.srcHost = p->srcHost;
	box.srcDevice = p->srcDevice;
	box.srcXInBytes = p->srcXInBytes;
	box.srcY = p->srcY;
	box.srcPitch = p->srcPitch;
	box.WidthInBytes = p->WidthInBytes;
	box.Height = p->Height;
	box.Depth = 1;
	return copy_box(&box, stream, async, false);
}

/* --- boxes -------------------------------------------------------------- */

static CUresult copy_volume(const CUDA_MEMCPY3D *p, CUstream stream, bool async)
{
	CUDA_MEMCPY3D_PEER box;

	SIM_FAIL_IF(INVALID_VALUE, !p);
	memcpy(&box, p, sizeof(box));
	return copy_box(&box, stream, async, false);
}

static CUresult copy_between(const CUDA_MEMCPY3D_PEER *p, CUstream stream, bool async)
{
	struct sim_ctx *ctx;

	SIM_FAIL_IF(INVALID_VALUE, !p);
	if (p->dstMemoryType == CU_MEMORYTYPE_DEVICE)
		SIM_TRY(sim_ctx_check(p->dstContext, &ctx));
	if (p->srcMemoryType == CU_MEMORYTYPE_DEVICE)
		SIM_TRY(sim_ctx_check(p->srcContext, &ctx));
	return copy_box(p, stream, async, true);
}

#define COPY_BOX(symbol, copies, stream, async)                                        \
	SIM_ENTRY(symbol)                                                              \
	{                                                                              \
		return copies(pCopy, stream, async);                                   \
	}

COPY_BOX(cuMemcpy2D_v2, copy_rectangle, NULL, false)
COPY_BOX(cuMemcpy2DAsync_v2, copy_rectangle, hStream, true)
COPY_BOX(cuMemcpy3D_v2, copy_volume, NULL, false)
COPY_BOX(cuMemcpy3DAsync_v2, copy_volume, hStream, true)
COPY_BOX(cuMemcpy3DPeer, copy_between, NULL, false)
COPY_BOX(cuMemcpy3DPeerAsync, copy_between, hStream, true)
