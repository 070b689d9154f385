/* SPDX-License-Identifier: MIT */
/*
 * getprocaddress.c - the hooks on cuGetProcAddress. The real one answers first; only
 * then the pointer that it gave, if it is a function that we hook, becomes its
 * hook. So whatever version and stream flavour the program asked for, the hook
 * has the same parameters. Runs before cuInit: starts nothing.
 */
#include "hooks.h"
#include "../cuda/resolve.h"
#include "../cuda/unknown_calls.h"

/* What the program gets in the place of the function that the driver gave. */
static void *lookup_answer(const char *symbol, void *real)
{
	void *hook = gcp_resolve_hook(real);

	return hook != real ? hook : gcp_unknown_call_wrap(symbol, real);
}

CUresult gcp_hook_cuGetProcAddress(const char *symbol, void **ret_fn, int version,
				   cuuint64_t flags)
{
	CUresult result = gcp_real.cuGetProcAddress(symbol, ret_fn, version, flags);

	if (result == CUDA_SUCCESS && ret_fn)
		*ret_fn = lookup_answer(symbol, *ret_fn);
	return result;
}

CUresult gcp_hook_cuGetProcAddress_v2(const char *symbol, void **ret_fn, int version,
				      cuuint64_t flags, int *ret_status)
{
	CUresult result =
	    gcp_real.cuGetProcAddress_v2(symbol, ret_fn, version, flags, ret_status);

	if (result == CUDA_SUCCESS && ret_fn)
		*ret_fn = lookup_answer(symbol, *ret_fn);
	return result;
}
