/* SPDX-License-Identifier: MIT */
/*
 * faults.cu - programs with one planted fault in their use of device memory, and
 * correct ones, for tests/gpu/inside.py:
 *
 *   faults none       no fault: blocks of many sizes, with frees while kernels run
 *   faults overrun    a byte behind a block is written, and the block freed
 *   faults freed      a block is written after its free
 *   faults graph      no fault: memory of a captured graph, used after its free in the
 *                     capture by each launch
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <cuda_runtime.h>

static void must(cudaError_t code, int line)
{
	if (code != cudaSuccess) {
		printf("line %d: %s\n", line, cudaGetErrorString(code));
		exit(2);
	}
}
#define OK(call) must(call, __LINE__)

__global__ void put(char *p, size_t at)
{
	p[at] = 1;
}

static char *allocated(size_t bytes)
{
	char *p;

	OK(cudaMalloc((void **)&p, bytes));
	return p;
}

static void graph_runs(cudaStream_t stream)
{
	cudaGraphExec_t exec;
	cudaGraph_t graph;
	char *p = nullptr;

	OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
	p = allocated(5000);
	put<<<1, 1, 0, stream>>>(p, 4999);
	OK(cudaFree(p));
	OK(cudaStreamEndCapture(stream, &graph));
	OK(cudaGraphInstantiate(&exec, graph, 0));
	for (int i = 0; i < 5; i++)
		OK(cudaGraphLaunch(exec, stream));
	OK(cudaStreamSynchronize(stream));
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
}

int main(int argc, char **argv)
{
	const char *fault = argc > 1 ? argv[1] : "none";
	char *a, *b, *keep;
	cudaStream_t stream;

	OK(cudaStreamCreate(&stream));
	keep = allocated(100000);
	a = allocated(1000);
	b = allocated(1000);
	put<<<1, 1, 0, stream>>>(a, 999);
	if (!strcmp(fault, "overrun"))
		put<<<1, 1, 0, stream>>>(a, 1000);
	if (!strcmp(fault, "graph"))
		graph_runs(stream);
	OK(cudaStreamSynchronize(stream));
	OK(cudaFree(a));
	if (!strcmp(fault, "freed")) {
		put<<<1, 1, 0, stream>>>(a, 5);
		OK(cudaStreamSynchronize(stream));
	}
	for (int i = 0; i < 200; i++) { /* and the memory comes again */
		size_t bytes = i % 2 ? 1000 : 3000 + (size_t)i * 7;
		char *p = allocated(bytes);

		put<<<1, 1, 0, stream>>>(p, bytes - 1);
		OK(cudaFree(p));
	}
	OK(cudaDeviceSynchronize());
	OK(cudaFree(b));
	OK(cudaFree(keep));
	printf("%s: done\n", fault);
	return 0;
}
