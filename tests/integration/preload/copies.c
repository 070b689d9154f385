/* SPDX-License-Identifier: MIT */
/*
 * copies.c - copies in which two devices take part.
 *
 *   copies SCENARIO    plays one; 0: all is as with plain CUDA
 *
 * Environment: GCPSIM_DEVICES=2 GCPSIM_MEMORY=1g GCPOOL_TEST_WINDOW=0
 * GCPOOL_TEST_FENCE_BATCH=1 GCPOOL_THREAD_CACHE=0
 *
 * Ways: GCPOOL_BACKEND=auto, GCPOOL_BACKEND=segments
 */
#include "scenarios.h"

/* --- two contexts with two streams each, and blocks whose bytes are alike --------- */

static size_t block_bytes = MIB;
static CUcontext contexts[2];
static CUstream streams[2], others[2];

static void current(int device)
{
	OK(cuCtxSetCurrent(contexts[device]));
}

static void two_devices(void)
{
	for (int i = 0; i < 2; i++) {
		OK(cuDevicePrimaryCtxRetain(&contexts[i], i));
		current(i);
		streams[i] = stream_new();
		others[i] = stream_new();
	}
}

/* Bit 0: device 0 may access device 1; bit 1: the other way. */
static void access_give(int state)
{
	for (int i = 0; i < 2; i++) {
		current(i);
		if (state >> i & 1)
			OK(cuCtxEnablePeerAccess(contexts[1 - i], 0));
	}
}

static void all_wait(void)
{
	for (int i = 0; i < 2; i++) {
		current(i);
		OK(cuCtxSynchronize());
	}
}

static CUdeviceptr block_of(int device, unsigned char value)
{
	CUdeviceptr p;

	current(device);
	p = allocated(block_bytes);
	OK(cuMemsetD8(p, value, block_bytes), cuCtxSynchronize());
	return p;
}

static bool block_is(int device, CUdeviceptr p, unsigned char value)
{
	static unsigned char words[MIB];

	current(device);
	OK(cuMemcpyDtoH(words, p, block_bytes));
	for (size_t i = 0; i < block_bytes; i++)
		if (words[i] != value)
			return false;
	return true;
}

/* What was opened stays open; plain CUDA has each device do its part again. */
static void access_give_and_take(void)
{
	block_bytes = MIB / 16;
	two_devices();
	access_give(3);
	OK(cuMemFree(block_of(0, 1)), cuMemFree(block_of(1, 1)));
	for (int i = 0; i < 2; i++) {
		current(i);
		OK(cuCtxDisablePeerAccess(contexts[1 - i]));
	}
}

/* On device 1, which is current from then on, and on device 0. */
static CUdeviceptr to_there, from_here;

static void two_blocks(int state)
{
	two_devices();
	access_give(state);
	from_here = block_of(0, 7);
	to_there = block_of(1, 1);
	current(1);
}

/* --- memory comes again --- */

/* Takes blocks until the freed one comes again, and writes into each. */
enum { TAKEN_MAX = 24 };

static void take_again(int device, CUdeviceptr freed)
{
	CUdeviceptr taken[TAKEN_MAX];

	current(device);
	for (int i = 0; i < TAKEN_MAX; i++) {
		taken[i] = allocated(block_bytes);
		OK(cuMemsetD8Async(taken[i], 9, block_bytes, others[device]));
		if (taken[i] == freed)
			break;
		if (i % 4 == 3) { /* others go meanwhile, and epochs with them */
			OK(cuMemFree(taken[i]));
			gcpsim_advance(200);
		}
	}
}

/* Frees a block beside what was submitted, whose words the others are: which kind, in
 * which device, to which one, and which side is freed. */
static void free_and_take_again(int kind, int device, int to_device, bool of_source,
				CUdeviceptr gone)
{
	int freed = of_source ? 1 - to_device : to_device;

	current(freed);
	OK(cuMemFree(gone));
	take_again(freed, gone);
	if (gcpsim_hazards() > 0) {
		printf("kind %d in device %d to %d, free of the %s: %s\n", kind, device,
		       to_device, of_source ? "source" : "destination",
		       gcpsim_last_report());
		must(false, "memory is given out too early");
		exit(1);
	}
	all_wait();
}

/* --- the calls ----------------------------------------------------------------- */

