/* SPDX-License-Identifier: MIT */
/*
 * async.cu - times and checks stream-ordered memory: an unmodified program, to be run
 * plain and under the library.
 *
 *   async pairs THREADS KIND BYTES     ns of an allocation and its free, of one thread;
 *                                      KIND: apart, blocking, legacy, shared (one
 *                                      non-blocking stream for all threads)
 *   async step                         us of eight allocations of 16 MiB, a kernel,
 * eight frees and one synchronisation async throughput STREAMS           kernels of 20
 * us with memory of their own, against the same without: the part that is kept async
 * stress ROUNDS SEED           wrong words of threads that fill, check and free, on
 * streams tied by events alone
 */
#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#define OK(call)                                                                       \
	do {                                                                           \
		cudaError_t code_ = (call);                                            \
		if (code_ != cudaSuccess) {                                            \
			std::printf("line %d: %s\n", __LINE__,                         \
				    cudaGetErrorName(code_));                          \
			std::exit(2);                                                  \
		}                                                                      \
	} while (0)

static double now_us()
{
	using namespace std::chrono;
	return duration<double, std::micro>(steady_clock::now().time_since_epoch())
	    .count();
}

__global__ void spin(long long ns)
{
	long long start, now;

	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
	do
		asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
	while (now - start < ns);
}

__global__ void fill(uint32_t *p, size_t words, uint32_t value)
{
	size_t step = (size_t)blockDim.x * gridDim.x;

	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words;
	     i += step)
		p[i] = value ^ (uint32_t)i;
}

__global__ void check(const uint32_t *p, size_t words, uint32_t value,
		      unsigned long long *wrong)
{
	size_t step = (size_t)blockDim.x * gridDim.x;

	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words;
	     i += step)
		if (p[i] != (value ^ (uint32_t)i))
			atomicAdd(wrong, 1ull);
}

static cudaStream_t stream_new(unsigned flags)
{
	cudaStream_t stream;

	OK(cudaStreamCreateWithFlags(&stream, flags));
	return stream;
}

static void threshold_raise()
{
	uint64_t most = UINT64_MAX;
	cudaMemPool_t pool;

	OK(cudaDeviceGetDefaultMemPool(&pool, 0));
	OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &most));
}

/* --- pairs ------------------------------------------------------------------------ */

static cudaStream_t stream_of_kind(const char *kind)
{
	if (!strcmp(kind, "legacy"))
		return cudaStreamLegacy;
	return stream_new(!strcmp(kind, "blocking") ? cudaStreamDefault
						    : cudaStreamNonBlocking);
}

static void pairs(int threads, const char *kind, size_t bytes)
{
	const int count = threads > 1 ? 20000 : 200000;
	cudaStream_t one = stream_of_kind(kind);
	std::vector<std::thread> workers;
	std::atomic<int> ready{0};
	double total = 0;
	std::atomic<double> *sum = new std::atomic<double>(0);

	threshold_raise();
	for (int i = 0; i < threads; i++)
		workers.emplace_back([&] {
			cudaStream_t s =
			    !strcmp(kind, "shared") ? one : stream_of_kind(kind);
			void *p;

			OK(cudaSetDevice(0));
			for (int j = 0; j < 2000; j++) {
				OK(cudaMallocAsync(&p, bytes, s));
				OK(cudaFreeAsync(p, s));
			}
			ready++;
			while (ready < threads)
				;
			double start = now_us();
			for (int j = 0; j < count; j++) {
				OK(cudaMallocAsync(&p, bytes, s));
				OK(cudaFreeAsync(p, s));
			}
			double took = (now_us() - start) * 1000 / count, seen = *sum;
			while (!sum->compare_exchange_weak(seen, seen + took))
				;
		});
	for (std::thread &worker : workers)
		worker.join();
	total = *sum / threads;
	std::printf("ns a pair: %.1f\n", total);
}

/* --- a step ----------------------------------------------------------------------- */

static void step()
{
	cudaStream_t s = stream_new(cudaStreamNonBlocking);
	const int count = 2000;
	double start = 0;
	void *p[8];

	for (int i = -200; i < count; i++) {
		if (i == 0)
			start = now_us();
		for (void *&q : p)
			OK(cudaMallocAsync(&q, 16 << 20, s));
		spin<<<1, 1, 0, s>>>(0);
		for (void *q : p)
			OK(cudaFreeAsync(q, s));
		OK(cudaStreamSynchronize(s));
	}
	std::printf("us a step: %.1f\n", (now_us() - start) / count);
}

