/* SPDX-License-Identifier: MIT */
/*
 * sort.cu - the time of thrust::sort, which allocates and frees its temporary
 * storage in every call. Checks the order of the result.
 */
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>

int main()
{
	const int count = 1 << 20, rounds = 300;
	std::vector<int> host(count);
	unsigned state = 1;

	for (int &value : host)
		value = (int)((state = state * 1664525u + 1013904223u) >> 1);
	thrust::device_vector<int> source(host.begin(), host.end()), work(count);
	std::vector<double> times;
	for (int i = 0; i < rounds; i++) {
		thrust::copy(source.begin(), source.end(), work.begin());
		cudaDeviceSynchronize();
		auto start = std::chrono::steady_clock::now();
		thrust::sort(work.begin(), work.end());
		cudaDeviceSynchronize();
		auto end = std::chrono::steady_clock::now();
		times.push_back(std::chrono::duration<double, std::micro>(end - start).count());
	}
	std::sort(times.begin(), times.end());
	std::sort(host.begin(), host.end());
	std::vector<int> sorted(count);
	thrust::copy(work.begin(), work.end(), sorted.begin());
	if (sorted != host) {
		printf("not sorted\n");
		return 1;
	}
	printf("sort: %.1f us\n", times[rounds / 2]);
	return 0;
}
