/* SPDX-License-Identifier: MIT */
/*
 * copies.c - copies in which two devices take part: what tests/gpu/copies.cu shows on
 * two GPUs, on the simulated devices.
 *
 *   copies SCENARIO    plays one; 0: all is as with plain CUDA
 *
 * Environment: GCPSIM_DEVICES=2 GCPSIM_MEMORY=1g GCPOOL_TEST_WINDOW=0
 * GCPOOL_TEST_FENCE_BATCH=1 GCPOOL_THREAD_CACHE=0
 *
 * Ways: GCPOOL_BACKEND=auto, GCPOOL_BACKEND=segments
 */
#include "two_devices.h"

#include <dlfcn.h>

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
	KINDS
};

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
		OK(cuMemFree(to));
		OK(cuMemFree(from));
	}
}

SCENARIO(copies_are_made)
{
	two_devices();
	copies_of_all_kinds();
}

SCENARIO(copies_are_made_with_access_one_way)
{
	two_devices();
	access_give(1);
	copies_of_all_kinds();
}

SCENARIO(copies_are_made_with_access_both_ways)
{
	two_devices();
	access_give(3);
	copies_of_all_kinds();
}

/* From a context of the other device, from and to the host. */
SCENARIO(copies_of_the_host_are_made)
{
	static unsigned char host[MIB];
	CUdeviceptr p, q, pinned;
	CUDA_MEMCPY2D up, down;
	void *at;

	two_devices();
	p = block_of(1, 1);
	q = block_of(1, 2);
	current(0);
	OK(cuMemHostAlloc(&at, MIB, CU_MEMHOSTALLOC_PORTABLE));
	pinned = (CUdeviceptr)(uintptr_t)at;
	memset(at, 3, MIB);
	memset(host, 4, MIB);
	OK(cuMemcpyHtoD(p, host, MIB));
	must(block_is(1, p, 4), "cuMemcpyHtoD");
	current(0);
	OK(cuMemcpyHtoDAsync(p, at, MIB, streams[0]));
	OK(cuStreamSynchronize(streams[0]));
	must(block_is(1, p, 3), "cuMemcpyHtoDAsync");
	current(0);
	OK(cuMemcpyDtoH(host, q, MIB));
	must(host[0] == 2 && host[MIB - 1] == 2, "cuMemcpyDtoH");
	OK(cuMemcpyAsync(pinned, q, MIB, streams[0]));
	OK(cuStreamSynchronize(streams[0]));
	must(((unsigned char *)at)[MIB - 1] == 2, "cuMemcpyAsync");
	memset(host, 5, MIB);
	up = rectangle(CU_MEMORYTYPE_DEVICE, p, CU_MEMORYTYPE_HOST,
		       (CUdeviceptr)(uintptr_t)host);
	OK(cuMemcpy2D(&up));
	must(block_is(1, p, 5), "cuMemcpy2D");
	current(0);
	down = rectangle(CU_MEMORYTYPE_UNIFIED, (CUdeviceptr)(uintptr_t)host,
			 CU_MEMORYTYPE_UNIFIED, q);
	OK(cuMemcpy2D(&down));
	must(host[0] == 2 && host[MIB - 1] == 2, "cuMemcpy2D of an unknown kind");
	memset(at, 6, MIB);
	up = rectangle(CU_MEMORYTYPE_UNIFIED, p, CU_MEMORYTYPE_UNIFIED, pinned);
	OK(cuMemcpy2D(&up));
	must(block_is(1, p, 6), "cuMemcpy2D of an unknown kind");
	current(0);
	OK(cuMemcpyHtoD(p, memset(at, 5, MIB), MIB));
	OK(cuMemcpy((CUdeviceptr)(uintptr_t)host, p, MIB));
	must(host[0] == 5 && host[MIB - 1] == 5, "cuMemcpy");
	OK(cuMemcpyDtoD(p, q, MIB)); /* both of the other one */
	all_wait();
	must(block_is(1, p, 2), "cuMemcpyDtoD");
	OK(cuMemFreeHost(at));
	must_need_access(p);
}

