/*
 * quotas.c - what an unmodified program meets when a quota is used up.
 *
 *   quotas SCENE    plays one; 0: all is as it should be
 */
#include "corners.h"

/* 2 MiB of pinned memory: what is beyond it comes from nowhere, and what is freed
 * makes room again. */
static void pinned_memory_beyond_its_quota(void)
{
	void *blocks[8] = {NULL};
	int count = 0;

	(void)primary();
	while (count < 8 && cuMemHostAlloc(&blocks[count], MIB, 0) == 0)
		count++;
	must(count == 2, "not as much as the quota allows");
	must(cuMemAllocHost(&blocks[7], MIB / 2) == CUDA_ERROR_OUT_OF_MEMORY,
	     "memory beyond the quota");
	OK(cuMemFreeHost(blocks[0]));
	OK(cuMemAllocHost(&blocks[7], MIB / 2));
}

static void device_memory_beyond_its_quota(void)
{
	CUdeviceptr p, q;

	(void)primary();
	p = allocated(64 * MIB);
	must(cuMemAlloc(&q, 64 * MIB) == CUDA_ERROR_OUT_OF_MEMORY,
	     "memory beyond the quota");
	OK(cuMemFree(p));
	OK(cuMemAlloc(&q, 64 * MIB));
}

static const struct scene scenes[] = {
    SCENE(pinned_memory_beyond_its_quota),
    SCENE(device_memory_beyond_its_quota),
};

int main(int argc, char **argv)
{
	return scene_play(scenes, sizeof(scenes) / sizeof(*scenes), argc, argv);
}
