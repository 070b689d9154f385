/* SPDX-License-Identifier: MIT */
/*
 * submissions.c - what is done before work is submitted, see streams.h.
 *
 * While a capture is under way capture/ has to know two things of each submission:
 *
 *   whether it is captured. If not it is eager work, which may touch any block that is
 *   allocated by now: gcp_pools_eager_work counts it.
 *   on which stream the thread worked last: that tells what it allocates for.
 *
 * Both before the real call, so before anything that the program does because of it.
 */
#include "streams.h"

/* --- while a capture is under way --------------------------------------------- */

enum stream_work { STREAM_EAGER, STREAM_CAPTURED, STREAM_UNKNOWN };

/* Whether the driver says that the stream captures, validly or not. In doubt its work
 * counts as both: as eager, which only makes memory serve once, and as captured. */
static enum stream_work stream_captures(CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	if (gcp_real.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS)
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
		gcp_tracker_order_unknown(gcp_process.tracker, true);
	if (gcp_process_pooling())
		gcp_share_all_taken(gcp_process.tracker);
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
	assert(gcp_thread.stream.stream == named); /* route.c asks that one */
	return (CUresult)gcp_tracker_work_captured(gcp_process.tracker, named);
}
