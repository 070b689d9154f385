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

/* How a call goes on: by its hook, which is counted at the gate if GATED; by the real
 * function alone; or it has its answer. The hook leaves errno as it was. */
struct called {
	enum { HOOKED, GATED, REAL, ANSWERED } way;
	int value; /* errno; ANSWERED: the result */
};

/* real: where the real function is noted. passes: the call does not wait at the gate.
 * freed: what it frees, or 0. */
static __attribute__((noinline)) struct called
call_begin(void *const *real, bool passes, CUdeviceptr freed)
{
	struct called called = {HOOKED, errno};
	int result;

	gcp_resolve();
	if (!*real)
		return (struct called){ANSWERED,
				       CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND};
	if (GCP_LIKELY(!gcp_process.special))
		return called;
	if (gcp_process_passive())
		called.way = REAL;
	if (passes || called.way == REAL)
		return called;
	if (freed && atomic_load(&gcp_gate.closed) && gcp_gate.free_later(freed))
		return (struct called){ANSWERED, CUDA_SUCCESS};
	result = gcp_gate_enter();
	return result == 0 ? (struct called){GATED, called.value}
			   : (struct called){ANSWERED, result};
}

static __attribute__((noinline)) CUresult call_end(struct called called,
						   CUresult result)
{
	assert(called.way == HOOKED || called.way == GATED);
	if (called.way == GATED)
		gcp_gate_leave();
	errno = called.value;
	return gcp_contexts_note(result);
}

/* The way of a call that may need its hook. */
#define GCP_CALL_HOOK(name, arguments)                                                 \
	struct called called = call_begin((void *const *)&gcp_real.name,               \
					  GCP_PASSES_##name, GCP_FREES_##name);        \
                                                                                       \
	if (__builtin_expect(called.way == REAL, 0))                                   \
		return gcp_real.name arguments;                                        \
	if (__builtin_expect(called.way == ANSWERED, 0))                               \
		return (CUresult)called.value;                                         \
	return call_end(called, gcp_hook_##name arguments);

/* Where the entry, gcp_entry_<name>, jumps to. */
#define GCP_ENTRY(name, parameters) CUresult gcp_called_##name parameters

/* Allocations and frees: what most of them need around their hook is done here. */
#define OFTEN_ENTRY(name, base, version, flags, need, parameters, arguments)           \
	GCP_ENTRY(name, parameters)                                                    \
	{                                                                              \
		if (GCP_LIKELY(atomic_load(&gcp_resolve_done) && gcp_real.name &&      \
			       !gcp_process.special)) {                                \
			int saved = errno;                                             \
			CUresult result = gcp_hook_##name arguments;                   \
                                                                                       \
			errno = saved;                                                 \
			return gcp_contexts_note(result);                              \
		}                                                                      \
		GCP_CALL_HOOK(name, arguments)                                         \
	}
GCP_HOOKS_OFTEN(OFTEN_ENTRY)

#define OTHERS_ENTRY(name, base, version, flags, need, parameters, arguments)          \
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
 * more, which gives some back if it lacks it again. */
#define GCP_LAUNCHED(name, unseen, otherwise, parameters, arguments)                   \
	GCP_SLOW(name, parameters, arguments)                                          \
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
			   : slow_##name arguments;                                    \
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
