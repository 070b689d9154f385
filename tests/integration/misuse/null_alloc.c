/* SPDX-License-Identifier: MIT */
/* Allocates without a place for the pointer. */
#include "misuse.h"

int main(void)
{
	primary_context();
	return (int)cu.cuMemAlloc(NULL, 4096);
}