/* A kind that is not the host's leaves its pointer out, as it may. */
static void *host_pointer(CUmemorytype type, CUdeviceptr at)
{
	return type == CU_MEMORYTYPE_HOST ? (void *)at : NULL;
}

static CUDA_MEMCPY2D rectangle(CUmemorytype to_type, CUdeviceptr to,
			       CUmemorytype from_type, CUdeviceptr from)
{
	return (CUDA_MEMCPY2D){
	    .dstMemoryType = to_type,
	    .dstDevice = to,
	    .dstHost = host_pointer(to_type, to),
	    .srcMemoryType = from_type,
	    .srcDevice = from,
	    .srcHost = host_pointer(from_type, from),
	    .dstPitch = 4096,
	    .srcPitch = 4096,
	    .WidthInBytes = 4096,
	    .Height = block_bytes / 4096,
	};
}

static CUDA_MEMCPY3D volume(CUdeviceptr to, CUdeviceptr from)
{
	return (CUDA_MEMCPY3D){
	    .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
	    .dstDevice = to,
	    .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
	    .srcDevice = from,
	    .dstPitch = 4096,
	    .srcPitch = 4096,
	    .dstHeight = 16,
	    .srcHeight = 16,
	    .WidthInBytes = 4096,
	    .Height = 16,
	    .Depth = block_bytes / 4096 / 16,
	};
}

enum {
	LINE,
	DTOD,
	RECTANGLE,
	UNALIGNED,
	VOLUME,
	PEER,
	ASYNC, /* from here on in a stream */
	DTOD_ASYNC,
	RECTANGLE_ASYNC,
	VOLUME_ASYNC,
	PEER_ASYNC,
	BATCH,
	BATCH_OF_BOXES,
	KINDS
};

static CUresult batch(bool of_boxes, CUdeviceptr to, CUdeviceptr from, CUstream stream)
{
	CUmemcpyAttributes order = {.srcAccessOrder =
					CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
	CUDA_MEMCPY3D_BATCH_OP box = {
	    .src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = from},
	    .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = to},
	    .extent = {.width = block_bytes, .height = 1, .depth = 1},
	    .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
	};
	size_t first = 0;

	return of_boxes ? cuMemcpy3DBatchAsync(1, &box, 0, stream)
			: cuMemcpyBatchAsync(&to, &from, &block_bytes, 1, &order,
					     &first, 1, stream);
}

static CUresult copy(int kind, int device, CUdeviceptr to, int to_device,
		     CUdeviceptr from, int from_device)
{
	CUDA_MEMCPY2D two =
	    rectangle(CU_MEMORYTYPE_UNIFIED, to, CU_MEMORYTYPE_UNIFIED, from);
	CUDA_MEMCPY3D three = volume(to, from);
	CUstream stream = streams[device];

	current(device);
	switch (kind) {
	case LINE:
		return cuMemcpy(to, from, block_bytes);
	case DTOD:
		return cuMemcpyDtoD(to, from, block_bytes);
	case RECTANGLE:
		return cuMemcpy2D(&two);
	case UNALIGNED:
		return cuMemcpy2DUnaligned(&two);
	case VOLUME:
		return cuMemcpy3D(&three);
	case PEER:
		return cuMemcpyPeer(to, contexts[to_device], from,
				    contexts[from_device], block_bytes);
	case ASYNC:
		return cuMemcpyAsync(to, from, block_bytes, stream);
	case DTOD_ASYNC:
		return cuMemcpyDtoDAsync(to, from, block_bytes, stream);
	case RECTANGLE_ASYNC:
		return cuMemcpy2DAsync(&two, stream);
	case VOLUME_ASYNC:
		return cuMemcpy3DAsync(&three, stream);
	case BATCH:
	case BATCH_OF_BOXES:
		return batch(kind == BATCH_OF_BOXES, to, from, stream);
	default:
		return cuMemcpyPeerAsync(to, contexts[to_device], from,
					 contexts[from_device], block_bytes, stream);
	}
}

/* --- what they give ------------------------------------------------------------ */

static void copies_of_all_kinds(void)
{
	for (int i = 0; i < 4 * KINDS; i++) {
		int kind = i / 4, device = i & 1, to_device = i >> 1 & 1;
		CUdeviceptr to = block_of(to_device, 1);
		CUdeviceptr from = block_of(1 - to_device, 7);

		OK(copy(kind, device, to, to_device, from, 1 - to_device));
		all_wait();
		if (!block_is(to_device, to, 7)) {
			printf("kind %d in device %d to %d\n", kind, device, to_device);
			must(false, "it is not copied");
		}
		OK(cuMemFree(to), cuMemFree(from));
	}
}

