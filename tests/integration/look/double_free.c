/* SPDX-License-Identifier: MIT */
/*
 * double_free.c - a program of the CUDA runtime that frees a block twice, and prints
 * what each call has given: see debug.py.
 */
#include <cuda_runtime_api.h>
#include <stdio.h>

int main(void)
{
	void *block;

	printf("%d", (int)cudaMalloc(&block, 3000));
	printf(" %d", (int)cudaFree(block));
	printf(" %d\n", (int)cudaFree(block));
	return 0;
}
