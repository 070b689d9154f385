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

/* From a context of the other device, from and to the host. */
static void batches_of_the_host_are_made(int kind)
{
	CUdeviceptr p, pinned, own;
	struct batch b;
	void *at;

	two_devices();
	p = block_of(1, 1);
	own = block_of(0, 7);
	OK(cuMemHostAlloc(&at, MIB, CU_MEMHOSTALLOC_PORTABLE));
	pinned = (CUdeviceptr)(uintptr_t)at;
	memset(at, 3, MIB);
	b = batch_of(own, p, pinned);
	OK(batch_submit(kind, &b, streams[0]));
	all_wait();
	must(block_is(1, p, 3), "from the host");
	OK(cuMemsetD8(p, 5, MIB));
	OK(cuCtxSynchronize());
	b = batch_of(own, pinned, p);
	OK(batch_submit(kind, &b, streams[0]));
	all_wait();
	must(((unsigned char *)at)[MIB - 1] == 5, "to the host");
}

SCENARIO(lines_of_the_host_are_made)
{
	batches_of_the_host_are_made(LINES);
}

SCENARIO(boxes_of_the_host_are_made)
{
	batches_of_the_host_are_made(BOXES);
}

/* What is mapped stays closed to the other device, and no event is recorded. */
SCENARIO(batches_of_one_device_open_nothing)
{
	CUdeviceptr p, own;
	struct batch b;
	uint64_t before;

	two_devices();
	p = block_of(1, 1);
	own = block_of(0, 7);
	before = gcpsim_calls("cuEventRecord");
	b = batch_of(own, own + block_bytes / 8, own);
	b.bytes[2] = block_bytes / 8;
	for (int kind = 0; kind < KINDS; kind++)
		OK(batch_submit(kind, &b, streams[0]));
	must(gcpsim_calls("cuEventRecord") == before, "an event that nothing needs");
	all_wait();
	must_need_access(p);
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

/* By the names that they have for default streams of each thread, beside a capture that
 * forbids the legacy one. */
SCENARIO(batches_of_a_threads_stream_stay_there)
{
	typedef CUresult lines_fn(CUdeviceptr * to, CUdeviceptr * from, size_t * bytes,
				  size_t count, CUmemcpyAttributes * attributes,
				  size_t * indices, size_t attribute_count,
				  CUstream stream);
	typedef CUresult boxes_fn(size_t count, CUDA_MEMCPY3D_BATCH_OP * list,
				  unsigned long long flags, CUstream stream);
	CUmemcpyAttributes attributes = {.srcAccessOrder =
					     CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
	lines_fn *lines = (lines_fn *)form("cuMemcpyBatchAsync_v2_ptsz");
	boxes_fn *boxes = (boxes_fn *)form("cuMemcpy3DBatchAsync_v2_ptsz");
	CUdeviceptr to, from, to_at, from_at;
	size_t bytes = MIB / 2, index = 0;
	CUDA_MEMCPY3D_BATCH_OP op;
	CUstream captured;
	CUgraph graph;

	two_blocks(0, &to, &from);
	to_at = to + MIB / 2;
	from_at = from + MIB / 2;
	op = box(to, from, MIB / 2);
	current(0);
	OK(cuStreamCreate(&captured, CU_STREAM_DEFAULT));
	OK(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(lines(&to_at, &from_at, &bytes, 1, &attributes, &index, 1, NULL));
	OK(boxes(1, &op, 0, NULL));
	OK(cuStreamEndCapture(captured, &graph));
	all_wait();
	must(block_is(1, to, 7), "it is not copied");
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

/* Of both sides, in one of two contexts and where there is but one. */
SCENARIO(frees_beside_batches_of_one_device)
{
	block_bytes = MIB / 16;
	for (int i = 0; i < 4 * KINDS; i++) {
		CUdeviceptr own, to, gone;
		struct batch b;

		if (i == 2 * KINDS)
			two_devices();
		else if (i == 0) {
			contexts[0] = primary();
			OK(cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
			OK(cuStreamCreate(&others[0], CU_STREAM_NON_BLOCKING));
		}
		own = block_of(0, 7);
		to = block_of(0, 1);
		gone = i & 1 ? own : to;
		b = batch_of(own, to, own);
		b.bytes[2] = block_bytes / 8;
		b.from[2] = own + block_bytes - b.bytes[2];
		OK(batch_submit(i / 2 % KINDS, &b, streams[0]));
		OK(cuMemFree(gone));
		take_again(0, gone);
		OK(cuCtxSynchronize());
	}
	must(gcpsim_hazards() == 0, "memory is given out too early");
}

/* With GCPSIM_SPEED=never: plain cudaFree on the other device does not wait for such a
 * batch. Of ordinary segments: for a batch mapped memory is opened to all devices. */
SCENARIO(a_batch_in_a_stream_counts_in_its_context,
	 "GCPSIM_SPEED=never GCPOOL_BACKEND=segments")
{
	CUdeviceptr to, from, own, freed;
	struct batch b;

	two_blocks(1, &to, &from);
	freed = allocated(MIB);
	own = block_of(0, 1);
	b = batch_of(own, to, from);
	OK(batch_submit(LINES, &b, streams[0]));
	current(1);
	OK(cuMemFree(freed));
	must(allocated(MIB) == freed, "a free waits for the other context's batch");
}

/* Memory of a capture that a batch copies to, eagerly, is the capture's again when it
 * is freed: then a launch is behind the batch. */
SCENARIO(a_capture_ends_beside_a_batch, "GCPSIM_SPEED=never")
{
	CUdeviceptr from, own, other, scratch, again;
	CUgraphExec exec;
	struct batch b;
	CUgraph graph;

	two_devices();
	access_give(3);
	from = block_of(1, 7);
	own = block_of(0, 1);
	other = block_of(0, 1);
	for (int kind = 0; kind < KINDS; kind++) {
		OK(cuStreamBeginCapture(others[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
		scratch = allocated(MIB);
		b = batch_of(own, scratch, from);
		OK(batch_submit(kind, &b, streams[0]));
		OK(cuMemsetD8Async(other, 2, MIB, others[0])); /* the thread captures */
		OK(cuMemFree(scratch));
		again = allocated(MIB);
		must(again == scratch, "the capture gets other memory");
		OK(cuMemsetD8Async(again, 9, MIB, others[0]));
		OK(cuMemFree(again));
		OK(cuStreamEndCapture(others[0], &graph));
		OK(cuGraphInstantiate(&exec, graph, 0));
		OK(cuGraphLaunch(exec, others[0]));
		OK(cuCtxSynchronize());
	}
	must(gcpsim_hazards() == 0, "memory is given out too early");
}

/* --- threads that end ---------------------------------------------------------- */

struct cancelled {
	int kind;
	const char *symbol;
	struct batch batch;
};

/* At the end of the call, in the driver. */
static void *is_cancelled_in_a_copy(void *data)
{
	struct cancelled *cancelled = data;
	struct batch *b = &cancelled->batch;

	current(1);
	must(gcpsim_when_called(cancelled->symbol, pthread_testcancel) == 0,
	     "no such call");
	pthread_cancel(pthread_self());
	if (cancelled->kind == KINDS)
		OK(cuMemcpyAsync(b->to[2], b->from[2], b->bytes[2], streams[1]));
	else
		OK(batch_submit(cancelled->kind, b, streams[1]));
	pthread_testcancel();
	return NULL;
}

/* The other device makes the copy. */
static void cancelled_thread_leaves(int kind, const char *symbol)
{
	struct cancelled cancelled = {.kind = kind, .symbol = symbol};
	CUdeviceptr to, from, own;
	pthread_t victim;
	void *ended;

	block_bytes = MIB / 16;
	two_devices();
	access_give(3);
	for (int i = 0; i < 8; i++) {
		from = block_of(0, 7);
		own = block_of(1, 1);
		to = block_of(1, 1);
		cancelled.batch = batch_of(own, to, from);
		pthread_create(&victim, NULL, is_cancelled_in_a_copy, &cancelled);
		pthread_join(victim, &ended);
		must(ended == PTHREAD_CANCELED, "it has not ended");
		OK(cuMemFree(to));
		take_again(1, to);
		all_wait();
	}
	must(gcpsim_hazards() == 0, "memory is given out too early");
}

SCENARIO(a_cancelled_thread_leaves_its_batch)
{
	cancelled_thread_leaves(LINES, "cuMemcpyBatchAsync_v2");
}

SCENARIO(a_cancelled_thread_leaves_its_batch_of_boxes)
{
	cancelled_thread_leaves(BOXES, "cuMemcpy3DBatchAsync_v2");
}

SCENARIO(a_cancelled_thread_leaves_its_copy)
{
	cancelled_thread_leaves(KINDS, "cuMemcpyAsync");
}
