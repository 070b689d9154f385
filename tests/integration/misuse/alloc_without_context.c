/* SPDX-License-Identifier: MIT */
/* Allocates with no context current. */
#include "misuse.h"

int main(void)
{
	CUdeviceptr p;

	primary_context();
	(void)allocated(4096);
	MUST(cu.cuCtxSetCurrent(NULL));
	return (int)cu.cuMemAlloc(&p, 4096);
}
