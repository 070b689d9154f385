/* SPDX-License-Identifier: MIT */
/* Frees a pinned block whose context has been reset away. */
#include "misuse.h"

int main(void)
{
	void *p;

	primary_context();
	p = pinned(4096);
	MUST(cu.cuDevicePrimaryCtxReset(0));
	primary_context();
	return (int)cu.cuMemFreeHost(p);
}
