/* SPDX-License-Identifier: MIT */
/* Fills the device; gives all back and wants it in one piece; asks for more. */
#include "misuse.h"

int main(void)
{
	size_t piece = 32 << 20, count = 0;
	CUdeviceptr pieces[64], whole;
	CUresult result;

	primary_context();
	while (!(result = cu.cuMemAlloc(&pieces[count], piece)) && count < 63)
		count++;
	if (count < 2)
		return 201;
	for (size_t i = 0; i < count; i++)
		MUST(cu.cuMemFree(pieces[i]));
	whole = allocated(piece * (count - 1));
	(void)whole;
	return (int)cu.cuMemAlloc(&pieces[0], piece * 2);
}
