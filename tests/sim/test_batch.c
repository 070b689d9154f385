/* SPDX-License-Identifier: MIT */
/*
 * test_batch.c - batches of copies on the simulated device: what is refused, what is
 * copied and when, in all forms of the two calls.
 */
#include "scene.h"

enum { HALF = BYTES / 2 };

typedef CUresult lines_fn(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,
			  size_t count, CUmemcpyAttributes *attributes, size_t *indices,
			  size_t attribute_count, CUstream stream);
typedef CUresult old_lines_fn(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,
			      size_t count, CUmemcpyAttributes *attributes,
			      size_t *indices, size_t attribute_count,
			      size_t *ret_failed, CUstream stream);
typedef CUresult boxes_fn(size_t count, CUDA_MEMCPY3D_BATCH_OP *list,
			  unsigned long long flags, CUstream stream);
typedef CUresult old_boxes_fn(size_t count, CUDA_MEMCPY3D_BATCH_OP *list,
			      size_t *ret_failed, unsigned long long flags,
			      CUstream stream);

static void *form(const char *name, int version, cuuint64_t flags)
{
	void *fn;

	OK(cuGetProcAddress(name, &fn, version, flags, NULL));
	assert_non_null(fn);
	return fn;
}

static CUmemcpyAttributes order[3] = {
    {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM},
    {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL},
    {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_ANY},
};

/* Both halves of a block, each with attributes of its own. */
struct halves {
	CUdeviceptr dsts[2], srcs[2];
	size_t sizes[2], indices[2];
	CUmemcpyAttributes attributes[2];
};

static struct halves halves_of(CUdeviceptr to, CUdeviceptr from)
{
	return (struct halves){
	    .dsts = {to, to + HALF},
	    .srcs = {from, from + HALF},
	    .sizes = {HALF, HALF},
	    .indices = {0, 1},
	    .attributes = {order[0], order[0]},
	};
}

static CUresult halves_copy(struct halves *h, size_t attributes, CUstream stream)
{
	return cuMemcpyBatchAsync(h->dsts, h->srcs, h->sizes, 2, h->attributes,
				  h->indices, attributes, stream);
}

static CUDA_MEMCPY3D_BATCH_OP box(CUdeviceptr to, CUdeviceptr from)
{
	CUDA_MEMCPY3D_BATCH_OP op = {
	    .src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER},
	    .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER},
	    .extent = {.width = BYTES / 8, .height = 4, .depth = 2},
	    .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
	};

	op.src.op.ptr.ptr = from;
	op.dst.op.ptr.ptr = to;
	return op;
}

static CUdeviceptr source(void)
{
	CUdeviceptr q;

	OK(cuMemAlloc(&q, BYTES));
	fill(q, 7, s);
	OK(cuStreamSynchronize(s));
	return q;
}

static void assert_copied(CUdeviceptr q)
{
	check(p, 7, s);
	OK(cuStreamSynchronize(s));
	assert_int_equal(wrong_words(), 0);
	assert_int_equal(gcpsim_hazards() + gcpsim_disorders(), 0);
	OK(cuMemFree(q));
}

TEST(both_forms_of_lines_copy)
{
	CUdeviceptr q = source();
	struct halves h = halves_of(p, q);
	old_lines_fn *old = (old_lines_fn *)form("cuMemcpyBatchAsync", 12080, 1);
	size_t failed = 5;

	OK(old(h.dsts, h.srcs, h.sizes, 1, h.attributes, h.indices, 1, &failed, s));
	assert_true(failed == SIZE_MAX);
	h = halves_of(p + HALF, q + HALF);
	h.sizes[1] = 0; /* nothing of it is looked at */
	OK(halves_copy(&h, 1, s));
	assert_copied(q);
}

TEST(both_forms_of_boxes_copy)
{
	CUdeviceptr q = source();
	CUDA_MEMCPY3D_BATCH_OP list[2] = {box(p, q), box(p + HALF, q + HALF)};
	old_boxes_fn *old = (old_boxes_fn *)form("cuMemcpy3DBatchAsync", 12080, 1);
	size_t failed = 5;

	list[0].extent.height = list[1].extent.height = 2;
	OK(old(1, list, &failed, 0, s));
	assert_true(failed == SIZE_MAX);
	OK(cuMemcpy3DBatchAsync(1, &list[1], 0, s));
	assert_copied(q);
}

