/* SPDX-License-Identifier: MIT */
/* renamed_library.c - what renamed.c loads: 0, or the error of the first call. */
#include <cuda_runtime_api.h>

int renamed_calls(void);
int renamed_calls(void)
{
	int result = (int)cudaSetDevice(0);
	void *p;

	for (int i = 0; result == 0 && i < 2; i++) {
		result = (int)cudaMalloc(&p, 1 << 20);
		if (result == 0)
			result = (int)cudaFree(p);
	}
	return result;
}
