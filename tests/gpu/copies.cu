/* SPDX-License-Identifier: MIT */
/*
 * copies.cu - copies in which two devices take part, of memory of cudaMalloc: what they
 * give, and whether memory that they use is left alone while they do, however it is
 * freed. The transcript must be the same with and without the library.
 *
 *   copies codes ACCESS    what each call gives, and whether it copies
 *   copies graphs ACCESS   the same of copies in graphs and of batches
 *   copies order ACCESS    what a copy waits for in the other device's streams, and
 *                          what there waits for it
 *   copies barriers ACCESS whether a barrier of both contexts (cuCtxWaitEvent) holds
 *                          back copies, and an event behind a copy makes one
 *   copies frees ACCESS    frees the source or the destination while the copy is held
 *                          up, takes memory again, and writes: no word may be wrong
 *
 * ACCESS: bit 0: device 0 has peer access to device 1; bit 1: the other way.
 *
 * Exit code 0; 1: wrong words; 77: it wants two devices that can reach each other.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>

#include <cuda.h>
#include <cuda_runtime.h>

/* Of each block. A large one takes a copy long enough to be overtaken. */
static size_t bytes_each = 8 << 20;
static const size_t BYTES_LARGE = 128 << 20;
static const unsigned long long SPIN_NS = 8000000;

static size_t words_each()
{
	return bytes_each / 4;
}

