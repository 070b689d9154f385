/* SPDX-License-Identifier: MIT */
/*
 * mixed.cu - threads that allocate and free blocks of all sizes, for
 * tests/gpu/mapped.py:
 *
 *   mixed THREADS SECONDS [BYTES]
 *
 * Each thread has up to 64 blocks of 512 bytes to 8 MiB, each power of two as often,
 * and replaces one after the other; with BYTES it allocates and frees one block of that
 * size. Prints "pair:" with the nanoseconds of a free and a malloc on each thread. Exit
 * code 0: none failed.
 */
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include <cuda_runtime.h>

enum { LIVE = 64, POWERS = 14, LEAST = 512 };

static std::atomic<bool> stop;
static std::atomic<unsigned long long> pairs, failed;

static uint32_t random_next(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

static void work(uint32_t seed)
{
	void *live[LIVE] = {};
	unsigned long long done = 0;

	failed += cudaSetDevice(0) != cudaSuccess;
	while (!stop.load(std::memory_order_relaxed)) {
		void **slot = &live[random_next(&seed) % LIVE];
		size_t power = (size_t)LEAST << random_next(&seed) % POWERS;

		failed += cudaFree(*slot) != cudaSuccess;
		failed +=
		    cudaMalloc(slot, power + random_next(&seed) % power) != cudaSuccess;
		done++;
	}
	for (void *block : live)
		failed += cudaFree(block) != cudaSuccess;
	pairs += done;
}

static void work_pairs(size_t bytes)
{
	unsigned long long done = 0;
	void *block;

	failed += cudaSetDevice(0) != cudaSuccess;
	while (!stop.load(std::memory_order_relaxed)) {
		failed += cudaMalloc(&block, bytes) != cudaSuccess;
		failed += cudaFree(block) != cudaSuccess;
		done++;
	}
	pairs += done;
}

int main(int argc, char **argv)
{
	size_t bytes = argc > 3 ? (size_t)atol(argv[3]) : 0;
	int count = argc > 1 ? atoi(argv[1]) : 1;
	double seconds = argc > 2 ? atof(argv[2]) : 1;
	std::vector<std::thread> threads;

	failed += cudaFree(nullptr) != cudaSuccess;
	auto start = std::chrono::steady_clock::now();
	for (int i = 0; i < count; i++)
		if (bytes)
			threads.emplace_back(work_pairs, bytes);
		else
			threads.emplace_back(work, 77u * (unsigned)i + 1);
	std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
	stop = true;
	std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
	for (auto &thread : threads)
		thread.join();
	printf("pair: %.0f ns\n", wall.count() * 1e9 * count / (double)pairs);
	printf("failed: %llu\n", (unsigned long long)failed);
	return failed != 0;
}
