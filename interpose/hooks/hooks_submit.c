/* SPDX-License-Identifier: MIT */
/*
 * hooks_submit.c - the hooks on everything else by which work is submitted: fills,
 * memory operations, host functions; launches of graphs stand in hooks_graph.c, copies
 * in hooks_copy.c.
 * Called only while a capture is under way (exports.c): submissions.c.
 */
#include "hooks.h"
#include "../cuda/resolve.h"
#include "../cuda/streams.h"

#define GCP_X(name, base, version, flags, need, parameters, arguments)                 \
	CUresult gcp_hook_##name parameters                                            \
	{                                                                              \
		CUresult refused = gcp_stream_submits(stream, (flags) == 2);           \
                                                                                       \
		return refused ? refused : gcp_real.name arguments;                    \
	}
GCP_HOOKS_SUBMISSIONS(GCP_X)
#undef GCP_X

#define GCP_X(name, base, version, flags, need, parameters, arguments)                 \
	CUresult gcp_hook_##name parameters                                            \
	{                                                                              \
		gcp_stream_submits_eagerly();                                          \
		return gcp_real.name arguments;                                        \
	}
GCP_HOOKS_SUBMISSIONS_SYNC(GCP_X)
#undef GCP_X

#define GCP_X(name, base, version, flags, need, parameters, arguments)                 \
	CUresult gcp_hook_##name parameters                                            \
	{                                                                              \
		return gcp_real.name arguments;                                        \
	}
GCP_HOOKS_WAITS(GCP_X)
#undef GCP_X
