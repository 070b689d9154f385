/* SPDX-License-Identifier: MIT */
/* Frees a pointer of the primary context after its reset. */
#include "misuse.h"

int main(void)
{
	CUdeviceptr p;
	CUcontext ctx;

	primary_context();
	p = allocated(4096);
	MUST(cu.cuDevicePrimaryCtxReset(0));
	MUST(cu.cuDevicePrimaryCtxRetain(&ctx, 0));
	MUST(cu.cuCtxSetCurrent(ctx));
	return (int)cu.cuMemFree(p);
}
