/* SPDX-License-Identifier: MIT */
/*
 * solver.c - a small program as people write them: an iterative multi-level
 * solver that allocates its temporaries where it needs them and frees them when
 * it is done, in every step. Prints a checksum that depends on every word.
 *
 *   --steps N --size BYTES (finest level) --levels N
 *
 * Styles: static shared
 * Tried: everywhere
 * Run: segments: transcript.py --pooled @ --steps 10 --size 64k
 */
#include <stdio.h>
#include <stdlib.h>

#include <cuda_runtime_api.h>

#include "kernels.h"
#include "util.h"

#define OK(call)                                                                       \
	do {                                                                           \
		int code_ = (int)(call);                                               \
		if (code_) {                                                           \
			fprintf(stderr, "solver: %s: error %d\n", #call, code_);       \
			exit(2);                                                       \
		}                                                                      \
	} while (0)

static struct gcpt_kernels kernels;

/* One pass over a level: residual, correction, and the coarser level between. */
static void level_pass(uint32_t *x, size_t words, unsigned level, cudaStream_t stream)
{
	uint32_t *residual, *correction, *coarse;

	OK(cudaMalloc((void **)&residual, words * 4));
	OK(gcpt_launch_copy(&kernels, stream, residual, x, words));
	OK(gcpt_launch_add(&kernels, stream, residual, words, level * 2654435761u));
	if (level && words >= 64) {
		OK(cudaMalloc((void **)&coarse, words / 2 * 4));
		OK(gcpt_launch_copy(&kernels, stream, coarse, residual, words / 2));
		level_pass(coarse, words / 2, level - 1, stream);
		OK(gcpt_launch_copy(&kernels, stream, residual + words / 2, coarse,
				    words / 2));
		OK(cudaFree(coarse));
	}
	OK(cudaMalloc((void **)&correction, words * 4));
	OK(cudaMemsetAsync(correction, (int)level + 1, words * 4, stream));
	OK(gcpt_launch_copy(&kernels, stream, correction, residual, words - words / 4));
	OK(gcpt_launch_copy(&kernels, stream, x, correction, words));
	OK(cudaFree(correction));
	OK(cudaFree(residual));
}

static uint64_t checksum(const uint32_t *x, size_t words)
{
	uint32_t *host = malloc(words * 4);
	uint64_t sum = 1469598103934665603u;

	if (!host)
		exit(2);
	OK(cudaMemcpy(host, x, words * 4, cudaMemcpyDeviceToHost));
	for (size_t i = 0; i < words; i++)
		sum = (sum ^ host[i]) * 1099511628211u;
	free(host);
	return sum;
}

int main(int argc, char **argv)
{
	unsigned steps = (unsigned)gcpt_arg(argc, argv, "--steps", 200);
	unsigned levels = (unsigned)gcpt_arg(argc, argv, "--levels", 6);
	size_t words = gcpt_arg(argc, argv, "--size", 1 << 20) / 4;
	cudaStream_t stream;
	uint32_t *x;

	OK(cudaSetDevice(0));
	OK(cudaStreamCreate(&stream));
	OK(cudaMalloc((void **)&x, words * 4));
	OK(gcpt_kernels_load(&kernels));
	OK(gcpt_launch_fill(&kernels, stream, x, words, 12345));
	for (unsigned step = 0; step < steps; step++) {
		OK(gcpt_launch_add(&kernels, stream, x, words, step));
		level_pass(x, words, levels, stream);
	}
	OK(cudaStreamSynchronize(stream));
	printf("solver: %u steps, checksum %016llx\n", steps,
	       (unsigned long long)checksum(x, words));
	OK(cudaFree(x));
	OK(cudaStreamDestroy(stream));
	return 0;
}
