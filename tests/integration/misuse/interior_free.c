/* SPDX-License-Identifier: MIT */
/* Frees a pointer into the middle of a block. */
#include "misuse.h"

int main(void)
{
	primary_context();
	return (int)cu.cuMemFree(allocated(1 << 20) + 512);
}
