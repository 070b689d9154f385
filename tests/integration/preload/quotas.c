/* SPDX-License-Identifier: MIT */
/*
 * quotas.c - what an unmodified program meets when a quota is used up, or the device
 * is full.
 *
 *   quotas SCENARIO    plays one; 0: all is as it should be
 */
#include "statistics.h"

/* 2 MiB of pinned memory: what is beyond it comes from nowhere, and what is freed
 * makes room again. */
SCENARIO_PRIMARY(pinned_memory_beyond_its_quota, "GCPOOL_HOST_QUOTA=2M",
		 "GCPOOL_TEST_CLASS_MIN=32M GCPOOL_HOST_QUOTA=2M")
{
	void *blocks[8] = {NULL};
	int count = 0;

	while (count < 8 && cuMemHostAlloc(&blocks[count], MIB, 0) == 0)
		count++;
	must(count == 2, "not as much as the quota allows");
	must(cuMemAllocHost(&blocks[7], MIB / 2) == CUDA_ERROR_OUT_OF_MEMORY,
	     "memory beyond the quota");
	OK(cuMemFreeHost(blocks[0]), cuMemAllocHost(&blocks[7], MIB / 2));
}

/* The host can pin no more beside what is pinned and not in use. */
SCENARIO_PRIMARY(registering_where_unused_memory_is_pinned)
{
	static char page[4096] __attribute__((aligned(4096)));
	void *block;

	OK(cuMemHostAlloc(&block, 64 * MIB, 0), cuMemFreeHost(block));
	calls_fail("cuMemHostRegister_v2:1:2");
	OK(cuMemHostRegister(page, sizeof(page), 0));
	must(gcpsim_memory_used(-1) < MIB, "unused memory stays pinned");
	OK(cuMemHostUnregister(page));
	calls_fail("cuMemHostRegister_v2:1+:2");
	must(cuMemHostRegister(page, sizeof(page), 0) == CUDA_ERROR_OUT_OF_MEMORY,
	     "another error than CUDA's");
}

static pthread_barrier_t barrier;
static CUcontext ctx;

static void *keeps(void *unused)
{
	CUdeviceptr blocks[8];
	CUstream stream;

	OK(cuCtxSetCurrent(ctx), cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 8; i++)
			OK(cuMemAllocAsync(&blocks[i], 64 << 10, stream));
		for (int i = 0; i < 8; i++)
			OK(cuMemFreeAsync(blocks[i], stream));
		OK(cuStreamSynchronize(stream));
	}
	for (int i = 0; i < 2; i++)
		pthread_barrier_wait(&barrier);
	return unused;
}

SCENARIO(threads_keep_no_more_than_the_limit,
	 "GCPOOL_CACHE_LIMIT=1M GCPSIM_SPEED=idle GCPOOL_BACKEND=vmm")
{
	enum { THREADS = 64 };
	pthread_t thread;

	ctx = primary();
	pthread_barrier_init(&barrier, NULL, THREADS + 1);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&thread, NULL, keeps, NULL);
	pthread_barrier_wait(&barrier);
	must(gcpsim_memory_used(0) <= 8 * MIB, "threads keep more");
}

/* It may make room that it does not count as free, out of managed memory. */
SCENARIO_PRIMARY(the_driver_is_asked_before_memory_is_out,
		 "GCPSIM_MEMORY=1g GCPOOL_BACKEND=vmm")
{
	size_t left, total;
	uint64_t asked;
	CUdeviceptr p;

	OK(cuMemGetInfo(&left, &total));
	(void)allocated(4096);
	asked = gcpsim_calls("cuMemAlloc_v2");
	must(cuMemAlloc(&p, left - MIB) == CUDA_ERROR_OUT_OF_MEMORY, "there is more");
	must(gcpsim_calls("cuMemAlloc_v2") == asked + 1, "it was not asked, or often");
}

/* CUDA takes NULL for each. */
SCENARIO_PRIMARY(one_figure_of_memory_alone, "GCPSIM_MEMORY=1g",
		 "GCPSIM_MEMORY=1g GCPOOL_QUOTA=50%")
{
	size_t left, total, alone;

	OK(cuMemFree(allocated(64 * MIB)), cuMemGetInfo(&left, &total));
	OK(cuMemGetInfo(&alone, NULL));
	must(alone == left, "cached memory counts as used");
	OK(cuMemGetInfo(NULL, &alone), cuMemGetInfo(NULL, NULL));
	must(alone == total, "it is not that of the quota");
}

