/* SPDX-License-Identifier: MIT */
/* Allocates in a context that was destroyed. */
#include "misuse.h"

int main(void)
{
	CUdeviceptr p;
	CUcontext ctx = primary_context();

	(void)allocated(4096);
	MUST(cu.cuDevicePrimaryCtxReset(0));
	MUST(cu.cuCtxSetCurrent(ctx));
	return (int)cu.cuMemAlloc(&p, 4096);
}
