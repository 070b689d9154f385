/* SPDX-License-Identifier: MIT */
/*
 * answers.cu - what CUDA answers about memory of cudaMalloc, and what can be done with
 * it: queries, copies, hints, textures, dma-buf, green contexts, peers. The transcript
 * must be the same with and without the library, so no address, no time and no number
 * that differs from run to run is printed.
 *
 *   answers SECTION    one of: queries hints textures greens peers
 *
 * Exit code 77: the section wants two devices.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

#include <cuda.h>
#include <cuda_runtime.h>

#include "../several.h"

static const size_t mib = 1 << 20;

/* The expressions of a list, evaluated one after another, and the line of each. */
struct told {
	template <class... Values> told(const char *list, Values... values)
	{
		for (long long value : {(long long)values...}) {
			int length = 0, depth = 0;

			for (; list[length] && (depth || list[length] != ','); length++)
				depth += (list[length] == '(') - (list[length] == ')');
			printf("%-90.*s %lld\n", length, list, value);
			list += length + strspn(list + length, ", ");
		}
		fflush(stdout);
	}
};
/* In braces, which keep the order. */
#define SAY(...) told{#__VA_ARGS__, __VA_ARGS__}
#define MUST(...)      SEVERAL(MUST_ONE, __VA_ARGS__)
#define MUST_ONE(call) must((int)(call), #call)

static void must(int code, const char *call)
{
	if (!code)
		return;
	printf("MUST %s: %d\n", call, code);
	exit(2);
}

__global__ void fill(unsigned *p, unsigned value, size_t count)
{
	for (size_t i = threadIdx.x; i < count; i += blockDim.x)
		p[i] = value;
}

static CUdeviceptr block(size_t bytes)
{
	void *p;

	MUST(cudaMalloc(&p, bytes));
	return (CUdeviceptr)p;
}

static unsigned word(CUdeviceptr p)
{
	unsigned value = 77;

	MUST(cuMemcpyDtoH(&value, p, sizeof(value)));
	return value;
}

/* --- queries --------------------------------------------------------------------- */

static void attribute(const char *name, CUpointer_attribute which, CUdeviceptr p)
{
	unsigned long long value = 0;
	int code = cuPointerGetAttribute(&value, which, p);

	printf("  %-40s %d: %llu\n", name, code, code ? 0 : value);
}

/* The code, and whether it is the value that it ought to be. */
static void relation(const char *name, CUpointer_attribute which, CUdeviceptr p,
		     unsigned long long wanted)
{
	unsigned long long value = 0;
	int code = cuPointerGetAttribute(&value, which, p);

	printf("  %-40s %d: %d\n", name, code, value == wanted);
}

#define NUMBER(which) attribute(#which, CU_POINTER_ATTRIBUTE_##which, p)
#define RELATION(which, wanted) relation(#which, CU_POINTER_ATTRIBUTE_##which, p, wanted)

static void asked(const char *what, CUdeviceptr p, CUdeviceptr begin)
{
	CUdeviceptr base = 0;
	cudaPointerAttributes said;
	CUcontext here;
	size_t bytes = 0;
	CUmemGenericAllocationHandle handle;
	CUmemLocation location = {};
	unsigned long long flags = 0;

	MUST(cuCtxGetCurrent(&here));
	printf("%s\n", what);
	SAY(cuMemGetAddressRange(&base, &bytes, p), base ? (long long)(p - base) : -1);
	SAY(bytes, cuMemGetAddressRange(NULL, NULL, p));
	SAY(cudaPointerGetAttributes(&said, (void *)p), said.type, said.device);
	SAY(said.devicePointer == (void *)p, said.hostPointer == NULL);
	NUMBER(MEMORY_TYPE);
	NUMBER(DEVICE_ORDINAL);
	NUMBER(IS_MANAGED);
	NUMBER(IS_LEGACY_CUDA_IPC_CAPABLE);
	NUMBER(MAPPED);
	NUMBER(SYNC_MEMOPS);
	NUMBER(IS_GPU_DIRECT_RDMA_CAPABLE);
	NUMBER(ACCESS_FLAGS);
	NUMBER(ALLOWED_HANDLE_TYPES);
	NUMBER(MEMPOOL_HANDLE);
	NUMBER(HOST_POINTER);
	NUMBER(RANGE_SIZE);
	NUMBER(MAPPING_SIZE);
	NUMBER(IS_HW_DECOMPRESS_CAPABLE);
	RELATION(CONTEXT, (unsigned long long)here);
	RELATION(DEVICE_POINTER, p);
	RELATION(RANGE_START_ADDR, begin);
	location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	SAY(cuMemGetAccess(&flags, &location, p));
	SAY(cuMemRetainAllocationHandle(&handle, (void *)p));
	cudaGetLastError();
}

