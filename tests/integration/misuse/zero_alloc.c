/* SPDX-License-Identifier: MIT */
/* Allocates no bytes. */
#include "misuse.h"

int main(void)
{
	CUdeviceptr p;

	primary_context();
	return (int)cu.cuMemAlloc(&p, 0);
}
