/* SPDX-License-Identifier: MIT */
/* reload_plugin.c - a library of reload.c, with one function: -DNAME=FUNCTION. */
#include <cuda.h>

int NAME(CUdeviceptr *ret_p);

int NAME(CUdeviceptr *ret_p)
{
	CUresult result = cuMemAlloc_v2(ret_p, 100000);

	__asm__ volatile("" ::: "memory"); /* no tail call */
	return (int)result;
}