static unsigned long long buffer_id(CUdeviceptr p)
{
	unsigned long long id = 0;

	MUST(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
	return id;
}

static void dmabuf(CUdeviceptr p, size_t bytes)
{
	int fd = -1;
	int code = cuMemGetHandleForAddressRange(
	    &fd, p, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);

	printf("dma-buf of %zu bytes: %d\n", bytes, code);
	if (code == 0)
		close(fd);
}

/* One that begins at a page: plain CUDA's of less than 1 MiB need not, and then it has no
 * dma-buf of them (H200, 256 KiB: error 1). */
static CUdeviceptr block_of_pages(size_t bytes)
{
	CUdeviceptr p = block(bytes);

	for (int i = 0; i < 64 && p % 4096 != 0; i++)
		p = block(bytes);
	return p;
}

static void queries()
{
	const size_t sizes[] = {1000, 300000, mib, 5 * mib + 5, 100 * mib};
	CUdeviceptr blocks[5], freed;
	int supported = 0;
	size_t pitch;
	void *rows;

	MUST(cudaSetDevice(0));
	for (int i = 0; i < 5; i++)
		blocks[i] = block(sizes[i]);
	for (int i = 0; i < 5; i++) {
		printf("-- %zu bytes\n", sizes[i]);
		asked("the first byte", blocks[i], blocks[i]);
		asked("the last byte", blocks[i] + sizes[i] - 1, blocks[i]);
	}
	MUST(cudaMallocPitch(&rows, &pitch, 1000, 3));
	SAY(pitch);
	asked("rows", (CUdeviceptr)rows + pitch, (CUdeviceptr)rows);
	SAY(buffer_id(blocks[0]) == buffer_id(blocks[0] + 999));
	SAY(buffer_id(blocks[4]) == buffer_id(blocks[4] + 99 * mib));
	SAY(buffer_id(blocks[3]) == buffer_id(blocks[4]));
	SAY(buffer_id(blocks[0]) == buffer_id(blocks[1]));
	freed = block(64 * mib);
	MUST(cudaFree((void *)freed));
	asked("freed", freed, 0);
	SAY(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0));
	SAY(supported);
	for (size_t bytes : {4 * mib, 2 * mib, 64 * mib, mib})
		dmabuf(block(bytes), bytes);
	dmabuf(block_of_pages(mib / 4), mib / 4);
	dmabuf(blocks[4] + 4096, 8192);
	dmabuf(blocks[4] + 512, 4096);
	dmabuf(blocks[4], 5000);
	dmabuf(blocks[4] + mib, 50 * mib);
}

/* --- hints, which are for managed memory -------------------------------------------- */

/* Those for several ranges at once (CUDA 13): a whole block, and a part of another. */
static void hints_of_batches(cudaMemLocation location)
{
	void *ranges[] = {(void *)block(8 * mib), (void *)(block(8 * mib) + mib)};
	size_t sizes[] = {8 * mib, 2 * mib}, which = 0;
	cudaStream_t stream;

	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	MUST(cudaMemset(ranges[0], 3, sizes[0]), cudaDeviceSynchronize());
	SAY(cudaMemPrefetchBatchAsync(ranges, sizes, 2, &location, &which, 1, 0, stream));
	SAY(cudaStreamSynchronize(stream), word((CUdeviceptr)ranges[0]));
	SAY(cudaMemDiscardBatchAsync(ranges, sizes, 2, 0, stream));
	SAY(cudaMemDiscardAndPrefetchBatchAsync(ranges, sizes, 2, &location, &which, 1,
	    0, stream));
	SAY(cudaStreamSynchronize(stream), cudaGetLastError());
	/* What was discarded may be anything. */
	MUST(cudaMemset(ranges[0], 4, sizes[0]));
	SAY(word((CUdeviceptr)ranges[0]), cudaStreamDestroy(stream));
	SAY(cudaFree(ranges[0]), cudaFree((char *)ranges[1] - mib));
}

