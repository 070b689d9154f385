/* SPDX-License-Identifier: MIT */
/*
 * growth.cu - a fresh process that only takes memory, as one that loads a model, for
 * tests/gpu/growth.py:
 *
 *   growth MIB TOTAL    blocks of MIB, TOTAL MiB in all; 0: 100 GiB, or 70 % of the
 * device
 *
 * Prints "growth:" with milliseconds and "MiB:" with what was allocated. Exit code 0:
 * each allocation was served.
 */
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include <cuda_runtime.h>

static const size_t mib = 1 << 20;

int main(int argc, char **argv)
{
	size_t block = argc > 1 ? (size_t)atol(argv[1]) : 64;
	size_t total = argc > 2 ? (size_t)atol(argv[2]) : 1024;
	size_t left, device;
	int failed = cudaMemGetInfo(&left, &device) != cudaSuccess;

	if (!total)
		total = std::min((size_t)100 << 10, device / mib * 7 / 10);
	total -= total % block;
	auto start = std::chrono::steady_clock::now();
	for (size_t taken = 0; taken < total; taken += block) {
		void *p;

		failed += cudaMalloc(&p, block * mib) != cudaSuccess;
	}
	std::chrono::duration<double, std::milli> took =
	    std::chrono::steady_clock::now() - start;
	printf("growth: %.3f ms\nMiB: %zu\nfailed: %d\n", took.count(), total, failed);
	return failed != 0;
}
