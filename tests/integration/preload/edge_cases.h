/* SPDX-License-Identifier: MIT */
/*
 * edge_cases.h - what the programs of rare situations share: each plays the scenario
 * that its argument names, on the simulated device.
 */
#ifndef GCP_TESTS_EDGE_CASES_H
#define GCP_TESTS_EDGE_CASES_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cuda.h>

#include "gcpsim.h"

#define MIB ((size_t)1 << 20)

#define OK(call)                                                                       \
	do {                                                                           \
		CUresult code_ = (call);                                               \
		if (code_) {                                                           \
			printf("line %d: %s: error %d\n", __LINE__, #call,             \
			       (int)code_);                                            \
			exit(2);                                                       \
		}                                                                      \
	} while (0)

static bool wrong;

static void must(bool good, const char *what)
{
	if (!good)
		printf("WRONG: %s\n", what);
	wrong |= !good;
}

__attribute__((unused)) static CUcontext primary(void)
{
	CUcontext ctx;

	OK(cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(cuCtxSetCurrent(ctx));
	return ctx;
}

__attribute__((unused)) static CUdeviceptr allocated(size_t bytes)
{
	CUdeviceptr p;

	OK(cuMemAlloc(&p, bytes));
	return p;
}

/* --- the table of scenarios --------------------------------------------------- */

struct scenario {
	const char *name;
	void (*play)(void);
};

#define SCENARIO(name)                                                                 \
	{                                                                              \
#name, name                                                            \
	}

/* The exit code: 0 when all is as on plain CUDA. */
__attribute__((unused)) static int scenario_play(const struct scenario *scenarios,
						 size_t count, int argc, char **argv)
{
	OK(cuInit(0));
	for (size_t i = 0; i < count; i++) {
		if (argc == 2 && !strcmp(argv[1], scenarios[i].name)) {
			scenarios[i].play();
			return wrong;
		}
	}
	return 2;
}

#endif
