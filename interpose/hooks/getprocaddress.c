/* SPDX-License-Identifier: MIT */
/*
 * getprocaddress.c - the hooks on cuGetProcAddress. The real one answers first; only
 * then the pointer that it gave, if it is a function that we hook, becomes its
 * hook. So whatever version and stream flavour the program asked for, the hook
 * has the same parameters. Runs before cuInit: starts nothing.
 */
#include "../cuda/call.h"
#include "../cuda/unknown_calls.h"

enum { KNOWN_CUDA = 13000 }; /* of which symbols.list names the functions */

/* Whether a program of that version of CUDA gets another function of the name than one
 * of KNOWN_CUDA. */
static bool is_newer(const char *symbol, void *real, int version, cuuint64_t flags)
{
	void *known = NULL;
	int status;

	return version > KNOWN_CUDA && gcp_real.cuGetProcAddress_v2 &&
	       (gcp_real.cuGetProcAddress_v2(symbol, &known, KNOWN_CUDA, flags,
					     &status) != CUDA_SUCCESS ||
		known != real);
}

/* What the program gets in the place of the function that the driver gave. */
static void *lookup_answer(const char *symbol, void *real, int version,
			   cuuint64_t flags)
{
	void *hook = gcp_resolve_hook(real);

	if (hook != real || !real)
		return hook;
	return gcp_unknown_call_wrap(symbol, real,
				     gcp_known_call(symbol) &&
					 is_newer(symbol, real, version, flags));
}

static CUresult looked_up(CUresult result, const char *symbol, void **ret_fn,
			  int version, cuuint64_t flags)
{
	if (result == CUDA_SUCCESS && ret_fn)
		*ret_fn = lookup_answer(symbol, *ret_fn, version, flags);
	return result;
}

#define HOOK_cuGetProcAddress(real, call, twin)                                        \
	looked_up(call, symbol, ret_fn, version, flags)
GCP_HOOKS_LOOKUP(GCP_HOOK)
