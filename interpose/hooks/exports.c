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

/* Arguments in memory go on as the caller has just written them, eight bytes at a time:
 * a load of more than that would wait for the writes. */
#if defined(__x86_64__) && !defined(__clang__) && __GNUC__ >= 11
#pragma GCC target("general-regs-only")
#endif

#include <errno.h>

#include "../cuda/contexts.h"
#include "hooks.h"
#include "hooks_memory.h"
#include "../observe/observer.h"
#include "../base/process.h"
#include "../process/process_life.h"
#include "../cuda/resolve.h"
#include "../cuda/streams.h"
#include "sync_memops.h"

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
	return gcp_contexts_note(result);

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
		gcp_observe_enter(GCP_ENTRY_FRAME, 0, gcp_frame_register());           \
		result = gcp_hook_##name arguments;                                    \
		errno = saved;                                                         \
		return gcp_contexts_note(result);                                      \
	}

#define GCP_X(name, base, version, flags, need, parameters, arguments)                 \
	GCP_WATCHED(name, parameters, arguments)                                       \
	GCP_ENTRY(name, parameters)                                                    \
	{                                                                              \
		GCP_CALL_HOOK(                                                         \
		    name, arguments,                                                   \
		    gcp_observe_enter(GCP_ENTRY_DRIVER,                                \
				      (uintptr_t)__builtin_return_address(0), 0);      \
		    return watched_##name arguments)                                   \
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
		GCP_CALL_HOOK(name, arguments, (void)0)                                \
	}

#define GCP_X(name, base, version, flags, need, parameters, arguments)                 \
	GCP_SLOW(name, parameters, arguments)                                          \
	GCP_ENTRY(name, parameters)                                                    \
	{                                                                              \
		if (GCP_LIKELY(GCP_UNSEEN(name)))                                      \
			return gcp_contexts_note(gcp_real.name arguments);             \
		return slow_##name arguments;                                          \
	}
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
	GCP_SLOW(name, parameters, arguments)                                          \
	GCP_ENTRY(name, parameters)                                                    \
	{                                                                              \
		if (GCP_LIKELY(GCP_UNSEEN(name) && !gcp_contexts_are_several()))       \
			return gcp_contexts_note(gcp_real.name arguments);             \
		return slow_##name arguments;                                          \
	}
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
	GCP_SLOW(name, parameters, arguments)                                          \
	GCP_ENTRY(name, parameters)                                                    \
	{                                                                              \
		if (GCP_LIKELY(GCP_UNSEEN(name) &&                                     \
			       gcp_stream_is_seen(stream, (flags) == 2)))              \
			return gcp_contexts_note(gcp_real.name arguments);             \
		return slow_##name arguments;                                          \
	}
GCP_HOOKS_EVENTS(GCP_X)
#undef GCP_X

/* The variable has its place in memory from here on: in no register that had to be
 * saved for it. */
#define GCP_IN_MEMORY(variable) __asm__("" : "+m"(variable))

#define GCP_LAUNCH(name, unseen, stream, per_thread, call, kept)                       \
	if (GCP_LIKELY(unseen && gcp_stream_is_seen(stream, per_thread))) {            \
		CUresult result = call;                                                \
                                                                                       \
		if (GCP_LIKELY(result == CUDA_SUCCESS))                                \
			return result;                                                 \
		return GCP_LACKS_MEMORY(result) ? again_##name kept                    \
						: gcp_contexts_note(result);           \
	}                                                                              \
	return slow_##name kept;

#if defined(__x86_64__)

/* On x86-64 six arguments come in registers, and the others in memory, where a
 * structure of them would lie as well: so the real function gets them as one, which is
 * copied as a whole, and not one after the other through registers that had to be saved
 * for it. */
struct rest_of_launch {
	_Alignas(8) unsigned int block_z;
	_Alignas(8) unsigned int shared_bytes;
	CUstream stream;
	void **parameters, **extra;
};

struct rest_of_cooperative {
	_Alignas(8) unsigned int block_z;
	_Alignas(8) unsigned int shared_bytes;
	CUstream stream;
	void **parameters;
};

_Static_assert(sizeof(struct rest_of_launch) == 5 * 8, "as five arguments");
_Static_assert(sizeof(struct rest_of_cooperative) == 4 * 8, "as four arguments");

/* The function is called by another type than its own. */
#if defined(__clang__)
#define GCP_LAUNCH_ENTRY __attribute__((no_sanitize("function")))
#else
#define GCP_LAUNCH_ENTRY
#endif

#define GCP_LAUNCH_TYPES(kind)                                                         \
	CUfunction function, unsigned int grid_x, unsigned int grid_y,                 \
	    unsigned int grid_z, unsigned int block_x, unsigned int block_y,           \
	    struct rest_of_##kind rest
#define GCP_REST(field) rest.field
#define GCP_REST_STAYS  GCP_IN_MEMORY(rest)
#define GCP_LAUNCH_REAL(name, kind)                                                    \
	((CUresult(*)(GCP_LAUNCH_TYPES(kind)))(void (*)(void))gcp_real.name)(          \
	    function, grid_x, grid_y, grid_z, block_x, block_y, rest)

#else

#define GCP_TYPES_cooperative                                                          \
	CUfunction function, unsigned int grid_x, unsigned int grid_y,                 \
	    unsigned int grid_z, unsigned int block_x, unsigned int block_y,           \
	    unsigned int block_z, unsigned int shared_bytes, CUstream stream,          \
	    void **parameters
#define GCP_TYPES_launch       GCP_TYPES_cooperative, void **extra
#define GCP_LAUNCH_TYPES(kind) GCP_TYPES_##kind
#define GCP_LAUNCH_ENTRY
#define GCP_REST(field) field
#define GCP_REST_STAYS  (void)0
#define GCP_LAUNCH_REAL(name, kind)                                                    \
	gcp_real.name(function, grid_x, grid_y, grid_z, block_x, block_y,              \
		      GCP_REST_OF_##kind)

#endif

#define GCP_REST_OF_cooperative                                                        \
	GCP_REST(block_z), GCP_REST(shared_bytes), GCP_REST(stream),                   \
	    GCP_REST(parameters)
#define GCP_REST_OF_launch GCP_REST_OF_cooperative, GCP_REST(extra)

/* What came in registers is kept beside; what came in memory stays there. */
#define GCP_LAUNCHED(name, flags, unseen, types, arguments, kind)                      \
	GCP_SLOW(name, types, arguments)                                               \
	GCP_AGAIN(name, types, arguments)                                              \
	CUresult launched_##name(GCP_LAUNCH_TYPES(kind)) __asm__("gcp_called_" #name); \
	GCP_LAUNCH_ENTRY CUresult launched_##name(GCP_LAUNCH_TYPES(kind))              \
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
		GCP_REST_STAYS;                                                        \
		GCP_LAUNCH(name, unseen, GCP_REST(stream), (flags) == 2,               \
			   GCP_LAUNCH_REAL(name, kind),                                \
			   (function_kept, x, y, z, block_x_kept, block_y_kept,        \
			    GCP_REST_OF_##kind))                                       \
	}

#define GCP_X(name, base, version, flags, need, types, arguments)                      \
	GCP_LAUNCHED(name, flags, GCP_UNSEEN_REQUIRED(need), types, arguments, launch)
GCP_HOOKS_LAUNCHES(GCP_X)
#undef GCP_X
#define GCP_X(name, base, version, flags, need, types, arguments)                      \
	GCP_LAUNCHED(name, flags, GCP_UNSEEN(name), types, arguments, cooperative)
GCP_HOOKS_LAUNCHES_COOPERATIVE(GCP_X)
#undef GCP_X
#define GCP_X(name, base, version, flags, need, types, arguments)                      \
	GCP_SLOW(name, types, arguments)                                               \
	GCP_AGAIN(name, types, arguments)                                              \
	GCP_ENTRY(name, types)                                                         \
	{                                                                              \
		const struct CUlaunchConfig_st *config_kept = config;                  \
		CUfunction function_kept = function;                                   \
		void **parameters_kept = parameters, **extra_kept = extra;             \
                                                                                       \
		GCP_IN_MEMORY(config_kept);                                            \
		GCP_IN_MEMORY(function_kept);                                          \
		GCP_IN_MEMORY(parameters_kept);                                        \
		GCP_IN_MEMORY(extra_kept);                                             \
		GCP_LAUNCH(name, GCP_UNSEEN(name), config ? config->hStream : NULL,    \
			   (flags) == 2, gcp_real.name arguments,                      \
			   (config_kept, function_kept, parameters_kept, extra_kept))  \
	}
GCP_HOOKS_LAUNCHES_BY_CONFIG(GCP_X)
#undef GCP_X
