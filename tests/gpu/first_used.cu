/* SPDX-License-Identifier: MIT */
/*
 * first_used.cu - a library that is first used inside a capture: its handle is made
 * there, and its kernels are loaded there.
 *
 *   first-used cublas MODE FILE    cublasCreate and cublasSgemm of libcublas.so
 *   first-used cudnn MODE FILE     cudnnCreate and a convolution of libcudnn.so
 *
 * MODE: relaxed or thread-local. The graph is replayed on new numbers, beside
 * allocations that write wherever they are put, and each word is compared with what the
 * host computes: the numbers are small integers, of which floats are exact in any
 * order. Headers of the libraries are not needed, their functions are declared here.
 *
 * Exit code: 0 right, 1 wrong words, 2 the capture or its graph was refused, 3
 * something else was, 77 the file cannot be loaded.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <dlfcn.h>

#include <cuda_runtime.h>

static const int replays = 50, eager_blocks = 6;
static cudaStream_t stream;
static bool captured; /* from the capture's begin to the executable */
static void *library;

/* The call, what it gave, and whether the capture is still there. */
static void demand(int code, const char *what)
{
	cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;

	if (!code)
		return;
	if (captured)
		(void)cudaStreamIsCapturing(stream, &status);
	printf("%s: %s gives %d%s\n", captured ? "refused" : "failed", what, code,
	       status == cudaStreamCaptureStatusInvalidated ? ", the capture is lost"
							    : "");
	std::exit(captured ? 2 : 3);
}

template <typename... Parameters> static void ask(const char *name, Parameters... given)
{
	int (*function)(Parameters...);

	*(void **)&function = dlsym(library, name);
	if (!function) {
		printf("no %s\n", name);
		std::exit(77);
	}
	demand(function(given...), name);
}

/* --- what the libraries compute ------------------------------------------------ */

typedef std::vector<float> numbers;

struct work {
	size_t a, b, c; /* how many numbers there are of each */
	void *(*use)(const float *a, const float *b, float *c);
	numbers (*wanted)(const numbers &a, const numbers &b);
	const char *end;
};

static const float one = 1, zero = 0;

/* So long a sum that cuBLAS may share one out, and then needs its workspace. */
static const int rows = 64, columns = 64, inner = 2048;

static void *cublas_use(const float *a, const float *b, float *c)
{
	void *handle;

	ask("cublasCreate_v2", &handle);
	ask("cublasSetStream_v2", handle, stream);
	ask("cublasSgemm_v2", handle, 0, 0, rows, columns, inner, &one, a, rows, b,
	    inner, &zero, c, rows);
	return handle;
}

static numbers cublas_wanted(const numbers &a, const numbers &b)
{
	numbers c(rows * columns);

	for (int j = 0; j < columns; j++)
		for (int l = 0; l < inner; l++)
			for (int i = 0; i < rows; i++)
				c[j * rows + i] += a[l * rows + i] * b[j * inner + l];
	return c;
}

static const int images = 2, channels = 8, side = 32, filter = 3;
static const int area = side * side, taps = filter * filter;

/* Of the enumerations of cudnn.h: NCHW and float are 0, a cross-correlation is 1, and
 * the algorithm that needs no workspace is 0. */
static void *cudnn_use(const float *a, const float *b, float *c)
{
	void *handle, *from, *by, *into, *how;

	ask("cudnnCreate", &handle);
	ask("cudnnSetStream", handle, stream);
	ask("cudnnCreateTensorDescriptor", &from);
	ask("cudnnCreateTensorDescriptor", &into);
	ask("cudnnCreateFilterDescriptor", &by);
	ask("cudnnCreateConvolutionDescriptor", &how);
	for (void *tensor : {from, into})
		ask("cudnnSetTensor4dDescriptor", tensor, 0, 0, images, channels, side,
		    side);
	ask("cudnnSetFilter4dDescriptor", by, 0, 0, channels, channels, filter, filter);
	ask("cudnnSetConvolution2dDescriptor", how, 1, 1, 1, 1, 1, 1, 1, 0);
	ask("cudnnConvolutionForward", handle, (const void *)&one, from,
	    (const void *)a, by, (const void *)b, how, 0, (void *)nullptr, (size_t)0,
	    (const void *)&zero, into, (void *)c);
	return handle;
}

/* One number of the result: the sum over a window of all channels. */
static float window(const float *image, const float *weights, int y, int x)
{
	float sum = 0;

	for (int k = 0; k < channels; k++)
		for (int v = 0; v < filter; v++)
			for (int u = 0; u < filter; u++) {
				int yy = y + v - 1, xx = x + u - 1;

				if (yy >= 0 && yy < side && xx >= 0 && xx < side)
					sum += image[(k * side + yy) * side + xx] *
					       weights[(k * filter + v) * filter + u];
			}
	return sum;
}

