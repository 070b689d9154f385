/* SPDX-License-Identifier: MIT */
/*
 * quota.c - with a quota the device is that large, in whichever way a program asks;
 * what is called free can be had in one block, and no more than there is.
 *
 *   --total BYTES    that each answer must be
 *   --passes         stream-ordered memory passes through
 *
 * Styles: static shared linked dlsym
 * Tried: everywhere
 * Run: trial.py @ --total 96m GCPOOL_QUOTA=97M
 * Run: trial.py @ --total 96m --passes GCPOOL_QUOTA=97M GCPOOL_ASYNC=0
 * Run: trial.py @ --total 512m GCPSIM_MEMORY=1g GCPOOL_QUOTA=50%
 * Run: trial.py @ --total 1g GCPSIM_MEMORY=1g GCPOOL_QUOTA=2G
 * Run: segments: trial.py plain @ --total 1g GCPSIM_MEMORY=1g GCPOOL_QUOTA=96M
 */

#include "api.h"
#include "util.h"

enum { BLOCKS = 24, STEPS = 600, ASKED_EVERY = 20, MIB = 1 << 20 };

static size_t total; /* as it must be */

static void must_be(size_t wanted, size_t found, const char *what)
{
	if (wanted == found)
		return;
	printf("WRONG: %s: %zu, and not %zu\n", what, found, wanted);
	exit(1);
}

static void *found(const char *name)
{
	CUdriverProcAddressQueryResult status;
	void *function = NULL;

	GCPT_OK(cu.cuGetProcAddress(name, &function, 12000, 0, &status));
	return function;
}

/* What is free, as all ways to ask say. */
static size_t what_is_left(void)
{
	CUresult (*info)(size_t *, size_t *) = found("cuMemGetInfo");
	CUresult (*memory)(size_t *, CUdevice) = found("cuDeviceTotalMem");
	size_t left, left_there, said[4];

	GCPT_OK(gcpt_device_memory(0, &said[0]), memory(&said[1], 0));
	GCPT_OK(gcpt_mem_info(&left, &said[2]), info(&left_there, &said[3]));
	for (int i = 0; i < 4; i++)
		must_be(total, said[i], "the device's memory");
	must_be(left, left_there, "free, by another way");
	return left;
}

/* In one block; and what the device cannot have beside `held` bytes is refused. */
static void can_be_had(size_t left, size_t held)
{
	void *p;

	if (left > 0) {
		GCPT_OK(gcpt_malloc(&p, left), gcpt_free(p));
	}
	must_be(CUDA_ERROR_OUT_OF_MEMORY, gcpt_malloc(&p, total - held + 1), "more");
}

/* Memory that the program has from the driver itself counts until it is given back. */
static void other_kinds(bool passes)
{
	const CUmemAllocationProp properties = {
	    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
	CUDA_ARRAY_DESCRIPTOR numbers = {.Width = 1024,
					 .Height = 1024,
					 .Format = CU_AD_FORMAT_FLOAT,
					 .NumChannels = 1};
	size_t left = what_is_left(), bytes = 8 * (size_t)MIB;
	CUmemGenericAllocationHandle handle, more;
	CUstream stream;
	CUdeviceptr at;
	CUarray array;
	void *p;

	GCPT_OK(cu.cuMemCreate(&handle, bytes, &properties, 0));
	must_be(left - bytes, what_is_left(), "with a handle");
	must_be(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemCreate(&more, left, &properties, 0),
		"another handle");
	GCPT_OK(cu.cuMemAddressReserve(&at, bytes, 0, 0, 0));
	GCPT_OK(cu.cuMemMap(at, bytes, 0, handle, 0), cu.cuMemRelease(handle));
	must_be(left - bytes, what_is_left(), "mapped, and released");
	GCPT_OK(cu.cuMemUnmap(at, bytes), cu.cuArrayCreate(&array, &numbers));
	must_be(left - 4 * (size_t)MIB, what_is_left(), "with an array alone");
	numbers.Format = CU_AD_FORMAT_SIGNED_INT32;
	GCPT_OK(cu.cuArrayDestroy(array), cu.cuArrayCreate(&array, &numbers));
	must_be(left - 4 * (size_t)MIB, what_is_left(), "with one of signed numbers");
	GCPT_OK(cu.cuArrayDestroy(array));
	must_be(left, what_is_left(), "without it");
	if (!passes)
		return;
	GCPT_OK(gcpt_stream_create(&stream), gcpt_malloc_async(&p, bytes, stream));
	must_be(left - bytes, what_is_left(), "in stream order");
	GCPT_OK(gcpt_free_async(p, stream), cu.cuArrayCreate(&array, &numbers));
	GCPT_OK(gcpt_device_reset(0), gcpt_use(0));
	must_be(total, what_is_left(), "after a reset");
}

int main(int argc, char **argv)
{
	size_t bytes[BLOCKS] = {0}, held = 0;
	void *blocks[BLOCKS] = {NULL};
	uint64_t random = 1;

	total = gcpt_arg(argc, argv, "--total", 0);
	gcpt_driver_open();
	GCPT_OK(gcpt_device_memory(0, &held));
	must_be(total, held, "before there is a context");
	GCPT_OK(gcpt_use(0));
	held = 0;
	for (unsigned step = 0; step < STEPS; step++) {
		unsigned i = gcpt_random(&random) % BLOCKS;

		if (step % ASKED_EVERY == 0)
			can_be_had(what_is_left(), held);
		GCPT_OK(gcpt_free(blocks[i]));
		held -= bytes[i];
		bytes[i] = gcpt_random_size(&random, 512, total / 16);
		blocks[i] = NULL;
		if (gcpt_malloc(&blocks[i], bytes[i]))
			bytes[i] = 0;
		held += bytes[i];
	}
	for (unsigned i = 0; i < BLOCKS; i++)
		GCPT_OK(gcpt_free(blocks[i]));
	other_kinds(gcpt_flag(argc, argv, "--passes"));
	return 0;
}
