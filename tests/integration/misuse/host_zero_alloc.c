/* SPDX-License-Identifier: MIT */
/* Asks for no pinned memory at all. */
#include "misuse.h"

int main(void)
{
	void *p;

	primary_context();
	return (int)cu.cuMemAllocHost(&p, 0);
}
