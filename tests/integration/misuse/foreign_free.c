/* SPDX-License-Identifier: MIT */
/* Frees an address of the host. */
#include "misuse.h"

int main(void)
{
	static char bytes[4096];

	primary_context();
	(void)allocated(4096);
	return (int)cu.cuMemFree((CUdeviceptr)bytes);
}
