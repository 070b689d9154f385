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
 * While nothing captures, an entry that submits work costs a few loads, and jumps to
 * the real function.
 */
#include <errno.h>

#include "../cuda/contexts.h"
#include "hooks.h"
#include "hooks_memory.h"
#include "../observe/observe.h"
#include "../base/process.h"
#include "../process/process_life.h"
#include "../cuda/resolve.h"
#include "../cuda/streams.h"
#include "handles.h"

#define GCP_LIKELY(x) __builtin_expect(!!(x), 1)

/* The way of a call that may need its hook. */
#define GCP_CALL_HOOK(name, arguments, observe)                                        \
	int saved = errno;                                                             \
	CUresult result;                                                               \
                                                                                       \
	gcp_resolve();                                                                 \
	if (!gcp_real.name)                                                            \
		return CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;                      \
	if (__builtin_expect(gcp_process.special, 0)) {                                \
		if (gcp_process_passive())                                             \
			return gcp_real.name arguments;                                \
		observe;                                                               \
	}                                                                              \
	result = gcp_hook_##name arguments;                                            \
	errno = saved;                                                                 \
	return result;

/* Where the entry, gcp_entry_<name>, jumps to. */
#define GCP_ENTRY(name, parameters) CUresult gcp_called_##name parameters

/* Where calls are observed. It is the last thing that an entry does: by then the
 * register of the frame pointer is as the program left it. */
#define GCP_WATCHED(name, parameters, arguments)                                       \
	static __attribute__((noinline, cold)) CUresult watched_##name parameters      \
	{                                                                              \
		int saved = errno;                                                     \
		CUresult result;                                                       \
                                                                                       \
		gcp_observe_enter_frame(gcp_frame_register());                         \
		result = gcp_hook_##name arguments;                                    \
		errno = saved;                                                         \
		return result;                                                         \
	}

