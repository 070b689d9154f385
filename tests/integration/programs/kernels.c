/* SPDX-License-Identifier: MIT */
/*
 * kernels.c - see kernels.h. gcpt_ptx is kernels.ptx as a C string, made by the
 * build.
 */
#include "kernels.h"

extern const char gcpt_ptx[];

enum {
	BLOCK_THREADS = 256,
	/* So few that a waiting kernel never fills a GPU: kernels of other
	 * streams then run beside it, which is what the tests are about. */
	GRID_MAX = 64,
};

static CUresult launch(CUfunction function, CUstream stream, size_t n, void **params)
{
	size_t blocks = (n + BLOCK_THREADS - 1) / BLOCK_THREADS;
	unsigned grid = blocks < 1          ? 1
			: blocks > GRID_MAX ? GRID_MAX
					    : (unsigned)blocks;
	unsigned threads = n < BLOCK_THREADS ? 32 : BLOCK_THREADS;

	return cu.cuLaunchKernel(function, grid, 1, 1, threads, 1, 1, 0, stream, params,
				 NULL);
}

int gcpt_kernels_load(struct gcpt_kernels *k)
{
	const struct {
		CUfunction *function;
		const char *name;
	} wanted[] = {
	    {&k->fill, "gcpt_fill"},
	    {&k->check, "gcpt_check"},
	    {&k->copy, "gcpt_copy"},
	    {&k->add, "gcpt_add"},
	    {&k->spin, "gcpt_spin"},
	    {&k->fill_slow, "gcpt_fill_slow"},
	    {&k->check_slow, "gcpt_check_slow"},
	    {&k->trap, "gcpt_trap"},
	};
	CUresult result;

	gcpt_driver_open();
	result = cu.cuModuleLoadData(&k->module, gcpt_ptx);
	for (size_t i = 0; !result && i < sizeof(wanted) / sizeof(*wanted); i++)
		result = cu.cuModuleGetFunction(wanted[i].function, k->module,
						wanted[i].name);
	return result;
}

int gcpt_launch_fill(const struct gcpt_kernels *k, CUstream stream, void *p, size_t n,
		     uint32_t value)
{
	uint64_t words = n;
	void *params[] = {&p, &words, &value};

	return launch(k->fill, stream, n, params);
}

int gcpt_launch_check(const struct gcpt_kernels *k, CUstream stream, const void *p,
		      size_t n, uint32_t expected, void *wrong)
{
	uint64_t words = n;
	void *params[] = {&p, &words, &expected, &wrong};

	return launch(k->check, stream, n, params);
}

int gcpt_launch_copy(const struct gcpt_kernels *k, CUstream stream, void *dst,
		     const void *src, size_t n)
{
	uint64_t words = n;
	void *params[] = {&dst, &src, &words};

	return launch(k->copy, stream, n, params);
}

int gcpt_launch_add(const struct gcpt_kernels *k, CUstream stream, void *p, size_t n,
		    uint32_t delta)
{
	uint64_t words = n;
	void *params[] = {&p, &words, &delta};

	return launch(k->add, stream, n, params);
}

int gcpt_launch_spin(const struct gcpt_kernels *k, CUstream stream, uint64_t ns)
{
	void *params[] = {&ns};

	return launch(k->spin, stream, 1, params);
}

int gcpt_launch_fill_slow(const struct gcpt_kernels *k, CUstream stream, void *p,
			  size_t n, uint32_t value, uint64_t ns)
{
	uint64_t words = n;
	void *params[] = {&p, &words, &value, &ns};

	return launch(k->fill_slow, stream, n, params);
}

int gcpt_launch_check_slow(const struct gcpt_kernels *k, CUstream stream, const void *p,
			   size_t n, uint32_t expected, void *wrong, uint64_t ns)
{
	uint64_t words = n;
	void *params[] = {&p, &words, &expected, &wrong, &ns};

	return launch(k->check_slow, stream, n, params);
}

int gcpt_launch_trap(const struct gcpt_kernels *k, CUstream stream)
{
	return launch(k->trap, stream, 1, NULL);
}
