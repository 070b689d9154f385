/* SPDX-License-Identifier: MIT */
/* Frees a block twice; others of its size stay alive. */
#include "misuse.h"

int main(void)
{
	CUdeviceptr p, neighbour;

	primary_context();
	p = allocated(4096);
	neighbour = allocated(4096);
	MUST(cu.cuMemFree(p));
	(void)neighbour;
	return (int)cu.cuMemFree(p);
}
