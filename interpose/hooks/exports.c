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
 *
 * While nothing captures, an entry that submits work costs a few loads before the real
 * function, and a look at its result.
 */

#include "../cuda/contexts.h"
#include "hooks.h"
#include "hooks_memory.h"
#include "marks.h"
#include "../cuda/gate.h"
#include "../process/process_life.h"
#include "../cuda/streams.h"

#define GCP_LIKELY(x) __builtin_expect(!!(x), 1)

/* The hook of a call that may have to wait at the gate. */
#define GCP_GATED(name, parameters, arguments)                                         \
	static __attribute__((noinline, cold)) CUresult gated_##name parameters        \
	{                                                                              \
		CUresult result;                                                       \
                                                                                       \
		if (GCP_PASSES_##name)                                                 \
			return gcp_hook_##name arguments;                              \
		if (GCP_FREES_##name && atomic_load(&gcp_gate.closed) &&               \
		    gcp_gate.free_later(GCP_FREES_##name))                             \
			return CUDA_SUCCESS;                                           \
		result = (CUresult)gcp_gate_enter();                                   \
		if (result == CUDA_SUCCESS) {                                          \
			result = gcp_hook_##name arguments;                            \
			gcp_gate_leave();                                              \
		}                                                                      \
		return result;                                                         \
	}

/* The way of a call that may need its hook. */
#define GCP_CALL_HOOK(name, arguments)                                                 \
	int saved = errno;                                                             \
	CUresult result;                                                               \
                                                                                       \
	gcp_resolve();                                                                 \
	if (!gcp_real.name)                                                            \
		return CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;                      \
	if (__builtin_expect(gcp_process.special, 0)) {                                \
		if (gcp_process_passive())                                             \
			return gcp_real.name arguments;                                \
		result = gated_##name arguments;                                       \
	} else {                                                                       \
		result = gcp_hook_##name arguments;                                    \
	}                                                                              \
	errno = saved;                                                                 \
	return gcp_contexts_note(result);

/* Where the entry, gcp_entry_<name>, jumps to. */
#define GCP_ENTRY(name, parameters) CUresult gcp_called_##name parameters

#define OTHERS_ENTRY(name, base, version, flags, need, parameters, arguments)          \
	GCP_GATED(name, parameters, arguments)                                         \
	GCP_ENTRY(name, parameters)                                                    \
	{                                                                              \
		GCP_CALL_HOOK(name, arguments)                                         \
	}
GCP_HOOKS_OTHERS(OTHERS_ENTRY)

/* Whether the real function is known, and no hook need see the call. */
#define GCP_UNSEEN(name) (!gcp_process_watches() && gcp_real.name)
/* The same of a call in which other devices may take part, if there are some. */
#define GCP_UNSEEN_ALONE(name) (GCP_UNSEEN(name) && !gcp_contexts_are_several())

/* The hook, out of the way of the call that needs none. */
#define GCP_SLOW(name, parameters, arguments)                                          \
	GCP_GATED(name, parameters, arguments)                                         \
	static __attribute__((noinline, cold)) CUresult slow_##name parameters         \
	{                                                                              \
		GCP_CALL_HOOK(name, arguments)                                         \
	}

/* An entry that calls the real function alone where `unseen` is true. */
#define GCP_FAST(name, unseen, parameters, arguments)                                  \
	GCP_SLOW(name, parameters, arguments)                                          \
	GCP_ENTRY(name, parameters)                                                    \
	{                                                                              \
		if (GCP_LIKELY(unseen))                                                \
			return gcp_contexts_note(gcp_real.name arguments);             \
		return slow_##name arguments;                                          \
	}

#define SUBMISSIONS_ENTRY(name, base, version, flags, need, parameters, arguments)     \
	GCP_FAST(name, GCP_UNSEEN(name), parameters, arguments)
GCP_HOOKS_SUBMISSIONS(SUBMISSIONS_ENTRY)
GCP_HOOKS_WAITS(SUBMISSIONS_ENTRY)

#define COPIES_ENTRY(name, base, version, flags, need, parameters, arguments)          \
	GCP_FAST(name, GCP_UNSEEN_ALONE(name), parameters, arguments)
GCP_HOOKS_COPIES(COPIES_ENTRY)
GCP_HOOKS_COPIES_BATCH(COPIES_ENTRY)

#define EVENTS_ENTRY(name, base, version, flags, need, parameters, arguments)          \
	GCP_FAST(name, GCP_UNSEEN(name) && gcp_stream_is_seen(stream, (flags) == 2),   \
		 parameters, arguments)
GCP_HOOKS_EVENTS(EVENTS_ENTRY)

/* A call in the default stream; the table says which addresses it copies or fills. */
#define SUBMISSIONS_SYNC_ENTRY(name, base, version, flags, need, parameters,           \
			       arguments)                                              \
	GCP_SLOW(name, parameters, arguments)                                          \
	GCP_ENTRY(name, parameters)                                                    \
	{                                                                              \
		if (GCP_LIKELY(GCP_UNSEEN_ALONE(name) &&                               \
			       !gcp_marks_any(GCP_MARK_SYNC_MEMOPS)))                  \
			return gcp_contexts_note(gcp_real.name arguments);             \
		return gcp_contexts_note(gcp_sync_memops_wait(                         \
		    slow_##name arguments, GCP_SIDES_##name, (flags) == 2));           \
	}
GCP_HOOKS_SUBMISSIONS_SYNC(SUBMISSIONS_SYNC_ENTRY)
GCP_HOOKS_COPIES_SYNC(SUBMISSIONS_SYNC_ENTRY)

/* From here on not small (meson.build): launches of many arguments would cost more. */
#if defined(__OPTIMIZE_SIZE__) && !defined(__clang__)
#pragma GCC optimize("O2")
#endif

/* A launch, which `otherwise` may make. What lacks memory is launched by the hook once
 * more, after some was given back. */
#define GCP_LAUNCHED(name, unseen, otherwise, parameters, arguments)                   \
	GCP_SLOW(name, parameters, arguments)                                          \
	static __attribute__((noinline, cold)) CUresult again_##name parameters        \
	{                                                                              \
		if (!gcp_launch_reclaims(&(struct gcp_tries){0},                       \
					 CUDA_ERROR_OUT_OF_MEMORY))                    \
			return CUDA_ERROR_OUT_OF_MEMORY;                               \
		return slow_##name arguments;                                          \
	}                                                                              \
	GCP_ENTRY(name, parameters)                                                    \
	{                                                                              \
		CUresult result;                                                       \
                                                                                       \
		if (!GCP_LIKELY(unseen))                                               \
			return slow_##name arguments;                                  \
		otherwise;                                                             \
		result = gcp_real.name arguments;                                      \
		if (GCP_LIKELY(result == CUDA_SUCCESS))                                \
			return result;                                                 \
		return GCP_LIKELY(result != CUDA_ERROR_OUT_OF_MEMORY)                  \
			   ? gcp_contexts_note(result)                                 \
			   : again_##name arguments;                                   \
	}

#define GRAPH_LAUNCHES_ENTRY(name, base, version, flags, need, parameters, arguments)  \
	GCP_LAUNCHED(                                                                  \
	    name, GCP_UNSEEN_ALONE(name) && gcp_stream_is_seen(stream, (flags) == 2),  \
	    if (!GCP_LIKELY(!gcp_process_shares_graphs())) return gcp_contexts_note(   \
		gcp_graph_launch_again(exec, stream, (flags) == 2, gcp_real.name,      \
				       slow_##name)),                                  \
	    parameters, arguments)
GCP_HOOKS_GRAPH_LAUNCHES(GRAPH_LAUNCHES_ENTRY)
/* A GCP_REQUIRED one is known where any is (process_life.c). */
#define LAUNCHES_ENTRY(name, base, version, flags, need, parameters, arguments)        \
	GCP_LAUNCHED(name,                                                             \
		     !gcp_process_watches() &&                                         \
			 ((need) == GCP_REQUIRED || gcp_real.name) &&                  \
			 gcp_stream_is_seen(stream, (flags) == 2),                     \
		     , parameters, arguments)
GCP_HOOKS_LAUNCHES(LAUNCHES_ENTRY)
#define LAUNCHES_BY_CONFIG_ENTRY(name, base, version, flags, need, parameters,         \
				 arguments)                                            \
	GCP_LAUNCHED(                                                                  \
	    name,                                                                      \
	    GCP_UNSEEN(name) &&                                                        \
		gcp_stream_is_seen(config ? config->hStream : NULL, (flags) == 2),     \
	    , parameters, arguments)
GCP_HOOKS_LAUNCHES_BY_CONFIG(LAUNCHES_BY_CONFIG_ENTRY)
