/* SPDX-License-Identifier: MIT */
/*
 * event.c - events, and the fences of whole contexts.
 *
 * An event stands for operations that were submitted when it was recorded; it
 * holds the one operation that they end in, and their vector clock. Recording
 * adds nothing to a stream. A query that says "done" tells the host something,
 * so it joins the host's clock. Under the big lock throughout.
 */
#include "sim.h"

/* --- life ------------------------------------------------------------------------ */

SIM_ENTRY(cuEventCreate)
{
	struct sim_event *event;

	SIM_FAIL_IF(INVALID_VALUE, !phEvent || (Flags & ~7u));
	SIM_FAIL_IF(INVALID_VALUE, (Flags & CU_EVENT_INTERPROCESS) &&
				       !(Flags & CU_EVENT_DISABLE_TIMING));
	SIM_CURRENT(ctx);
	event = sim_object_new(SIM_EVENT, sizeof(*event));
	event->ctx = ctx;
	event->flags = Flags;
	event->next = ctx->events;
	if (ctx->events)
		ctx->events->prev = event;
	ctx->events = event;
	*phEvent = (CUevent)event;
	return CUDA_SUCCESS;
}

void sim_event_delete(struct sim_event *event)
{
	if (event->prev)
		event->prev->next = event->next;
	else
		event->ctx->events = event->next;
	if (event->next)
		event->next->prev = event->prev;
	sim_event_detach_capture(event);
	sim_op_put(event->op);
	sim_vc_free(&event->vc);
	sim_object_delete(event);
}

SIM_ENTRY(cuEventDestroy_v2)
{
	struct sim_event *event = sim_object_check(hEvent, SIM_EVENT);

	if (!event)
		return sim_object_gone(hEvent, SIM_EVENT);
	sim_event_delete(event);
	return CUDA_SUCCESS;
}

/* --- recording ------------------------------------------------------------ */

void sim_event_detach_capture(struct sim_event *event)
{
	event->capture_id = 0;
	sim_nodes_clear(&event->captured);
}

void sim_event_set(struct sim_event *event, struct sim_ctx *ctx, struct sim_ops *ops,
		   const struct sim_vc *vc)
{
	struct sim_work nothing = {0};

	sim_event_detach_capture(event);
	sim_op_put(event->op);
	event->op = NULL;
	if (ops->count == 1)
		event->op = sim_op_get(ops->at[0]);
	else if (ops->count > 1)
		event->op = sim_op_submit(ctx, &nothing, ops);
	event->recorded = true;
	event->polls.count = 0;
	event->done_ns = sim_schedule_clock();
	sim_vc_copy(&event->vc, vc);
}

static CUresult event_record(CUevent hEvent, CUstream hStream, bool external)
{
	struct sim_event *event = sim_object_check(hEvent, SIM_EVENT);
	struct sim_ops ops = {0};
	struct sim_vc vc = {0};

	if (!event)
		return sim_object_gone(hEvent, SIM_EVENT);
	SIM_STREAM(stream, hStream);
	SIM_FAIL_IF(INVALID_HANDLE,
		    sim_ctx_memory(event->ctx) != sim_ctx_memory(stream->ctx));
	SIM_FAIL_IF(ILLEGAL_STATE, !stream->capture && external);
	if (stream->capture && external)
		return sim_capture_event_node(stream, event,
					      CU_GRAPH_NODE_TYPE_EVENT_RECORD);
	if (stream->capture)
		return sim_capture_record(stream, event);
	/* In the legacy stream it is an operation that blocking streams wait for later
	 * (driver 580, measured). */
	if (stream->legacy)
		SIM_TRY(sim_stream_submit(
		    stream, &(struct sim_work){.kind = SIM_WORK_NOTHING}, NULL));
	sim_stream_before(stream, &ops, &vc);
	sim_event_set(event, stream->ctx, &ops, &vc);
	sim_ops_free(&ops);
	sim_vc_free(&vc);
	return CUDA_SUCCESS;
}

SIM_FORWARD(cuEventRecord, event_record(hEvent, hStream, false))

SIM_ENTRY(cuEventRecordWithFlags)
{
	SIM_FAIL_IF(INVALID_VALUE, flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL);
	return event_record(hEvent, hStream, flags & CU_EVENT_RECORD_EXTERNAL);
}

/* --- asking and waiting --------------------------------------------------- */

static void event_poll(struct sim_event *event)
{
	if (event->op && sim_op_done(event->op)) {
		event->done_ns = event->op->finish_ns;
		sim_op_put(event->op);
		event->op = NULL;
	}
}

static _Atomic bool only_asked;

void gcpsim_queries_never_wait(int never)
{
	atomic_store(&only_asked, never != 0);
}

/* What a query or a wait must refuse during captures. */
static CUresult event_check(CUevent hEvent, struct sim_event **ret_event)
{
	struct sim_event *event = sim_object_check(hEvent, SIM_EVENT);
	struct sim_ctx *ctx;

	if (!event)
		return sim_object_gone(hEvent, SIM_EVENT);
	if (event->capture_id)
		return sim_capture_event_used(event);
	SIM_TRY(sim_capture_unsafe());
	SIM_TRY(sim_ctx_check((CUcontext)event->ctx, &ctx));
	event_poll(event);
	*ret_event = event;
	return CUDA_SUCCESS;
}