SCENARIO(copies_are_made, "GCPT_ACCESS=0", "GCPT_ACCESS=1", "GCPT_ACCESS=3")
{
	two_devices();
	access_give(atoi(getenv("GCPT_ACCESS")));
	copies_of_all_kinds();
}

/* From device 0, in a captured graph. */
static void graph_copies(CUdeviceptr to, CUdeviceptr from)
{
	CUgraphExec exec;
	CUgraph graph;

	current(0);
	OK(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuMemcpyAsync(to, from, MIB, streams[0]));
	graph = capture_end(streams[0]);
	exec = instantiated(graph);
	OK(cuGraphLaunch(exec, streams[0]));
}

/* --- frees --------------------------------------------------------------------- */

static void free_beside(int kind, int device, int to_device, bool of_source)
{
	int from_device = 1 - to_device;
	CUdeviceptr to = block_of(to_device, 1), from = block_of(from_device, 7);
	CUdeviceptr gone = of_source ? from : to;

	OK(copy(kind, device, to, to_device, from, from_device));
	free_and_take_again(kind, device, to_device, of_source, gone);
}

/* Plain cudaFree waits for the copy in the stream's own context; for one in a default
 * stream, and without peer access, in both. */
static void frees_beside_copies_of(int state)
{
	for (int i = 0; i < 8 * KINDS; i++) {
		int kind = i / 8, device = i & 1, to_device = i >> 1 & 1;
		bool of_source = i >> 2 & 1;
		int freed = of_source ? 1 - to_device : to_device;

		if (freed == device || kind < ASYNC || state == 0)
			free_beside(kind, device, to_device, of_source);
	}
}

SCENARIO(frees_beside_copies_with_access_no_more)
{
	access_give_and_take();
	frees_beside_copies_of(0);
}

SCENARIO(frees_beside_copies, "GCPT_ACCESS=0", "GCPT_ACCESS=1", "GCPT_ACCESS=2",
	 "GCPT_ACCESS=3")
{
	int state = atoi(getenv("GCPT_ACCESS"));

	block_bytes = MIB / 16;
	two_devices();
	access_give(state);
	frees_beside_copies_of(state);
}

/* Another device than the one that has the graph's stream. */
SCENARIO(frees_beside_a_graph_that_copies)
{
	CUdeviceptr to, from;

	two_devices();
	to = block_of(1, 1);
	from = block_of(0, 7);
	graph_copies(to, from);
	current(1);
	OK(cuMemFree(to));
	take_again(1, to);
	must(gcpsim_hazards() == 0, "memory is given out too early");
}

/* --- contexts that end --------------------------------------------------------- */

/* The same: plain cudaFree on the other device does not wait for such a copy. */
SCENARIO(a_copy_in_a_stream_counts_in_its_context, "GCPSIM_SPEED=never")
{
	CUdeviceptr freed;

	two_blocks(1);
	freed = allocated(MIB);
	OK(copy(ASYNC, 0, to_there, 1, from_here, 0));
	current(1);
	OK(cuMemFree(freed));
	must(allocated(MIB) == freed, "a free waits for the other context's copy");
}

/* Nor for one in the default stream of a thread. */
SCENARIO(a_copy_in_a_threads_stream_counts_in_its_context, "GCPSIM_SPEED=never")
{
	CUdeviceptr freed;

	two_blocks(3);
	freed = allocated(MIB);
	current(0);
	OK(cuMemcpyDtoDAsync(to_there, from_here, MIB, CU_STREAM_PER_THREAD));
	current(1);
	OK(cuMemFree(freed));
	must(allocated(MIB) == freed, "a free waits for the other context's copy");
}

/* In the legacy stream it counts in both: plain cudaFree waits there, too. */
SCENARIO(a_copy_in_the_default_stream_counts_in_both_contexts, "GCPSIM_SPEED=never")
{
	two_blocks(3);
	current(0);
	OK(cuMemcpyDtoDAsync(to_there, from_here, MIB, NULL));
	current(1);
	OK(cuMemFree(to_there));
	must(allocated(MIB) != to_there, "memory is given out too early");
}