/* What touches memory of the other device by itself is refused as by plain CUDA, also
 * after copies. */
SCENARIO(fills_need_access)
{
	CUdeviceptr p, q;

	two_devices();
	p = block_of(1, 1);
	q = block_of(0, 7);
	for (int kind = 0; kind < KINDS; kind++)
		OK(copy(kind, 0, p, 1, q, 0));
	all_wait();
	must_need_access(p);
}

/* What CUDA says of a block to a context of the other device. */
SCENARIO(the_other_device_is_told_the_same)
{
	CUpointer_attribute which = CU_POINTER_ATTRIBUTE_ACCESS_FLAGS;
	CUdeviceptr p;
	int flags = 0;
	void *data = &flags;

	two_devices();
	p = block_of(1, 1);
	current(0);
	OK(cuPointerGetAttribute(&flags, which, p));
	must(flags == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE, "access flags");
	flags = 0;
	OK(cuPointerGetAttributes(1, &which, &data, p + 8));
	must(flags == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE, "access flags");
}

/* From device 0, in a captured graph. */
static void graph_copies(CUdeviceptr to, CUdeviceptr from)
{
	CUgraphExec exec;
	CUgraph graph;

	current(0);
	OK(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuMemcpyAsync(to, from, MIB, streams[0]));
	OK(cuStreamEndCapture(streams[0], &graph));
	OK(cuGraphInstantiate(&exec, graph, 0));
	OK(cuGraphLaunch(exec, streams[0]));
}

/* The call that names the contexts cannot be captured; the others can. */
SCENARIO(copies_in_graphs_are_made)
{
	CUdeviceptr to, from;

	two_devices();
	to = block_of(1, 1);
	from = block_of(0, 7);
	graph_copies(to, from);
	all_wait();
	must(block_is(1, to, 7), "it is not copied");
}

SCENARIO(nodes_that_copy_are_made)
{
	CUDA_MEMCPY3D what;
	CUdeviceptr to, from;
	CUgraphExec exec;
	CUgraphNode node;
	CUgraph graph;

	two_devices();
	to = block_of(1, 1);
	from = block_of(0, 7);
	what = volume(to, from);
	what.srcMemoryType = what.dstMemoryType = CU_MEMORYTYPE_DEVICE;
	what.Height = 1;
	what.Depth = 1;
	current(0);
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &what, contexts[0]));
	OK(cuGraphInstantiate(&exec, graph, 0));
	OK(cuGraphLaunch(exec, streams[0]));
	all_wait();
	must(gcpsim_faults() == 0, "the device has no access");
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

static void frees_beside_copies(int state)
{
	block_bytes = MIB / 16;
	two_devices();
	access_give(state);
	frees_beside_copies_of(state);
}

SCENARIO(frees_beside_copies_with_access_no_more)
{
	access_give_and_take();
	frees_beside_copies_of(0);
}

static bool is_of_segments(void)
{
	const char *backend = getenv("GCPOOL_BACKEND");

	return backend && !strcmp(backend, "segments");
}

/* Peer access is one of two contexts: what was enabled for an earlier one of the device
 * does not count, and plain CUDA waits in both. */
static void copy_to_a_later_context(void)
{
	CUdeviceptr to = block_of(1, 1), from = block_of(0, 7);

	/* The simulated driver has access to segments by devices, not by contexts. */
	if (is_of_segments())
		return;
	current(0);
	OK(cuMemcpyAsync(to, from, MIB, streams[0]));
	current(1);
	OK(cuMemFree(to));
	must(allocated(MIB) != to, "memory is given out too early");
}

SCENARIO(a_free_waits_for_a_copy_after_a_reset, "GCPSIM_SPEED=never")
{
	two_devices();
	access_give(1);
	OK(cuMemFree(block_of(1, 1)));
	OK(cuDevicePrimaryCtxReset(1));
	OK(cuDevicePrimaryCtxRetain(&contexts[1], 1));
	copy_to_a_later_context();
}