static numbers cudnn_wanted(const numbers &a, const numbers &b)
{
	numbers c;

	for (int i = 0; i < images; i++)
		for (int k = 0; k < channels; k++)
			for (int y = 0; y < side; y++)
				for (int x = 0; x < side; x++)
					c.push_back(window(&a[i * channels * area],
							   &b[k * channels * taps], y,
							   x));
	return c;
}

static const work works[] = {
    {
	.a = rows * inner,
	.b = inner * columns,
	.c = rows * columns,
	.use = cublas_use,
	.wanted = cublas_wanted,
	.end = "cublasDestroy_v2",
    },
    {
	.a = images * channels * area,
	.b = channels * channels * taps,
	.c = images * channels * area,
	.use = cudnn_use,
	.wanted = cudnn_wanted,
	.end = "cudnnDestroy",
    },
};

/* --- the graph ----------------------------------------------------------------- */

static float *device_numbers(size_t count)
{
	float *p;

	demand(cudaMalloc(&p, count * sizeof(*p)), "cudaMalloc");
	demand(cudaMemset(p, 0, count * sizeof(*p)), "cudaMemset");
	return p;
}

static void eager()
{
	for (int i = 0; i < eager_blocks; i++) {
		size_t bytes = (size_t)(64 << 10) << (i * 2);
		void *p;

		demand(cudaMalloc(&p, bytes), "cudaMalloc");
		demand(cudaMemsetAsync(p, 0xa5, bytes), "cudaMemsetAsync");
		demand(cudaFree(p), "cudaFree");
	}
}

static numbers fresh(float *device, size_t count)
{
	static unsigned seed = 1;
	numbers made(count);

	for (float &number : made) {
		seed = seed * 1664525u + 1013904223u;
		number = (float)(seed >> 30);
	}
	demand(cudaMemcpy(device, made.data(), count * sizeof(*device),
			  cudaMemcpyHostToDevice),
	       "cudaMemcpy");
	return made;
}

/* How many words are wrong. */
static size_t replay(cudaGraphExec_t exec, const work &what, float *a, float *b,
		     float *c)
{
	numbers left = fresh(a, what.a), right = fresh(b, what.b), found(what.c),
		wanted;
	size_t wrong = 0;

	demand(cudaMemset(c, 0xa5, what.c * sizeof(*c)), "cudaMemset");
	/* The stream does not wait for what was done outside of it. */
	demand(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
	demand(cudaGraphLaunch(exec, stream), "cudaGraphLaunch");
	eager();
	demand(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
	demand(cudaMemcpy(found.data(), c, what.c * sizeof(*c), cudaMemcpyDeviceToHost),
	       "cudaMemcpy");
	wanted = what.wanted(left, right);
	for (size_t i = 0; i < what.c; i++)
		wrong += found[i] != wanted[i];
	return wrong;
}

static size_t play(const work &what, cudaStreamCaptureMode mode)
{
	float *a = device_numbers(what.a), *b = device_numbers(what.b),
	      *c = device_numbers(what.c);
	cudaGraphExec_t exec;
	cudaGraph_t graph;
	size_t wrong = 0;
	void *handle;

	demand(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
	       "cudaStreamCreateWithFlags");
	demand(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
	demand(cudaStreamBeginCapture(stream, mode), "cudaStreamBeginCapture");
	captured = true;
	handle = what.use(a, b, c);
	demand(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
	demand(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
	captured = false;
	demand(cudaGraphDestroy(graph), "cudaGraphDestroy");
	for (int i = 0; i < replays; i++)
		wrong += replay(exec, what, a, b, c);
	demand(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
	ask(what.end, handle);
	demand(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
	return wrong;
}

int main(int argc, char **argv)
{
	bool relaxed = argc == 4 && strcmp(argv[2], "relaxed") == 0;
	size_t wrong;

	if (argc != 4) {
		fprintf(stderr, "usage: first-used cublas|cudnn MODE FILE\n");
		return 3;
	}
	library = dlopen(argv[3], RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		printf("not loaded: %s\n", dlerror());
		return 77;
	}
	wrong = play(works[strcmp(argv[1], "cudnn") == 0],
		     relaxed ? cudaStreamCaptureModeRelaxed
			     : cudaStreamCaptureModeThreadLocal);
	printf("%d replays, %zu wrong words\n", replays, wrong);
	return wrong != 0;
}
