/* SPDX-License-Identifier: MIT */
/*
 * cublas.c - stands for libcublas. STANDIN_OLD: with fewer settings, as CUDA 12 has;
 * STANDIN_NEW: with a setter that the table does not know.
 */
#include "standin.h"

STANDIN_HANDLE(cublasCreate_v2, cublasDestroy_v2)
STANDIN_SETTING(0, cublasGetStream_v2, cublasSetStream_v2, void *)
STANDIN_SETTING(1, cublasGetPointerMode_v2, cublasSetPointerMode_v2, int)
STANDIN_SETTING(2, cublasGetAtomicsMode, cublasSetAtomicsMode, int)
STANDIN_SETTING(3, cublasGetMathMode, cublasSetMathMode, int)
STANDIN_SETTING(4, cublasGetSmCountTarget, cublasSetSmCountTarget, int)
#ifndef STANDIN_OLD
STANDIN_SETTING(5, cublasGetEmulationStrategy, cublasSetEmulationStrategy, int)
STANDIN_SETTING(6, cublasGetEmulationSpecialValuesSupport,
		cublasSetEmulationSpecialValuesSupport, int)
STANDIN_SETTING(7, cublasGetFixedPointEmulationMantissaControl,
		cublasSetFixedPointEmulationMantissaControl, int)
STANDIN_SETTING(8, cublasGetFixedPointEmulationMaxMantissaBitCount,
		cublasSetFixedPointEmulationMaxMantissaBitCount, int)
STANDIN_SETTING(9, cublasGetFixedPointEmulationMantissaBitOffset,
		cublasSetFixedPointEmulationMantissaBitOffset, int)
STANDIN_SETTING(10, cublasGetFixedPointEmulationMantissaBitCountPointer,
		cublasSetFixedPointEmulationMantissaBitCountPointer, int *)
STANDIN_SETTING(11, cublasGetEnvironmentMode, cublasSetEnvironmentMode, int)
#endif
#ifdef STANDIN_NEW
STANDIN_SETTING(12, cublasGetTiling, cublasSetTiling, int)
#endif

STANDIN_API int cublasSetWorkspace_v2(struct standin *handle, void *p, size_t bytes);
STANDIN_API int cublasSetVector(void);

int cublasSetWorkspace_v2(struct standin *handle, void *p, size_t bytes)
{
	if (!standin_good(handle) || bytes < STANDIN_BYTES)
		return 7;
	handle->workspace = (CUdeviceptr)p;
	return 0;
}

/* Not a setter of a handle. */
int cublasSetVector(void)
{
	return 0;
}

STANDIN_API int cublasSgemm_v2(struct standin *handle);

int cublasSgemm_v2(struct standin *handle)
{
	return standin_work(handle);
}
