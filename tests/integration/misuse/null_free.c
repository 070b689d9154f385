/* SPDX-License-Identifier: MIT */
/* Frees 0, which is allowed. */
#include "misuse.h"

int main(void)
{
	primary_context();
	return (int)cu.cuMemFree(0);
}