static CUresult event_query(CUevent hEvent)
{
	SIM_GET(sim_event, event, event_check, hEvent);
	if (event->op) {
		uint32_t polls = sim_polls_count(&event->polls);

		/* Where nothing runs by itself a poll must not hang for ever; and where
		 * a call takes little time, the time between polls passes as well. */
		if (!atomic_load(&only_asked) && polls >= 1000 &&
		    (sim_schedule_speed() == GCPSIM_NEVER || polls >= 4000))
			sim_op_wait(event->op);
		return CUDA_ERROR_NOT_READY;
	}
	sim_vc_join(&sim.host, &event->vc);
	return sim_ctx_memory(event->ctx)->error;
}

SIM_ENTRY(cuEventQuery)
{
	CUresult planned = sim_enter(SIM_FN_cuEventQuery, false), result;

	/* An error that stays is the end of all work: where none has been met yet, no
	 * query returns it before its work is over. */
	if (planned != CUDA_SUCCESS && planned != CUDA_ERROR_LAUNCH_FAILED)
		return planned;
	sim_lock();
	sim_schedule_tick();
	result = event_query(hEvent);
	sim_unlock();
	if (planned == CUDA_SUCCESS)
		sim_called(&(enum sim_fn){SIM_FN_cuEventQuery});
	return result == CUDA_SUCCESS ? planned : result;
}

SIM_ENTRY(cuEventSynchronize)
{
	SIM_GET(sim_event, event, event_check, hEvent);
	if (event->op) {
		struct sim_op *op = sim_op_get(event->op);
		struct sim_vc vc = {0};

		/* Another thread may record the event anew while we wait. */
		sim_vc_copy(&vc, &event->vc);
		sim_op_wait(op);
		sim_op_put(op);
		sim_vc_join(&sim.host, &vc);
		sim_vc_free(&vc);
	} else {
		sim_vc_join(&sim.host, &event->vc);
	}
	return sim_ctx_memory(event->ctx)->error;
}

SIM_ENTRY(cuEventElapsedTime_v2)
{
	struct sim_event *start = NULL, *end = NULL;

	SIM_FAIL_IF(INVALID_VALUE, !pMilliseconds);
	SIM_TRY(event_check(hStart, &start));
	SIM_TRY(event_check(hEnd, &end));
	SIM_FAIL_IF(INVALID_HANDLE,
		    (start->flags | end->flags) & CU_EVENT_DISABLE_TIMING);
	SIM_FAIL_IF(INVALID_HANDLE, !start->recorded || !end->recorded);
	SIM_FAIL_IF(NOT_READY, start->op || end->op);
	*pMilliseconds = (float)((double)end->done_ns - (double)start->done_ns) / 1e6f;
	return CUDA_SUCCESS;
}

/* --- the fence of a context ----------------------------------------------- */

/* Covers all that the device does for the context, and for a primary one's green
 * contexts, and holds nothing back. */
CUresult sim_ctx_record(struct sim_ctx *ctx, CUevent handle)
{
	struct sim_event *event = sim_object_check(handle, SIM_EVENT);
	struct sim_ops ops = {0};
	struct sim_vc vc = {0};

	if (!event)
		return sim_object_gone(handle, SIM_EVENT);
	SIM_FAIL_IF(INVALID_HANDLE, sim_ctx_memory(event->ctx) != sim_ctx_memory(ctx));
	SIM_TRY(sim_capture_conflict(ctx));
	sim_ctx_fence(ctx, &ops, &vc);
	sim_event_set(event, ctx, &ops, &vc);
	sim_ops_free(&ops);
	sim_vc_free(&vc);
	return CUDA_SUCCESS;
}

/* Holds back all later work of the context. */
CUresult sim_ctx_order(struct sim_ctx *ctx, CUevent handle)
{
	struct sim_event *event = sim_object_check(handle, SIM_EVENT);
	struct sim_work nothing = {0};
	struct sim_ops ops = {0};
	struct sim_op *barrier;

	if (!event)
		return sim_object_gone(handle, SIM_EVENT);
	SIM_TRY(sim_capture_conflict(ctx));
	if (event->capture_id)
		return sim_capture_event_used(event);
	if (!event->recorded)
		return CUDA_SUCCESS;
	sim_vc_join(&ctx->barrier_vc, &event->vc);
	if (event->op)
		sim_plain_order(ctx, event->op);
	if (sim_op_done(event->op))
		return CUDA_SUCCESS;
	sim_ops_add(&ops, ctx->barrier);
	sim_ops_add(&ops, event->op);
	barrier = sim_op_submit(ctx, &nothing, &ops);
	sim_op_put(ctx->barrier);
	ctx->barrier = barrier;
	sim_ops_free(&ops);
	return CUDA_SUCCESS;
}