static void hints()
{
	CUdeviceptr p;
	int last = 0;
	cudaMemLocation location = {};

	MUST(cudaSetDevice(0));
	p = block(8 * mib);
	location.type = cudaMemLocationTypeDevice;
	SAY(cudaMemPrefetchAsync((void *)p, 8 * mib, location, 0, 0));
	SAY(cudaMemAdvise((void *)p, 8 * mib, cudaMemAdviseSetReadMostly, location));
	SAY(cudaMemRangeGetAttribute(&last, sizeof(last),
	    cudaMemRangeAttributeLastPrefetchLocation, (void *)p, 8 * mib));
	SAY(cudaStreamAttachMemAsync(0, (void *)p, 0, cudaMemAttachGlobal));
	SAY(cudaHostRegister((void *)p, 4096, 0), cudaFreeHost((void *)p));
	SAY(cuMemUnmap(p + 4096, 4096), cuMemAddressFree(p + 4096, 4096));
	SAY(cudaMemset((void *)p, 1, 8 * mib));
	SAY(cudaMemset((void *)(p + 8 * mib - 4), 1, 4), cudaDeviceSynchronize());
	SAY(word(p), cudaFree((void *)(p + 512)), cudaFree((void *)p));
	SAY(cudaFree((void *)p), cudaGetLastError());
	hints_of_batches(location);
}

/* --- textures and surfaces ------------------------------------------------------------ */

__global__ void fetch(cudaTextureObject_t linear, cudaTextureObject_t pitched, unsigned *sums,
		      int width, int height)
{
	unsigned one = 0, two = 0;

	for (int i = 0; i < width * height; i++)
		one += tex1Dfetch<unsigned>(linear, i);
	for (int y = 0; y < height; y++)
		for (int x = 0; x < width; x++)
			two += tex2D<unsigned>(pitched, x + 0.5f, y + 0.5f);
	sums[0] = one;
	sums[1] = two;
}

static void textures()
{
	const int width = 256, height = 100;
	cudaTextureObject_t linear = 0, pitched = 0;
	cudaSurfaceObject_t surface = 0;
	cudaTextureDesc how = {};
	cudaResourceDesc what = {};
	size_t pitch;
	CUdeviceptr p, sums;
	void *rows;

	MUST(cudaSetDevice(0));
	how.readMode = cudaReadModeElementType;
	p = block(width * height * 4);
	sums = block(8);
	MUST(cudaMallocPitch(&rows, &pitch, width * 4, height));
	fill<<<1, 64>>>((unsigned *)p, 3, width * height);
	for (int y = 0; y < height; y++)
		fill<<<1, 64>>>((unsigned *)((char *)rows + y * pitch), 5, width);
	what.resType = cudaResourceTypeLinear;
	what.res.linear.devPtr = (void *)p;
	what.res.linear.desc = cudaCreateChannelDesc<unsigned>();
	what.res.linear.sizeInBytes = width * height * 4;
	SAY(cudaCreateTextureObject(&linear, &what, &how, NULL));
	SAY(cudaCreateSurfaceObject(&surface, &what));
	what.res.linear.devPtr = (void *)(p + 4);
	cudaTextureObject_t other = 0;
	SAY(cudaCreateTextureObject(&other, &what, &how, NULL));
	what = {};
	what.resType = cudaResourceTypePitch2D;
	what.res.pitch2D.devPtr = rows;
	what.res.pitch2D.desc = cudaCreateChannelDesc<unsigned>();
	what.res.pitch2D.width = width;
	what.res.pitch2D.height = height;
	what.res.pitch2D.pitchInBytes = pitch;
	SAY(cudaCreateTextureObject(&pitched, &what, &how, NULL));
	fetch<<<1, 1>>>(linear, pitched, (unsigned *)sums, width, height);
	SAY(cudaDeviceSynchronize(), word(sums), word(sums + 4));
	SAY(cudaGetTextureObjectResourceDesc(&what, pitched));
	SAY(what.res.pitch2D.devPtr == rows, cudaDestroyTextureObject(linear));
	SAY(cudaDestroyTextureObject(pitched), cudaFree((void *)p), cudaFree(rows));
	SAY(cudaGetLastError());
}

/* --- green contexts ------------------------------------------------------------------- */

