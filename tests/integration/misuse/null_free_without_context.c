/* SPDX-License-Identifier: MIT */
/* Frees 0 with no context current. */
#include "misuse.h"

int main(void)
{
	primary_context();
	(void)allocated(4096);
	MUST(cu.cuCtxSetCurrent(NULL));
	return (int)cu.cuMemFree(0);
}
