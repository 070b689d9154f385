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
	struct sim_work work;
	SIM_STREAM(stream, s->stream);
	if (!s->async && stream->capture)
		return sim_capture_refuse(stream);
	SIM_FAIL_IF(INVALID_VALUE, s->dst % s->width != 0);
	if (bytes == 0 || s->rows == 0)
		return CUDA_SUCCESS;
	SIM_FAIL_IF(
	    INVALID_VALUE,
	    !stream->capture &&
		!sim_memory_host_view(s->dst, (s->rows - 1) * s->pitch + bytes, false));
	SIM_FAIL_IF(INVALID_VALUE, !s->async && sim_memory_is_closed(s->dst));
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

#define SET(symbol, stream, async, bytes)                                              \
	SIM_ENTRY(symbol)                                                              \
	{                                                                              \
		return set_line(stream, async, dst, value, bytes, N);                  \
	}

SET(cuMemsetD8_v2, NULL, false, 1)
SET(cuMemsetD16_v2, NULL, false, 2)
SET(cuMemsetD32_v2, NULL, false, 4)
SET(cuMemsetD8Async, hStream, true, 1)
SET(cuMemsetD16Async, hStream, true, 2)
SET(cuMemsetD32Async, hStream, true, 4)

SIM_FORWARD(cuMemsetInvented, cuMemsetD8Async(dstDevice, uc, N, hStream))

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

SIM_FORWARD(cuMemsetD2D8_v2,
	    set_rectangle(dstDevice, dstPitch, uc, Width, Height, NULL, false))
SIM_FORWARD(cuMemsetD2D8Async,
	    set_rectangle(dstDevice, dstPitch, uc, Width, Height, hStream, true))

/* --- single writes in stream order ---------------------------------------- */

SIM_FORWARD(cuStreamWriteValue32_v2, set_line(stream, true, addr, value, 4, 1))
