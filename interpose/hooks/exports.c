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

#include <errno.h>

#include "../cuda/contexts.h"
#include "hooks.h"
#include "hooks_memory.h"
#include "../base/process.h"
#include "../process/process_life.h"
#include "../cuda/resolve.h"
#include "../cuda/streams.h"
#include "sync_memops.h"

#define GCP_LIKELY(x) __builtin_expect(!!(x), 1)

/* The way of a call that may need its hook. */
#define GCP_CALL_HOOK(name, arguments)                                                 \
	int saved = errno;                                                             \
	CUresult result;                                                               \
                                                                                       \
	gcp_resolve();                                                                 \
	if (!gcp_real.name)                                                            \
		return CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;                      \
	if (__builtin_expect(gcp_process.special, 0) && gcp_process_passive())         \
		return gcp_real.name arguments;                                        \
	result = gcp_hook_##name arguments;                                            \
	errno = saved;                                                                 \
	return gcp_contexts_note(result);

/* Where the entry, gcp_entry_<name>, jumps to. */
#define GCP_ENTRY(name, parameters) CUresult gcp_called_##name parameters

#define GCP_X(name, base, version, flags, need, parameters, arguments)                 \
	GCP_ENTRY(name, parameters)                                                    \
	{                                                                              \
		GCP_CALL_HOOK(name, arguments)                                         \
	}
GCP_HOOKS_OTHERS(GCP_X)
#undef GCP_X

/* Whether the real function is known, and no hook need see the call. */
#define GCP_UNSEEN(name) (!gcp_process_watches() && gcp_real.name)
/* The same for a GCP_REQUIRED one: it is known where any is (process_life.c). */
#define GCP_UNSEEN_REQUIRED(need)                                                      \
	({                                                                             \
		_Static_assert((need) == GCP_REQUIRED, "it may be missing");           \
		!gcp_process_watches();                                                \
	})

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

#define GCP_X(name, base, version, flags, need, parameters, arguments)                 \
	GCP_FAST(name, GCP_UNSEEN(name), parameters, arguments)
GCP_HOOKS_SUBMISSIONS(GCP_X)
GCP_HOOKS_WAITS(GCP_X)
#undef GCP_X

/* Which addresses a call in the default stream copies or fills, by its name. */
#define GCP_TO_FROM                                    to, from
#define GCP_TO                                         to, 0
#define GCP_FROM                                       0, from
#define GCP_SIDE(which)                                (copy ? copy->which##Device : 0)
#define GCP_COPY_SIDES                                 GCP_SIDE(dst), GCP_SIDE(src)
#define GCP_NO_SIDES                                   0, 0
#define GCP_SIDES_cuMemcpy                             GCP_TO_FROM
#define GCP_SIDES_cuMemcpyHtoD                         GCP_TO
#define GCP_SIDES_cuMemcpyDtoH                         GCP_FROM
#define GCP_SIDES_cuMemcpyDtoD                         GCP_TO_FROM
#define GCP_SIDES_cuMemcpyDtoA                         GCP_FROM
#define GCP_SIDES_cuMemcpyAtoD                         GCP_TO
#define GCP_SIDES_cuMemcpy2D                           GCP_COPY_SIDES
#define GCP_SIDES_cuMemcpy2DUnaligned                  GCP_COPY_SIDES
#define GCP_SIDES_cuMemcpy3D                           GCP_COPY_SIDES
#define GCP_SIDES_cuMemcpyPeer                         GCP_TO_FROM
#define GCP_SIDES_cuMemcpy3DPeer                       GCP_COPY_SIDES
#define GCP_SIDES_cuMemsetD8                           GCP_TO
#define GCP_SIDES_cuMemsetD2D8                         GCP_TO
#define GCP_SIDES_cuMemsetD16                          GCP_TO
#define GCP_SIDES_cuMemsetD2D16                        GCP_TO
#define GCP_SIDES_cuMemsetD32                          GCP_TO
#define GCP_SIDES_cuMemsetD2D32                        GCP_TO
#define GCP_SIDES_cuMemcpyHtoA                         GCP_NO_SIDES
#define GCP_SIDES_cuMemcpyAtoH                         GCP_NO_SIDES
#define GCP_SIDES_cuMemcpyAtoA                         GCP_NO_SIDES
#define GCP_SIDES_cuLaunch                             GCP_NO_SIDES
#define GCP_SIDES_cuLaunchGrid                         GCP_NO_SIDES
#define GCP_SIDES_cuLaunchCooperativeKernelMultiDevice GCP_NO_SIDES

