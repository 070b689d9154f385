/* SPDX-License-Identifier: MIT */
/*
 * kernels.cu - the kernels of the test programs.
 *
 * kernels.ptx beside it is generated from this file and committed, so that no
 * CUDA compiler is needed to build the tests; the driver compiles it for the
 * GPU it finds. After a change:
 *
 *   ./make-ptx
 *
 * The simulated driver implements the same names natively: a change of a name
 * or of a parameter is a change there as well.
 *
 * All run in any grid: they stride over it. Words are 32 bits wide.
 */
#include <stdint.h>

static __device__ uint64_t index_first()
{
	return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ uint64_t index_step()
{
	return (uint64_t)gridDim.x * blockDim.x;
}

static __device__ void wait(uint64_t nanoseconds)
{
	uint64_t start, now;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
	do {
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	} while (now - start < nanoseconds);
}

static __device__ void fill(uint32_t *p, uint64_t n, uint32_t value)
{
	for (uint64_t i = index_first(); i < n; i += index_step())
		p[i] = value;
}

static __device__ void check(const uint32_t *p, uint64_t n, uint32_t expected,
			     unsigned long long *wrong)
{
	unsigned long long bad = 0;

	for (uint64_t i = index_first(); i < n; i += index_step())
		bad += ((volatile const uint32_t *)p)[i] != expected;
	if (bad)
		atomicAdd(wrong, bad);
}

/* p[0..n) = value */
extern "C" __global__ void gcpt_fill(uint32_t *p, uint64_t n, uint32_t value)
{
	fill(p, n, value);
}

/* *wrong += number of words in p[0..n) that differ from expected */
extern "C" __global__ void gcpt_check(const uint32_t *p, uint64_t n, uint32_t expected,
				      unsigned long long *wrong)
{
	check(p, n, expected, wrong);
}

extern "C" __global__ void gcpt_copy(uint32_t *dst, const uint32_t *src, uint64_t n)
{
	for (uint64_t i = index_first(); i < n; i += index_step())
		dst[i] = src[i];
}

extern "C" __global__ void gcpt_add(uint32_t *p, uint64_t n, uint32_t delta)
{
	for (uint64_t i = index_first(); i < n; i += index_step())
		p[i] += delta;
}

extern "C" __global__ void gcpt_spin(uint64_t nanoseconds)
{
	wait(nanoseconds);
}

/* The slow ones wait first, so that they touch memory late. */
extern "C" __global__ void gcpt_fill_slow(uint32_t *p, uint64_t n, uint32_t value,
					  uint64_t nanoseconds)
{
	wait(nanoseconds);
	fill(p, n, value);
}

extern "C" __global__ void gcpt_check_slow(const uint32_t *p, uint64_t n,
					   uint32_t expected, unsigned long long *wrong,
					   uint64_t nanoseconds)
{
	wait(nanoseconds);
	check(p, n, expected, wrong);
}

/* Stops the device: every later call of the context reports the error. */
extern "C" __global__ void gcpt_trap()
{
	asm volatile("trap;");
}
