/* SPDX-License-Identifier: MIT */
/*
 * greens.c - memory of green contexts that come and go while nothing else holds the
 * primary context: with the last of them goes that one, and all its memory. The
 * transcript must be the same with and without the library.
 *
 * Styles: linked dlsym
 * Tried: everywhere
 * Run: transcript.py @
 */
#include <stdio.h>

#include "api.h"
#include "driver.h"

enum { BYTES = 4 << 20 };

#define SAY(call) printf("%-62s %d\n", #call, (int)(call))

static void round_of(int number)
{
	CUdevResourceDesc description;
	CUgreenCtx green, second;
	CUdevResource resource;
	unsigned int flags;
	CUdeviceptr p, q;
	CUcontext ctx;
	int active;

	printf("-- round %d\n", number);
	GCPT_OK((int)cu.cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
	GCPT_OK((int)cu.cuDevResourceGenerateDesc(&description, &resource, 1));
	SAY(cu.cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	SAY(cu.cuGreenCtxCreate(&second, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	SAY(cu.cuCtxFromGreenCtx(&ctx, green));
	SAY(cu.cuCtxSetCurrent(ctx));
	SAY(cu.cuMemAlloc(&p, BYTES));
	SAY(cu.cuMemAlloc(&q, BYTES));
	SAY(cu.cuMemsetD8Async(p, 1, BYTES, NULL));
	SAY(cu.cuCtxSynchronize());
	SAY(cu.cuMemFree(p));
	SAY(cu.cuCtxSetCurrent(NULL));
	SAY(cu.cuGreenCtxDestroy(green));

	puts("the other one still holds the memory");
	SAY(cu.cuCtxFromGreenCtx(&ctx, second));
	SAY(cu.cuCtxSetCurrent(ctx));
	SAY(cu.cuMemsetD8Async(q, 1, BYTES, NULL));
	SAY(cu.cuCtxSynchronize());
	SAY(cu.cuMemFree(q));
	SAY(cu.cuMemAlloc(&p, BYTES));
	SAY(cu.cuMemsetD8Async(p, 1, BYTES, NULL));
	SAY(cu.cuCtxSynchronize());
	SAY(cu.cuCtxSetCurrent(NULL));
	SAY(cu.cuGreenCtxDestroy(second));
	SAY(cu.cuDevicePrimaryCtxGetState(0, &flags, &active));
	printf("the primary context is %s\n", active ? "active" : "gone");
}

int main(void)
{
	gcpt_driver_open();
	if (!cu.cuGreenCtxDestroy || !cu.cuGreenCtxCreate || !cu.cuCtxFromGreenCtx)
		return 77;
	for (int i = 0; i < 3; i++)
		round_of(i);
	return 0;
}
