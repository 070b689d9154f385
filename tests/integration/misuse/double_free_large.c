/* SPDX-License-Identifier: MIT */
/* Frees a block that has a driver allocation of its own twice. */
#include "misuse.h"

int main(void)
{
	CUdeviceptr p;

	primary_context();
	p = allocated((size_t)400 << 20);
	MUST(cu.cuMemFree(p));
	return (int)cu.cuMemFree(p);
}
