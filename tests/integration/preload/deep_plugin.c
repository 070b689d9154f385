/* SPDX-License-Identifier: MIT */
/* deep_plugin.c - a plugin whose calls of CUDA do not pass through a preloaded library.
 */
#include <cuda.h>

CUresult plugin_alloc(CUdeviceptr *addr, size_t bytes);
CUresult plugin_free(CUdeviceptr addr);
CUresult plugin_release(void);

CUresult plugin_alloc(CUdeviceptr *addr, size_t bytes)
{
	return cuMemAlloc(addr, bytes);
}

CUresult plugin_free(CUdeviceptr addr)
{
	return cuMemFree(addr);
}

CUresult plugin_release(void)
{
	return cuDevicePrimaryCtxRelease(0);
}
