/* SPDX-License-Identifier: MIT */
/*
 * async_sort.cu - Thrust with par_nosync, which takes its temporary memory in stream
 * order: on a stream of its own and on the default one.
 */
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/host_vector.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>

#include <chrono>
#include <cstdio>

static bool sorted(cudaStream_t stream, const char *name)
{
	thrust::device_vector<int> v(1 << 20);
	const int rounds = 500;

	auto round = [&] {
		auto how = thrust::cuda::par_nosync.on(stream);

		thrust::sequence(how, v.begin(), v.end(), 1 << 20, -1);
		thrust::sort(how, v.begin(), v.end());
	};
	for (int i = 0; i < 50; i++)
		round();
	cudaDeviceSynchronize();
	auto start = std::chrono::steady_clock::now();
	for (int i = 0; i < rounds; i++)
		round();
	cudaDeviceSynchronize();
	std::chrono::duration<double, std::micro> took =
	    std::chrono::steady_clock::now() - start;
	std::printf("%s us: %.1f\n", name, took.count() / rounds);
	thrust::host_vector<int> h = v;
	for (int i = 0; i < 1 << 20; i++)
		if (h[i] != i + 1)
			return false;
	return true;
}

int main()
{
	cudaStream_t stream;

	if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess)
		return 2;
	bool good = sorted(stream, "own stream");
	good = sorted(nullptr, "default stream") && good;
	std::printf("%s\n", good ? "sorted" : "NOT SORTED");
	return !good;
}
