/* SPDX-License-Identifier: MIT */
/* Frees a pointer into the middle of a small block. */
#include "misuse.h"

int main(void)
{
	primary_context();
	return (int)cu.cuMemFree(allocated(2048) + 1024);
}
