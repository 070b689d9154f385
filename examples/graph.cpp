/* SPDX-License-Identifier: MIT */
/*
 * graph.cpp - captures C++ code that allocates into a CUDA graph. The buffer is an
 * ordinary RAII class over cudaMalloc and cudaFree; plain CUDA refuses it inside a
 * capture (error 900, and the capture is lost), with libgcpool it works.
 *
 *   c++ -I/usr/local/cuda/include graph.cpp -o graph -L/usr/local/cuda/lib64 -lcudart
 *   ./graph                      # plain CUDA: refused, exit code 2
 *   gcpool ./graph               # with the library
 */
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <vector>

namespace {

void check(cudaError_t error)
{
	if (error != cudaSuccess)
		throw std::runtime_error(cudaGetErrorString(error));
}

/* Device memory with one owner. Knows nothing of captures. */
class buffer {
public:
	explicit buffer(std::size_t bytes) : bytes_(bytes)
	{
		check(cudaMalloc(&pointer_, bytes));
	}
	~buffer()
	{
		cudaFree(pointer_);
	}
	buffer(const buffer &) = delete;
	buffer &operator=(const buffer &) = delete;

	void *get() const
	{
		return pointer_;
	}
	std::size_t bytes() const
	{
		return bytes_;
	}

private:
	void *pointer_ = nullptr;
	std::size_t bytes_;
};

/* Only copies, but allocates as a real pipeline does: each stage has a
 * temporary of its own and frees it when the next one has what it needs. */
void pipeline(const buffer &input, const buffer &output, cudaStream_t stream)
{
	buffer first(input.bytes());
	check(cudaMemcpyAsync(first.get(), input.get(), input.bytes(),
			      cudaMemcpyDeviceToDevice, stream));
	buffer second(input.bytes());
	check(cudaMemcpyAsync(second.get(), first.get(), input.bytes(),
			      cudaMemcpyDeviceToDevice, stream));
	check(cudaMemcpyAsync(output.get(), second.get(), output.bytes(),
			      cudaMemcpyDeviceToDevice, stream));
}

cudaGraphExec_t capture(const buffer &input, const buffer &output, cudaStream_t stream)
{
	cudaGraph_t graph;
	cudaGraphExec_t exec;

	check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	pipeline(input, output, stream);
	check(cudaStreamEndCapture(stream, &graph));
	check(cudaGraphInstantiate(&exec, graph, 0));
	check(cudaGraphDestroy(graph)); /* exec keeps the memory of the temporaries */
	return exec;
}

/* Replays the graph with another input each time; returns how many came out wrong. */
int replay(cudaGraphExec_t exec, const buffer &input, const buffer &output,
	   cudaStream_t stream)
{
	std::vector<unsigned char> host(output.bytes());
	int wrong = 0;

	for (int i = 0; i < 100; i++) {
		check(cudaMemsetAsync(input.get(), i, input.bytes(), stream));
		check(cudaGraphLaunch(exec, stream));
		buffer other(input.bytes()); /* gets none of the graph's memory */
		check(cudaMemsetAsync(other.get(), 255, other.bytes(), stream));
		check(cudaStreamSynchronize(stream));
		check(cudaMemcpy(host.data(), output.get(), host.size(), cudaMemcpyDeviceToHost));
		for (unsigned char byte : host)
			if (byte != i) {
				wrong++;
				break;
			}
	}
	return wrong;
}

} // namespace

int main()
{
	try {
		buffer input(1 << 16), output(1 << 16);
		cudaStream_t stream;

		check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
		cudaGraphExec_t exec = capture(input, output, stream);
		int wrong = replay(exec, input, output, stream);
		check(cudaGraphExecDestroy(exec)); /* now the memory may serve anything */
		std::printf("100 replays, %d wrong\n", wrong);
		return wrong != 0;
	} catch (const std::exception &error) {
		std::printf("refused: %s\n", error.what());
		return 2;
	}
}
