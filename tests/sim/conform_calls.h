/* SPDX-License-Identifier: MIT */
/*
 * conform_calls.h - the calls of conform_legality.c, and the things that they
 * are made upon.
 */
#ifndef CONFORM_CALLS_H
#define CONFORM_CALLS_H

#include "conform.h"

struct scene {
	CUstream capturing, other, doomed;
	CUevent done, fresh, captured;
	CUdeviceptr p, q; /* device memory */
	void *pinned;
	char pageable[4096];
	CUgraph graph;
	CUgraphExec exec;
	CUdeviceptr range, mapped;
	CUarray array;
	char registered[4096];
	CUmemGenericAllocationHandle physical;
};

__attribute__((unused)) static const CUmemAllocationProp prop = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
};

__attribute__((unused)) static const CUDA_ARRAY_DESCRIPTOR array = {
    .Width = 64,
    .Height = 64,
    .NumChannels = 1,
    .Format = CU_AD_FORMAT_FLOAT,
};

__attribute__((unused)) static const char empty_ptx[] =
    ".version 6.4\n.target sm_52\n.address_size 64\n";

enum { MAP = 2 << 20 };

struct call {
	const char *name;
	CUresult (*fn)(struct scene *s);
};

extern const struct call calls[]; /* up to one without a name */

/* Those of conform.h, for the file that does not start the program. */
CUresult scene_fill(CUdeviceptr at, CUstream stream);
CUresult scene_function(void);
CUcontext scene_ctx(void);

#endif
