/* SPDX-License-Identifier: MIT */
/*
 * stream.c - streams: what order they give to work, and their entry points.
 *
 * The rules: a stream runs its work in order; the legacy stream of a context
 * waits for all blocking streams of it and they wait for the legacy stream;
 * non-blocking streams do neither; everything waits for the context's barrier.
 * Each thread has a default stream of its own per context, which is blocking.
 * Both books of order are kept here (sim.h). Under the big lock throughout.
 */
#include "sim.h"

/* --- life ----------------------------------------------------------------- */

struct sim_stream *sim_stream_new(struct sim_ctx *ctx, unsigned flags, int priority)
{
	struct sim_stream *stream = sim_object_new(SIM_STREAM, sizeof(*stream));

	stream->ctx = ctx;
	stream->flags = flags;
	stream->priority = priority;
	stream->blocking = !(flags & CU_STREAM_NON_BLOCKING);
	stream->lane = sim_lane_new();
	stream->next = ctx->streams;
	ctx->streams = stream;
	return stream;
}

/* Destroying a stream does not wait: what is pending becomes the context's. */
void sim_stream_delete(struct sim_stream *stream)
{
	struct sim_ctx *ctx = stream->ctx;
	struct sim_stream **link = &ctx->streams;

	sim_capture_stream_gone(stream);
	sim_ops_add(&ctx->gone, stream->tail);
	sim_vc_join(&ctx->gone_vc, &stream->vc);
	sim_vc_join(&ctx->gone_here_vc,
		    stream->elsewhere ? &stream->here_vc : &stream->vc);
	sim_op_put(stream->tail);
	sim_vc_free(&stream->vc);
	sim_vc_free(&stream->here_vc);
	sim_lane_delete(stream->lane);
	while (*link != stream)
		link = &(*link)->next;
	*link = stream->next;
	sim_object_delete(stream);
}

void sim_stream_thread_gone(uint64_t thread)
{
	sim_lock();
	for (struct sim_ctx *ctx = sim_ctx_first(); ctx; ctx = ctx->next) {
		struct sim_stream *stream = ctx->streams;

		while (stream) {
			struct sim_stream *next = stream->next;

			if (stream->owner == thread && !stream->capture)
				sim_stream_delete(stream);
			stream = next;
		}
	}
	sim_unlock();
}

static struct sim_stream *per_thread(struct sim_ctx *ctx)
{
	uint64_t owner = sim_thread_self()->id;
	struct sim_stream *stream;

	for (stream = ctx->streams; stream; stream = stream->next)
		if (stream->owner == owner)
			return stream;
	stream = sim_stream_new(ctx, 0, 0);
	stream->owner = owner;
	return stream;
}

CUresult sim_stream_get(CUstream handle, struct sim_stream **ret_stream)
{
	struct sim_stream *stream;
	struct sim_ctx *ctx;

	*ret_stream = NULL;
	if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
		bool own = handle == CU_STREAM_PER_THREAD ||
			   (!handle && sim_thread_self()->per_thread);

		SIM_TRY(sim_ctx_current(&ctx));
		*ret_stream = own ? per_thread(ctx) : ctx->legacy;
		return CUDA_SUCCESS;
	}
	stream = sim_object_check(handle, SIM_STREAM);
	if (!stream)
		return sim_object_gone(handle, SIM_STREAM);
	SIM_TRY(sim_ctx_check((CUcontext)stream->ctx, &ctx));
	*ret_stream = stream;
	return CUDA_SUCCESS;
}

CUresult sim_stream_use(CUstream handle, struct sim_stream **ret_stream)
{
	SIM_TRY(sim_stream_get(handle, ret_stream));
	if ((*ret_stream)->legacy)
		return sim_capture_implicit((*ret_stream)->ctx, false);
	return CUDA_SUCCESS;
}

/* --- order ---------------------------------------------------------------- */

static void barrier_before(struct sim_ctx *ctx, struct sim_ops *ops, struct sim_vc *vc)
{
	if (sim_op_done(ctx->barrier)) {
		sim_op_put(ctx->barrier);
		ctx->barrier = NULL;
	}
	sim_ops_add(ops, ctx->barrier);
	sim_vc_join(vc, &ctx->barrier_vc);
}

void sim_stream_before(struct sim_stream *stream, struct sim_ops *ops,
		       struct sim_vc *vc)
{
	struct sim_ctx *ctx = stream->ctx;

	sim_ops_add(ops, stream->tail);
	sim_vc_join(vc, &stream->vc);
	sim_vc_join(vc, &sim.host);
	barrier_before(ctx, ops, vc);
	if (ctx->parent)
		barrier_before(ctx->parent, ops, vc);
	if (stream->legacy) {
		for (struct sim_stream *s = ctx->streams; s; s = s->next) {
			if (!s->blocking)
				continue;
			sim_ops_add(ops, s->tail);
			sim_vc_join(vc, &s->vc);
		}
	} else if (stream->blocking) {
		sim_ops_add(ops, ctx->legacy->tail);
		sim_vc_join(vc, &ctx->legacy->vc);
	}
}