/* The same: the older of two is done, and known to be so; then comes a third. */
SCENARIO(a_copy_between_two_others_is_waited_for, "GCPSIM_SPEED=never")
{
	CUdeviceptr freed, other;

	two_blocks(3);
	other = allocated(MIB);
	freed = allocated(MIB);
	OK(cuMemcpyAsync(to_there, from_here, MIB, streams[1]),
	   cuStreamSynchronize(streams[1]));
	OK(cuMemFree(freed), cuMemcpyAsync(to_there, from_here, MIB, streams[1]));
	must(allocated(MIB) == freed, "a free is behind what came after it");
	OK(copy(ASYNC, 0, other, 1, from_here, 0));
	current(1);
	OK(cuMemFree(to_there));
	must(allocated(MIB) != to_there, "memory is given out too early");
}

/* streams[device] becomes one of a green context. */
static CUgreenCtx green_context(int device)
{
	CUdevResource resource;
	CUdevResourceDesc desc;
	CUgreenCtx green;

	OK(cuDeviceGetDevResource(device, &resource, CU_DEV_RESOURCE_TYPE_SM));
	OK(cuDevResourceGenerateDesc(&desc, &resource, 1));
	OK(cuGreenCtxCreate(&green, desc, device, CU_GREEN_CTX_DEFAULT_STREAM));
	OK(cuGreenCtxStreamCreate(&streams[device], green, CU_STREAM_NON_BLOCKING, 0));
	return green;
}

/* A copy goes on when its green context is destroyed, which waits for nothing. */
SCENARIO(a_copy_outlives_its_green_context, "GCPSIM_SPEED=never")
{
	CUgreenCtx green;

	two_blocks(3);
	green = green_context(1);
	OK(cuMemcpyAsync(to_there, from_here, MIB, streams[1]), cuMemFree(to_there));
	OK(cuGreenCtxDestroy(green));
	must(allocated(MIB) != to_there, "memory is given out too early");
}

/* Many copies, and hardly a free: the events behind them are used again, also where the
 * first copy is not done. */
SCENARIO(events_behind_copies_are_few, "", "GCPSIM_SPEED=never")
{
	enum { HALF = MIB / 2 };
	uint64_t before;

	two_blocks(3);
	current(0);
	OK(cuMemcpyAsync(to_there, from_here, HALF, others[0]));
	before = gcpsim_calls("cuEventCreate");
	for (int i = 0; i < 1000; i++) {
		OK(cuMemcpyAsync(to_there + HALF, from_here, HALF, streams[0]));
		OK(cuStreamSynchronize(streams[0]));
	}
	must(gcpsim_calls("cuEventCreate") - before <= 40, "an event for each copy");
}

/* The same; a capture that the library does not know makes the driver refuse to be
 * asked: first for the fence, then for the copy. */
SCENARIO(a_question_that_is_refused_is_no_answer, "GCPSIM_SPEED=never")
{
	two_blocks(3);
	OK(cuMemcpyAsync(to_there, from_here, MIB, streams[1]), cuMemFree(to_there));
	calls_fail("cuEventQuery:2:900");
	must(allocated(MIB) != to_there, "memory is given out too early");
	calls_fail(NULL);
	must(allocated(MIB) != to_there, "memory is given out too early");
}

/* Memory of a capture that the other device copies to, eagerly, is the capture's again
 * when it is freed. The end of the capture waits for nothing, and sets a barrier. */
static void captured_beside_a_copy(CUdeviceptr from, CUdeviceptr other)
{
	CUdeviceptr scratch, again;

	capture_begin(others[0]);
	scratch = allocated(MIB);
	OK(cuMemcpyAsync(scratch, from, MIB, streams[0]));
	OK(cuMemsetD8Async(other, 2, MIB, others[0])); /* the thread captures */
	OK(cuMemFree(scratch));
	again = allocated(MIB);
	must(again == scratch, "the capture gets other memory");
	OK(cuMemsetD8Async(again, 9, MIB, others[0]), cuMemFree(again));
	(void)capture_end(others[0]);
	must(cuStreamQuery(streams[0]) == CUDA_ERROR_NOT_READY,
	     "the end of a capture waits");
}