SCENARIO(a_free_waits_for_a_copy_in_a_second_context, "GCPSIM_SPEED=never")
{
	two_devices();
	access_give(1);
	OK(cuCtxCreate(&contexts[1], NULL, 0, 1));
	copy_to_a_later_context();
}

SCENARIO(a_free_waits_for_a_copy_to_a_first_context, "GCPSIM_SPEED=never")
{
	CUcontext first, second;

	two_devices();
	first = contexts[1];
	OK(cuCtxCreate(&second, NULL, 0, 1));
	contexts[1] = second;
	access_give(1);
	contexts[1] = first;
	copy_to_a_later_context();
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

SCENARIO(frees_beside_copies_of_a_green_context)
{
	block_bytes = MIB / 16;
	two_devices();
	access_give(3);
	for (int i = 0; i < 2; i++)
		green_context(i);
	frees_beside_copies_of(3);
}

/* The same where the library has not seen that they were created. */
SCENARIO(frees_beside_copies_of_an_unknown_context)
{
	block_bytes = MIB / 16;
	two_devices();
	access_give(3);
	for (int i = 0; i < 2; i++)
		OK(cuGreenCtxStreamCreate(&streams[i], gcpsim_green_context(i),
					  CU_STREAM_NON_BLOCKING, 0));
	frees_beside_copies_of(3);
}

/* A copy goes on when its green context is destroyed, which waits for nothing. */
static void copy_outlives(CUgreenCtx green)
{
	CUdeviceptr to = block_of(1, 1), from = block_of(0, 7);

	current(1);
	OK(cuMemcpyAsync(to, from, MIB, streams[1]));
	OK(cuMemFree(to));
	OK(cuGreenCtxDestroy(green));
	must(allocated(MIB) != to, "memory is given out too early");
}

SCENARIO(a_copy_outlives_its_green_context, "GCPSIM_SPEED=never")
{
	two_devices();
	access_give(3);
	copy_outlives(green_context(1));
}

/* The same where the library has not seen that it was created. */
SCENARIO(a_copy_outlives_its_unknown_context, "GCPSIM_SPEED=never")
{
	CUgreenCtx green;

	two_devices();
	access_give(3);
	green = gcpsim_green_context(1);
	OK(cuGreenCtxStreamCreate(&streams[1], green, CU_STREAM_NON_BLOCKING, 0));
	copy_outlives(green);
}

SCENARIO(frees_beside_copies_without_access)
{
	frees_beside_copies(0);
}

SCENARIO(frees_beside_copies_with_access_one_way)
{
	frees_beside_copies(1);
}

SCENARIO(frees_beside_copies_with_access_the_other_way)
{
	frees_beside_copies(2);
}

SCENARIO(frees_beside_copies_with_access_both_ways)
{
	frees_beside_copies(3);
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

SCENARIO(a_context_ends_beside_copies)
{
	CUdeviceptr to, from;

	two_devices();
	access_give(3);
	for (int i = 0; i < 4; i++) {
		int ends = i & 1;

		to = block_of(1, 1);
		from = block_of(0, 7);
		OK(copy(i & 2 ? ASYNC : LINE, ends, to, 1, from, 0));
		OK(cuDevicePrimaryCtxReset(ends));
		OK(cuDevicePrimaryCtxRetain(&contexts[ends], ends));
		current(ends);
		OK(cuStreamCreate(&streams[ends], CU_STREAM_NON_BLOCKING));
		OK(cuStreamCreate(&others[ends], CU_STREAM_NON_BLOCKING));
		OK(cuCtxEnablePeerAccess(contexts[1 - ends], 0));
		current(1 - ends);
		OK(cuMemFree(ends ? from : to));
		take_again(1 - ends, ends ? from : to);
		all_wait();
	}
	must(gcpsim_hazards() == 0 && gcpsim_faults() == 0 && gcpsim_misuses() == 0,
	     "what a context left is used");
}

/* Many copies, and hardly a free: the events behind them are used again. */
SCENARIO(events_behind_copies_are_few)
{
	CUdeviceptr to, from;
	uint64_t before;

	two_blocks(3, &to, &from);
	current(0);
	before = gcpsim_calls("cuEventCreate");
	for (int i = 0; i < 1000; i++) {
		OK(cuMemcpyAsync(to, from, MIB, streams[0]));
		OK(cuStreamSynchronize(streams[0]));
	}
	must(gcpsim_calls("cuEventCreate") - before <= 40, "an event for each copy");
}

/* With GCPSIM_SPEED=never: copies that do not end, one of the other context before the
 * free, one of its own after it. */
SCENARIO(a_fence_is_behind_no_later_copy, "GCPSIM_SPEED=never")
{
	CUdeviceptr to, from, freed;

	two_blocks(3, &to, &from);
	freed = allocated(MIB);
	OK(copy(ASYNC, 0, to, 1, from, 0));
	current(1);
	OK(cuMemFree(freed));
	OK(cuMemcpyAsync(to, from, MIB, streams[1]));
	must(allocated(MIB) == freed, "a free is behind what came after it");
}

/* The same; a capture that the library does not know makes the driver refuse to be
 * asked: first for the fence, then for the copy. */
SCENARIO(a_question_that_is_refused_is_no_answer, "GCPSIM_SPEED=never")
{
	CUdeviceptr to, from;

	two_blocks(3, &to, &from);
	OK(cuMemcpyAsync(to, from, MIB, streams[1]));
	OK(cuMemFree(to));
	gcpsim_fail("cuEventQuery:2:900");
	must(allocated(MIB) != to, "memory is given out too early");
	gcpsim_fail(NULL);
	must(allocated(MIB) != to, "memory is given out too early");
}

/* The same: plain cudaFree on the other device does not wait for such a copy. */
SCENARIO(a_copy_in_a_stream_counts_in_its_context, "GCPSIM_SPEED=never")
{
	CUdeviceptr to, from, freed;

	two_blocks(1, &to, &from);
	freed = allocated(MIB);
	OK(copy(ASYNC, 0, to, 1, from, 0));
	current(1);
	OK(cuMemFree(freed));
	must(allocated(MIB) == freed, "a free waits for the other context's copy");
}

/* Nor for one in the default stream of a thread. */
SCENARIO(a_copy_in_a_threads_stream_counts_in_its_context, "GCPSIM_SPEED=never")
{
	CUdeviceptr to, from, freed;

	two_blocks(3, &to, &from);
	freed = allocated(MIB);
	current(0);
	OK(cuMemcpyDtoDAsync(to, from, MIB, CU_STREAM_PER_THREAD));
	current(1);
	OK(cuMemFree(freed));
	must(allocated(MIB) == freed, "a free waits for the other context's copy");
}

/* In the legacy stream it counts in both: plain cudaFree waits there, too. */
SCENARIO(a_copy_in_the_default_stream_counts_in_both_contexts, "GCPSIM_SPEED=never")
{
	CUdeviceptr to, from;

	two_blocks(3, &to, &from);
	current(0);
	OK(cuMemcpyDtoDAsync(to, from, MIB, NULL));
	current(1);
	OK(cuMemFree(to));
	must(allocated(MIB) != to, "memory is given out too early");
}

/* The same: the older of two is done, and known to be so; then comes a third. */
SCENARIO(a_copy_between_two_others_is_waited_for, "GCPSIM_SPEED=never")
{
	CUdeviceptr to, from, freed, other;

	two_blocks(3, &to, &from);
	other = allocated(MIB);
	freed = allocated(MIB);
	OK(cuMemcpyAsync(to, from, MIB, streams[1]));
	OK(cuStreamSynchronize(streams[1]));
	OK(cuMemFree(freed));
	OK(cuMemcpyAsync(to, from, MIB, streams[1]));
	must(allocated(MIB) == freed, "a free is behind what came after it");
	OK(copy(ASYNC, 0, other, 1, from, 0));
	current(1);
	OK(cuMemFree(to));
	must(allocated(MIB) != to, "memory is given out too early");
}

/* By the name that it has for default streams of each thread, beside a capture that
 * forbids the legacy one. */
SCENARIO(copies_of_a_threads_stream_stay_there)
{
	typedef CUresult copy_fn(CUdeviceptr to, CUdeviceptr from, size_t bytes);
	typedef CUresult async_fn(CUdeviceptr to, CUdeviceptr from, size_t bytes,
				  CUstream stream);
	copy_fn *copied = (copy_fn *)dlsym(RTLD_DEFAULT, "cuMemcpyDtoD_v2_ptds");
	async_fn *submitted =
	    (async_fn *)dlsym(RTLD_DEFAULT, "cuMemcpyDtoDAsync_v2_ptsz");
	CUdeviceptr to, from;
	CUstream captured;
	CUgraph graph;

	two_blocks(0, &to, &from);
	current(0);
	OK(cuStreamCreate(&captured, CU_STREAM_DEFAULT));
	OK(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(copied(to, from, MIB / 2));
	OK(submitted(to + MIB / 2, from + MIB / 2, MIB / 2, NULL));
	OK(cuStreamEndCapture(captured, &graph));
	all_wait();
	must(block_is(1, to, 7), "it is not copied");
}

SCENARIO(copies_that_were_waited_for_get_no_event)
{
	static unsigned char host[MIB];
	uint64_t before;
	CUdeviceptr p;

	two_devices();
	p = block_of(1, 1);
	current(0);
	before = gcpsim_calls("cuEventRecord");
	OK(cuMemcpyDtoH(host, p, MIB));
	OK(cuMemcpyHtoD(p, host, MIB));
	must(gcpsim_calls("cuEventRecord") == before, "an event that nothing needs");
}

/* With GCPOOL_BLOCKING_FREE=1. */
SCENARIO(a_blocking_free_waits_for_a_copy, "GCPSIM_SPEED=never GCPOOL_BLOCKING_FREE=1")
{
	CUdeviceptr to, from;

	two_blocks(3, &to, &from);
	OK(cuMemcpyAsync(to, from, MIB, streams[1]));
	OK(cuMemFree(to));
	OK(cuStreamQuery(streams[1]));
}

/* The free of exported memory waits as plain CUDA's does, for what another device
 * copies in a stream of its context, too. */
SCENARIO(a_free_of_exported_memory_waits_for_a_copy, "GCPSIM_SPEED=never")
{
	CUipcMemHandle handle;
	CUdeviceptr to, from;

	two_blocks(3, &to, &from);
	OK(cuIpcGetMemHandle(&handle, to));
	OK(cuMemcpyAsync(to, from, MIB, streams[1]));
	OK(cuMemFree(to));
	must(cuStreamQuery(streams[1]) == CUDA_SUCCESS, "did not wait");
}

/* With GCPOOL_BLOCKING_FREE=1, after a graph that copies has opened memory. Without
 * peer access plain cudaFree waits on both devices. */
SCENARIO(a_free_in_a_capture_waits_for_a_copy,
	 "GCPSIM_SPEED=never GCPOOL_BLOCKING_FREE=1")
{
	CUdeviceptr to, from, again;
	CUgraph graph;

	two_devices();
	to = block_of(1, 1);
	from = block_of(0, 7);
	graph_copies(to, from);
	all_wait();
	current(0);
	OK(cuMemcpyAsync(to, from, MIB, streams[0]));
	OK(cuStreamBeginCapture(others[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
	current(1);
	OK(cuMemFree(to));
	current(0);
	OK(cuStreamEndCapture(others[0], &graph));
	current(1);
	again = allocated(MIB);
	must(again == to, "a free in a capture has not waited");
	OK(cuMemsetD8Async(again, 9, MIB, others[1]));
	must(gcpsim_hazards() == 0, "memory is given out too early");
}

/* Memory of a capture that the other device copies to, eagerly, is the capture's again
 * when it is freed. The end of the capture waits for nothing, and sets a barrier. */
static CUgraph captured_beside_a_copy(CUdeviceptr from, CUdeviceptr other)
{
	CUdeviceptr scratch, again;
	CUgraph graph;

	OK(cuStreamBeginCapture(others[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
	scratch = allocated(MIB);
	OK(cuMemcpyAsync(scratch, from, MIB, streams[0]));
	OK(cuMemsetD8Async(other, 2, MIB, others[0])); /* the thread captures */
	OK(cuMemFree(scratch));
	again = allocated(MIB);
	must(again == scratch, "the capture gets other memory");
	OK(cuMemsetD8Async(again, 9, MIB, others[0]));
	OK(cuMemFree(again));
	OK(cuStreamEndCapture(others[0], &graph));
	must(cuStreamQuery(streams[0]) == CUDA_ERROR_NOT_READY,
	     "the end of a capture waits");
	return graph;
}

/* A launch is behind the copy. */
SCENARIO(a_capture_ends_beside_a_copy, "GCPSIM_SPEED=never")
{
	CUdeviceptr from, other;
	CUgraphExec exec;

	two_devices();
	access_give(3);
	from = block_of(1, 7);
	other = block_of(0, 1);
	OK(cuGraphInstantiate(&exec, captured_beside_a_copy(from, other), 0));
	OK(cuGraphLaunch(exec, others[0]));
	OK(cuStreamSynchronize(others[0]));
	must(gcpsim_hazards() == 0, "memory is given out too early");
}

/* The barrier is one of a context that is created later, too; where the driver refuses
 * that, with `refused`, the host waits. */
static void context_comes_behind_a_copy(const char *refused)
{
	CUdeviceptr to, from, other;
	CUcontext later;
	CUstream stream;

	two_devices();
	access_give(3);
	from = block_of(1, 7);
	other = block_of(0, 1);
	to = block_of(0, 1);
	OK(cuMemcpyAsync(to, from, MIB, streams[0]));
	OK(cuMemFree(to));
	captured_beside_a_copy(from, other);
	must(allocated(MIB) == to, "a free is not behind the barrier");
	gcpsim_fail(refused);
	OK(cuCtxCreate(&later, NULL, 0, 0));
	gcpsim_fail(NULL);
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemsetD8Async(to, 9, MIB, stream));
	OK(cuStreamSynchronize(stream));
	must(gcpsim_hazards() == 0, "memory is given out too early");
}

SCENARIO(a_context_comes_behind_a_copy, "GCPSIM_SPEED=never")
{
	context_comes_behind_a_copy(NULL);
}

SCENARIO(a_context_that_cannot_be_held_back_waits, "GCPSIM_SPEED=never")
{
	context_comes_behind_a_copy("cuCtxWaitEvent:1:709");
}

/* Where memory is out a free is waited for: for the copy, too. */
SCENARIO(an_allocation_waits_for_a_copy)
{
	size_t left, total;
	CUdeviceptr to, from, again;

	two_devices();
	access_give(3);
	current(1);
	OK(cuMemGetInfo(&left, &total));
	to = allocated(left / 8 * 5);
	from = block_of(0, 7);
	current(1);
	OK(cuMemcpyAsync(to, from, MIB, streams[1]));
	OK(cuMemFree(to));
	again = allocated(left / 8 * 5);
	OK(cuMemsetD8Async(again, 9, MIB, others[1]));
	must(gcpsim_hazards() == 0, "memory is given out too early");
}

/* Without memory for an event the call waits: then nothing is to be covered. */
SCENARIO(a_copy_that_cannot_be_noted_is_waited_for)
{
	CUdeviceptr to, from;

	two_blocks(3, &to, &from);
	OK(cuMemFree(allocated(MIB)));
	gcpsim_fail("cuEventCreate:1+:2");
	OK(copy(ASYNC, 1, to, 1, from, 0));
	gcpsim_fail(NULL);
	OK(cuStreamQuery(streams[1]));
	OK(cuMemFree(to));
	take_again(1, to);
	must(gcpsim_hazards() == 0, "memory is given out too early");
}

/* Of device 1: its launches count in every context, since another one that was captured
 * copies between the devices. */
static CUgraphExec graph_of_the_other_device(void)
{
	CUdeviceptr here, there;
	CUgraphExec exec;
	CUgraph graph;

	two_devices();
	access_give(3);
	here = block_of(0, 1);
	there = block_of(1, 1);
	for (int copies = 1; copies >= 0; copies--) {
		current(1);
		OK(cuStreamBeginCapture(streams[1], CU_STREAM_CAPTURE_MODE_RELAXED));
		if (copies)
			OK(cuMemcpyAsync(here, there, MIB, streams[1]));
		OK(cuMemsetD8Async(there, 2, MIB, streams[1]));
		OK(cuStreamEndCapture(streams[1], &graph));
		OK(cuGraphInstantiate(&exec, graph, 0));
	}
	current(0);
	return exec;
}

/* What is behind it. */
static CUevent launched(CUgraphExec exec)
{
	CUevent event;

	current(1);
	OK(cuGraphLaunch(exec, streams[1]));
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	OK(cuEventRecord(event, streams[1]));
	current(0);
	return event;
}

static void must_be_pending(CUevent event)
{
	must(cuEventQuery(event) == CUDA_ERROR_NOT_READY,
	     "waited for work of another device");
}

SCENARIO(frees_wait_for_no_other_device, "GCPSIM_SPEED=never")
{
	CUevent event = launched(graph_of_the_other_device());

	for (int i = 0; i < 8; i++) {
		CUdeviceptr p = allocated(64 * MIB);

		OK(cuMemsetD8Async(p, 1, MIB, streams[0]));
		OK(cuMemFree(p));
		must_be_pending(event);
	}
}

/* With little that may wait for the end of the capture. */
SCENARIO(frees_in_a_capture_wait_for_no_other_device,
	 "GCPSIM_SPEED=never GCPOOL_TEST_WINDOW=65536")
{
	CUevent event = launched(graph_of_the_other_device()), own;
	CUdeviceptr freed = allocated(MIB), kept = allocated(MIB);
	CUgraph graph;

	OK(cuEventCreate(&own, CU_EVENT_DISABLE_TIMING));
	OK(cuMemsetD8Async(kept, 1, 64, streams[0]));
	OK(cuEventRecord(own, streams[0]));
	OK(cuStreamBeginCapture(others[0], CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuMemFree(freed));
	OK(cuStreamEndCapture(others[0], &graph));
	must(cuEventQuery(own) == CUDA_SUCCESS, "did not wait");
	must_be_pending(event);
	if (!is_of_segments()) /* there graphs count in their own contexts */
		must(allocated(MIB) != freed, "memory is given out too early");
}

/* With GCPOOL_BLOCKING_FREE=1. */
SCENARIO(a_blocking_free_waits_without_a_fence,
	 "GCPSIM_SPEED=never GCPOOL_BLOCKING_FREE=1")
{
	CUdeviceptr freed, kept;
	CUevent own;

	two_devices();
	current(0);
	freed = allocated(MIB);
	kept = allocated(MIB);
	OK(cuEventCreate(&own, CU_EVENT_DISABLE_TIMING));
	OK(cuMemsetD8Async(kept, 1, 64, streams[0]));
	OK(cuEventRecord(own, streams[0]));
	gcpsim_fail("cuEventCreate:1+:2");
	OK(cuMemFree(freed));
	gcpsim_fail(NULL);
	must(cuEventQuery(own) == CUDA_SUCCESS, "did not wait");
}

SCENARIO(a_free_of_exported_memory_waits_for_no_other_device, "GCPSIM_SPEED=never")
{
	CUgraphExec exec = graph_of_the_other_device();
	CUdeviceptr p = allocated(8 * MIB);
	CUipcMemHandle handle;
	CUevent event;

	OK(cuIpcGetMemHandle(&handle, p));
	event = launched(exec);
	OK(cuMemFree(p));
	must_be_pending(event);
	if (!is_of_segments()) /* there graphs count in their own contexts */
		must(allocated(8 * MIB) != p, "memory is given out too early");
}