/* --- throughput ------------------------------------------------------------------- */

static double kernels(int streams, bool memory)
{
	std::vector<cudaStream_t> all;
	const int count = 20000;
	void *p = nullptr;

	for (int i = 0; i < streams; i++)
		all.push_back(stream_new(cudaStreamNonBlocking));
	double start = 0;
	for (int i = -1000; i < count; i++) {
		cudaStream_t s = all[(unsigned)(i + 1000) % all.size()];

		if (i == 0) {
			OK(cudaDeviceSynchronize());
			start = now_us();
		}
		if (memory)
			OK(cudaMallocAsync(&p, 1 << 20, s));
		spin<<<1, 1, 0, s>>>(20000);
		if (memory)
			OK(cudaFreeAsync(p, s));
	}
	OK(cudaDeviceSynchronize());
	return (now_us() - start) / count;
}

static void throughput(int streams)
{
	double plain, with;

	threshold_raise();
	kernels(streams, true);
	plain = kernels(streams, false);
	with = kernels(streams, true);
	std::printf("us a launch: %.2f without, %.2f with\nkept: %.3f\n", plain, with,
		    plain / with);
}

/* --- stress ----------------------------------------------------------------------- */

struct held {
	uint32_t *p;
	size_t words;
	uint32_t value;
	int stream;
};

/* Each thread works on four streams. A block is filled in one, checked in that or,
 * behind an event, in another, and freed there or by cudaMalloc's free, all at once. */
static void work(int seed, int rounds, unsigned long long *wrong)
{
	std::mt19937 draw((unsigned)seed);
	cudaStream_t streams[4];
	cudaEvent_t event;

	OK(cudaSetDevice(0));
	for (int i = 0; i < 4; i++)
		streams[i] =
		    stream_new(i < 3 ? cudaStreamNonBlocking : cudaStreamDefault);
	OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
	for (int i = 0; i < rounds; i++) {
		size_t words = (draw() % 4 ? 1 + draw() % 65536 : 1 + draw() % 1048576);
		int from = (int)(draw() % 4),
		    to = draw() % 3 ? from : (int)(draw() % 4);
		bool plain = draw() % 4 == 0;
		uint32_t value = (uint32_t)draw();
		uint32_t *p;

		if (plain)
			OK(cudaMalloc((void **)&p, words * 4));
		else
			OK(cudaMallocAsync((void **)&p, words * 4, streams[from]));
		fill<<<8, 128, 0, streams[from]>>>(p, words, value);
		if (draw() % 8 == 0)
			spin<<<1, 1, 0, streams[from]>>>(20000);
		if (from != to) {
			OK(cudaEventRecord(event, streams[from]));
			OK(cudaStreamWaitEvent(streams[to], event, 0));
		}
		check<<<8, 128, 0, streams[to]>>>(p, words, value, wrong);
		if (plain && draw() % 2)
			OK(cudaFree(p));
		else
			OK(cudaFreeAsync(p, streams[to]));
	}
	for (cudaStream_t stream : streams)
		OK(cudaStreamSynchronize(stream));
}

static int stress(int rounds, int seed)
{
	std::vector<std::thread> workers;
	unsigned long long *wrong, count = 0;

	OK(cudaMallocManaged((void **)&wrong, sizeof(*wrong)));
	*wrong = 0;
	for (int i = 0; i < 4; i++)
		workers.emplace_back(work, seed * 16 + i, rounds, wrong);
	for (std::thread &worker : workers)
		worker.join();
	OK(cudaDeviceSynchronize());
	count = *wrong;
	std::printf("wrong words: %llu\n", count);
	return count != 0;
}

int main(int argc, char **argv)
{
	if (argc == 5 && !strcmp(argv[1], "pairs"))
		pairs(atoi(argv[2]), argv[3], (size_t)atoll(argv[4]));
	else if (argc == 2 && !strcmp(argv[1], "step"))
		step();
	else if (argc == 3 && !strcmp(argv[1], "throughput"))
		throughput(atoi(argv[2]));
	else if (argc == 4 && !strcmp(argv[1], "stress"))
		return stress(atoi(argv[2]), atoi(argv[3]));
	else
		return 2;
	return 0;
}