/* The barrier is one of a context that is created later, too. */
SCENARIO(a_context_comes_behind_a_copy, "GCPSIM_SPEED=never")
{
	CUdeviceptr to, from, other;
	CUcontext later;
	CUstream stream;

	two_devices();
	access_give(3);
	from = block_of(1, 7);
	other = block_of(0, 1);
	to = block_of(0, 1);
	OK(cuMemcpyAsync(to, from, MIB, streams[0]), cuMemFree(to));
	captured_beside_a_copy(from, other);
	must(allocated(MIB) == to, "a free is not behind the barrier");
	OK(cuCtxCreate(&later, NULL, 0, 0));
	stream = stream_new();
	OK(cuMemsetD8Async(to, 9, MIB, stream), cuStreamSynchronize(stream));
	must(gcpsim_hazards() == 0, "memory is given out too early");
}

/* Without memory for an event the call waits: then nothing is to be covered. */
SCENARIO(a_copy_that_cannot_be_noted_is_waited_for)
{
	two_blocks(3);
	OK(cuMemFree(allocated(MIB)));
	calls_fail("cuEventCreate:1+:2");
	OK(copy(ASYNC, 1, to_there, 1, from_here, 0));
	calls_fail(NULL);
	OK(cuStreamQuery(streams[1]), cuMemFree(to_there));
	take_again(1, to_there);
	must(gcpsim_hazards() == 0, "memory is given out too early");
}

/* Programs do so before each exchange; CUDA says that it is enabled already. */
SCENARIO(access_that_is_given_again_opens_nothing)
{
	uint64_t before = 0;

	two_blocks(3);
	for (int i = 0; i < 4; i++) {
		if (i == 2)
			before = gcpsim_calls("cuMemSetAccess");
		current(i % 2);
		must(cuCtxEnablePeerAccess(contexts[1 - i % 2], 0) ==
			 CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
		     "it is enabled twice");
	}
	must(gcpsim_calls("cuMemSetAccess") == before, "all memory is opened again");
}

SCENARIO(a_copy_to_an_array_opens_no_memory)
{
	CUDA_ARRAY_DESCRIPTOR line = {.Width = 64, .NumChannels = 1};
	CUarray array;

	two_blocks(0);
	OK(cuArrayCreate(&array, &line), cuMemcpyDtoA(array, 0, to_there, 64));
	must(gcpsim_calls("cuMemSetAccess") <= 2, "one for each block");
}

/* As one that copies between devices, of memory that is not open to both. */
SCENARIO(a_graph_that_is_refused_is_made_with_access)
{
	CUgraphExec exec;
	CUgraph graph;

	two_blocks(0);
	calls_fail("cuGraphInstantiateWithFlags:1:1");
	OK(cuGraphCreate(&graph, 0), cuGraphInstantiateWithFlags(&exec, graph, 0));
	must(gcpsim_calls("cuMemSetAccess") != 2, "memory is not opened");
}

SCENARIO(a_launch_that_is_refused_is_made_with_access)
{
	CUgraphExec exec;
	CUgraph graph;

	two_blocks(0);
	OK(cuGraphCreate(&graph, 0), cuGraphInstantiateWithFlags(&exec, graph, 0));
	calls_fail("cuGraphLaunch:1:1");
	OK(cuGraphLaunch(exec, streams[0]));
	must(gcpsim_calls("cuMemSetAccess") != 2, "memory is not opened");
}

/* --- threads that end ---------------------------------------------------------- */

/* At the end of the call, in the driver. */
static void *is_cancelled_in_a_copy(void *unused)
{
	current(1);
	when_called("cuMemcpyAsync", pthread_testcancel);
	pthread_cancel(pthread_self());
	OK(cuMemcpyAsync(to_there, from_here, block_bytes, streams[1]));
	pthread_testcancel();
	return unused;
}

/* The other device makes the copy. */
SCENARIO(a_cancelled_thread_leaves_its_copy)
{
	void *ended;

	block_bytes = MIB / 16;
	two_devices();
	access_give(3);
	for (int i = 0; i < 8; i++) {
		from_here = block_of(0, 7);
		to_there = block_of(1, 1);
		ended = play_elsewhere(is_cancelled_in_a_copy, NULL);
		must(ended == PTHREAD_CANCELED, "it has not ended");
		OK(cuMemFree(to_there));
		take_again(1, to_there);
		all_wait();
	}
	must(gcpsim_hazards() == 0, "memory is given out too early");
}