/* --- memory that goes to CUDA as the program's call would --------------------- */

/* Most of the device is cached; cuMemCreate needs no current context. */
SCENARIO_PRIMARY(memory_of_other_kinds_without_a_context, "GCPSIM_MEMORY=1g")
{
	OK(cuMemFree(allocated(600 * MIB)), cuCtxSetCurrent(NULL));
	(void)memory_made(600 * MIB);
}

/* No sum of theirs with a granularity is a small number. */
SCENARIO_PRIMARY(more_memory_than_can_be, "GCPSIM_MEMORY=1g GCPOOL_DEBUG=guard")
{
	static const size_t sizes[] = {(size_t)1 << 46, ((size_t)1 << 46) + 1,
				       (size_t)1 << 63, SIZE_MAX - 4 * MIB,
				       SIZE_MAX - 511,  SIZE_MAX};
	size_t pitch;
	CUdeviceptr p;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		must(cuMemAlloc(&p, sizes[i]) == CUDA_ERROR_OUT_OF_MEMORY,
		     "more memory than there is");
	must(cuMemAllocPitch(&p, &pitch, (size_t)1 << 46, 4, 4) ==
		 CUDA_ERROR_OUT_OF_MEMORY,
	     "more rows than there are");
}

/* Of a reclaim that finds nothing. */
static uint64_t trims_of_a_refusal(void)
{
	uint64_t before = gcpsim_calls("cuMemPoolTrimTo");
	CUdeviceptr p;

	must(cuMemAlloc(&p, 512 * MIB) == CUDA_ERROR_OUT_OF_MEMORY,
	     "more memory than there is");
	return gcpsim_calls("cuMemPoolTrimTo") - before;
}

/* The driver's default pool gives back as well where the program has chosen another,
 * and is not asked twice, nor where CUDA does not say which it is. */
SCENARIO_PRIMARY(pools_of_the_driver_give_back, "GCPSIM_MEMORY=1g")
{
	uint64_t once;

	(void)allocated(600 * MIB);
	once = trims_of_a_refusal();
	must(once > 0, "nothing is asked of the driver's pools");
	OK(cuDeviceSetMemPool(0, pool_new(0)));
	must(trims_of_a_refusal() == 2 * once, "not both pools");
	calls_fail("cuDeviceGetDefaultMemPool:1+:801");
	must(trims_of_a_refusal() == once, "a pool that CUDA does not name");
}

/* The free waits as in plain CUDA, and in a capture that takes memory. There is none
 * left, on the device and on the host: the block is free all the same. */
SCENARIO_PRIMARY(exported_block_is_freed_in_a_capture,
		 "GCPSIM_MEMORY=1g GCPSIM_SPEED=never")
{
	CUipcMemHandle handle;
	CUstream stream = stream_new();
	CUdeviceptr p = allocated(MIB);

	OK(cuIpcGetMemHandle(&handle, p));
	gcpsim_set_memory(0, gcpsim_memory_used(0));
	calls_fail("cuMemHostAlloc:1+:2");
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), cuMemFree(p));
	(void)capture_end(stream);
	must(cuMemFree(p) == CUDA_ERROR_INVALID_VALUE, "it is freed twice");
	must(gcpsim_invalidated() == 0, "the capture is lost");
}

/* --- memory of the host for what the device has no room for -------------------- */

static int called(const char *function, unsigned argument)
{
	int (*call)(unsigned);

	*(void **)&call = dlsym(RTLD_DEFAULT, function);
	return call(argument);
}

static void trim(void)
{
	uint64_t (*call)(int, uint64_t);

	*(void **)&call = dlsym(RTLD_DEFAULT, "gcpool_trim");
	(void)call(0, 0);
}

/* Memory of the host serves nothing that the device has memory for, and is kept; what
 * the device has room for moves there, as it is, at a trim and a wake. */
