/* SPDX-License-Identifier: MIT */
/*
 * given_back.c - plain CUDA, no library: what it takes the driver to get back 1 GiB of
 * mapped memory and to give it again, in two ranges of 512 MiB, in handles of each size
 * in turn (docs/captures.md: gcpool_trim and the next launch).
 *
 *   given_back MIB ...    sizes of handles, divisors of 512
 *
 * Prints a line for each: medians of nine turns, in milliseconds. Exit code: 0, or 2
 * for an error.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cuda.h>

enum { RANGES = 2, RANGE_MIB = 512, HANDLES_MAX = 256, SIZES_MAX = 8, TURNS = 9 };
enum { MIB = 1 << 20 };

#define OK(call)                                                                       \
	do {                                                                           \
		int code_ = (int)(call);                                               \
		if (code_ != 0) {                                                      \
			printf("%s: %d\n", #call, code_);                              \
			exit(2);                                                       \
		}                                                                      \
	} while (0)

static CUdeviceptr ranges[RANGES];
static CUmemGenericAllocationHandle handles[RANGES][HANDLES_MAX];
static CUmemAllocationProp prop = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
};

static double now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static double made(size_t bytes, int count)
{
	CUmemAccessDesc access = {.location = prop.location,
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	double start = now_ms();

	for (int i = 0; i < RANGES; i++) {
		for (int j = 0; j < count; j++) {
			OK(cuMemCreate(&handles[i][j], bytes, &prop, 0));
			OK(cuMemMap(ranges[i] + (size_t)j * bytes, bytes, 0,
				    handles[i][j], 0));
		}
		OK(cuMemSetAccess(ranges[i], (size_t)RANGE_MIB * MIB, &access, 1));
	}
	return now_ms() - start;
}

static double given_back(int count)
{
	double start = now_ms();

	for (int i = 0; i < RANGES; i++) {
		OK(cuMemUnmap(ranges[i], (size_t)RANGE_MIB * MIB));
		for (int j = 0; j < count; j++)
			OK(cuMemRelease(handles[i][j]));
	}
	return now_ms() - start;
}

static int smaller(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values)
{
	qsort(values, TURNS, sizeof(*values), smaller);
	return values[TURNS / 2];
}

int main(int argc, char **argv)
{
	static double back[SIZES_MAX][TURNS], again[SIZES_MAX][TURNS];
	int sizes = argc - 1;
	CUcontext ctx;

	if (sizes < 1 || sizes > SIZES_MAX)
		return 2;
	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(cuCtxSetCurrent(ctx));
	for (int i = 0; i < RANGES; i++)
		OK(cuMemAddressReserve(&ranges[i], (size_t)RANGE_MIB * MIB, 0, 0, 0));
	for (int turn = 0; turn < TURNS; turn++)
		for (int i = 0; i < sizes; i++) {
			int mib = atoi(argv[1 + i]);
			int count = mib >= 2 ? RANGE_MIB / mib : 0;

			if (count < 1 || count * mib != RANGE_MIB)
				return 2;
			again[i][turn] = made((size_t)mib * MIB, count);
			for (int range = 0; range < RANGES; range++)
				OK(cuMemsetD8(ranges[range], 1,
					      (size_t)RANGE_MIB * MIB));
			OK(cuCtxSynchronize());
			back[i][turn] = given_back(count);
		}
	for (int i = 0; i < sizes; i++)
		printf("handles of %s MiB: back %.2f ms, again %.2f ms\n", argv[1 + i],
		       median(back[i]), median(again[i]));
	return 0;
}
