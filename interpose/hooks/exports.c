/* SPDX-License-Identifier: MIT */
/*
 * exports.c - where calls go that seldom need their hooks, and how a call begins and
 * ends that does. The entry of each is a stub (exports_stubs.S).
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

#include "hooks.h"
#include "hooks_memory.h"
#include "../cuda/gate.h"
#include "../process/process_life.h"
#include "../cuda/streams.h"

#define GCP_LIKELY(x) __builtin_expect(!!(x), 1)

uint64_t gcp_call_begin_slow(void *const *real, bool passes, CUdeviceptr freed)
{
	int saved = errno, result;

	assert(!freed || !passes); /* to free waits at the gate */
	gcp_resolve();
	if (!*real)
		return gcp_call(GCP_HOOK_ANSWERED,
				CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND);
	if (GCP_LIKELY(!gcp_process.special))
		return gcp_call(GCP_HOOK_RUNS, saved);
	if (gcp_process_passive())
		return gcp_call(GCP_HOOK_NONE, saved);
	if (passes)
		return gcp_call(GCP_HOOK_RUNS, saved);
	if (freed && atomic_load(&gcp_gate.closed) && gcp_gate.free_later(freed))
		return gcp_call(GCP_HOOK_ANSWERED, CUDA_SUCCESS);
	result = gcp_gate_enter();
	return result == 0 ? gcp_call(GCP_HOOK_GATED, saved)
			   : gcp_call(GCP_HOOK_ANSWERED, result);
}

CUresult gcp_call_end_slow(uint64_t call, CUresult result)
{
	assert((uint32_t)call <= GCP_HOOK_ANSWERED);
	if ((uint32_t)call > GCP_HOOK_GATED)
		return result;
	if ((uint32_t)call == GCP_HOOK_GATED)
		gcp_gate_leave();
	errno = (int)(call >> 32);
	return gcp_contexts_note(result);
}

/* The function that the entry, gcp_entry_<name>, jumps to, and a call of the hook. */
#define GCP_ENTRY(name)                                                                \
	CUresult gcp_called_##name GCP_PARAMETERS_##name;                              \
	CUresult gcp_called_##name GCP_PARAMETERS_##name
#define GCP_HOOK_OF(name) gcp_hook_##name GCP_ARGUMENTS_##name

/* True if the real function is known, and no hook need see the call. */
#define GCP_UNSEEN(name) (!gcp_process_watches() && gcp_real.name)
/* The same of a call in which other devices may take part, if there are some. */
#define GCP_UNSEEN_ALONE(name) (GCP_UNSEEN(name) && !gcp_contexts_are_several())

/* An entry that calls the real function alone where `unseen` is true. */
#define GCP_FAST(name, unseen)                                                         \
	GCP_ENTRY(name)                                                                \
	{                                                                              \
		if (GCP_LIKELY(unseen))                                                \
			return gcp_contexts_note(GCP_CALLED(name));                    \
		return GCP_HOOK_OF(name);                                              \
	}

#define SUBMISSIONS_ENTRY(name, ...) GCP_FAST(name, GCP_UNSEEN(name))
GCP_HOOKS_SUBMISSIONS(SUBMISSIONS_ENTRY)
GCP_HOOKS_WAITS(SUBMISSIONS_ENTRY)

#define COPIES_ENTRY(name, ...) GCP_FAST(name, GCP_UNSEEN_ALONE(name))
GCP_HOOKS_COPIES(COPIES_ENTRY)
GCP_HOOKS_COPIES_BATCH(COPIES_ENTRY)

#define EVENTS_ENTRY(name, base, version, twin, need)                                  \
	GCP_FAST(name, GCP_UNSEEN(name) && gcp_stream_is_seen(stream, twin))
GCP_HOOKS_EVENTS(EVENTS_ENTRY)

/* In the default stream; a block may have GCP_MARK_SYNC_MEMOPS. */
#define SYNC_ENTRY(name, ...)                                                          \
	GCP_FAST(name, GCP_UNSEEN_ALONE(name) && !gcp_marks_any(GCP_MARK_SYNC_MEMOPS))
GCP_HOOKS_SUBMISSIONS_SYNC(SYNC_ENTRY)
GCP_HOOKS_COPIES_SYNC(SYNC_ENTRY)

/* From here on not small (meson.build): launches of many arguments would cost more. */
#if defined(__OPTIMIZE_SIZE__) && !defined(__clang__)
#pragma GCC optimize("O2")
#endif

/* A launch. What lacks memory is launched by the hook once more, which gives some back
 * if it lacks it again. */
#define GCP_LAUNCHED(name, unseen)                                                     \
	GCP_ENTRY(name)                                                                \
	{                                                                              \
		CUresult result;                                                       \
                                                                                       \
		if (!GCP_LIKELY(unseen))                                               \
			return GCP_HOOK_OF(name);                                      \
		result = GCP_CALLED(name);                                             \
		if (GCP_LIKELY(result == CUDA_SUCCESS))                                \
			return result;                                                 \
		return GCP_LIKELY(result != CUDA_ERROR_OUT_OF_MEMORY)                  \
			   ? gcp_contexts_note(result)                                 \
			   : GCP_HOOK_OF(name);                                        \
	}

#define GRAPH_LAUNCHES_ENTRY(name, base, version, twin, need)                          \
	GCP_LAUNCHED(name, GCP_UNSEEN_ALONE(name) &&                                   \
			       gcp_stream_is_seen(stream, twin) &&                     \
			       !gcp_process_shares_graphs())
GCP_HOOKS_GRAPH_LAUNCHES(GRAPH_LAUNCHES_ENTRY)
/* A GCP_REQUIRED one is known where any is (process_life.c). */
#define LAUNCHES_ENTRY(name, base, version, twin, need)                                \
	GCP_LAUNCHED(name, !gcp_process_watches() &&                                   \
			       ((need) == GCP_REQUIRED || gcp_real.name) &&            \
			       gcp_stream_is_seen(stream, twin))
GCP_HOOKS_LAUNCHES(LAUNCHES_ENTRY)
#define LAUNCHES_BY_CONFIG_ENTRY(name, base, version, twin, need)                      \
	GCP_LAUNCHED(name,                                                             \
		     GCP_UNSEEN(name) &&                                               \
			 gcp_stream_is_seen(config ? config->hStream : NULL, twin))
GCP_HOOKS_LAUNCHES_BY_CONFIG(LAUNCHES_BY_CONFIG_ENTRY)
