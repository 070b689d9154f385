/* SPDX-License-Identifier: MIT */
/* Allocates more than there is address space. */
#include "misuse.h"

int main(void)
{
	CUdeviceptr p;

	primary_context();
	return (int)cu.cuMemAlloc(&p, ~(size_t)0);
}
