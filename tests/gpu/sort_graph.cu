/* SPDX-License-Identifier: MIT */
/*
 * sort_graph.cu - sorting with temporary storage, captured in GLOBAL mode:
 *
 *   sort-graph cub      cub::DeviceRadixSort, its storage from cudaMalloc inside
 *                       the capture, given back with cudaFree before its end
 *   sort-graph thrust   thrust::sort_by_key, which does the same by itself
 *
 * With "first" the sort is not run before its capture, so that its kernels are first
 * used inside it; with "first held" CUB's storage is from before the capture.
 *
 * Replayed on new keys, beside allocations that write wherever they are put, and
 * compared with std::sort. Exit code: 0 right, 1 wrong, 2 refused.
 */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <numeric>
#include <vector>

#include <cub/device/device_radix_sort.cuh>
#include <thrust/device_ptr.h>
#include <thrust/sort.h>
#include <thrust/system/cuda/execution_policy.h>

static const int count = 1 << 18, replays = 50, eager_blocks = 6;
static const size_t held_bytes = 64 << 20;
static void *held; /* storage from before the capture, or none */

static void demand(cudaError_t error, const char *what)
{
	if (!error)
		return;
	printf("refused: %s: %s\n", what, cudaGetErrorName(error));
	std::exit(2);
}

struct arrays {
	unsigned *keys, *values, *keys_out, *values_out;
};

static void sort_cub(const arrays &a, cudaStream_t stream)
{
	size_t bytes = 0;
	void *storage = nullptr;

	demand(cub::DeviceRadixSort::SortPairs(nullptr, bytes, a.keys, a.keys_out,
					       a.values, a.values_out, count, 0, 32,
					       stream),
	       "size of the storage");
	if (!held)
		demand(cudaMalloc(&storage, bytes), "cudaMalloc in the capture");
	else
		storage = held;
	demand(cub::DeviceRadixSort::SortPairs(storage, bytes, a.keys, a.keys_out,
					       a.values, a.values_out, count, 0, 32,
					       stream),
	       "SortPairs");
	if (!held)
		demand(cudaFree(storage), "cudaFree in the capture");
}

static void sort_thrust(const arrays &a, cudaStream_t stream)
{
	auto policy = thrust::cuda::par_nosync.on(stream);
	thrust::device_ptr<unsigned> keys(a.keys_out), values(a.values_out);

	demand(cudaMemcpyAsync(a.keys_out, a.keys, count * 4, cudaMemcpyDeviceToDevice,
			       stream),
	       "copy");
	demand(cudaMemcpyAsync(a.values_out, a.values, count * 4,
			       cudaMemcpyDeviceToDevice, stream),
	       "copy");
	thrust::sort_by_key(policy, keys, keys + count, values);
}

static cudaGraphExec_t capture(bool cub, const arrays &a, cudaStream_t stream)
{
	cudaGraphExec_t exec;
	cudaGraph_t graph;

	demand(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "begin");
	try {
		cub ? sort_cub(a, stream) : sort_thrust(a, stream);
	} catch (const std::exception &error) {
		printf("refused: %s\n", error.what());
		std::exit(2);
	}
	demand(cudaStreamEndCapture(stream, &graph), "end");
	demand(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
	demand(cudaGraphDestroy(graph), "destroy");
	return exec;
}

static void eager()
{
	for (int i = 0; i < eager_blocks; i++) {
		void *p;

		demand(cudaMalloc(&p, (size_t)count << (i % 5)), "cudaMalloc");
		demand(cudaMemsetAsync(p, 0xa5, (size_t)count << (i % 5)), "set");
		demand(cudaFree(p), "cudaFree");
	}
}

static bool replay(cudaGraphExec_t exec, const arrays &a, cudaStream_t stream,
		   unsigned seed)
{
	std::vector<unsigned> keys(count), found(count), order(count), sorted;

	for (unsigned &key : keys)
		key = seed = seed * 1664525u + 1013904223u;
	demand(cudaMemcpy(a.keys, keys.data(), count * 4, cudaMemcpyHostToDevice),
	       "copy");
	/* The stream does not wait for a copy out of pageable memory. */
	demand(cudaDeviceSynchronize(), "keys");
	demand(cudaGraphLaunch(exec, stream), "launch");
	eager();
	demand(cudaStreamSynchronize(stream), "wait");
	demand(cudaMemcpy(found.data(), a.keys_out, count * 4, cudaMemcpyDeviceToHost),
	       "copy");
	demand(
	    cudaMemcpy(order.data(), a.values_out, count * 4, cudaMemcpyDeviceToHost),
	    "copy");
	sorted = keys;
	std::sort(sorted.begin(), sorted.end());
	for (int i = 0; i < count; i++)
		if (found[i] != sorted[i] || order[i] >= count ||
		    keys[order[i]] != found[i])
			return false;
	return true;
}

int main(int argc, char **argv)
{
	bool cub = argc < 2 || std::strcmp(argv[1], "thrust") != 0;
	std::vector<unsigned> index(count);
	cudaStream_t stream;
	arrays a;
	int wrong = 0;

	for (unsigned **p : {&a.keys, &a.values, &a.keys_out, &a.values_out}) {
		demand(cudaMalloc(p, count * 4), "cudaMalloc");
		demand(cudaMemset(*p, 0, count * 4), "set");
	}
	std::iota(index.begin(), index.end(), 0u);
	demand(cudaMemcpy(a.values, index.data(), count * 4, cudaMemcpyHostToDevice),
	       "copy");
	demand(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
	if (argc > 3)
		demand(cudaMalloc(&held, held_bytes), "cudaMalloc");
	/* Once eagerly: CUDA may load the kernels only at their first use. */
	if (argc <= 2)
		cub ? sort_cub(a, stream) : sort_thrust(a, stream);
	demand(cudaDeviceSynchronize(), "wait");
	cudaGraphExec_t exec = capture(cub, a, stream);
	for (int i = 0; i < replays; i++)
		wrong += !replay(exec, a, stream, (unsigned)i + 1);
	demand(cudaGraphExecDestroy(exec), "destroy");
	printf("captured sort: %d replays, %d wrong\n", replays, wrong);
	return wrong ? 1 : 0;
}
