/* SPDX-License-Identifier: MIT */
/* Does nothing wrong: the environment does. */
#include "misuse.h"

int main(void)
{
	CUdeviceptr p;

	primary_context();
	p = allocated((size_t)100 << 20);
	puts("allocated");
	return (int)cu.cuMemFree(p);
}
