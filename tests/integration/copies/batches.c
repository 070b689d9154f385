/* SPDX-License-Identifier: MIT */
/*
 * batches.c - batches of copies, as copies.c has single ones.
 *
 *   batches SCENARIO    plays one; 0: all is as with plain CUDA
 *
 * Environment: GCPSIM_DEVICES=2 GCPSIM_MEMORY=1g GCPOOL_TEST_WINDOW=0
 * GCPOOL_TEST_FENCE_BATCH=1 GCPOOL_THREAD_CACHE=0
 *
 * Ways: GCPOOL_BACKEND=auto, GCPOOL_BACKEND=segments
 */
#include "two_devices.h"

#include <dlfcn.h>

enum { PARTS = 3 }; /* of which the last one is between devices */

/* The forms of the two calls. The older ones say which copy failed. */
enum { LINES, OLD_LINES, BOXES, OLD_BOXES, KINDS };

struct batch {
	CUdeviceptr to[PARTS], from[PARTS];
	size_t bytes[PARTS];
};

static CUDA_MEMCPY3D_BATCH_OP box(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	CUDA_MEMCPY3D_BATCH_OP op = {
	    .src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER},
	    .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER},
	    .extent = {.width = bytes / 16, .height = 8, .depth = 2},
	    .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
	};

	op.src.op.ptr.ptr = from;
	op.dst.op.ptr.ptr = to;
	return op;
}

static void *form(const char *name)
{
	void *fn = dlsym(RTLD_DEFAULT, name);

	if (!fn)
		exit(77);
	return fn;
}

static CUresult boxes_submit(struct batch *b, bool old, CUstream stream)
{
	typedef CUresult old_fn(size_t count, CUDA_MEMCPY3D_BATCH_OP * list,
				size_t * ret_failed, unsigned long long flags,
				CUstream stream);
	CUDA_MEMCPY3D_BATCH_OP list[PARTS];
	CUresult result;
	size_t failed = 7;

	for (int i = 0; i < PARTS; i++)
		list[i] = box(b->to[i], b->from[i], b->bytes[i]);
	if (!old)
		return cuMemcpy3DBatchAsync(PARTS, list, 0, stream);
	result =
	    ((old_fn *)form("cuMemcpy3DBatchAsync"))(PARTS, list, &failed, 0, stream);
	must(result || failed == SIZE_MAX, "which copy failed");
	return result;
}

static CUresult lines_submit(struct batch *b, bool old, CUstream stream)
{
	typedef CUresult old_fn(CUdeviceptr * to, CUdeviceptr * from, size_t * bytes,
				size_t count, CUmemcpyAttributes * attributes,
				size_t * indices, size_t attribute_count,
				size_t * ret_failed, CUstream stream);
	CUmemcpyAttributes attributes[2] = {
	    {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM},
	    {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_ANY,
	     .flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE},
	};
	size_t indices[2] = {0, PARTS - 1}, failed = 7;
	CUresult result;

	if (!old)
		return cuMemcpyBatchAsync(b->to, b->from, b->bytes, PARTS, attributes,
					  indices, 2, stream);
	result = ((old_fn *)form("cuMemcpyBatchAsync"))(
	    b->to, b->from, b->bytes, PARTS, attributes, indices, 2, &failed, stream);
	must(result || failed == SIZE_MAX, "which copy failed");
	return result;
}

static CUresult batch_submit(int kind, struct batch *b, CUstream stream)
{
	return kind < BOXES ? lines_submit(b, kind == OLD_LINES, stream)
			    : boxes_submit(b, kind == OLD_BOXES, stream);
}

/* Of a block in three parts, each of which is copied; the first two of them within the
 * stream's device, from and to `own`. */
static struct batch batch_of(CUdeviceptr own, CUdeviceptr to, CUdeviceptr from)
{
	size_t half = block_bytes / 2;

	return (struct batch){{own, own + half / 2, to},
			      {own + half, own + half + half / 2, from},
			      {half / 2, half / 2, block_bytes}};
}

/* --- what they give ------------------------------------------------------------ */

static void batches_of_all_kinds(void)
{
	for (int i = 0; i < 4 * KINDS; i++) {
		int kind = i / 4, device = i & 1, to_device = i >> 1 & 1;
		CUdeviceptr own = block_of(device, 1);
		CUdeviceptr to = block_of(to_device, 1);
		CUdeviceptr from = block_of(1 - to_device, 7);
		struct batch b = batch_of(own, to, from);

		current(device);
		OK(cuMemsetD8(own + block_bytes / 2, 7, block_bytes / 2));
		OK(cuCtxSynchronize());
		OK(batch_submit(kind, &b, streams[device]));
		all_wait();
		if (!block_is(to_device, to, 7) || !block_is(device, own, 7)) {
			printf("kind %d in device %d to %d\n", kind, device, to_device);
			must(false, "it is not copied");
		}
		OK(cuMemFree(own));
		current(0);
		OK(cuMemFree(to));
		OK(cuMemFree(from));
	}
	must(gcpsim_hazards() == 0 && gcpsim_faults() == 0, gcpsim_last_report());
}

SCENARIO(batches_are_made)
{
	two_devices();
	batches_of_all_kinds();
}

