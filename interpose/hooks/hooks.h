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

/* hooks_launch.c: the hooks of tables "by words" (symbols.list). exports_stubs.S brings
 * a call there with its parameters as words, as many as the longest call has: those
 * behind its last parameter are whatever the caller's registers and stack held. */
enum { GCP_WORDS_MOST = 11 };
struct gcp_call_words {
	uint64_t *at;
	uint32_t table; /* GCP_TABLE_... */
	bool in_stream; /* the stream is a parameter */
	/* That one, or the default one: as gcp_stream_named gives it. */
	CUstream stream;
	void *real;
	const char *name, *base; /* its */
};
#define GCP_WORD(words, n) ((void *)(uintptr_t)(words)->at[n])
/* Calls the real function. */
static inline CUresult gcp_words_call(const struct gcp_call_words *words)
{
	const uint64_t *w = words->at;
	CUresult (*call)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
			 uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

	*(void **)&call = words->real;
	return call(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10]);
}

/* hooks_capture.c: records or awaits an event; begins a capture. */
CUresult gcp_event_call(const struct gcp_call_words *words);
CUresult gcp_begin_call(const struct gcp_call_words *words);

/* hooks_graph.c: makes or ends a graph, or something of one. */
CUresult gcp_graph_call(const struct gcp_call_words *words);

/* hooks_copy.c: makes a copy that is submitted. */
CUresult gcp_copy_call(const struct gcp_call_words *words);

/* hooks_copy.c: after a copy or fill in the default stream gave `result`: waits for
 * that stream if one of its sides is in a block with GCP_MARK_SYNC_MEMOPS. */
CUresult gcp_sync_memops_wait(CUresult result, const struct gcp_call_words *words);

/* hooks_copy.c, of copies between devices that are in graphs. */

/* Makes a copy, or a call that makes a graph or a node, once more if `result` may mean
 * that a device had no access to memory; it has then. */
CUresult gcp_copy_again(CUresult result, const struct gcp_call_words *words);

/* The same for a launch: opens memory to all devices, and returns true if the caller
 * should launch again. */
bool gcp_copy_opens(CUresult result);

#endif
