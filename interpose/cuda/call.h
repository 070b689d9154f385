/* SPDX-License-Identifier: MIT */
/*
 * call.h - how a call of the program begins and ends, and how a file defines its hooks.
 *
 * gcp_hook_<name> is what the program's call goes to, at once or where exports.c finds
 * that it needs its hook. It keeps errno, waits at the gate (gate.h), calls the real
 * function alone while everything passes through, and looks at the result.
 */
#ifndef GCP_INTERPOSE_CALL_H
#define GCP_INTERPOSE_CALL_H

#include "../base/process.h"
#include "contexts.h"
#include "resolve.h"

/* How a call goes on: by its hook, which is counted at the gate if GATED; by the real
 * function alone; or it has its answer. In the upper half the errno that it leaves, or
 * the answer. */
enum gcp_call_way { GCP_HOOK_RUNS, GCP_HOOK_GATED, GCP_HOOK_NONE, GCP_HOOK_ANSWERED };
static inline uint64_t gcp_call(enum gcp_call_way way, int value)
{
	return way | (uint64_t)value << 32;
}
uint64_t gcp_call_begin_slow(void *const *real, bool passes, CUdeviceptr freed);
CUresult gcp_call_end_slow(uint64_t call, CUresult result);

/* real: where the real function is noted. often: the common case is done here. passes:
 * the call does not wait at the gate. freed: what it frees, or 0. */
static inline __attribute__((always_inline)) uint64_t
gcp_call_begin(void *const *real, bool often, bool passes, CUdeviceptr freed)
{
	return often && __builtin_expect(atomic_load(&gcp_resolve_done) && *real &&
					     !gcp_process.special,
					 1)
		   ? gcp_call(GCP_HOOK_RUNS, errno)
		   : gcp_call_begin_slow(real, passes, freed);
}

static inline __attribute__((always_inline)) CUresult
gcp_call_end(uint64_t call, bool often, CUresult result)
{
	if (!often || __builtin_expect((uint32_t)call != GCP_HOOK_RUNS, 0))
		return gcp_call_end_slow(call, result);
	errno = (int)(call >> 32);
	return gcp_contexts_note(result);
}

#define GCP_X(name, ...) CUresult gcp_hook_##name GCP_PARAMETERS_##name;
GCP_DRIVER_HOOKS(GCP_X)
#undef GCP_X

/* The program's own call of the real function. */
#define GCP_CALLED(name) gcp_real.name GCP_ARGUMENTS_##name

/* The hook of a function, whose body follows, with the parameters of symbols.list. */
#define GCP_HOOKED(name)                                                               \
	static inline __attribute__((always_inline))                                   \
	CUresult inside_##name GCP_PARAMETERS_##name;                                  \
	GCP_SELDOM_##name CUresult gcp_hook_##name GCP_PARAMETERS_##name               \
	{                                                                              \
		uint64_t call_ =                                                       \
		    gcp_call_begin((void *const *)&gcp_real.name, GCP_OFTEN_##name,    \
				   GCP_PASSES_##name, GCP_FREES_##name);               \
		CUresult result = (CUresult)(call_ >> 32);                             \
                                                                                       \
		if (__builtin_expect((uint32_t)call_ <= GCP_HOOK_GATED, 1))            \
			result = inside_##name GCP_ARGUMENTS_##name;                   \
		else if ((uint32_t)call_ == GCP_HOOK_NONE)                             \
			result = GCP_CALLED(name);                                     \
		return gcp_call_end(call_, GCP_OFTEN_##name, result);                  \
	}                                                                              \
	static inline CUresult inside_##name GCP_PARAMETERS_##name

/* Defines the hooks of a table, each as what its file says in HOOK_<base>: of the real
 * function, the program's call of it, and whether that is for the per-thread default
 * stream. */
#define GCP_HOOK(name, base, version, twin, need)                                      \
	GCP_HOOKED(name)                                                               \
	{                                                                              \
		return HOOK_##base(gcp_real.name, GCP_CALLED(name), twin);             \
	}

#endif
