/* SPDX-License-Identifier: MIT */
/* Frees memory of malloc as if it were pinned. */
#include "misuse.h"

int main(void)
{
	void *p = malloc(4096);

	primary_context();
	(void)pinned(4096);
	return (int)cu.cuMemFreeHost(p);
}
