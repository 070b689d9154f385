/* SPDX-License-Identifier: MIT */
/* Frees an address that was never allocated, near one that was. */
#include "misuse.h"

int main(void)
{
	primary_context();
	return (int)cu.cuMemFree(allocated(4096) + ((CUdeviceptr)1 << 40));
}