#define GCP_SYNC(name, flags, unseen, sides, parameters, arguments)                    \
	GCP_SLOW(name, parameters, arguments)                                          \
	GCP_ENTRY(name, parameters)                                                    \
	{                                                                              \
		if (GCP_LIKELY((unseen) && !gcp_sync_memops_any()))                    \
			return gcp_contexts_note(gcp_real.name arguments);             \
		return gcp_contexts_note(                                              \
		    gcp_sync_memops_wait(slow_##name arguments, sides, (flags) == 2)); \
	}

#define GCP_X(name, base, version, flags, need, parameters, arguments)                 \
	GCP_SYNC(name, flags, GCP_UNSEEN(name), GCP_SIDES_##base, parameters, arguments)
GCP_HOOKS_SUBMISSIONS_SYNC(GCP_X)
#undef GCP_X
#define GCP_X(name, base, version, flags, need, parameters, arguments)                 \
	GCP_SYNC(name, flags, GCP_UNSEEN(name) && !gcp_contexts_are_several(),         \
		 GCP_SIDES_##base, parameters, arguments)
GCP_HOOKS_COPIES_SYNC(GCP_X)
#undef GCP_X

/* With several contexts another device may take part. */
#define GCP_X(name, base, version, flags, need, parameters, arguments)                 \
	GCP_FAST(name, GCP_UNSEEN(name) && !gcp_contexts_are_several(), parameters,    \
		 arguments)
GCP_HOOKS_COPIES(GCP_X)
GCP_HOOKS_COPIES_BATCH(GCP_X)
#undef GCP_X

/* What lacks memory is launched by the hook once more, after some was given back. */
#define GCP_AGAIN(name, parameters, arguments)                                         \
	static __attribute__((noinline, cold)) CUresult again_##name parameters        \
	{                                                                              \
		if (!gcp_launch_reclaims(&(struct gcp_tries){0},                       \
					 CUDA_ERROR_OUT_OF_MEMORY))                    \
			return CUDA_ERROR_OUT_OF_MEMORY;                               \
		return slow_##name arguments;                                          \
	}

#define GCP_LACKS_MEMORY(result)                                                       \
	__builtin_expect((result) == CUDA_ERROR_OUT_OF_MEMORY, 0)

#define GCP_X(name, base, version, flags, need, parameters, arguments)                 \
	GCP_SLOW(name, parameters, arguments)                                          \
	GCP_AGAIN(name, parameters, arguments)                                         \
	GCP_ENTRY(name, parameters)                                                    \
	{                                                                              \
		CUresult result;                                                       \
                                                                                       \
		if (!GCP_LIKELY(GCP_UNSEEN(name) && !gcp_contexts_are_several()))      \
			return slow_##name arguments;                                  \
		if (!GCP_LIKELY(!gcp_process_shares_graphs()))                         \
			return gcp_contexts_note(gcp_graph_launch_again(               \
			    exec, stream, (flags) == 2, gcp_real.name, slow_##name));  \
		result = gcp_real.name arguments;                                      \
		if (GCP_LIKELY(result == CUDA_SUCCESS))                                \
			return result;                                                 \
		return GCP_LACKS_MEMORY(result) ? again_##name arguments               \
						: gcp_contexts_note(result);           \
	}
GCP_HOOKS_GRAPH_LAUNCHES(GCP_X)
#undef GCP_X

#define GCP_X(name, base, version, flags, need, parameters, arguments)                 \
	GCP_FAST(name, GCP_UNSEEN(name) && gcp_stream_is_seen(stream, (flags) == 2),   \
		 parameters, arguments)
GCP_HOOKS_EVENTS(GCP_X)
#undef GCP_X

/* A launch that needs no hook. */
#define GCP_LAUNCHED(name, unseen, stream, per_thread, parameters, arguments)          \
	GCP_SLOW(name, parameters, arguments)                                          \
	GCP_AGAIN(name, parameters, arguments)                                         \
	GCP_ENTRY(name, parameters)                                                    \
	{                                                                              \
		CUresult result;                                                       \
                                                                                       \
		if (!GCP_LIKELY((unseen) && gcp_stream_is_seen(stream, per_thread)))   \
			return slow_##name arguments;                                  \
		result = gcp_real.name arguments;                                      \
		if (GCP_LIKELY(result == CUDA_SUCCESS))                                \
			return result;                                                 \
		return GCP_LACKS_MEMORY(result) ? again_##name arguments               \
						: gcp_contexts_note(result);           \
	}

#define GCP_X(name, base, version, flags, need, parameters, arguments)                 \
	GCP_LAUNCHED(name, GCP_UNSEEN_REQUIRED(need), stream, (flags) == 2,            \
		     parameters, arguments)
GCP_HOOKS_LAUNCHES(GCP_X)
#undef GCP_X
#define GCP_X(name, base, version, flags, need, parameters, arguments)                 \
	GCP_LAUNCHED(name, GCP_UNSEEN(name), stream, (flags) == 2, parameters,         \
		     arguments)
GCP_HOOKS_LAUNCHES_COOPERATIVE(GCP_X)
#undef GCP_X
#define GCP_X(name, base, version, flags, need, parameters, arguments)                 \
	GCP_LAUNCHED(name, GCP_UNSEEN(name), config ? config->hStream : NULL,          \
		     (flags) == 2, parameters, arguments)
GCP_HOOKS_LAUNCHES_BY_CONFIG(GCP_X)
#undef GCP_X
