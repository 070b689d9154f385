/* SPDX-License-Identifier: MIT */
/*
 * ucx.c - whether UCX learns of each free, for tests/gpu/ucx.py. UCX patches the
 * driver's functions, and remembers of addresses that they are of a GPU until they are
 * freed.
 *
 * Prints a line for each way to allocate: "NAME: frees N missed M". Exit code 0: UCX
 * has put its hooks there, and missed none.
 */
#include <stdint.h>
#include <stdio.h>

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <ucm/api/ucm.h>

enum { TURNS = 1000, BYTES = 1 << 20 };

static unsigned frees, missed;
static const void *last;

static void learn(ucm_event_type_t type, ucm_event_t *event, void *unused)
{
	(void)unused;
	if (type != UCM_EVENT_MEM_TYPE_FREE)
		return;
	frees++;
	last = event->mem_type.address;
}

static void turn_ends(const void *freed)
{
	missed += last != freed;
	last = NULL;
}

static int said(const char *what, int failed)
{
	int wrong = failed || missed > 0;

	printf("%s: frees %u missed %u%s\n", what, frees, missed,
	       failed ? ", calls fail" : "");
	frees = missed = 0;
	return wrong;
}

static int by_the_runtime(void)
{
	int failed = 0;

	for (int i = 0; i < TURNS; i++) {
		void *p = NULL;

		failed |= cudaMalloc(&p, BYTES) != cudaSuccess;
		failed |= cudaFree(p) != cudaSuccess;
		turn_ends(p);
	}
	return said("runtime", failed);
}

static int by_the_driver(void)
{
	int failed = 0;

	for (int i = 0; i < TURNS; i++) {
		CUdeviceptr p = 0;

		failed |= cuMemAlloc(&p, BYTES) != CUDA_SUCCESS;
		failed |= cuMemFree(p) != CUDA_SUCCESS;
		turn_ends((const void *)(uintptr_t)p);
	}
	return said("driver", failed);
}

static int in_stream_order(void)
{
	cudaStream_t stream;
	int failed = cudaStreamCreate(&stream) != cudaSuccess;

	for (int i = 0; i < TURNS; i++) {
		void *p = NULL;

		failed |= cudaMallocAsync(&p, BYTES, stream) != cudaSuccess;
		failed |= cudaFreeAsync(p, stream) != cudaSuccess;
		turn_ends(p);
	}
	return said("stream order", failed);
}

int main(void)
{
	const int events = UCM_EVENT_MEM_TYPE_ALLOC | UCM_EVENT_MEM_TYPE_FREE;

	if (cudaFree(NULL) != cudaSuccess)
		return 2;
	if (ucm_set_event_handler(events, 0, learn, NULL) != UCS_OK) {
		printf("no hooks\n");
		return 3;
	}
	return by_the_runtime() | by_the_driver() | in_stream_order();
}
