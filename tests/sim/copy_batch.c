/* SPDX-License-Identifier: MIT */
/*
 * copy_batch.c - batches of copies: from entry points to work on a stream.
 *
 * Under the big lock. All copies of a batch are checked before the first is submitted.
 * They run one after another, which CUDA does not promise: copies that depend on one
 * another are not found.
 */
#include "copy.h"

/* The legacy stream is none for batches, and a capture none either: it refuses the call
 * and goes on (rapidsai/rmm issue 2518, CUDA 13). */
static CUresult batch_stream(CUstream handle, struct sim_stream **ret_stream)
{
	SIM_TRY(sim_stream_get(handle, ret_stream));
	SIM_FAIL_IF(INVALID_VALUE, (*ret_stream)->legacy);
	return (*ret_stream)->capture ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
				      : CUDA_SUCCESS;
}

static CUresult batch_order(struct sim_copy *c, CUmemcpySrcAccessOrder order,
			    unsigned int flags)
{
	c->async = true;
	c->during_call = order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
	c->any_time = order == CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
	return (!c->during_call && !c->any_time &&
		order != CU_MEMCPY_SRC_ACCESS_ORDER_STREAM) ||
		       (flags & ~CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE)
		   ? CUDA_ERROR_INVALID_VALUE
		   : CUDA_SUCCESS;
}

/* Takes `copies`, of which reading them may have failed. */
static CUresult batch_submit(CUresult result, struct sim_copy *copies, size_t count,
			     struct sim_stream *stream, size_t *ret_failed)
{
	bool waits = false;

	for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
		*ret_failed = i;
		if (copies[i].bytes > 0)
			result = sim_copy_check(&copies[i], stream);
	}
	for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
		*ret_failed = i;
		if (copies[i].bytes == 0)
			continue;
		result = sim_copy_submit(&copies[i], stream);
		waits |= sim_copy_waits(&copies[i]);
	}
	free(copies);
	if (result != CUDA_SUCCESS)
		return result;
	*ret_failed = SIZE_MAX;
	return waits ? sim_stream_wait(stream) : CUDA_SUCCESS;
}

/* --- lines ----------------------------------------------------------------- */

struct lines {
	const CUdeviceptr *dsts, *srcs;
	const size_t *sizes;
	size_t count;
	const CUmemcpyAttributes *attributes;
	const size_t *indices; /* the first copy of each */
	size_t attribute_count;
};

static bool lines_are_valid(const struct lines *b)
{
	if (!b->dsts || !b->srcs || !b->sizes || !b->attributes || !b->indices ||
	    b->attribute_count == 0 || b->attribute_count > b->count ||
	    b->indices[0] != 0)
		return false;
	for (size_t k = 1; k < b->attribute_count; k++)
		if (b->indices[k] <= b->indices[k - 1] || b->indices[k] >= b->count)
			return false;
	return true;
}

static CUresult lines_read(const struct lines *b, struct sim_copy *copies,
			   size_t *ret_failed)
{
	const CUmemcpyAttributes *attributes = b->attributes;

	for (size_t i = 0; i < b->count; i++) {
		size_t next = attributes - b->attributes + 1;

		if (next < b->attribute_count && b->indices[next] == i)
			attributes++;
		copies[i] = sim_copy_line(SIDE_ANY, b->dsts[i], SIDE_ANY, b->srcs[i],
					  b->sizes[i]);
		*ret_failed = i;
		SIM_TRY(batch_order(&copies[i], attributes->srcAccessOrder,
				    attributes->flags));
	}
	return CUDA_SUCCESS;
}

static CUresult copy_lines(const struct lines *b, size_t *ret_failed, CUstream handle)
{
	struct sim_stream *stream;
	struct sim_copy *copies;

	*ret_failed = SIZE_MAX;
	SIM_TRY(batch_stream(handle, &stream));
	SIM_FAIL_IF(INVALID_VALUE, !lines_are_valid(b));
	copies = sim_calloc(b->count * sizeof(*copies));
	return batch_submit(lines_read(b, copies, ret_failed), copies, b->count, stream,
			    ret_failed);
}

/* --- boxes ----------------------------------------------------------------- */

static CUresult operand_read(const CUmemcpy3DOperand *operand, const CUextent3D *box,
			     uint64_t *ret_addr, uint64_t *ret_pitch)
{
	uint64_t layer = operand->op.ptr.layerHeight;

	SIM_FAIL_IF(NOT_SUPPORTED, operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY);
	SIM_FAIL_IF(INVALID_VALUE, operand->type != CU_MEMCPY_OPERAND_TYPE_POINTER);
	*ret_addr = operand->op.ptr.ptr;
	*ret_pitch = operand->op.ptr.rowLength ? operand->op.ptr.rowLength : box->width;
	SIM_FAIL_IF(INVALID_VALUE,
		    *ret_pitch < box->width || (layer && layer < box->height));
	return box->depth > 1 && layer && layer != box->height
		   ? CUDA_ERROR_NOT_SUPPORTED /* as of single copies */
		   : CUDA_SUCCESS;
}

static CUresult volumes_read(const CUDA_MEMCPY3D_BATCH_OP *list, size_t count,
			     struct sim_copy *copies, size_t *ret_failed)
{
	for (size_t i = 0; i < count; i++) {
		const CUextent3D *box = &list[i].extent;
		struct sim_copy *c = &copies[i];

		*ret_failed = i;
		*c = (struct sim_copy){.dst_side = SIDE_ANY,
				       .src_side = SIDE_ANY,
				       .bytes = box->width,
				       .rows = box->height * box->depth};
		SIM_FAIL_IF(INVALID_VALUE, c->bytes == 0 || c->rows == 0);
		SIM_TRY(operand_read(&list[i].dst, box, &c->dst, &c->dst_pitch));
		SIM_TRY(operand_read(&list[i].src, box, &c->src, &c->src_pitch));
		SIM_TRY(batch_order(c, list[i].srcAccessOrder, list[i].flags));
	}
	return CUDA_SUCCESS;
}

static CUresult copy_volumes(const CUDA_MEMCPY3D_BATCH_OP *list, size_t count,
			     unsigned long long flags, size_t *ret_failed,
			     CUstream handle)
{
	struct sim_stream *stream;
	struct sim_copy *copies;

	*ret_failed = SIZE_MAX;
	SIM_TRY(batch_stream(handle, &stream));
	SIM_FAIL_IF(INVALID_VALUE, !list || count == 0 || flags != 0);
	copies = sim_calloc(count * sizeof(*copies));
	return batch_submit(volumes_read(list, count, copies, ret_failed), copies,
			    count, stream, ret_failed);
}

/* --- entry points ---------------------------------------------------------- */

SIM_ENTRY(cuMemcpyBatchAsync_v2)
{
	const struct lines b = {dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs};
	size_t failed;

	return copy_lines(&b, &failed, hStream);
}

SIM_ENTRY(cuMemcpyBatchAsync)
{
	const struct lines b = {dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs};
	size_t failed;

	return copy_lines(&b, failIdx ? failIdx : &failed, hStream);
}

SIM_ENTRY(cuMemcpy3DBatchAsync_v2)
{
	size_t failed;

	return copy_volumes(opList, numOps, flags, &failed, hStream);
}

SIM_ENTRY(cuMemcpy3DBatchAsync)
{
	size_t failed;

	return copy_volumes(opList, numOps, flags, failIdx ? failIdx : &failed,
			    hStream);
}