SCENARIO(batches_are_made_with_access_one_way)
{
	two_devices();
	access_give(1);
	batches_of_all_kinds();
}

SCENARIO(batches_are_made_with_access_both_ways)
{
	two_devices();
	access_give(3);
	batches_of_all_kinds();
}

/* As plain CUDA does; the library does nothing for it. */
SCENARIO(batches_are_refused)
{
	CUDA_MEMCPY3D_BATCH_OP strange;
	CUdeviceptr to, from;
	struct batch b;
	uint64_t before;

	two_blocks(3, &to, &from);
	b = batch_of(to, to + block_bytes / 2, from);
	b.bytes[2] /= 2;
	current(1);
	before = gcpsim_calls("cuEventRecord");
	for (int kind = 0; kind < KINDS; kind++) {
		must(batch_submit(kind, &b, NULL) == CUDA_ERROR_INVALID_VALUE &&
			 batch_submit(kind, &b, CU_STREAM_LEGACY) ==
			     CUDA_ERROR_INVALID_VALUE,
		     "the legacy stream has a batch");
	}
	must(cuMemcpyBatchAsync(b.to, NULL, b.bytes, PARTS, NULL, NULL, 1,
				streams[1]) == CUDA_ERROR_INVALID_VALUE &&
		 cuMemcpyBatchAsync(NULL, b.from, b.bytes, PARTS, NULL, NULL, 1,
				    streams[1]) == CUDA_ERROR_INVALID_VALUE &&
		 cuMemcpy3DBatchAsync(PARTS, NULL, 0, streams[1]) ==
		     CUDA_ERROR_INVALID_VALUE,
	     "a batch of nothing");
	strange = box(to, from, block_bytes);
	strange.src.type = 7;
	must(cuMemcpy3DBatchAsync(1, &strange, 0, streams[1]) ==
		 CUDA_ERROR_INVALID_VALUE,
	     "an operand of no kind");
	must(gcpsim_calls("cuEventRecord") == before, "a refused batch is noted");
	OK(batch_submit(LINES, &b, streams[1]));
	must(gcpsim_calls("cuEventRecord") == before + 1, "a batch is not noted");
}

/* The capture has all but the batch. */
SCENARIO(a_capture_refuses_batches)
{
	CUdeviceptr to, from;
	struct batch b;
	CUgraph graph;
	size_t nodes = 7;

	two_blocks(3, &to, &from);
	b = batch_of(to, to + block_bytes / 2, from);
	b.bytes[2] /= 2;
	OK(cuStreamBeginCapture(streams[1], CU_STREAM_CAPTURE_MODE_GLOBAL));
	for (int kind = 0; kind < KINDS; kind++)
		must(batch_submit(kind, &b, streams[1]) ==
			 CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
		     "a batch is captured");
	OK(cuMemsetD8Async(to, 2, MIB, streams[1]));
	OK(cuStreamEndCapture(streams[1], &graph));
	OK(cuGraphGetNodes(graph, NULL, &nodes));
	must(nodes == 1, "what is captured");
	OK(cuGraphDestroy(graph));
}

/* --- frees --------------------------------------------------------------------- */

static void free_beside(int kind, int device, int to_device, bool of_source)
{
	int from_device = 1 - to_device;
	CUdeviceptr own = block_of(device, 1);
	CUdeviceptr to = block_of(to_device, 1), from = block_of(from_device, 7);
	CUdeviceptr gone = of_source ? from : to;
	struct batch b = batch_of(own, to, from);

	if (kind == OLD_LINES || kind == OLD_BOXES) /* it is the first one, too */
		b = (struct batch){{to, own, own + block_bytes / 4},
				   {from, b.from[0], b.from[1]},
				   {block_bytes, b.bytes[0], b.bytes[1]}};
	current(device);
	OK(batch_submit(kind, &b, streams[device]));
	free_and_take_again(kind, device, to_device, of_source, gone);
	OK(cuMemFree(own));
}

/* Plain cudaFree waits for the batch in the stream's own context; without peer access,
 * in both. */
static void frees_beside_batches_of(int state)
{
	for (int i = 0; i < 8 * KINDS; i++) {
		int kind = i / 8, device = i & 1, to_device = i >> 1 & 1;
		bool of_source = i >> 2 & 1;
		int freed = of_source ? 1 - to_device : to_device;

		if (freed == device || state == 0)
			free_beside(kind, device, to_device, of_source);
	}
}

static void frees_beside_batches(int state)
{
	block_bytes = MIB / 16;
	two_devices();
	access_give(state);
	frees_beside_batches_of(state);
}

SCENARIO(frees_beside_batches_without_access)
{
	frees_beside_batches(0);
}

SCENARIO(frees_beside_batches_with_access_one_way)
{
	frees_beside_batches(1);
}

SCENARIO(frees_beside_batches_with_access_the_other_way)
{
	frees_beside_batches(2);
}

SCENARIO(frees_beside_batches_with_access_both_ways)
{
	frees_beside_batches(3);
}

SCENARIO(frees_beside_batches_with_access_no_more)
{
	access_give_and_take();
	frees_beside_batches_of(0);
}

/* --- threads that end ---------------------------------------------------------- */

struct cancelled {
	int kind;
	const char *symbol;
	struct batch batch;
};