void sim_stream_set_tail(struct sim_stream *stream, struct sim_op *op)
{
	sim_op_get(op);
	sim_op_put(stream->tail);
	stream->tail = op;
	stream->elsewhere = false;
}

/* What comes last in the stream is not what the context's device does: the clock of
 * what came before is kept. */
static void here_keep(struct sim_stream *stream)
{
	if (!stream->elsewhere)
		sim_vc_copy(&stream->here_vc, &stream->vc);
}

static void ops_prune(struct sim_ops *ops)
{
	struct sim_ops left = {0};

	for (uint32_t i = 0; i < ops->count; i++)
		sim_ops_add(&left, ops->at[i]);
	sim_ops_free(ops);
	*ops = left;
}

static void foreign_note(struct sim_ctx *ctx, bool here, struct sim_op *op,
			 const struct sim_vc *vc)
{
	struct sim_ops *ops = here ? &ctx->done_here : &ctx->awaited;

	ops_prune(ops);
	sim_ops_add(ops, op);
	sim_vc_join(here ? &ctx->done_here_vc : &ctx->awaited_vc, vc);
}

/* Tells the other contexts of a copy between devices. */
void sim_copy_tell(const struct sim_work *work, struct sim_op *op,
		   const struct sim_vc *vc)
{
	if (work->by)
		foreign_note(work->by, true, op, vc);
	if (work->also)
		foreign_note(work->also, true, op, vc);
	if (work->waits)
		foreign_note(work->waits, false, op, vc);
}

/* Declares what the work touches to the hazard checker; vc is that of the
 * work itself afterwards. */
static void declare(struct sim_stream *stream, const struct sim_work *work,
		    struct sim_vc *vc)
{
	struct sim_epoch epoch = {sim_lane_next(stream->lane), stream->lane};
	struct sim_actor actor = {sim_work_name(work), stream->object.id, epoch.seq};

	for (int i = 0; i < work->accesses; i++)
		sim_hazard_access(&work->access[i], epoch, vc, &actor);
	sim_vc_set(vc, epoch.lane, epoch.seq);
}

CUresult sim_stream_submit(struct sim_stream *stream, const struct sim_work *work,
			   struct sim_op **ret_op)
{
	struct sim_ops before = {0};
	struct sim_vc vc = {0};
	struct sim_op *op;

	if (ret_op)
		*ret_op = NULL;
	if (stream->capture)
		return sim_capture_work(stream, work);
	sim_stream_before(stream, &before, &vc);
	declare(stream, work, &vc);
	op = sim_op_submit(stream->ctx, work, &before);
	if (work->by)
		here_keep(stream);
	sim_stream_set_tail(stream, op);
	stream->elsewhere = work->by != NULL;
	sim_vc_copy(&stream->vc, &vc);
	sim_copy_tell(work, op, &vc);
	sim_vc_free(&vc);
	sim_ops_free(&before);
	if (ret_op)
		*ret_op = sim_op_get(op);
	sim_op_put(op);
	return CUDA_SUCCESS;
}

/* Less than what new work waits for: neither the barrier nor, on a blocking
 * stream, the legacy stream (conform_order.golden). */
void sim_stream_pending(struct sim_stream *stream, struct sim_ops *ops,
			struct sim_vc *vc)
{
	sim_ops_add(ops, stream->tail);
	sim_vc_join(vc, &stream->vc);
	if (!stream->legacy)
		return;
	for (struct sim_stream *s = stream->ctx->streams; s; s = s->next) {
		if (!s->blocking)
			continue;
		sim_ops_add(ops, s->tail);
		sim_vc_join(vc, &s->vc);
	}
}

CUresult sim_stream_wait(struct sim_stream *stream)
{
	struct sim_ops ops = {0};
	struct sim_vc vc = {0};

	sim_stream_pending(stream, &ops, &vc);
	sim_ops_wait(&ops);
	sim_vc_join(&sim.host, &vc);
	sim_vc_free(&vc);
	return sim_ctx_memory(stream->ctx)->error;
}

/* --- entry points: life --------------------------------------------------- */

static CUresult stream_create(CUstream *phStream, unsigned int Flags, int priority)
{
	SIM_FAIL_IF(INVALID_VALUE,
		    !phStream || (Flags & ~(unsigned)CU_STREAM_NON_BLOCKING));
	SIM_CURRENT(ctx);
	*phStream = (CUstream)sim_stream_new(ctx, Flags, priority);
	return CUDA_SUCCESS;
}

SIM_FORWARD(cuStreamCreate, stream_create(phStream, Flags, 0))

SIM_ENTRY(cuStreamCreateWithPriority)
{
	int within = priority > 0 ? 0 : priority < -5 ? -5 : priority;

	return stream_create(phStream, flags, within);
}

