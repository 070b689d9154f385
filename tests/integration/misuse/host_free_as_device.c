/* SPDX-License-Identifier: MIT */
/* Frees a pinned block with the function for device memory. */
#include "misuse.h"

int main(void)
{
	primary_context();
	return (int)cu.cuMemFree((CUdeviceptr)(uintptr_t)pinned(4096));
}
