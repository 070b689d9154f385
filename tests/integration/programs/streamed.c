/* SPDX-License-Identifier: MIT */
/*
 * streamed.c - what the runtime answers to calls about stream-ordered memory, right and
 * wrong ones, over and over. The transcript must be the same with and without the
 * library, so no address is printed.
 *
 * Styles: static shared
 * Tried: everywhere
 * Run: transcript.py @
 */
#include <stdint.h>
#include <stdio.h>

#include <cuda_runtime_api.h>

static void say(const char *what, cudaError_t code)
{
	cudaError_t last = cudaGetLastError(), again = cudaGetLastError();

	printf("%-44s %d; last error %d, then %d\n", what, (int)code, (int)last,
	       (int)again);
}

static void calls(cudaStream_t stream)
{
	void *p = (void *)1, *plain = NULL;

	say("nothing", cudaMallocAsync(&p, 0, stream));
	printf("  pointer: %s\n", p ? "set" : "NULL");
	say("to nowhere", cudaMallocAsync(NULL, 100, stream));
	say("more than there is", cudaMallocAsync(&p, (size_t)1 << 46, stream));
	say("free of NULL", cudaFreeAsync(NULL, stream));
	say("1000 bytes", cudaMallocAsync(&p, 1000, stream));
	say("set", cudaMemsetAsync(p, 1, 1000, stream));
	say("free", cudaFreeAsync(p, stream));
	say("free again", cudaFreeAsync(p, stream));
	say("1000 bytes", cudaMallocAsync(&p, 1000, stream));
	say("free inside", cudaFreeAsync((char *)p + 256, stream));
	say("synchronise", cudaStreamSynchronize(stream));
	say("plain free", cudaFree(p));
	say("plain free again", cudaFree(p));
	say("plain memory", cudaMalloc(&plain, 1000));
	say("its free in the stream", cudaFreeAsync(plain, stream));
	say("again", cudaFreeAsync(plain, stream));
	say("synchronise", cudaStreamSynchronize(stream));
}

/* Many at once, of sizes that repeat themselves. */
static void churn(cudaStream_t stream)
{
	void *held[16] = {NULL};
	int failed = 0;

	for (unsigned i = 0; i < 300; i++) {
		void **p = &held[i * 7 % 16];
		size_t bytes = 1 + (i * 2654435761u >> 12) % (i % 3 ? 4096 : 3 << 20);

		if (*p)
			failed += cudaFreeAsync(*p, stream) != cudaSuccess;
		failed += cudaMallocAsync(p, bytes, stream) != cudaSuccess;
		failed += cudaMemsetAsync(*p, (int)i, bytes, stream) != cudaSuccess;
	}
	for (int i = 0; i < 16; i++)
		failed += held[i] && cudaFreeAsync(held[i], stream) != cudaSuccess;
	printf("%d calls failed\n", failed);
	say("synchronise", cudaStreamSynchronize(stream));
}

int main(void)
{
	cudaStream_t streams[4] = {NULL, NULL, NULL, cudaStreamLegacy};

	say("stream", cudaStreamCreate(&streams[1]));
	say("stream", cudaStreamCreateWithFlags(&streams[2], cudaStreamNonBlocking));
	for (int round = 0; round < 2; round++)
		for (int i = 0; i < 4; i++) {
			printf("stream %d\n", i);
			calls(streams[i]);
			churn(streams[i]);
		}
	say("device", cudaDeviceSynchronize());
	return 0;
}
