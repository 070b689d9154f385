/* SPDX-License-Identifier: MIT */
/* Frees a pointer whose context is gone. */
#include "misuse.h"

int main(void)
{
	CUcontext ctx, primary = primary_context();
	CUdeviceptr p;

	MUST(cu.cuCtxCreate(&ctx, NULL, 0, 0));
	p = allocated(4096);
	MUST(cu.cuCtxDestroy(ctx));
	MUST(cu.cuCtxSetCurrent(primary));
	return (int)cu.cuMemFree(p);
}