static void greens()
{
	CUdevResourceDesc description;
	CUdevResource resource;
	CUdeviceptr p, q;
	CUcontext primary, ctx;
	CUgreenCtx green;

	MUST(cudaSetDevice(0), cudaFree(0), cuCtxGetCurrent(&primary));
	MUST(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
	MUST(cuDevResourceGenerateDesc(&description, &resource, 1));
	SAY(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	SAY(cuCtxFromGreenCtx(&ctx, green), cuCtxSetCurrent(ctx));
	MUST(cuMemAlloc(&p, 5 * mib));
	asked("in a green context", p + 8, p);
	SAY(cuCtxSetCurrent(primary));
	asked("the same in the primary one", p + 8, p);
	MUST(cuMemAlloc(&q, 5 * mib));
	SAY(cuCtxSetCurrent(ctx));
	asked("the primary one's in the green one", q + 8, q);
	SAY(cuMemFree(q), cuCtxSetCurrent(primary), cuMemFree(p));
	SAY(cuGreenCtxDestroy(green));
}

/* --- several devices -------------------------------------------------------------------- */

static CUcontext contexts[2];

static void use(int device)
{
	MUST(cudaSetDevice(device), cudaFree(0), cuCtxGetCurrent(&contexts[device]));
}

/* Every way from one device to the other, from both contexts. */
static void copies(const char *when, CUdeviceptr p, CUdeviceptr q)
{
	printf("-- copies %s\n", when);
	for (int device = 0; device < 2; device++) {
		use(device);
		SAY(device, cudaMemset((void *)p, 1, mib));
		SAY(cudaMemset((void *)q, 2, mib));
		SAY(cudaMemcpy((void *)p, (void *)q, mib, cudaMemcpyDefault));
		SAY(cudaMemcpy((void *)q, (void *)p, mib, cudaMemcpyDeviceToDevice));
		SAY(cudaMemcpyAsync((void *)p, (void *)q, mib, cudaMemcpyDefault, 0));
		SAY(cudaMemcpy2D((void *)p, 1024, (void *)q, 1024, 1000, 1000,
		    cudaMemcpyDefault));
		SAY(cudaMemcpyPeer((void *)p, 0, (void *)q, 1, mib));
		SAY(cudaMemcpyPeerAsync((void *)q, 1, (void *)p, 0, mib, 0));
		SAY(cuMemcpyPeer(p, contexts[0], q, contexts[1], mib));
		SAY(cudaDeviceSynchronize(), word(p), word(q));
	}
	cudaGetLastError();
}

static void peers()
{
	CUdeviceptr p, q, later;
	int count = 0, can = 0;

	MUST(cudaGetDeviceCount(&count));
	if (count < 2)
		exit(77);
	SAY(cudaDeviceCanAccessPeer(&can, 0, 1), can);
	use(0);
	p = block(8 * mib);
	use(1);
	q = block(8 * mib);
	asked("of this device", q + 8, q);
	asked("of the other device", p + 8, p);
	copies("before peers are enabled", p, q);
	use(0);
	SAY(cudaDeviceDisablePeerAccess(1), cudaDeviceEnablePeerAccess(1, 1));
	SAY(cudaDeviceEnablePeerAccess(0, 0), cudaDeviceEnablePeerAccess(1, 0));
	SAY(cudaDeviceEnablePeerAccess(1, 0));
	use(1);
	later = block(8 * mib);
	use(0);
	fill<<<1, 64>>>((unsigned *)q, 11, 1000);
	fill<<<1, 64>>>((unsigned *)later, 12, 1000);
	SAY(cudaDeviceSynchronize(), word(q), word(later));
	asked("a peer's", q + 8, q);
	copies("with one peer enabled", p, q);
	use(1);
	SAY(cudaDeviceEnablePeerAccess(0, 0));
	fill<<<1, 64>>>((unsigned *)p, 13, 1000);
	SAY(cudaDeviceSynchronize(), word(p));
	copies("with both enabled", p, q);
	use(0);
	SAY(cudaFree((void *)q), cudaFree((void *)later));
	SAY(cudaDeviceDisablePeerAccess(1), cudaDeviceDisablePeerAccess(1));
	use(1);
	SAY(cudaFree((void *)p), cudaGetLastError());
}

int main(int argc, char **argv)
{
	const struct {
		const char *name;
		void (*run)();
	} sections[] = {
	    {"queries", queries}, {"hints", hints}, {"textures", textures},
	    {"greens", greens},   {"peers", peers},
	};

	for (auto &section : sections)
		if (argc == 2 && strcmp(argv[1], section.name) == 0)
			return section.run(), 0;
	fprintf(stderr, "usage: answers SECTION\n");
	return 2;
}