SCENARIO_PRIMARY(
    a_quota_and_the_rest_on_the_host,
    "GCPOOL_QUOTA=64M GCPOOL_SPILL=33M GCPOOL_BACKEND=vmm GCPOOL_WAKE=auto",
    "GCPOOL_QUOTA=64M GCPOOL_SPILL=33M GCPOOL_BACKEND=segments GCPOOL_WAKE=auto",
    "GCPOOL_QUOTA=64M GCPOOL_SPILL=33M GCPOOL_REUSE=completed GCPOOL_WAKE=auto")
{
	CUdeviceptr device = allocated(60 * MIB), first = allocated(15 * MIB), more;
	CUipcMemHandle handle;
	size_t bytes = 0;
	uint32_t word = 0;

	must(!gcpsim_is_on_host(device) && gcpsim_is_on_host(first), "another place");
	must(stats().spilled_bytes.current == 16 * MIB, "not counted");
	must(cuIpcGetMemHandle(&handle, first) == CUDA_ERROR_INVALID_VALUE, "exported");
	OK(cuMemGetAddressRange(&more, &bytes, first + MIB));
	must(more == first && bytes == 15 * MIB, "another range");
	must(cuPointerGetAttribute(&handle, CU_POINTER_ATTRIBUTE_CONTEXT, -1ull),
	     "-1 is in a block");
	must(cuMemFree(first + MIB) == CUDA_ERROR_INVALID_VALUE, "freed inside");
	must(cuMemAlloc(&more, 18 * MIB) == CUDA_ERROR_OUT_OF_MEMORY, "beyond 33 MiB");
	more = allocated(16 * MIB);
	must(gcpsim_memory_used(-2) == 32 * MIB, "another amount");
	OK(cuMemsetD32(first, 77, 15 * MIB / 4), cuMemFree(more));
	must(cuMemFree(more) == CUDA_ERROR_INVALID_VALUE, "freed twice");
	must(cuMemAlloc(&more, MIB << 20) == CUDA_ERROR_OUT_OF_MEMORY, "1 TiB");
	must(!gcpsim_is_on_host(allocated(4 * MIB)), "the device had memory");
	must(gcpsim_memory_used(-2) == 32 * MIB, "what was free is not kept");
	must(gcpsim_is_on_host(allocated(9 * MIB)), "what was kept is not used");
	more = allocated(MIB);
	must(gcpsim_is_on_host(more) && gcpsim_is_on_host(allocated(MIB / 2)),
	     "what was kept is not used");
	trim();
	must(stats().spilled_bytes.current == 28 * MIB && stats().spills == 5,
	     "it has moved");
	must(gcpsim_memory_used(-2) == 28 * MIB, "what was kept stays");
	OK(cuMemFree(device));
	trim();
	if (getenv("GCPOOL_REUSE")) {
		must(gcpsim_is_on_host(first), "moved, and a device may write it");
		return;
	}
	OK(cuMemcpyDtoH(&word, first + 14 * MIB, 4));
	must(word == 77 && gcpsim_memory_used(-2) == 0, "not as it was, on the device");
	must(stats().spilled_bytes.current == 0, "still counted");
	OK(cuMemFree(more));
	(void)allocated(32 * MIB);
	must(gcpsim_is_on_host(more = allocated(16 * MIB)), "another place");
	OK(cuMemFree(first));
	if (called("gcpool_sleep", 1000) != 0)
		return; /* it is not mapped */
	must(gcpsim_is_on_host(more), "asleep, it is not on the host");
	must(called("gcpool_wake", 0) == 0 && !gcpsim_is_on_host(more), "not moved");
	OK(cuMemFree(more));
	must(gcpsim_memory_used(-2) == 0, "the host keeps something");
}

/* What the host has not, and what captures take, is refused. */
SCENARIO_PRIMARY(no_memory_of_the_host,
		 "GCPSIM_MEMORY=1g GCPOOL_SPILL=none GCPSIM_NUMA_MEMORY=0",
		 "GCPSIM_MEMORY=1g GCPOOL_SPILL=1G GCPSIM_NUMA_MEMORY=60M",
		 "GCPSIM_MEMORY=1g GCPOOL_SPILL=40M")
{
	CUstream stream = stream_new();
	CUdeviceptr p, device = allocated(1000 * MIB);
	CUgraph graph;

	must(cuMemAlloc(&p, 64 * MIB) == CUDA_ERROR_OUT_OF_MEMORY, "more memory");
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	must(cuMemAlloc(&p, 32 * MIB) == CUDA_ERROR_OUT_OF_MEMORY, "in a capture");
	OK(cuStreamEndCapture(stream, &graph), cuMemFree(device));
	must(gcpsim_memory_used(-2) == 0, "something stays on the host");
}
