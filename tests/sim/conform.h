/* SPDX-License-Identifier: MIT */
/*
 * conform.h - what the conformance programs share: they print a transcript of
 * result codes and states that must be the same on the simulated driver and on
 * a real one (conform.*.golden, recorded on a GPU).
 *
 * A transcript holds no addresses, no times and no names of devices.
 */
#ifndef CONFORM_H
#define CONFORM_H

#include <cuda.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../several.h"

/* Each call must be good. */
#define MUST(...)      SEVERAL(MUST_ONE, __VA_ARGS__)
#define MUST_ONE(call) must((call), #call, __FILE__, __LINE__)

static inline void must(CUresult result, const char *call, const char *file, int line)
{
	if (result == CUDA_SUCCESS)
		return;
	printf("%s:%d: %s gave %d, giving up\n", file, line, call, (int)result);
	exit(1);
}

static inline bool conform_simulated(void)
{
	return dlsym(RTLD_DEFAULT, "gcpsim_hazards") != NULL;
}

__attribute__((unused)) static CUmodule conform_module;
__attribute__((unused)) static CUdevice conform_device;
__attribute__((unused)) static CUcontext conform_ctx;

static inline CUfunction conform_function(const char *name)
{
	CUfunction function;

	MUST(cuModuleGetFunction(&function, conform_module, name));
	return function;
}

/* argv[1]: file with the PTX of the test programs' kernels. */
static inline void conform_start(int argc, char **argv)
{
	static char image[1 << 20];
	FILE *file = argc > 1 ? fopen(argv[1], "r") : NULL;

	if (!file || fread(image, 1, sizeof(image) - 1, file) == 0) {
		fprintf(stderr, "usage: %s kernels.ptx\n", argv[0]);
		exit(2);
	}
	fclose(file);
	MUST(cuInit(0), cuDeviceGet(&conform_device, 0));
	MUST(cuDevicePrimaryCtxRetain(&conform_ctx, conform_device));
	MUST(cuCtxSetCurrent(conform_ctx), cuModuleLoadData(&conform_module, image));
	setvbuf(stdout, NULL, _IOLBF, 0);
}

static inline CUresult conform_spin(uint64_t ns, CUstream stream)
{
	void *args[] = {&ns};

	return cuLaunchKernel(conform_function("gcpt_spin"), 1, 1, 1, 1, 1, 1, 0,
			      stream, args, NULL);
}

static inline CUresult conform_fill(CUdeviceptr p, uint64_t n, uint32_t value,
				    CUstream stream)
{
	void *args[] = {&p, &n, &value};

	return cuLaunchKernel(conform_function("gcpt_fill"), 1, 1, 1, 32, 1, 1, 0,
			      stream, args, NULL);
}

#endif
