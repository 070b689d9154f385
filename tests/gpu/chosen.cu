/* SPDX-License-Identifier: MIT */
/*
 * chosen.cu - a program that loads libgcpool with dlopen and allocates from it in the
 * order of streams.
 *
 *   chosen stress LIBRARY    streams that write their blocks, wait, and look whether
 * all of it is still there chosen wrong LIBRARY     the same, but blocks are freed in
 * another stream than they are used in, and the looks must find that chosen named
 * LIBRARY     nanoseconds for a gcpool_malloc and a gcpool_free chosen capture LIBRARY
 * a capture of one stream while others allocate, and the codes of a stream that
 * captures chosen pairs             nanoseconds for a cudaMalloc and a cudaFree of 64
 * KiB, without the library's functions
 */
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <vector>

#include <cuda_runtime.h>

static int (*pool_malloc)(void **, size_t, int, void *);
static int (*pool_free)(void *, void *);
static int (*pool_active)(void);

#define OK(call)                                                                       \
	do {                                                                           \
		int code_ = (int)(call);                                               \
		if (code_) {                                                           \
			printf("line %d: %s: error %d\n", __LINE__, #call, code_);     \
			exit(2);                                                       \
		}                                                                      \
	} while (0)

__global__ void hold(unsigned int *words, size_t count, unsigned int tag, int turns,
		     unsigned int *wrong)
{
	size_t step = (size_t)gridDim.x * blockDim.x;
	size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

	for (size_t i = first; i < count; i += step)
		words[i] = tag;
	for (int turn = 0; turn < turns; turn++)
		__nanosleep(1000);
	for (size_t i = first; i < count; i += step)
		if (((volatile unsigned int *)words)[i] != tag)
			atomicAdd(wrong, 1);
}

static std::vector<cudaStream_t> streams_make(int count)
{
	std::vector<cudaStream_t> streams(count);

	for (cudaStream_t &stream : streams)
		OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	return streams;
}

static int stress(bool in_wrong_streams)
{
	std::vector<cudaStream_t> streams = streams_make(6);
	unsigned int *wrong, found = 0, seed = 1;

	OK(cudaMallocManaged(&wrong, sizeof(*wrong)));
	*wrong = 0;
	for (int i = 0; i < 20000; i++) {
		seed = seed * 1664525 + 1013904223;
		cudaStream_t stream = streams[seed >> 16 & 3];
		size_t bytes = (size_t)4096 << (seed >> 20) % 9;
		void *p;

		OK(pool_malloc(&p, bytes, 0, stream));
		hold<<<4, 128, 0, stream>>>((unsigned int *)p, bytes / 4, i, 1 + i % 40,
					    wrong);
		if (in_wrong_streams)
			stream = streams[4 + i % 2];
		OK(pool_free(p, stream));
		if (i % 997 == 0) {
			OK(cudaStreamDestroy(streams[2]));
			OK(cudaStreamCreateWithFlags(&streams[2],
						     cudaStreamNonBlocking));
		}
		if (in_wrong_streams) {
			OK(pool_malloc(&p, bytes, 0, stream));
			hold<<<4, 128, 0, stream>>>((unsigned int *)p, bytes / 4, ~i, 1,
						    wrong);
			OK(pool_free(p, stream));
		}
	}
	OK(cudaDeviceSynchronize());
	found = *wrong;
	printf("%u wrong words, active %d\n", found, pool_active());
	return found > 0;
}

/* The best of seven rounds. */
static int pairs(bool named)
{
	cudaStream_t stream = streams_make(1)[0];
	double best = 1e9;
	void *p;

	for (int round = 0; round < 8; round++) {
		auto begin = std::chrono::steady_clock::now();

		for (int i = 0; i < 20000; i++) {
			OK(named ? pool_malloc(&p, 1 << 16, 0, stream)
				 : cudaMalloc(&p, 1 << 16));
			OK(named ? pool_free(p, stream) : cudaFree(p));
		}
		std::chrono::duration<double, std::nano> took =
		    std::chrono::steady_clock::now() - begin;
		if (round && took.count() / 20000 < best)
			best = took.count() / 20000;
	}
	printf("%.0f ns a pair\n", best);
	return 0;
}

static int capture(void)
{
	std::vector<cudaStream_t> streams = streams_make(2);
	unsigned int *wrong;
	cudaGraphExec_t exec;
	cudaGraph_t graph;
	void *held, *p = nullptr;
	int code;

	OK(cudaMallocManaged(&wrong, sizeof(*wrong)));
	*wrong = 0;
	OK(pool_malloc(&held, 1 << 20, 0, streams[0]));
	OK(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeGlobal));
	hold<<<4, 128, 0, streams[0]>>>((unsigned int *)held, 1 << 18, 7, 1, wrong);
	code = pool_malloc(&p, 1 << 20, 0, streams[0]);
	for (int i = 0; i < 200; i++) {
		void *q;

		OK(pool_malloc(&q, (size_t)(1 + i % 40) << 20, 0, streams[1]));
		OK(pool_free(q, streams[1]));
	}
	OK(pool_malloc(&p, 1 << 16, 0, streams[1]));
	OK(pool_free(p, streams[0])); /* while it captures */
	OK(cudaStreamEndCapture(streams[0], &graph));
	OK(cudaGraphInstantiate(&exec, graph, 0));
	OK(cudaGraphLaunch(exec, streams[0]));
	OK(cudaDeviceSynchronize());
	OK(pool_malloc(&p, 1 << 16, 0, streams[0]));
	OK(pool_free(p, streams[0]));
	OK(pool_free(held, streams[0]));
	printf("%s in a capture, %u wrong words\n",
	       code == 900 ? "refused"
	       : code      ? "error"
			   : "served",
	       *wrong);
	return *wrong > 0 || (code && code != 900);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	void *library;

	OK(cudaFree(nullptr));
	if (!strcmp(what, "pairs"))
		return pairs(false);
	library = argc > 2 ? dlopen(argv[2], RTLD_NOW) : nullptr;
	if (!library) {
		printf("usage: chosen stress|wrong|named|capture LIBRARY\n");
		return 2;
	}
	*(void **)&pool_malloc = dlsym(library, "gcpool_malloc");
	*(void **)&pool_free = dlsym(library, "gcpool_free");
	*(void **)&pool_active = dlsym(library, "gcpool_active");
	if (!strcmp(what, "named"))
		return pairs(true);
	if (!strcmp(what, "capture"))
		return capture();
	return stress(!strcmp(what, "wrong"));
}
