/* SPDX-License-Identifier: MIT */
/* Frees a block that has a driver allocation of its own twice, in stream order. */
#include "misuse.h"

int main(void)
{
	CUdeviceptr p;
	CUresult second;
	CUstream s;

	primary_context();
	MUST(cu.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	p = allocated((size_t)400 << 20);
	MUST(cu.cuMemFreeAsync(p, s));
	second = cu.cuMemFreeAsync(p, s);
	MUST(cu.cuStreamSynchronize(s));
	/* Whoever gets it next can use it. */
	p = allocated((size_t)400 << 20);
	MUST(cu.cuMemsetD8Async(p, 1, 4096, s));
	MUST(cu.cuStreamSynchronize(s));
	return (int)second;
}
