/* SPDX-License-Identifier: MIT */
/*
 * exports.c - what the program calls: one entry for each hooked symbol. The entry
 * itself is a stub (exports_stubs.S), which goes on to gcp_called_<name> here.
 *
 * The exported names carry a symbol version that is hidden ("@", not "@@") and
 * is the first one defined. The loader accepts such a symbol for a reference
 * without a version, as programs linked with libcuda have it, and dlsym never
 * returns it (glibc, do_lookup_x: "Don't accept hidden symbols"), so that we
 * are invisible to look-ups. libgcpool.map puts GCPOOL first.
 *
 * A library may patch the code of what it looks up as cuMemFree, to learn of every
 * free (UCX). It gets the entry, so all frees of the program go through the entry: the
 * short cut of hooks_runtime.c is taken only while nothing is patched.
 */
#include <errno.h>

#include "hooks.h"
#include "observe.h"
#include "process.h"
#include "resolve.h"

#define GCP_X(name, base, version, flags, need, parameters, arguments)                 \
	CUresult gcp_called_##name parameters                                          \
	{                                                                              \
		int saved = errno;                                                     \
		CUresult result;                                                       \
                                                                                       \
		gcp_resolve();                                                         \
		if (!gcp_real.name)                                                    \
			return CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;              \
		if (__builtin_expect(gcp_process.special, 0)) {                        \
			if (gcp_process_passive())                                     \
				return gcp_real.name arguments;                        \
			gcp_observe_enter((uintptr_t)__builtin_return_address(0),      \
					  gcp_frame_register());                       \
		}                                                                      \
		result = gcp_hook_##name arguments;                                    \
		errno = saved;                                                         \
		return result;                                                         \
	}
GCP_DRIVER_HOOKS(GCP_X)
#undef GCP_X
