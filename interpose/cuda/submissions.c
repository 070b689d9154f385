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

void gcp_stream_submits_eagerly(CUstream stream)
{
	if (!gcp_process_capturing())
		return;
	gcp_pools_eager_work(gcp_process.pools);
	gcp_stream_work_given(stream, true);
}

void gcp_stream_submits_unknown(void)
{
	gcp_stream_submits_eagerly(NULL);
	if (gcp_process_capturing())
		gcp_tracker_order_unknown(gcp_process.tracker, true);
	if (gcp_process_pooling())
		(void)gcp_share_read(gcp_process.tracker, true);
}

/* Where CUDA does not say whether the stream captures its work counts as both: as
 * eager, which only makes memory serve once, and as captured. */
CUresult gcp_stream_submits(CUstream stream)
{
	CUresult asked = CUDA_SUCCESS;
	bool captures = false;

	if (!gcp_process_capturing())
		return CUDA_SUCCESS;
	if (gcp_stream_capturable(stream))
		asked = gcp_stream_capture_ask(stream, &captures);
	else
		stream = NULL;
	if (captures)
		gcp_stream_work_given(stream, false);
	else
		gcp_stream_submits_eagerly(stream); /* it may join a capture later */
	if (!captures && asked == CUDA_SUCCESS)
		return CUDA_SUCCESS;
	assert(gcp_thread.stream.stream == stream); /* route.c asks that one */
	return (CUresult)gcp_tracker_work_captured(gcp_process.tracker, stream);
}