#define MUST(call)                                                                     \
	do {                                                                           \
		int code_ = (int)(call);                                               \
		if (code_) {                                                           \
			printf("MUST %s: %d (line %d)\n", #call, code_, __LINE__);     \
			exit(2);                                                       \
		}                                                                      \
	} while (0)

__global__ void spin(unsigned long long ns)
{
	unsigned long long begin, now;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
	do
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	while (now - begin < ns);
}

__global__ void fill(unsigned *p, unsigned value, size_t count)
{
	size_t at = blockIdx.x * (size_t)blockDim.x + threadIdx.x;

	for (; at < count; at += (size_t)gridDim.x * blockDim.x)
		p[at] = value;
}

__global__ void count(const unsigned *p, unsigned value, size_t words,
		      unsigned long long *wrong)
{
	size_t at = blockIdx.x * (size_t)blockDim.x + threadIdx.x;

	for (; at < words; at += (size_t)gridDim.x * blockDim.x)
		if (p[at] != value)
			atomicAdd(wrong, 1ull);
}

/* --- two devices --------------------------------------------------------------- */

static CUcontext contexts[2];
static cudaStream_t streams[2], others[2]; /* not blocking */
static unsigned long long *wrong[2];
static unsigned *pinned;

static void current(int device)
{
	MUST(cudaSetDevice(device));
}

static void all_wait()
{
	for (int device = 0; device < 2; device++) {
		current(device);
		MUST(cudaDeviceSynchronize());
	}
}

static void begin()
{
	int devices = 0, able[2] = {0, 0};

	MUST(cudaGetDeviceCount(&devices));
	if (devices < 2)
		exit(77);
	for (int i = 0; i < 2; i++)
		MUST(cudaDeviceCanAccessPeer(&able[i], i, 1 - i));
	if (!able[0] || !able[1])
		exit(77);
	MUST(cudaHostAlloc((void **)&pinned, bytes_each, cudaHostAllocPortable));
	for (int i = 0; i < 2; i++) {
		current(i);
		MUST(cudaFree(NULL));
		MUST(cuCtxGetCurrent(&contexts[i]));
		MUST(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
		MUST(cudaStreamCreateWithFlags(&others[i], cudaStreamNonBlocking));
		MUST(cudaMalloc((void **)&wrong[i], sizeof(**wrong)));
		spin<<<1, 1, 0, streams[i]>>>(1);
		fill<<<1, 1, 0, others[i]>>>((unsigned *)wrong[i], 0, 2);
		count<<<1, 1, 0, others[i]>>>((unsigned *)wrong[i], 0, 2, wrong[i]);
	}
	all_wait();
}

static int state; /* ACCESS */

static void access_give()
{
	for (int i = 0; i < 2; i++) {
		current(i);
		if (state >> i & 1)
			MUST(cuCtxEnablePeerAccess(contexts[1 - i], 0));
	}
}

static unsigned *block(int device)
{
	unsigned *p;

	current(device);
	MUST(cudaMalloc((void **)&p, bytes_each));
	return p;
}

static unsigned long long wrong_words(int device, const unsigned *p, unsigned value)
{
	unsigned long long found;

	current(device);
	MUST(cudaMemset(wrong[device], 0, sizeof(found)));
	MUST(cudaDeviceSynchronize());
	count<<<64, 256, 0, others[device]>>>(p, value, words_each(), wrong[device]);
	MUST(cudaStreamSynchronize(others[device]));
	MUST(cudaMemcpy(&found, wrong[device], sizeof(found), cudaMemcpyDeviceToHost));
	return found;
}

static void fill_now(int device, unsigned *p, unsigned value)
{
	current(device);
	fill<<<64, 256, 0, others[device]>>>(p, value, words_each());
	MUST(cudaStreamSynchronize(others[device]));
}

/* --- the calls ----------------------------------------------------------------- */

enum kind {
	MEMCPY,
	DTOD,
	ASYNC,
	DTOD_ASYNC,
	RECT,
	RECT_UNALIGNED,
	RECT_ASYNC,
	VOLUME,
	VOLUME_ASYNC,
	PEER,
	PEER_ASYNC,
	PEER_VOLUME,
	PEER_VOLUME_ASYNC,
	RUNTIME,
	RUNTIME_ASYNC,
	RUNTIME_PEER,
	DTOD_ASYNC_DEFAULT,
	RUNTIME_ASYNC_DEFAULT,
	RUNTIME_PEER_DEFAULT,
	BATCH,
	CAPTURED,
	NODE,
	BETWEEN, /* all of these: between two devices */
	TO = BETWEEN,
	TO_ASYNC,
	TO_ANY,
	TO_RECT,
	FROM,
	FROM_ASYNC,
	FROM_ANY,
	SET,
	SET_ASYNC,
	KINDS
};

static const char *const names[] = {
    "cuMemcpy",
    "cuMemcpyDtoD",
    "cuMemcpyAsync",
    "cuMemcpyDtoDAsync",
    "cuMemcpy2D",
    "cuMemcpy2DUnaligned",
    "cuMemcpy2DAsync",
    "cuMemcpy3D",
    "cuMemcpy3DAsync",
    "cuMemcpyPeer",
    "cuMemcpyPeerAsync",
    "cuMemcpy3DPeer",
    "cuMemcpy3DPeerAsync",
    "cudaMemcpy",
    "cudaMemcpyAsync",
    "cudaMemcpyPeerAsync",
    "cuMemcpyDtoDAsync in the default stream",
    "cudaMemcpyAsync in the default stream",
    "cudaMemcpyPeerAsync in the default stream",
    "cuMemcpyBatchAsync",
    "captured cuMemcpyAsync",
    "cuGraphAddMemcpyNode",
    "cuMemcpyHtoD",
    "cuMemcpyHtoDAsync",
    "cuMemcpyAsync from the host",
    "cuMemcpy2D from the host",
    "cuMemcpyDtoH",
    "cuMemcpyDtoHAsync",
    "cuMemcpy to the host",
    "cuMemsetD32",
    "cuMemsetD32Async",
};

static bool in_default_stream(int kind)
{
	return kind == MEMCPY || kind == DTOD || kind == RECT ||
	       kind == RECT_UNALIGNED || kind == VOLUME || kind == PEER ||
	       kind == PEER_VOLUME || kind == RUNTIME ||
	       (kind >= DTOD_ASYNC_DEFAULT && kind <= RUNTIME_PEER_DEFAULT) ||
	       kind == TO ||
	       kind == TO_RECT || kind == FROM || kind == FROM_ANY || kind == SET;
}

static CUDA_MEMCPY2D rect(CUmemorytype to_type, CUdeviceptr to, CUmemorytype from_type,
			  CUdeviceptr from)
{
	CUDA_MEMCPY2D copy = {};

	copy.srcMemoryType = from_type;
	copy.srcDevice = from;
	copy.srcHost = (void *)from;
	copy.dstMemoryType = to_type;
	copy.dstDevice = to;
	copy.dstHost = (void *)to;
	copy.srcPitch = copy.dstPitch = copy.WidthInBytes = 8192;
	copy.Height = bytes_each / 8192;
	return copy;
}

static CUDA_MEMCPY3D volume(CUdeviceptr to, CUdeviceptr from)
{
	CUDA_MEMCPY3D copy = {};

	copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
	copy.srcDevice = from;
	copy.dstDevice = to;
	copy.srcPitch = copy.dstPitch = copy.WidthInBytes = 4096;
	copy.srcHeight = copy.dstHeight = copy.Height = 64;
	copy.Depth = bytes_each / 4096 / 64;
	return copy;
}

static CUDA_MEMCPY3D_PEER volume_of_peers(CUdeviceptr to, int to_device,
					  CUdeviceptr from, int from_device)
{
	CUDA_MEMCPY3D plain = volume(to, from);
	CUDA_MEMCPY3D_PEER copy;

	memcpy(&copy, &plain, sizeof(copy));
	copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
	copy.srcContext = contexts[from_device];
	copy.dstContext = contexts[to_device];
	return copy;
}

static int launch(CUgraph graph, CUstream stream)
{
	CUgraphExec exec;
	int result = cuGraphInstantiate(&exec, graph, 0);

	if (result == 0) {
		result = cuGraphLaunch(exec, stream);
		MUST(cuGraphExecDestroy(exec));
	}
	MUST(cuGraphDestroy(graph));
	return result;
}

static int captured(CUdeviceptr to, CUdeviceptr from, CUstream stream)
{
	CUgraph graph = NULL;
	int result, end;

	MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	result = cuMemcpyAsync(to, from, bytes_each, stream);
	end = cuStreamEndCapture(stream, &graph);
	if (result || end)
		return 10000 + 100 * end + result;
	return launch(graph, stream);
}

static int node(CUdeviceptr to, CUdeviceptr from, CUstream stream, CUcontext ctx)
{
	CUDA_MEMCPY3D copy = volume(to, from);
	CUgraphNode added;
	CUgraph graph;
	int result;

	MUST(cuGraphCreate(&graph, 0));
	result = cuGraphAddMemcpyNode(&added, graph, NULL, 0, &copy, ctx);
	if (result) {
		MUST(cuGraphDestroy(graph));
		return 20000 + result;
	}
	return launch(graph, stream);
}

static int batch(CUdeviceptr to, CUdeviceptr from, CUstream stream)
{
	size_t bytes[2] = {bytes_each / 2, bytes_each / 2}, first = 0;
	CUdeviceptr tos[2] = {to, to + bytes_each / 2},
		    froms[2] = {from, from + bytes_each / 2};
	CUmemcpyAttributes attributes = {};

	attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
	return cuMemcpyBatchAsync(tos, froms, bytes, 2, &attributes, &first, 1, stream);
}

/* Between the host and a device, and fills. */
static int call_of_one(int kind, int device, CUdeviceptr to, CUdeviceptr from)
{
	CUdeviceptr host = (CUdeviceptr)pinned;
	CUDA_MEMCPY2D up = rect(CU_MEMORYTYPE_DEVICE, to, CU_MEMORYTYPE_HOST, host);
	CUstream stream = streams[device];

	switch (kind) {
	case TO:
		return cuMemcpyHtoD(to, pinned, bytes_each);
	case TO_ASYNC:
		return cuMemcpyHtoDAsync(to, pinned, bytes_each, stream);
	case TO_ANY:
		return cuMemcpyAsync(to, host, bytes_each, stream);
	case TO_RECT:
		return cuMemcpy2D(&up);
	case FROM:
		return cuMemcpyDtoH(pinned, from, bytes_each);
	case FROM_ASYNC:
		return cuMemcpyDtoHAsync(pinned, from, bytes_each, stream);
	case FROM_ANY:
		return cuMemcpy(host, from, bytes_each);
	case SET:
		return cuMemsetD32(to, 7, words_each());
	case SET_ASYNC:
		return cuMemsetD32Async(to, 7, words_each(), stream);
	}
	return -1;
}

/* In a context of `device`; `to` is memory of to_device, and so on; of the host, if the
 * call is of that kind. */
static int call(int kind, int device, unsigned *to_at, int to_device, unsigned *from_at,
		int from_device)
{
	CUdeviceptr to = (CUdeviceptr)to_at, from = (CUdeviceptr)from_at;
	CUDA_MEMCPY2D two =
	    rect(CU_MEMORYTYPE_UNIFIED, to, CU_MEMORYTYPE_UNIFIED, from);
	CUDA_MEMCPY3D three = volume(to, from);
	CUDA_MEMCPY3D_PEER between = volume_of_peers(to, to_device, from, from_device);
	CUstream stream = in_default_stream(kind) ? NULL : streams[device];

	current(device);
	switch (kind) {
	case MEMCPY:
		return cuMemcpy(to, from, bytes_each);
	case DTOD:
		return cuMemcpyDtoD(to, from, bytes_each);
	case ASYNC:
		return cuMemcpyAsync(to, from, bytes_each, stream);
	case DTOD_ASYNC:
	case DTOD_ASYNC_DEFAULT:
		return cuMemcpyDtoDAsync(to, from, bytes_each, stream);
	case RECT:
		return cuMemcpy2D(&two);
	case RECT_UNALIGNED:
		return cuMemcpy2DUnaligned(&two);
	case RECT_ASYNC:
		return cuMemcpy2DAsync(&two, stream);
	case VOLUME:
		return cuMemcpy3D(&three);
	case VOLUME_ASYNC:
		return cuMemcpy3DAsync(&three, stream);
	case PEER:
		return cuMemcpyPeer(to, contexts[to_device], from,
				    contexts[from_device], bytes_each);
	case PEER_ASYNC:
		return cuMemcpyPeerAsync(to, contexts[to_device], from,
					 contexts[from_device], bytes_each, stream);
	case PEER_VOLUME:
		return cuMemcpy3DPeer(&between);
	case PEER_VOLUME_ASYNC:
		return cuMemcpy3DPeerAsync(&between, stream);
	case BATCH:
		return batch(to, from, stream);
	case CAPTURED:
		return captured(to, from, stream);
	case NODE:
		return node(to, from, stream, contexts[device]);
	case RUNTIME:
		return cudaMemcpy(to_at, from_at, bytes_each, cudaMemcpyDefault);
	case RUNTIME_ASYNC:
	case RUNTIME_ASYNC_DEFAULT:
		return cudaMemcpyAsync(to_at, from_at, bytes_each,
				       cudaMemcpyDeviceToDevice, stream);
	case RUNTIME_PEER:
	case RUNTIME_PEER_DEFAULT:
		return cudaMemcpyPeerAsync(to_at, to_device, from_at, from_device,
					   bytes_each, stream);
	default:
		return call_of_one(kind, device, to, from);
	}
}

static void pinned_fill(unsigned value)
{
	for (size_t i = 0; i < words_each(); i++)
		pinned[i] = value;
}

static bool pinned_is(unsigned value)
{
	for (size_t i = 0; i < words_each(); i++)
		if (pinned[i] != value)
			return false;
	return true;
}

/* --- what they give ------------------------------------------------------------ */

static void codes_of(int kind, int device, int to_device)
{
	bool to_host = kind == FROM || kind == FROM_ASYNC || kind == FROM_ANY;
	int from_device = kind < BETWEEN ? 1 - to_device : to_device;
	unsigned *to = block(to_device), *from = block(from_device);

	fill_now(to_device, to, 1);
	fill_now(from_device, from, 7);
	pinned_fill(to_host ? 1 : 7);
	int code = call(kind, device, to, to_device, from, from_device);
	all_wait();
	bool there = to_host ? pinned_is(7) : wrong_words(to_device, to, 7) == 0;
	printf("access %d, %s, in a context of device %d, %s device %d: %d, %s\n",
	       state, names[kind], device, to_host ? "of" : "to", to_device, code,
	       there ? "copied" : "not copied");
	MUST(cudaFree(to));
	MUST(cudaFree(from));
}

static void codes(bool graphs)
{
	for (int kind = 0; kind < KINDS; kind++)
		for (int at = 0; at < 4; at++)
			if ((kind >= BATCH && kind < BETWEEN) == graphs)
				codes_of(kind, at & 1, at >> 1);
}

/* --- order --------------------------------------------------------------------- */

/* A copy from device 0 to device 1 behind a slow kernel of its stream; then a word of
 * it is written, or looked at, by the other device. And a slow kernel there, a write
 * behind it, then the copy. */
static void order_of(int kind, int device)
{
	unsigned *to = block(1), *from = block(0);
	int other = 1 - device;
	cudaStream_t there[] = {NULL, others[other]};
	cudaStream_t own = in_default_stream(kind) ? NULL : streams[device];
	std::string words;

	for (int later = 0; later < 2; later++)
		for (int which = 0; which < 2; which++) {
			fill_now(0, from, 7);
			fill_now(1, to, 1);
			if (later) {
				current(device);
				spin<<<1, 1, 0, own>>>(SPIN_NS);
				MUST(call(kind, device, to, 1, from, 0));
			}
			current(other);
			if (!later)
				spin<<<1, 1, 0, there[which]>>>(SPIN_NS);
			fill<<<1, 1, 0, there[which]>>>(
			    (other ? to : from) + words_each() - 1, 13, 1);
			if (!later)
				MUST(call(kind, device, to, 1, from, 0));
			all_wait();
			unsigned word;
			current(1);
			MUST(cudaMemcpy(&word, to + words_each() - 1, 4,
					cudaMemcpyDeviceToHost));
			/* Of the source: is the write copied? Of the destination: is
			 * it written over? */
			bool first = other ? word == 13 : word == 7; /* the copy was */
			words += later ? (first ? " waits" : " -")
				       : (first ? " -" : " waited");
		}
	printf("access %d, %s, device %d: in the other device's default stream and "
	       "another "
	       "one: before:%s\n",
	       state, names[kind], device, words.c_str());
	MUST(cudaFree(to));
	MUST(cudaFree(from));
}

static void order()
{
	for (int kind = 0; kind < BATCH; kind++)
		for (int device = 0; device < 2; device++)
			order_of(kind, device);
}

/* --- barriers ------------------------------------------------------------------ */

static CUevent events[2];

/* All that comes later in either context is to wait for the event. */
static void barrier(CUevent event)
{
	for (int i = 0; i < 2; i++)
		MUST(cuCtxWaitEvent(contexts[i], event));
}

/* A block is filled late by its own device, a barrier is set behind that, and the block
 * is copied, or copied over. */
static bool copy_waits(int kind, int device, int to_device, bool filled_is_source)
{
	int from_device = 1 - to_device;
	int filled = filled_is_source ? from_device : to_device;
	unsigned *to = block(to_device), *from = block(from_device);

	fill_now(to_device, to, 1);
	fill_now(from_device, from, filled_is_source ? 1 : 7);
	current(filled);
	spin<<<1, 1, 0, others[filled]>>>(SPIN_NS);
	fill<<<64, 256, 0, others[filled]>>>(filled_is_source ? from : to,
					     filled_is_source ? 7 : 13, words_each());
	MUST(cuCtxRecordEvent(contexts[filled], events[filled]));
	barrier(events[filled]);
	MUST(call(kind, device, to, to_device, from, from_device));
	all_wait();
	bool waited = wrong_words(to_device, to, 7) == 0;
	MUST(cudaFree(to));
	MUST(cudaFree(from));
	return waited;
}

/* A copy is held up, a barrier is set behind it, and a block of it is filled by its own
 * device. */
static bool fill_waits(int kind, int device, int to_device, bool filled_is_source)
{
	int from_device = 1 - to_device;
	int filled = filled_is_source ? from_device : to_device;
	unsigned *to = block(to_device), *from = block(from_device);
	cudaStream_t stream = in_default_stream(kind) ? NULL : streams[device];

	fill_now(to_device, to, 1);
	fill_now(from_device, from, 7);
	current(device);
	spin<<<1, 1, 0, stream>>>(SPIN_NS);
	MUST(call(kind, device, to, to_device, from, from_device));
	MUST(cuEventRecord(events[device], stream));
	barrier(events[device]);
	current(filled);
	fill<<<64, 256, 0, others[filled]>>>(filled_is_source ? from : to, 9,
					     words_each());
	all_wait();
	bool waited = wrong_words(to_device, to, filled_is_source ? 7 : 9) == 0;
	MUST(cudaFree(to));
	MUST(cudaFree(from));
	return waited;
}

/* Two barriers, one behind the other; the work behind either event ends last. */
static bool both_hold(bool first_is_last)
{
	CUevent behind[2];
	unsigned *blocks[2];
	cudaStream_t third;

	current(0);
	MUST(cudaStreamCreateWithFlags(&third, cudaStreamNonBlocking));
	for (int i = 0; i < 2; i++) {
		cudaStream_t stream = i ? others[0] : streams[0];

		MUST(cuEventCreate(&behind[i], CU_EVENT_DISABLE_TIMING));
		blocks[i] = block(0);
		spin<<<1, 1, 0, stream>>>(first_is_last == (i == 0) ? 2 * SPIN_NS
								    : SPIN_NS / 4);
		fill<<<64, 256, 0, stream>>>(blocks[i], 7, words_each());
		MUST(cuEventRecord(behind[i], stream));
	}
	barrier(behind[0]);
	barrier(behind[1]);
	for (int i = 0; i < 2; i++)
		fill<<<64, 256, 0, third>>>(blocks[i], 9, words_each());
	all_wait();
	bool held = wrong_words(0, blocks[0], 9) + wrong_words(0, blocks[1], 9) == 0;
	for (int i = 0; i < 2; i++) {
		MUST(cudaFree(blocks[i]));
		MUST(cuEventDestroy(behind[i]));
	}
	MUST(cudaStreamDestroy(third));
	return held;
}

static void barriers_of(int kind, int device)
{
	std::string words;

	for (int at = 0; at < 4; at++)
		words += copy_waits(kind, device, at & 1, at >> 1) ? " waits" : " -";
	words += ", behind it:";
	for (int at = 0; at < 4; at++)
		words += fill_waits(kind, device, at & 1, at >> 1) ? " waits" : " -";
	printf("access %d, %s, device %d: before the barrier:%s\n", state, names[kind],
	       device, words.c_str());
}

static void barriers()
{
	for (int device = 0; device < 2; device++) {
		current(device);
		MUST(cuEventCreate(&events[device], CU_EVENT_DISABLE_TIMING));
	}
	for (int kind = 0; kind < BETWEEN; kind++)
		for (int device = 0; device < 2; device++)
			barriers_of(kind, device);
	printf("access %d, two barriers:%s%s\n", state,
	       both_hold(true) ? " wait" : " -", both_hold(false) ? " wait" : " -");
}

/* --- frees --------------------------------------------------------------------- */

/* Takes memory until it is the freed block again, or the copy has ended, and writes
 * what it got. */
enum { TAKEN_MAX = 60 };

static int take_again(int device, const unsigned *freed, unsigned **ret_taken)
{
	int taken = 0;

	while (taken < TAKEN_MAX) {
		ret_taken[taken] = block(device);
		fill<<<64, 256, 0, others[device]>>>(ret_taken[taken], 9, words_each());
		if (ret_taken[taken++] == freed)
			break;
		usleep(200);
	}
	return taken;
}

/* Frees one side of a copy that is held up, and neither what is written to memory that
 * is had then nor the copy may be lost. */
static unsigned long long free_beside(int kind, int device, int to_device,
				      bool of_source)
{
	int from_device = 1 - to_device, freed = of_source ? from_device : to_device;
	unsigned *to = block(to_device), *from = block(from_device), *taken[TAKEN_MAX];
	unsigned long long bad = 0;
	int count;

	fill_now(to_device, to, 1);
	fill_now(from_device, from, 7);
	current(device);
	spin<<<1, 1, 0, in_default_stream(kind) ? NULL : streams[device]>>>(SPIN_NS);
	MUST(call(kind, device, to, to_device, from, from_device));
	current(freed);
	MUST(cudaFree(of_source ? from : to));
	count = take_again(freed, of_source ? from : to, taken);
	all_wait();
	if (of_source)
		bad += wrong_words(to_device, to, 7);
	for (int i = 0; i < count; i++) {
		bad += wrong_words(freed, taken[i], 9);
		MUST(cudaFree(taken[i]));
	}
	current(1 - freed);
	MUST(cudaFree(of_source ? to : from));
	return bad;
}

/* Whether plain cudaFree waits for such a copy on the device that did not ask for it:
 * not for one in a stream, with peer access. There the program must wait. */
static bool waited_for(int kind, int device, int freed)
{
	return freed == device || in_default_stream(kind) || state == 0;
}

static int frees()
{
	unsigned long long all = 0;

	bytes_each = BYTES_LARGE;
	for (int kind = 0; kind < BETWEEN; kind++) {
		unsigned long long bad = 0;

		for (int i = 0; i < 8; i++) {
			int device = i & 1, to_device = i >> 1 & 1;
			bool of_source = i >> 2 & 1;

			if (waited_for(kind, device,
				       of_source ? 1 - to_device : to_device))
				bad += free_beside(kind, device, to_device, of_source);
		}
		printf("access %d, %s: wrong words: %llu\n", state, names[kind], bad);
		all += bad;
	}
	printf("wrong words: %llu\n", all);
	return all != 0;
}

int main(int argc, char **argv)
{
	std::string what = argc == 3 ? argv[1] : "";
	int result = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (what != "codes" && what != "graphs" && what != "order" &&
	    what != "barriers" && what != "frees") {
		fprintf(stderr, "copies: codes, graphs, order, barriers or frees, "
				"and 0 to 3\n");
		return 2;
	}
	state = atoi(argv[2]) & 3;
	begin();
	access_give();
	if (what == "codes" || what == "graphs")
		codes(what == "graphs");
	else if (what == "order")
		order();
	else if (what == "barriers")
		barriers();
	else
		result = frees();
	return result;
}
