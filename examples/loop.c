/* SPDX-License-Identifier: MIT */
/*
 * loop.c - the habit that libgcpool is made for: a step allocates what it needs and
 * frees it again. Plain CUDA: 50 to 600 us for each malloc and its free; with the
 * library a fraction of one. Nothing in the source knows of the library, but the last
 * function asks for it.
 *
 *   cc -I/usr/local/cuda/include loop.c -o loop -L/usr/local/cuda/lib64 -lcudart -ldl
 *   ./loop                       # plain CUDA
 *   gcpool ./loop                # with the library
 *   gcpool-compare -- ./loop     # both, side by side
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_DEFAULT */
#endif
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define STEPS 1000
#define BYTES (1 << 20)

static void check(cudaError_t error, const char *what)
{
	if (error == cudaSuccess)
		return;
	fprintf(stderr, "loop: %s: %s\n", what, cudaGetErrorString(error));
	exit(1);
}

static double now_us(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

/* One step: a temporary, some work on the device, and the temporary goes. */
static void step(unsigned char *result, int number)
{
	void *scratch;

	check(cudaMalloc(&scratch, BYTES), "cudaMalloc");
	check(cudaMemsetAsync(scratch, number % 251, BYTES, 0), "cudaMemsetAsync");
	check(cudaMemcpyAsync(result, scratch, BYTES, cudaMemcpyDeviceToDevice, 0),
	      "cudaMemcpyAsync");
	check(cudaFree(scratch), "cudaFree");
}

static void tell_of_the_library(void)
{
	int (*active)(void);

	*(void **)&active = dlsym(RTLD_DEFAULT, "gcpool_active");
	fprintf(stderr, "allocations came from %s\n",
		active && active() ? "libgcpool" : "plain CUDA");
}

int main(void)
{
	static unsigned char host[BYTES];
	unsigned char *result;
	double start;
	int wrong = 0;

	check(cudaMalloc((void **)&result, BYTES), "cudaMalloc");
	start = now_us();
	for (int i = 0; i < STEPS; i++)
		step(result, i);
	check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
	fprintf(stderr, "%.2f us a step\n", (now_us() - start) / STEPS);

	check(cudaMemcpy(host, result, BYTES, cudaMemcpyDeviceToHost), "cudaMemcpy");
	for (int i = 0; i < BYTES; i++)
		wrong += host[i] != (STEPS - 1) % 251;
	check(cudaFree(result), "cudaFree");
	printf("%d steps, %d wrong bytes\n", STEPS, wrong);
	tell_of_the_library();
	return wrong != 0;
}
