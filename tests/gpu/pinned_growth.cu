/* SPDX-License-Identifier: MIT */
/*
 * pinned_growth.cu - pinned memory that comes and goes, for tests/gpu/pinned.py: alone,
 * beside a kernel of another context that runs for long, and beside the capture of
 * another thread. Plain CUDA hands out the same block at each turn, so a cache that
 * pins another one each time is seen by how many different ones there are.
 *
 * Prints a line for each: "NAME: N turns of 8 MiB, code C, M different blocks". Exit
 * code: 0 never more than MOST different ones, 1 more, or no memory, 2 another call
 * failed.
 */
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <thread>

#include <cuda.h>
#include <cuda_runtime.h>

enum { TURNS = 200, MOST = 64, BYTES = 8 << 20 };

static const long long most_clocks = 15000000000ll; /* some ten seconds */

static void demand(int code, const char *what)
{
	if (!code)
		return;
	printf("%s: code %d\n", what, code);
	std::exit(2);
}

__global__ void until(volatile int *flag, long long most)
{
	long long start = clock64();

	while (!*flag && clock64() - start < most)
		__nanosleep(1000);
}

static int turns(const char *name)
{
	std::set<void *> seen;
	cudaStream_t stream;
	void *device;
	int code = 0, i;

	demand(cudaMalloc(&device, BYTES), "cudaMalloc");
	demand(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
	for (i = 0; i < TURNS; i++) {
		void *host;

		code = cudaHostAlloc(&host, BYTES, 0);
		if (code)
			break;
		seen.insert(host);
		demand(cudaMemcpyAsync(device, host, BYTES, cudaMemcpyHostToDevice,
				       stream),
		       "copy");
		demand(cudaStreamSynchronize(stream), "wait");
		demand(cudaFreeHost(host), "cudaFreeHost");
	}
	printf("%s: %d turns of 8 MiB, code %d, %zu different blocks\n", name, i, code,
	       seen.size());
	return code || seen.size() > MOST;
}

/* A context of another device, or a second one of this device. */
static CUcontext other_context()
{
	CUcontext context;
	int count = 0;

	demand(cudaGetDeviceCount(&count), "count");
	if (count > 1) {
		demand(cudaSetDevice(1), "device");
		demand(cudaFree(nullptr), "cudaFree");
		demand(cuCtxGetCurrent(&context), "current");
		return context;
	}
#if CUDA_VERSION >= 13000
	demand(cuCtxCreate(&context, nullptr, 0, 0), "context");
#else
	demand(cuCtxCreate(&context, 0, 0), "context");
#endif
	return context;
}

static int beside_a_kernel()
{
	CUcontext mine, other;
	CUstream stream;
	int *flag, bad;

	demand(cuCtxGetCurrent(&mine), "current");
	demand(cudaHostAlloc((void **)&flag, sizeof(*flag),
			     cudaHostAllocMapped | cudaHostAllocPortable),
	       "flag");
	*flag = 0;
	other = other_context();
	demand(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "stream");
	until<<<1, 1, 0, (cudaStream_t)stream>>>(flag, most_clocks);
	demand(cudaGetLastError(), "launch");
	demand(cuCtxSetCurrent(mine), "set current");
	bad = turns("a kernel runs in another context");
	demand(cuCtxSetCurrent(other), "set current");
	if (cuStreamQuery(stream) == CUDA_SUCCESS)
		printf("the kernel had ended\n");
	*(volatile int *)flag = 1;
	demand(cuCtxSynchronize(), "wait");
	demand(cuCtxSetCurrent(mine), "set current");
	return bad;
}

static int beside_a_capture()
{
	std::atomic<bool> begun{false}, stop{false};
	std::thread capturing([&] {
		cudaStream_t stream;
		cudaGraph_t graph;

		demand(cudaSetDevice(0), "device");
		demand(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
		       "stream");
		demand(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
		       "begin");
		begun = true;
		while (!stop)
			std::this_thread::yield();
		demand(cudaStreamEndCapture(stream, &graph), "end");
	});
	int bad;

	while (!begun)
		std::this_thread::yield();
	bad = turns("another thread captures");
	stop = true;
	capturing.join();
	return bad;
}

int main()
{
	int bad;

	demand(cudaSetDevice(0), "device");
	demand(cudaFree(nullptr), "cudaFree");
	bad = turns("alone");
	bad |= beside_a_kernel();
	bad |= beside_a_capture();
	return bad;
}
