/* SPDX-License-Identifier: MIT */
/*
 * hooks.h - prototypes of every exported entry (exports_stubs.S), where a call of the
 * program arrives: it goes on to the hook (call.h), or to exports.c.
 */
#ifndef GCP_INTERPOSE_HOOKS_H
#define GCP_INTERPOSE_HOOKS_H

#include <stdint.h>

#include "../cuda/call.h"

#define GCP_X(name, ...) CUresult gcp_entry_##name GCP_PARAMETERS_##name;
GCP_DRIVER_HOOKS(GCP_X)
#undef GCP_X

/* The first eight bytes of each entry, unless a library has patched them. */
#if defined(__x86_64__)
#define GCP_ENTRY_CODE 0x0000b800000000b8u
#else
#define GCP_ENTRY_CODE 0xd2800011d2800010u
#endif

/* Whether code that begins with these bytes goes elsewhere at once: jmp, jmp *, movabs
 * to %r11 (x86-64); b, ldr of what follows (aarch64). */
static inline bool gcp_code_jumps(uint64_t bytes)
{
#if defined(__x86_64__)
	return (bytes & 0xff) == 0xe9 || (bytes & 0xffff) == 0x25ff ||
	       (bytes & 0xffff) == 0xbb49;
#else
	return (bytes & 0xfc000000) == 0x14000000 || (bytes & 0xff000000) == 0x58000000;
#endif
}

#define GCP_X(tag, version, name, parameters, arguments)                               \
	int gcp_entry_##tag##_##name parameters;
#define GCP_V(tag, version) GCP_RUNTIME_HOOKS(GCP_X, tag, version)
GCP_RUNTIMES(GCP_V)
#undef GCP_V
#undef GCP_X

/* hooks_graph.c: makes a launch, or has `otherwise` make it. No capture is under way,
 * and there is one context. */
typedef CUresult gcp_graph_launch(CUgraphExec exec, CUstream stream);
CUresult gcp_graph_launch_again(CUgraphExec exec, CUstream stream, bool per_thread,
				gcp_graph_launch *real, gcp_graph_launch *otherwise);

/* hooks_copy.c, of copies between devices that are in graphs. */

/* Before a graph gets a node that copies so, in `ctx` (NULL: the current context; but
 * anywhere: in one that is not known). */
void gcp_copy_node_made(const CUDA_MEMCPY3D *copy, CUcontext ctx, bool anywhere);

/* After a launch into `stream`, as gcp_stream_named gives it. */
void gcp_copy_graph_launched(CUstream stream);

#endif
