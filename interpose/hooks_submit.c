/* SPDX-License-Identifier: MIT */
/*
 * hooks_submit.c - the hooks on everything else by which work is submitted: copies,
 * fills, memory operations, host functions; launches of graphs stand in hooks_graph.c.
 * Called only while a
 * capture is under way (exports.c), for capture/ has to know two things of each:
 *
 *   whether it is captured. If not it is eager work, which may touch any block that is
 *   allocated by now: gcp_pools_eager_work counts it.
 *   on which stream the thread worked last: that tells what it allocates for.
 *
 * Both before the real call, so before anything that the program does because of it.
 */
#include "hooks.h"
#include "process_life.h"
#include "streams.h"

enum stream_work { STREAM_EAGER, STREAM_CAPTURED, STREAM_UNKNOWN };

/* Whether the driver says that the stream captures, validly or not. In doubt its work
 * counts as both: as eager, which only makes memory serve once, and as captured. */
static enum stream_work stream_captures(CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	if (!gcp_real.cuStreamIsCapturing ||
	    gcp_real.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS)
		return STREAM_UNKNOWN;
	return status == CU_STREAM_CAPTURE_STATUS_NONE ? STREAM_EAGER : STREAM_CAPTURED;
}

static void submits_eagerly(CUstream stream)
{
	if (!gcp_process_capturing())
		return;
	gcp_pools_eager_work(gcp_process.pools);
	gcp_stream_work_given(stream, true);
}

void gcp_stream_submits_eagerly(void)
{
	submits_eagerly(NULL);
}

void gcp_stream_submits_unknown(void)
{
	gcp_stream_submits_eagerly();
	if (gcp_process_capturing())
		gcp_tracker_graph_taken(gcp_process.tracker);
	if (gcp_process_pooling())
		gcp_graphs_share_no_more();
}

CUresult gcp_stream_submits(CUstream stream, bool per_thread)
{
	CUstream named = gcp_stream_named(stream, per_thread);

	if (!gcp_process_capturing())
		return CUDA_SUCCESS;
	if (!gcp_stream_capturable(named)) {
		gcp_stream_submits_eagerly();
		return CUDA_SUCCESS;
	}
	switch (stream_captures(named)) {
	case STREAM_EAGER:
		submits_eagerly(named); /* it may join a capture later */
		return CUDA_SUCCESS;
	case STREAM_UNKNOWN:
		submits_eagerly(named);
		break;
	case STREAM_CAPTURED:
		gcp_stream_work_given(named, false);
		break;
	}
	return (CUresult)gcp_tracker_work_captured(gcp_process.tracker,
						   gcp_stream_context(named), named);
}

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
