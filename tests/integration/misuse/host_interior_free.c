/* SPDX-License-Identifier: MIT */
/* Frees a pointer into the middle of a pinned block. */
#include "misuse.h"

int main(void)
{
	primary_context();
	return (int)cu.cuMemFreeHost((char *)pinned(1 << 20) + 4096);
}
