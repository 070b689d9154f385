/* SPDX-License-Identifier: MIT */
/*
 * lost_wait.cu - plain CUDA, no library: does a stream wait for an event that it was
 * told to wait for, while other threads launch graphs? (docs/captures.md)
 *
 *   nvcc -O2 -arch=sm_90 -o lost_wait tests/gpu/lost_wait.cu -lcuda
 *   ./lost_wait P Q WAIT BESIDE [SECONDS]
 *
 * Four threads and four streams that all of them use. In each turn a thread gives P to
 * a stream, records an event behind it, has another stream wait for the event, and
 * gives Q to that one. Printed are the turns, those in which Q began before P's end,
 * and by how many nanoseconds at most. What is lost is lost in the first tenth of a
 * second.
 *
 *   P, Q    graph | kernel
 *   WAIT    stream (cuStreamWaitEvent) | ctx (cuCtxWaitEvent) | fence (cuCtxRecordEvent
 *           and cuCtxWaitEvent)
 *   BESIDE  any | record (no other thread launches beside the record) | wait (beside
 * the wait)
 *
 * Exit code: 0 nothing was lost, 1 something was, 2 an error.
 */
#include <cuda.h>
#include <cuda_runtime.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#define OK(call)                                                                       \
	do {                                                                           \
		int code_ = (int)(call);                                               \
		if (code_ != 0) {                                                      \
			printf("%s: %d\n", #call, code_);                              \
			fflush(stdout);                                                \
			_exit(2);                                                      \
		}                                                                      \
	} while (0)

enum { TURNS = 1 << 16, THREADS = 4, STREAMS = 4, SPIN_NS = 6000 };

/* Of one thread, on the device. A graph counts its own runs. */
struct times {
	unsigned long long runs_of_p, runs_of_q;
	unsigned long long end_of_p[TURNS], begin_of_q[TURNS];
};

static cudaStream_t streams[STREAMS];
static std::string p_is, q_is, wait_is, beside;
static std::shared_mutex launching;
static CUcontext ctx;
static double seconds;

static __device__ unsigned long long now()
{
	unsigned long long ns;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
	return ns;
}

/* Turn -1: the graph's next one. */
static __global__ void p_kernel(struct times *times, long long turn)
{
	unsigned long long start = now();

	while (now() - start < SPIN_NS)
		;
	times->end_of_p[turn < 0 ? times->runs_of_p++ : turn] = now();
}

static __global__ void q_kernel(struct times *times, long long turn)
{
	times->begin_of_q[turn < 0 ? times->runs_of_q++ : turn] = now();
}

static __global__ void nothing()
{
}

static cudaGraphExec_t graph_of(bool p, struct times *times)
{
	cudaGraphExec_t exec;
	cudaGraph_t graph;
	cudaStream_t s;

	OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
	if (!p)
		q_kernel<<<1, 1, 0, s>>>(times, -1);
	nothing<<<1, 1, 0, s>>>();
	nothing<<<1, 1, 0, s>>>();
	if (p)
		p_kernel<<<1, 1, 0, s>>>(times, -1);
	OK(cudaStreamEndCapture(s, &graph));
	OK(cudaGraphInstantiate(&exec, graph, 0));
	OK(cudaGraphDestroy(graph));
	OK(cudaStreamDestroy(s));
	return exec;
}

struct worker {
	struct times *times;
	cudaGraphExec_t p, q;
	CUevent event;
	unsigned long long turns, early, most;

	void make()
	{
		OK(cudaMalloc(&times, sizeof(*times)));
		OK(cudaMemset(times, 0, sizeof(*times)));
		p = graph_of(true, times);
		q = graph_of(false, times);
		OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
		turns = early = most = 0;
	}

	void launch(bool first, cudaStream_t stream)
	{
		std::shared_lock<std::shared_mutex> lock(launching);

		if ((first ? p_is : q_is) == "graph")
			OK(cudaGraphLaunch(first ? p : q, stream));
		else if (first)
			p_kernel<<<1, 1, 0, stream>>>(times, turns);
		else
			q_kernel<<<1, 1, 0, stream>>>(times, turns);
	}

	void record(cudaStream_t stream)
	{
		std::unique_lock<std::shared_mutex> lock(launching, std::defer_lock);

		if (beside == "record")
			lock.lock();
		if (wait_is == "fence")
			OK(cuCtxRecordEvent(ctx, event));
		else
			OK(cuEventRecord(event, stream));
	}

	void wait(cudaStream_t stream)
	{
		std::unique_lock<std::shared_mutex> lock(launching, std::defer_lock);

		if (beside == "wait")
			lock.lock();
		if (wait_is == "stream")
			OK(cuStreamWaitEvent(stream, event, 0));
		else
			OK(cuCtxWaitEvent(ctx, event));
	}

	void run(unsigned seed)
	{
		auto start = std::chrono::steady_clock::now();
		std::chrono::duration<double> passed(0);

		OK(cudaSetDevice(0));
		for (turns = 0; turns < TURNS && passed.count() < seconds; turns++) {
			cudaStream_t a = streams[rand_r(&seed) % STREAMS];
			cudaStream_t b = streams[rand_r(&seed) % STREAMS];

			launch(true, a);
			record(a);
			wait(b);
			launch(false, b);
			if (turns % 64 == 63)
				OK(cudaStreamSynchronize(b));
			passed = std::chrono::steady_clock::now() - start;
		}
	}

	void judge()
	{
		struct times *found = (struct times *)malloc(sizeof(*found));

		OK(cudaMemcpy(found, times, sizeof(*found), cudaMemcpyDeviceToHost));
		for (unsigned long long i = 0; i < turns; i++) {
			if (found->begin_of_q[i] >= found->end_of_p[i])
				continue;
			early++;
			most =
			    std::max(most, found->end_of_p[i] - found->begin_of_q[i]);
		}
		free(found);
	}
};

int main(int argc, char **argv)
{
	unsigned long long turns = 0, early = 0, most = 0;
	std::vector<std::thread> threads;
	struct worker workers[THREADS];

	if (argc < 5)
		return 2;
	p_is = argv[1], q_is = argv[2], wait_is = argv[3], beside = argv[4];
	seconds = argc > 5 ? atof(argv[5]) : 0.2;
	OK(cudaFree(0));
	OK(cuCtxGetCurrent(&ctx));
	for (cudaStream_t &stream : streams)
		OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	for (struct worker &worker : workers)
		worker.make();
	OK(cudaDeviceSynchronize());
	for (struct worker &worker : workers)
		threads.emplace_back([&] { worker.run(unsigned(&worker - workers)); });
	for (std::thread &thread : threads)
		thread.join();
	OK(cudaDeviceSynchronize());
	for (struct worker &worker : workers) {
		worker.judge();
		turns += worker.turns, early += worker.early;
		most = std::max(most, worker.most);
	}
	printf("%llu turns, %llu lost, by %llu ns at most\n", turns, early, most);
	return early > 0;
}
