/* SPDX-License-Identifier: MIT */
/*
 * identity_local.c - opened RTLD_LOCAL: its dependency is visible to itself
 * through RTLD_DEFAULT and to no other library. Exports names of CUDA's that are its
 * own, as stubs and mocks do.
 */
#include <dlfcn.h>

typedef const char *(*answer_fn)(void);

const char *gcpt_private_anchor(void);
const char *gcpt_local_default(void);
const char *gcpt_local_cuda(void);
const char *cudaMalloc(void);
const char *cuMemAlloc_v2(void);

const char *gcpt_local_default(void)
{
	answer_fn private = (answer_fn)dlsym(RTLD_DEFAULT, "gcpt_private");

	return private ? private() : gcpt_private_anchor();
}

const char *gcpt_local_cuda(void)
{
	answer_fn own = (answer_fn)dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");

	return own ? own() : "not found";
}

const char *cudaMalloc(void)
{
	return "local's own cudaMalloc";
}

const char *cuMemAlloc_v2(void)
{
	return "local's own cuMemAlloc_v2";
}
