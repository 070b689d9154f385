/* SPDX-License-Identifier: MIT */
/*
 * short.cu - what happens where device memory is short, for tests/gpu/short.py:
 *
 *   short waits        allocations beside a kernel that ends at the host's next step
 *   short fits ROUNDS  random large allocations that fit on the device
 *   short two SECONDS  a process that freed 60 % is idle; another wants 60 %
 *
 * Prints "hangs:" or "failed:" with a number. Exit code 0: none.
 */
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <cuda_runtime.h>

#define OK(call)                                                                       \
	do {                                                                           \
		cudaError_t code_ = (call);                                            \
		if (code_ != cudaSuccess) {                                            \
			printf("line %d: %s\n", __LINE__, cudaGetErrorString(code_));  \
			exit(2);                                                       \
		}                                                                      \
	} while (0)

static const size_t MIB = 1 << 20;

/* --- waits ------------------------------------------------------------------------ */

__global__ void touch(char *p)
{
	p[threadIdx.x] = 1;
}

__global__ void until(volatile int *flag)
{
	while (!*flag)
		__nanosleep(1000);
}

static volatile int *flag, *device_flag;
static std::atomic<bool> over, helped;

/* Takes the host's next step if the program does not come to it. */
static void watch()
{
	for (int i = 0; i < 400 && !over; i++)
		std::this_thread::sleep_for(std::chrono::milliseconds(10));
	helped = !over;
	*flag = 1;
}

static bool hangs(const char *what, size_t first, size_t second, bool fits)
{
	char *large, *small;
	void *wanted = nullptr;
	cudaStream_t stream;

	OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	OK(cudaMalloc(&large, first));
	OK(cudaMalloc(&small, 4096));
	touch<<<1, 256, 0, stream>>>(large);
	touch<<<1, 256, 0, stream>>>(small);
	OK(cudaStreamSynchronize(stream));
	OK(cudaFree(large));
	OK(cudaFree(small));
	*flag = 0;
	over = helped = false;
	until<<<1, 1, 0, stream>>>(device_flag);
	OK(cudaGetLastError());
	std::thread watchdog(watch);
	cudaError_t code = cudaMalloc(&wanted, second);
	over = true;
	watchdog.join();
	OK(cudaStreamSynchronize(stream));
	(void)cudaGetLastError();
	printf("%s: code %d%s\n", what, (int)code, helped ? ", it waited" : "");
	if (wanted)
		OK(cudaFree(wanted));
	OK(cudaStreamDestroy(stream));
	return helped || (code == cudaSuccess) != fits;
}

static int play_waits()
{
	size_t left, total;
	int count;

	OK(cudaHostAlloc((void **)&flag, sizeof(int), cudaHostAllocMapped));
	OK(cudaHostGetDevicePointer((void **)&device_flag, (void *)flag, 0));
	OK(cudaMemGetInfo(&left, &total));
	count = hangs("60 % freed, 70 % wanted", left / 10 * 6, left / 10 * 7, true);
	count += hangs("more than there is", MIB, total * 2, false);
	printf("hangs: %d\n", count);
	return count != 0;
}

/* --- fits ------------------------------------------------------------------------- */

static unsigned state = 1;

static unsigned draw(unsigned below)
{
	state = state * 1103515245 + 12345;
	return (state >> 16) % below;
}

/* Blocks of `least` to `most` MiB, replaced at random; 1 GiB stays free. */
static long count_failed(unsigned least, unsigned most, int rounds)
{
	size_t left, total, live = 0;
	long failed = 0;

	OK(cudaMemGetInfo(&left, &total));
	left -= 1024 * MIB;
	size_t slots = left / ((least + most) / 2 * MIB) * 3 / 2 + 2;
	std::vector<std::pair<void *, size_t>> blocks(slots);
	for (int i = 0; i < rounds; i++) {
		auto &block = blocks[draw((unsigned)slots)];
		OK(cudaFree(block.first));
		live -= block.second;
		block = {nullptr, 0};
		size_t bytes = (least + draw(most - least + 1)) / 2 * 2 * MIB;
		if (live + bytes > left)
			continue;
		if (cudaMalloc(&block.first, bytes) == cudaSuccess) {
			block.second = bytes;
			live += bytes;
			continue;
		}
		block.first = nullptr;
		(void)cudaGetLastError();
		failed++;
	}
	for (auto &block : blocks)
		OK(cudaFree(block.first));
	printf("%u to %u MiB: %ld of %d\n", least, most, failed, rounds);
	return failed;
}

static int play_fits(int rounds)
{
	long failed = count_failed(100, 900, rounds);

	failed += count_failed(1100, 3000, rounds);
	failed += count_failed(200, 1900, rounds);
	printf("failed: %ld\n", failed);
	return failed != 0;
}

/* --- two --------------------------------------------------------------------------- */

static void be_idle(int ready, int end, unsigned seconds)
{
	size_t left, total;
	void *p = nullptr;
	char byte = 0;

	OK(cudaMemGetInfo(&left, &total));
	OK(cudaMalloc(&p, total / 10 * 6));
	OK(cudaMemset(p, 1, total / 10 * 6));
	OK(cudaDeviceSynchronize());
	OK(cudaFree(p));
	sleep(seconds);
	_exit(write(ready, &byte, 1) != 1 || read(end, &byte, 1) != 1);
}

static int play_two(unsigned seconds)
{
	int ready[2], end[2];
	size_t left, total;
	void *p = nullptr;
	char byte = 0;

	if (pipe(ready) != 0 || pipe(end) != 0)
		return 2;
	if (fork() == 0) /* before either has used CUDA */
		be_idle(ready[1], end[0], seconds);
	if (read(ready[0], &byte, 1) != 1)
		return 2;
	OK(cudaMemGetInfo(&left, &total));
	cudaError_t code = cudaMalloc(&p, total / 10 * 6);
	printf("failed: %d\n", code != cudaSuccess);
	if (write(end[1], &byte, 1) != 1)
		return 2;
	wait(nullptr);
	return code != cudaSuccess;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "waits"))
		return play_waits();
	if (argc == 3 && !strcmp(argv[1], "fits"))
		return play_fits(atoi(argv[2]));
	if (argc == 3 && !strcmp(argv[1], "two"))
		return play_two((unsigned)atoi(argv[2]));
	fprintf(stderr, "usage: short waits | fits ROUNDS | two SECONDS\n");
	return 2;
}
