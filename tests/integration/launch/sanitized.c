/* SPDX-License-Identifier: MIT */
/*
 * sanitized.c - a program that is built with AddressSanitizer, as launch.py runs it:
 * uses device memory and host memory rightly, and with an argument writes behind a host
 * block.
 */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	volatile char *host = malloc(10);
	CUdeviceptr memory;
	CUcontext context;

	(void)argv;
	if (!host || cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) ||
	    cuCtxSetCurrent(context) || cuMemAlloc(&memory, 1 << 20) ||
	    cuMemFree(memory))
		return 1;
	host[argc > 1 ? 10 : 9] = 1;
	free((void *)host);
	puts("done");
	return 7;
}