SIM_ENTRY(cuStreamDestroy_v2)
{
	struct sim_stream *stream = sim_object_check(hStream, SIM_STREAM);

	if (!stream || stream->legacy || stream->owner)
		return sim_object_gone(hStream, SIM_STREAM);
	sim_stream_delete(stream);
	return CUDA_SUCCESS;
}

/* --- entry points: waiting ------------------------------------------------ */

SIM_ENTRY(cuStreamSynchronize)
{
	SIM_STREAM(stream, hStream);
	if (stream->capture)
		return sim_capture_refuse(stream);
	SIM_TRY(sim_capture_unsafe());
	return sim_stream_wait(stream);
}

/* A poll that never ends would hang where nothing runs by itself: after many
 * in a row the device gets a little time. */
static void poll_limit(struct sim_polls *polls, struct sim_ops *ops)
{
	if (sim_polls_count(polls) < 1000 || sim_schedule_speed() != GCPSIM_NEVER)
		return;
	polls->count = 0;
	for (uint32_t i = 0; i < ops->count; i++)
		sim_op_wait(ops->at[i]);
}

SIM_ENTRY(cuStreamQuery)
{
	static struct sim_polls polls;
	struct sim_ops ops = {0};
	struct sim_vc vc = {0};
	bool done;

	SIM_STREAM(stream, hStream);
	if (stream->capture)
		return sim_capture_refuse(stream);
	SIM_TRY(sim_capture_unsafe());
	sim_stream_pending(stream, &ops, &vc);
	done = ops.count == 0;
	if (done)
		sim_vc_join(&sim.host, &vc);
	else
		poll_limit(&polls, &ops);
	sim_ops_free(&ops);
	sim_vc_free(&vc);
	SIM_TRY(sim_ctx_memory(stream->ctx)->error);
	return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

SIM_ENTRY(cuStreamWaitEvent)
{
	struct sim_event *event;
	struct sim_ops before = {0};
	struct sim_work nothing = {0};
	struct sim_op *op;
	bool elsewhere;

	SIM_FAIL_IF(INVALID_VALUE, Flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL);
	SIM_STREAM(stream, hStream);
	event = sim_object_check(hEvent, SIM_EVENT);
	if (!event)
		return sim_object_gone(hEvent, SIM_EVENT);
	SIM_FAIL_IF(ILLEGAL_STATE,
		    !stream->capture && (Flags & CU_EVENT_WAIT_EXTERNAL));
	if (stream->capture && (Flags & CU_EVENT_WAIT_EXTERNAL))
		return sim_capture_event_node(stream, event,
					      CU_GRAPH_NODE_TYPE_WAIT_EVENT);
	if (stream->capture || event->capture_id)
		return sim_capture_wait(stream, event);
	if (!event->recorded)
		return CUDA_SUCCESS;
	elsewhere = sim_ctx_memory(event->ctx) == sim_ctx_memory(stream->ctx);
	if (elsewhere)
		here_keep(stream);
	else if (stream->elsewhere)
		sim_vc_join(&stream->here_vc, &event->vc);
	elsewhere |= stream->elsewhere;
	sim_vc_join(&stream->vc, &event->vc);
	if (sim_op_done(event->op)) {
		stream->elsewhere = elsewhere;
		return CUDA_SUCCESS;
	}
	sim_plain_follow(stream, event->op);
	sim_ops_add(&before, stream->tail);
	sim_ops_add(&before, event->op);
	op = sim_op_submit(stream->ctx, &nothing, &before);
	sim_stream_set_tail(stream, op);
	stream->elsewhere = elsewhere;
	sim_op_put(op);
	sim_ops_free(&before);
	return CUDA_SUCCESS;
}

/* --- entry points: host functions ----------------------------------------- */

SIM_ENTRY(cuLaunchHostFunc)
{
	struct sim_work work = {.kind = SIM_WORK_HOST};

	SIM_FAIL_IF(INVALID_VALUE, !fn);
	SIM_STREAM(stream, hStream);
	work.host.fn = fn;
	work.host.data = userData;
	return sim_stream_submit(stream, &work, NULL);
}

struct callback {
	CUstreamCallback fn;
	CUstream stream;
	void *data;
};

static void callback_run(void *data)
{
	struct callback *callback = data;

	callback->fn(callback->stream, CUDA_SUCCESS, callback->data);
	free(callback);
}

SIM_ENTRY(cuStreamAddCallback)
{
	struct sim_work work = {.kind = SIM_WORK_HOST};
	struct callback *callback;

	SIM_FAIL_IF(INVALID_VALUE, !fn || flags != 0);
	SIM_STREAM(stream, hStream);
	if (stream->capture)
		return sim_capture_refuse(stream);
	callback = sim_calloc(sizeof(*callback));
	*callback = (struct callback){fn, hStream, userData};
	work.host.fn = callback_run;
	work.host.data = callback;
	return sim_stream_submit(stream, &work, NULL);
}
