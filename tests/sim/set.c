/* SPDX-License-Identifier: MIT */
/*
 * set.c - memset and stream-ordered single writes, from entry points to work
 * on a stream. Under the big lock. Setting device memory is asynchronous even in its
 * synchronous form, except with CU_POINTER_ATTRIBUTE_SYNC_MEMOPS.
 */
#include "sim.h"

struct set {
	CUstream stream;
	bool async;
	uint64_t dst, count, rows, pitch;
	uint32_t value, width;
};

void sim_set_work(struct sim_work *ret_work, uint64_t dst, uint64_t pitch,
		  uint32_t value, uint32_t width, uint64_t count, uint64_t rows)
{
	struct sim_work work = {
	    .kind = SIM_WORK_SET, .duration_ns = 1000, .accesses = 1};

	work.set.dst = dst;
	work.set.count = count;
	work.set.rows = rows;
	work.set.pitch = pitch;
	work.set.value = value;
	work.set.width = width;
	work.access[0] =
	    (struct sim_access){dst, count * width, pitch, rows, SIM_WRITE};
	*ret_work = work;
}

static CUresult set(const struct set *s)
{
	uint64_t bytes = s->count * s->width;
	struct sim_stream *stream;
	struct sim_work work;

	SIM_TRY(sim_stream_use(s->stream, &stream));
	if (!s->async && stream->capture)
		return sim_capture_refuse(stream);
	if (s->dst % s->width != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes == 0 || s->rows == 0)
		return CUDA_SUCCESS;
	if (!stream->capture &&
	    !sim_memory_host_view(s->dst, (s->rows - 1) * s->pitch + bytes, false))
		return CUDA_ERROR_INVALID_VALUE;
	if (!s->async && sim_memory_is_closed(s->dst))
		return CUDA_ERROR_INVALID_VALUE;
	sim_set_work(&work, s->dst, s->pitch, s->value, s->width, s->count, s->rows);
	SIM_TRY(sim_stream_submit(stream, &work, NULL));
	if (s->async || !sim_memory_synchronizes(s->dst))
		return CUDA_SUCCESS;
	return sim_stream_wait(stream);
}

static CUresult set_line(CUstream stream, bool async, uint64_t dst, uint32_t value,
			 uint32_t width, uint64_t count)
{
	struct set s = {.stream = stream,
			.async = async,
			.dst = dst,
			.count = count,
			.rows = 1,
			.pitch = count * width,
			.value = value,
			.width = width};

	return set(&s);
}

#define SET(sync, per_sync, async_fn, per_async, type, bytes)                          \
	CUresult sync(CUdeviceptr dst, type value, size_t N)                           \
	{                                                                              \
		SIM_LOCKED(sync);                                                      \
		return set_line(CU_STREAM_LEGACY, false, dst, value, bytes, N);        \
	}                                                                              \
	CUresult per_sync(CUdeviceptr dst, type value, size_t N)                       \
	{                                                                              \
		SIM_LOCKED(sync);                                                      \
		return set_line(CU_STREAM_PER_THREAD, false, dst, value, bytes, N);    \
	}                                                                              \
	CUresult async_fn(CUdeviceptr dst, type value, size_t N, CUstream hStream)     \
	{                                                                              \
		SIM_LOCKED(async_fn);                                                  \
		return set_line(hStream, true, dst, value, bytes, N);                  \
	}                                                                              \
	CUresult per_async(CUdeviceptr dst, type value, size_t N, CUstream hStream)    \
	{                                                                              \
		return async_fn(dst, value, N, SIM_PTSZ(hStream));                     \
	}

SET(cuMemsetD8_v2, cuMemsetD8_v2_ptds, cuMemsetD8Async, cuMemsetD8Async_ptsz,
    unsigned char, 1)
SET(cuMemsetD16_v2, cuMemsetD16_v2_ptds, cuMemsetD16Async, cuMemsetD16Async_ptsz,
    unsigned short, 2)
SET(cuMemsetD32_v2, cuMemsetD32_v2_ptds, cuMemsetD32Async, cuMemsetD32Async_ptsz,
    unsigned int, 4)

CUresult cuMemsetInvented(CUdeviceptr dstDevice, unsigned char uc, size_t N,
			  CUstream hStream)
{
	return cuMemsetD8Async(dstDevice, uc, N, hStream);
}

CUresult cuMemsetInvented_ptsz(CUdeviceptr dstDevice, unsigned char uc, size_t N,
			       CUstream hStream)
{
	return cuMemsetD8Async_ptsz(dstDevice, uc, N, hStream);
}

static CUresult set_rectangle(CUdeviceptr dst, size_t pitch, unsigned char value,
			      size_t width, size_t height, CUstream stream, bool async)
{
	struct set s = {.stream = stream,
			.async = async,
			.dst = dst,
			.count = width,
			.rows = height,
			.pitch = pitch,
			.value = value,
			.width = 1};

	return pitch < width ? CUDA_ERROR_INVALID_VALUE : set(&s);
}

CUresult cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc,
			 size_t Width, size_t Height)
{
	SIM_LOCKED(cuMemsetD2D8_v2);
	return set_rectangle(dstDevice, dstPitch, uc, Width, Height, CU_STREAM_LEGACY,
			     false);
}

CUresult cuMemsetD2D8_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc,
			      size_t Width, size_t Height)
{
	SIM_LOCKED(cuMemsetD2D8_v2);
	return set_rectangle(dstDevice, dstPitch, uc, Width, Height,
			     CU_STREAM_PER_THREAD, false);
}

CUresult cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc,
			   size_t Width, size_t Height, CUstream hStream)
{
	SIM_LOCKED(cuMemsetD2D8Async);
	return set_rectangle(dstDevice, dstPitch, uc, Width, Height, hStream, true);
}

CUresult cuMemsetD2D8Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch,
				unsigned char uc, size_t Width, size_t Height,
				CUstream hStream)
{
	return cuMemsetD2D8Async(dstDevice, dstPitch, uc, Width, Height,
				 SIM_PTSZ(hStream));
}

/* --- single writes in stream order ---------------------------------------- */

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value,
			      unsigned int flags)
{
	SIM_LOCKED(cuStreamWriteValue32);
	(void)flags;
	return set_line(stream, true, addr, value, 4, 1);
}

CUresult cuStreamWriteValue32_ptsz(CUstream stream, CUdeviceptr addr, cuuint32_t value,
				   unsigned int flags)
{
	return cuStreamWriteValue32(SIM_PTSZ(stream), addr, value, flags);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
				 unsigned int flags)
{
	SIM_LOCKED(cuStreamWriteValue32_v2);
	(void)flags;
	return set_line(stream, true, addr, value, 4, 1);
}

CUresult cuStreamWriteValue32_v2_ptsz(CUstream stream, CUdeviceptr addr,
				      cuuint32_t value, unsigned int flags)
{
	return cuStreamWriteValue32_v2(SIM_PTSZ(stream), addr, value, flags);
}
