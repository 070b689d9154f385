/* SPDX-License-Identifier: MIT */
/* Frees a pinned block twice; another of its size stays alive. */
#include "misuse.h"

int main(void)
{
	void *p, *neighbour;

	primary_context();
	p = pinned(4096);
	neighbour = pinned(4096);
	MUST(cu.cuMemFreeHost(p));
	(void)neighbour;
	return (int)cu.cuMemFreeHost(p);
}
