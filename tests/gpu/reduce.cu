/* SPDX-License-Identifier: MIT */
/*
 * reduce.cu - two processes, each with a GPU, that add up their buffers as inference
 * servers do: each opens the other's through CUDA IPC, and a kernel reads both. The
 * buffers come from cudaMalloc, small and large, and are freed and made anew.
 *
 * Prints how many words were wrong. Exit code 0; 1: wrong words; 77: it wants two
 * devices that can reach each other.
 */
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda_runtime.h>

enum { ROUNDS = 12, TURNS = 50 };
static const size_t sizes[] = {64 << 10, 1 << 20, 5 << 20, 40 << 20};

#define MUST(call)                                                                     \
	do {                                                                           \
		int code_ = (int)(call);                                               \
		if (code_) {                                                           \
			printf("MUST %s: %d (line %d)\n", #call, code_, __LINE__);     \
			fflush(stdout);                                                \
			shared->failed = 1;                                            \
			_exit(2);                                                      \
		}                                                                      \
	} while (0)

struct shared {
	volatile int arrived[2]; /* how often each was at a meeting */
	volatile int failed;
	cudaIpcMemHandle_t handles[2];
};

static struct shared *shared;

static void meet(int rank)
{
	int turn = ++shared->arrived[rank];

	__sync_synchronize();
	while (shared->arrived[1 - rank] < turn) {
		if (shared->failed)
			_exit(2);
		usleep(20);
	}
	__sync_synchronize();
}

__global__ void fill(unsigned *p, unsigned value, size_t words)
{
	size_t at = blockIdx.x * (size_t)blockDim.x + threadIdx.x;

	for (; at < words; at += (size_t)gridDim.x * blockDim.x)
		p[at] = value + (unsigned)at;
}

__global__ void add(unsigned *sum, const unsigned *a, const unsigned *b, size_t words)
{
	size_t at = blockIdx.x * (size_t)blockDim.x + threadIdx.x;

	for (; at < words; at += (size_t)gridDim.x * blockDim.x)
		sum[at] = a[at] + b[at];
}

__global__ void check(const unsigned *p, unsigned value, size_t words,
		      unsigned long long *wrong)
{
	size_t at = blockIdx.x * (size_t)blockDim.x + threadIdx.x;

	for (; at < words; at += (size_t)gridDim.x * blockDim.x)
		if (p[at] != value + 2 * (unsigned)at)
			atomicAdd(wrong, 1ull);
}

static void reduce(int rank, size_t bytes, unsigned long long *wrong)
{
	unsigned *own, *other, *sum;
	size_t words = bytes / 4;

	MUST(cudaMalloc((void **)&own, bytes));
	MUST(cudaIpcGetMemHandle(&shared->handles[rank], own));
	meet(rank);
	MUST(cudaIpcOpenMemHandle((void **)&other, shared->handles[1 - rank],
				  cudaIpcMemLazyEnablePeerAccess));
	for (unsigned turn = 0; turn < TURNS; turn++) {
		fill<<<64, 256>>>(own, 1000 * rank + turn, words);
		MUST(cudaDeviceSynchronize());
		meet(rank);
		MUST(cudaMalloc((void **)&sum, bytes));
		add<<<64, 256>>>(sum, own, other, words);
		check<<<64, 256>>>(sum, 1000 + 2 * turn, words, wrong);
		MUST(cudaFree(sum));
		MUST(cudaDeviceSynchronize());
		meet(rank);
	}
	MUST(cudaIpcCloseMemHandle(other));
	meet(rank);
	MUST(cudaFree(own));
}

static int play(int rank)
{
	unsigned long long *wrong, found = 0;
	int devices = 0, able = 0;

	if (cudaGetDeviceCount(&devices) || devices < 2 ||
	    cudaDeviceCanAccessPeer(&able, rank, 1 - rank) || !able)
		return 77;
	MUST(cudaSetDevice(rank));
	MUST(cudaMalloc((void **)&wrong, sizeof(*wrong)));
	MUST(cudaMemset(wrong, 0, sizeof(*wrong)));
	for (int round = 0; round < ROUNDS; round++)
		for (size_t bytes : sizes)
			reduce(rank, bytes, wrong);
	MUST(cudaMemcpy(&found, wrong, sizeof(found), cudaMemcpyDeviceToHost));
	printf("process %d: wrong words: %llu\n", rank, found);
	fflush(stdout);
	return found != 0;
}

int main()
{
	int codes[2], status;
	pid_t child;

	shared = (struct shared *)mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	child = fork(); /* before CUDA begins */
	if (child == 0)
		_exit(play(1));
	codes[0] = play(0);
	waitpid(child, &status, 0);
	codes[1] = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
	return codes[0] ? codes[0] : codes[1];
}