TEST(a_threads_own_stream_takes_batches)
{
	CUdeviceptr q = source();
	CUDA_MEMCPY3D_BATCH_OP op = box(p, q);
	lines_fn *lines = (lines_fn *)form("cuMemcpyBatchAsync", 13000, 2);
	boxes_fn *boxes = (boxes_fn *)form("cuMemcpy3DBatchAsync", 13000, 2);
	struct halves h = halves_of(p, q);

	OK(lines(h.dsts, h.srcs, h.sizes, 2, h.attributes, h.indices, 2, NULL));
	OK(boxes(1, &op, 0, NULL));
	OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
	assert_copied(q);
}

TEST(the_legacy_stream_takes_no_batches)
{
	CUdeviceptr q = source();
	CUDA_MEMCPY3D_BATCH_OP op = box(p, q);
	struct halves h = halves_of(p, q);

	assert_int_equal(halves_copy(&h, 1, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(halves_copy(&h, 1, CU_STREAM_LEGACY),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemcpy3DBatchAsync(1, &op, 0, NULL),
			 CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFree(q));
}

/* And goes on, without the batch. */
TEST(a_capture_takes_no_batches)
{
	CUdeviceptr q = source();
	CUDA_MEMCPY3D_BATCH_OP op = box(p, q);
	struct halves h = halves_of(p, q);
	size_t nodes = 5;
	CUgraph graph;

	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	assert_int_equal(halves_copy(&h, 1, s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	assert_int_equal(cuMemcpy3DBatchAsync(1, &op, 0, s),
			 CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	OK(cuStreamEndCapture(s, &graph));
	OK(cuGraphGetNodes(graph, NULL, &nodes));
	assert_int_equal(nodes, 0);
	OK(cuGraphDestroy(graph));
	OK(cuMemFree(q));
}

static void assert_refused(struct halves h, size_t attributes, size_t failed)
{
	old_lines_fn *old = (old_lines_fn *)form("cuMemcpyBatchAsync", 12080, 1);
	size_t said = 5;

	assert_int_equal(old(h.dsts, h.srcs, h.sizes, 2, h.attributes, h.indices,
			     attributes, &said, s),
			 CUDA_ERROR_INVALID_VALUE);
	assert_true(said == failed);
	assert_int_equal(gcpsim_pending(), 0); /* not even the first one */
}

TEST(what_a_batch_of_lines_must_have)
{
	CUdeviceptr q = source();
	struct halves good = halves_of(p, q), h = good;

	assert_refused(h, 0, SIZE_MAX);
	assert_refused(h, 3, SIZE_MAX);
	h.indices[0] = 1;
	assert_refused(h, 1, SIZE_MAX);
	h = good;
	h.indices[1] = 0;
	assert_refused(h, 2, SIZE_MAX);
	h.indices[1] = 2;
	assert_refused(h, 2, SIZE_MAX);
	h = good;
	h.attributes[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
	assert_refused(h, 2, 1);
	h = good;
	h.attributes[0].flags = 2;
	assert_refused(h, 2, 0);
	h = good;
	h.dsts[1] = 0;
	assert_refused(h, 2, 1);
	h = good;
	h.srcs[1] += HALF; /* beyond the end */
	assert_refused(h, 2, 1);
	OK(cuMemFree(q));
}

TEST(what_a_batch_of_boxes_must_have)
{
	CUdeviceptr q = source();
	CUDA_MEMCPY3D_BATCH_OP good = box(p, q), op = good;

	assert_int_equal(cuMemcpy3DBatchAsync(1, &op, 1, s), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemcpy3DBatchAsync(0, &op, 0, s), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemcpy3DBatchAsync(1, NULL, 0, s), CUDA_ERROR_INVALID_VALUE);
	op.extent.depth = 0;
	assert_int_equal(cuMemcpy3DBatchAsync(1, &op, 0, s), CUDA_ERROR_INVALID_VALUE);
	op = good;
	op.dst.op.ptr.rowLength = op.extent.width - 1;
	assert_int_equal(cuMemcpy3DBatchAsync(1, &op, 0, s), CUDA_ERROR_INVALID_VALUE);
	op = good;
	op.src.op.ptr.layerHeight = op.extent.height - 1;
	assert_int_equal(cuMemcpy3DBatchAsync(1, &op, 0, s), CUDA_ERROR_INVALID_VALUE);
	op = good;
	op.src.type = 0;
	assert_int_equal(cuMemcpy3DBatchAsync(1, &op, 0, s), CUDA_ERROR_INVALID_VALUE);
	op.src.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
	assert_int_equal(cuMemcpy3DBatchAsync(1, &op, 0, s), CUDA_ERROR_NOT_SUPPORTED);
	op = good;
	op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
	assert_int_equal(cuMemcpy3DBatchAsync(1, &op, 0, s), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFree(q));
}

/* Two rows, four bytes of every eight. */
TEST(boxes_have_rows)
{
	uint32_t host[4] = {1, 2, 3, 4}, back[4] = {0};
	CUDA_MEMCPY3D_BATCH_OP op = box(p, (CUdeviceptr)(uintptr_t)host);

	op.extent = (CUextent3D){.width = 4, .height = 2, .depth = 1};
	op.src.op.ptr.rowLength = 8;
	OK(cuMemcpy3DBatchAsync(1, &op, 0, s));
	OK(cuMemcpyDtoHAsync(back, p, 8, s));
	assert_int_equal(back[0], 1);
	assert_int_equal(back[1], 3);
}

TEST(a_batch_is_in_the_order_of_its_stream)
{
	CUdeviceptr q = source();
	struct halves h = halves_of(p, q);

	OK(halves_copy(&h, 1, s));
	assert_int_equal(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	fill(q, 3, s);
	assert_int_equal(gcpsim_hazards(), 0);
	fill(p, 3, t);
	assert_true(gcpsim_hazards() > 0);
	OK(cuCtxSynchronize());
	OK(cuMemFree(q));
}

/* What is read during the call is as it is then, and is the host's again. */
TEST(sources_are_read_when_the_attributes_say)
{
	uint32_t a = 1, b = 2, back[2] = {0};
	struct halves h = halves_of(p, 0);

	h.srcs[0] = (CUdeviceptr)(uintptr_t)&a;
	h.srcs[1] = (CUdeviceptr)(uintptr_t)&b;
	h.sizes[0] = h.sizes[1] = 4;
	h.attributes[0] = order[1];
	h.attributes[1] = order[2];
	OK(halves_copy(&h, 2, s));
	a = b = 9;
	OK(cuStreamSynchronize(s));
	assert_int_equal(gcpsim_peek(p, back, 4), 0);
	assert_int_equal(gcpsim_peek(p + HALF, back + 1, 4), 0);
	assert_int_equal(back[0], 1);
	assert_int_equal(back[1], 9);
}

TEST(a_source_that_is_read_at_once_has_no_order)
{
	CUdeviceptr q = source();
	struct halves h = halves_of(p, q);

	h.attributes[0] = order[1];
	OK(halves_copy(&h, 1, s));
	fill(q, 3, t); /* it was read */
	assert_int_equal(gcpsim_hazards(), 0);
	OK(halves_copy(&h, 1, s)); /* before that is done */
	assert_true(gcpsim_hazards() > 0);
	OK(cuCtxSynchronize());
	OK(cuMemFree(q));
}

TEST(a_batch_to_pageable_memory_waits)
{
	CUdeviceptr q = source();
	uint32_t back[2] = {0};
	struct halves h = halves_of((CUdeviceptr)(uintptr_t)back, q);

	h.dsts[1] = h.dsts[0] + 4;
	h.sizes[0] = h.sizes[1] = 4;
	OK(halves_copy(&h, 1, s));
	assert_int_equal(back[0], 7);
	assert_int_equal(back[1], 7);
	OK(cuMemFree(q));
}
