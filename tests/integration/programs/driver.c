/* SPDX-License-Identifier: MIT */
/*
 * driver.c - fills the table of driver.h. Called once, by main, before threads.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "driver.h"

struct gcpt_driver cu;

#ifdef GCPT_LINKED

static void bind_all(void)
{
#define GCPT_X(name) cu.name = name;
	GCPT_DRIVER_CALLS(GCPT_X)
#undef GCPT_X
}

#else

#define GCPT_STRING(text) #text

static void bind_all(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	if (!library) {
		fprintf(stderr, "no CUDA driver: %s\n", dlerror());
		exit(77);
	}
#define GCPT_X(name)      cu.name = (typeof(name) *)dlsym(library, GCPT_STRING(name));
	GCPT_DRIVER_CALLS(GCPT_X)
#undef GCPT_X
}

#endif

void gcpt_driver_open(void)
{
	CUresult result;

	if (cu.cuInit)
		return;
	bind_all();
	result = cu.cuInit(0);
	if (result) {
		fprintf(stderr, "cuInit: %d, nothing can run\n", (int)result);
		exit(77);
	}
}