#define GCP_X(name, base, version, flags, need, parameters, arguments)                 \
	GCP_WATCHED(name, parameters, arguments)                                       \
	GCP_ENTRY(name, parameters)                                                    \
	{                                                                              \
		GCP_CALL_HOOK(                                                         \
		    name, arguments,                                                   \
		    gcp_observe_enter((uintptr_t)__builtin_return_address(0), 0);      \
		    return watched_##name arguments)                                   \
	}
GCP_HOOKS_OTHERS(GCP_X)
#undef GCP_X

/* Whether the real function is known, and no hook need see the call. */
#define GCP_UNSEEN(name) (!gcp_process_watches() && gcp_real.name)

/* The hook, out of the way of the call that needs none. */
#define GCP_SLOW(name, parameters, arguments)                                          \
	static __attribute__((noinline, cold)) CUresult slow_##name parameters         \
	{                                                                              \
		GCP_CALL_HOOK(name, arguments, (void)0)                                \
	}

#define GCP_X(name, base, version, flags, need, parameters, arguments)                 \
	GCP_SLOW(name, parameters, arguments)                                          \
	GCP_ENTRY(name, parameters)                                                    \
	{                                                                              \
		if (GCP_LIKELY(GCP_UNSEEN(name)))                                      \
			return gcp_real.name arguments;                                \
		return slow_##name arguments;                                          \
	}
GCP_HOOKS_SUBMISSIONS(GCP_X)
GCP_HOOKS_SUBMISSIONS_SYNC(GCP_X)
#undef GCP_X

/* With several contexts another device may take part. */
#define GCP_X(name, base, version, flags, need, parameters, arguments)                 \
	GCP_SLOW(name, parameters, arguments)                                          \
	GCP_ENTRY(name, parameters)                                                    \
	{                                                                              \
		if (GCP_LIKELY(GCP_UNSEEN(name) && !gcp_contexts_are_several()))       \
			return gcp_real.name arguments;                                \
		return slow_##name arguments;                                          \
	}
GCP_HOOKS_COPIES(GCP_X)
GCP_HOOKS_COPIES_BATCH(GCP_X)
GCP_HOOKS_COPIES_SYNC(GCP_X)
#undef GCP_X

/* What lacks memory is launched by the hook once more, after some was given back. */
#define GCP_RETURN_LAUNCHED(result)                                                    \
	if (GCP_LIKELY((result) != CUDA_ERROR_OUT_OF_MEMORY) ||                        \
	    !gcp_launch_reclaims(&(struct gcp_tries){0}, result))                      \
		return result;

#define GCP_X(name, base, version, flags, need, parameters, arguments)                 \
	GCP_SLOW(name, parameters, arguments)                                          \
	GCP_ENTRY(name, parameters)                                                    \
	{                                                                              \
		if (!GCP_LIKELY(GCP_UNSEEN(name) && !gcp_contexts_are_several()))      \
			return slow_##name arguments;                                  \
		if (GCP_LIKELY(!gcp_process_shares_graphs())) {                        \
			CUresult result = gcp_real.name arguments;                     \
                                                                                       \
			GCP_RETURN_LAUNCHED(result)                                    \
			return slow_##name arguments;                                  \
		}                                                                      \
		return gcp_graph_launch_again(exec, stream, (flags) == 2,              \
					      gcp_real.name, slow_##name);             \
	}
GCP_HOOKS_GRAPH_LAUNCHES(GCP_X)
#undef GCP_X

#define GCP_X(name, base, version, flags, need, parameters, arguments)                 \
	GCP_SLOW(name, parameters, arguments)                                          \
	GCP_ENTRY(name, parameters)                                                    \
	{                                                                              \
		if (!GCP_LIKELY(GCP_UNSEEN(name)))                                     \
			return slow_##name arguments;                                  \
		gcp_stream_seen(stream, (flags) == 2);                                 \
		return gcp_real.name arguments;                                        \
	}
GCP_HOOKS_EVENTS(GCP_X)
#undef GCP_X

/* The variable has its place in memory from here on: in no register that had to be
 * saved for it. */
#define GCP_IN_MEMORY(variable) __asm__("" : "+m"(variable))

#define GCP_LAUNCH(name, arguments, stream, per_thread, again)                         \
	if (GCP_LIKELY(GCP_UNSEEN(name))) {                                            \
		CUresult result = gcp_real.name arguments;                             \
                                                                                       \
		gcp_stream_seen(stream, per_thread);                                   \
		GCP_RETURN_LAUNCHED(result)                                            \
	}                                                                              \
	return slow_##name again;

/* What came in registers is kept beside; what came in memory stays there. */
#define GCP_X(name, base, version, flags, need, types, arguments)                      \
	GCP_SLOW(name, types, arguments)                                               \
	GCP_ENTRY(name, types)                                                         \
	{                                                                              \
		CUfunction function_kept = function;                                   \
		unsigned int x = grid_x, y = grid_y, z = grid_z;                       \
		unsigned int block_x_kept = block_x, block_y_kept = block_y;           \
                                                                                       \
		GCP_IN_MEMORY(function_kept);                                          \
		GCP_IN_MEMORY(x);                                                      \
		GCP_IN_MEMORY(y);                                                      \
		GCP_IN_MEMORY(z);                                                      \
		GCP_IN_MEMORY(block_x_kept);                                           \
		GCP_IN_MEMORY(block_y_kept);                                           \
		GCP_IN_MEMORY(block_z);                                                \
		GCP_IN_MEMORY(shared_bytes);                                           \
		GCP_IN_MEMORY(stream);                                                 \
		GCP_IN_MEMORY(parameters);                                             \
		GCP_IN_MEMORY(extra);                                                  \
		GCP_LAUNCH(name, arguments, stream, (flags) == 2,                      \
			   (function_kept, x, y, z, block_x_kept, block_y_kept,        \
			    block_z, shared_bytes, stream, parameters, extra))         \
	}
GCP_HOOKS_LAUNCHES(GCP_X)
#undef GCP_X
#define GCP_X(name, base, version, flags, need, parameters, arguments)                 \
	GCP_SLOW(name, parameters, arguments)                                          \
	GCP_ENTRY(name, parameters)                                                    \
	{                                                                              \
		GCP_LAUNCH(name, arguments, config ? config->hStream : NULL,           \
			   (flags) == 2, arguments)                                    \
	}
GCP_HOOKS_LAUNCHES_BY_CONFIG(GCP_X)
#undef GCP_X
#define GCP_X(name, base, version, flags, need, parameters, arguments)                 \
	GCP_SLOW(name, parameters, arguments)                                          \
	GCP_ENTRY(name, parameters)                                                    \
	{                                                                              \
		GCP_LAUNCH(name, arguments, stream, (flags) == 2, arguments)           \
	}
GCP_HOOKS_LAUNCHES_COOPERATIVE(GCP_X)
#undef GCP_X

/* --- libraries whose handles are pooled --------------------------------------- */

/* What a program linked with cuBLAS, cuDNN, ... calls: two
 * entries for each row of GCP_HANDLE_LIBRARIES.
 *
 * The exported names carry the library's own symbol version, hidden ("@"), as those
 * of cudart do (hooks_runtime.c): only references to that version of the library bind
 * them, and dlsym never finds them. */

#define GCP_X(tag, soname, kind, create, destroy)                                      \
	GCP_VERSIONED(gcp_entry_##tag##_create, #create "@" soname)                    \
	__attribute__((visibility("default"))) int gcp_entry_##tag##_create(           \
	    void **ret_handle)                                                         \
	{                                                                              \
		return gcp_handles_create(                                             \
		    &gcp_handle_libraries[GCP_HANDLE_INDEX_##tag], ret_handle);        \
	}                                                                              \
	GCP_VERSIONED(gcp_entry_##tag##_destroy, #destroy "@" soname)                  \
	__attribute__((visibility("default"))) int gcp_entry_##tag##_destroy(          \
	    void *handle)                                                              \
	{                                                                              \
		return gcp_handles_destroy(                                            \
		    &gcp_handle_libraries[GCP_HANDLE_INDEX_##tag], handle);            \
	}
GCP_HANDLE_LIBRARIES(GCP_X)
#undef GCP_X
