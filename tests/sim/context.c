/* SPDX-License-Identifier: MIT */
/*
 * context.c - contexts: making, ending, being current, waiting for.
 *
 * A primary context is one object for the whole life of the process; a reset
 * or the last release only makes it inactive. A green context is a context
 * with a parent, the primary one, which owns its memory and its errors.
 * Entry points of contexts, and what other files ask about them. Which
 * context is current is thread-local: those calls take no lock.
 */
#include "sim.h"

static struct sim_ctx *contexts;
static struct sim_ctx *primaries[SIM_DEVICES_MAX];

/* --- life ----------------------------------------------------------------------- */

struct sim_ctx *sim_ctx_first(void)
{
	return contexts;
}

bool sim_device_valid(int device)
{
	return device >= 0 && device < sim.devices;
}

static void ctx_open(struct sim_ctx *ctx)
{
	SIM_STORE(ctx->error, CUDA_SUCCESS);
	SIM_STORE(ctx->active, true);
	ctx->peers = 0;
	ctx->legacy = sim_stream_new(ctx, 0, 0);
	ctx->legacy->legacy = true;
}

struct sim_ctx *sim_ctx_new(int device, unsigned flags, struct sim_ctx *parent)
{
	struct sim_ctx *ctx = sim_object_new(SIM_CTX, sizeof(*ctx));

	ctx->device = device;
	ctx->flags = flags;
	ctx->parent = parent;
	ctx->next = contexts;
	contexts = ctx;
	ctx_open(ctx);
	return ctx;
}

static void ctx_free_memory(const struct sim_ctx *ctx)
{
	struct sim_alloc *alloc = sim_memory_first();

	while (alloc) {
		struct sim_alloc *next = alloc->next;

		if (alloc->ctx == ctx)
			sim_memory_free(alloc);
		alloc = next;
	}
}

static void ctx_delete_children(const struct sim_ctx *ctx)
{
	struct sim_ctx *child = contexts;

	while (child) {
		struct sim_ctx *next = child->next;

		if (child->parent == ctx) {
			sim_ctx_delete(child);
			next = contexts;
		}
		child = next;
	}
}

void sim_ctx_empty(struct sim_ctx *ctx)
{
	sim_ctx_wait(ctx);
	ctx_delete_children(ctx);
	ctx_free_memory(ctx);
	while (ctx->events) {
		ctx->events->object.orphan = true;
		sim_event_delete(ctx->events);
	}
	while (ctx->streams) {
		ctx->streams->object.orphan = true;
		sim_stream_delete(ctx->streams);
	}
	ctx->legacy = NULL;
	sim_op_put(ctx->barrier);
	ctx->barrier = NULL;
	sim_vc_free(&ctx->barrier_vc);
	sim_vc_free(&ctx->gone_vc);
	sim_vc_free(&ctx->gone_here_vc);
	sim_vc_free(&ctx->done_here_vc);
	sim_vc_free(&ctx->awaited_vc);
	sim_ops_free(&ctx->done_here);
	sim_ops_free(&ctx->awaited);
	sim_ops_free(&ctx->gone);
	SIM_STORE(ctx->active, false);
	SIM_STORE(ctx->error, CUDA_SUCCESS);
}

void sim_ctx_delete(struct sim_ctx *ctx)
{
	struct sim_ctx **link = &contexts;

	sim_ctx_empty(ctx);
	while (*link != ctx)
		link = &(*link)->next;
	*link = ctx->next;
	sim_object_delete(ctx);
}

/* --- the current one ------------------------------------------------------ */

CUresult sim_ctx_check(CUcontext handle, struct sim_ctx **ret_ctx)
{
	struct sim_ctx *ctx;

	SIM_FAIL_IF(INVALID_CONTEXT, !handle);
	ctx = sim_object_check(handle, SIM_CTX);
	SIM_FAIL_IF(CONTEXT_IS_DESTROYED, !ctx || !SIM_LOAD(ctx->active));
	*ret_ctx = ctx;
	return SIM_LOAD(sim_ctx_memory(ctx)->error);
}

CUresult sim_ctx_current(struct sim_ctx **ret_ctx)
{
	const struct sim_thread *self = sim_thread_self();

	SIM_FAIL_IF(INVALID_CONTEXT, self->depth == 0);
	return sim_ctx_check((CUcontext)self->stack[self->depth - 1], ret_ctx);
}

struct sim_ctx *sim_ctx_memory(struct sim_ctx *ctx)
{
	return ctx->parent ? ctx->parent : ctx;
}

SIM_ENTRY(cuCtxGetCurrent)
{
	const struct sim_thread *self = sim_thread_self();

	SIM_FAIL_IF(INVALID_VALUE, !pctx);
	*pctx = self->depth ? (CUcontext)self->stack[self->depth - 1] : NULL;
	return CUDA_SUCCESS;
}

/* Whether `handle` may be made current: errors of the context do not matter, nor
 * whether a primary one is active. */
static bool can_be_current(CUcontext handle)
{
	return sim_object_check(handle, SIM_CTX) != NULL;
}

SIM_ENTRY(cuCtxSetCurrent)
{
	struct sim_thread *self = sim_thread_self();

	if (!ctx) {
		self->depth -= self->depth > 0;
		return CUDA_SUCCESS;
	}
	if (self->depth > 0 && self->stack[self->depth - 1] == (struct sim_ctx *)ctx)
		return CUDA_SUCCESS;
	SIM_FAIL_IF(CONTEXT_IS_DESTROYED, !can_be_current(ctx));
	self->depth += self->depth == 0;
	self->stack[self->depth - 1] = (struct sim_ctx *)ctx;
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuCtxPushCurrent_v2)
{
	struct sim_thread *self = sim_thread_self();

	SIM_FAIL_IF(INVALID_VALUE, !ctx);
	SIM_FAIL_IF(CONTEXT_IS_DESTROYED, !can_be_current(ctx));
	SIM_FAIL_IF(INVALID_VALUE, self->depth == SIM_CTX_DEPTH_MAX);
	self->stack[self->depth++] = (struct sim_ctx *)ctx;
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuCtxPopCurrent_v2)
{
	struct sim_thread *self = sim_thread_self();

	SIM_FAIL_IF(INVALID_CONTEXT, self->depth == 0);
	self->depth--;
	if (pctx)
		*pctx = (CUcontext)self->stack[self->depth];
	return CUDA_SUCCESS;
}

/* --- waiting -------------------------------------------------------------- */

static void ops_of_one(struct sim_ctx *ctx, struct sim_ops *ops)
{
	for (struct sim_stream *s = ctx->streams; s; s = s->next)
		sim_ops_add(ops, s->tail);
	for (uint32_t i = 0; i < ctx->gone.count; i++)
		sim_ops_add(ops, ctx->gone.at[i]);
	for (uint32_t i = 0; i < ctx->awaited.count; i++)
		sim_ops_add(ops, ctx->awaited.at[i]);
	for (uint32_t i = 0; i < ctx->done_here.count; i++)
		sim_ops_add(ops, ctx->done_here.at[i]);
	sim_ops_add(ops, ctx->barrier);
}

void sim_ctx_ops(struct sim_ctx *ctx, struct sim_ops *ops)
{
	ops_of_one(ctx, ops);
	for (struct sim_ctx *child = contexts; child; child = child->next)
		if (child->parent == ctx)
			ops_of_one(child, ops);
}

static void vc_of_one(const struct sim_ctx *ctx, struct sim_vc *vc)
{
	for (const struct sim_stream *s = ctx->streams; s; s = s->next)
		sim_vc_join(vc, &s->vc);
	sim_vc_join(vc, &ctx->gone_vc);
	sim_vc_join(vc, &ctx->awaited_vc);
	sim_vc_join(vc, &ctx->done_here_vc);
	sim_vc_join(vc, &ctx->barrier_vc);
}

void sim_ctx_vc(struct sim_ctx *ctx, struct sim_vc *vc)
{
	vc_of_one(ctx, vc);
	for (struct sim_ctx *child = contexts; child; child = child->next)
		if (child->parent == ctx)
			vc_of_one(child, vc);
}

/* A copy that another device does is none of its own, and neither is a wait for
 * something in the context: a fence covers what these are behind. What is waited for of
 * another context it covers (tests/gpu/results/mapped-memory.md).
 */
static void fence_add(struct sim_op *op, struct sim_ctx *ctx, uint64_t fence,
		      struct sim_ops *ops)
{
	const struct sim_ctx *own = sim_ctx_memory(ctx);

	if (!op || sim_op_done(op) || op->fence == fence)
		return;
	op->fence = fence;
	if (sim_ctx_memory(op->ctx) != own ||
	    (op->work.kind != SIM_WORK_NOTHING &&
	     (!op->work.by || sim_ctx_memory(op->work.by) == own))) {
		sim_ops_add(ops, op);
		return;
	}
	for (uint32_t i = 0; i < op->befores; i++)
		fence_add(op->before[i], ctx, fence, ops);
}

static void fence_of_one(struct sim_ctx *ctx, uint64_t fence, struct sim_ops *ops,
			 struct sim_vc *vc)
{
	for (struct sim_stream *s = ctx->streams; s; s = s->next) {
		fence_add(s->tail, ctx, fence, ops);
		sim_vc_join(vc, s->elsewhere ? &s->here_vc : &s->vc);
	}
	for (uint32_t i = 0; i < ctx->gone.count; i++)
		fence_add(ctx->gone.at[i], ctx, fence, ops);
	for (uint32_t i = 0; i < ctx->done_here.count; i++)
		sim_ops_add(ops, ctx->done_here.at[i]);
	sim_ops_add(ops, ctx->barrier);
	sim_vc_join(vc, &ctx->gone_here_vc);
	sim_vc_join(vc, &ctx->done_here_vc);
	sim_vc_join(vc, &ctx->barrier_vc);
}

void sim_ctx_fence(struct sim_ctx *ctx, struct sim_ops *ops, struct sim_vc *vc)
{
	static uint64_t fences;

	fences++;
	fence_of_one(ctx, fences, ops, vc);
	for (struct sim_ctx *child = contexts; child; child = child->next)
		if (child->parent == ctx)
			fence_of_one(child, fences, ops, vc);
}

/* What destroyed streams have left, as far as it is done: while the host waited another
 * thread may have destroyed one. */
static void gone_release_done(struct sim_ctx *ctx)
{
	struct sim_ops left = {0};

	for (uint32_t i = 0; i < ctx->gone.count; i++)
		sim_ops_add(&left, ctx->gone.at[i]);
	sim_ops_free(&ctx->gone);
	ctx->gone = left;
}

CUresult sim_ctx_wait(struct sim_ctx *ctx)
{
	struct sim_ops ops = {0};
	struct sim_vc vc = {0};

	sim_ctx_ops(ctx, &ops);
	sim_ctx_vc(ctx, &vc);
	sim_ops_wait(&ops);
	sim_vc_join(&sim.host, &vc);
	sim_vc_free(&vc);
	gone_release_done(ctx);
	return sim_ctx_memory(ctx)->error;
}

static CUresult ctx_synchronize(CUcontext handle)
{
	struct sim_ctx *ctx;

	if (handle)
		SIM_TRY(sim_ctx_check(handle, &ctx));
	else
		SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(sim_capture_conflict(ctx));
	return sim_ctx_wait(ctx);
}

SIM_FORWARD(cuCtxSynchronize, ctx_synchronize(NULL))
SIM_FORWARD(cuCtxSynchronize_v2, ctx_synchronize(ctx))

/* --- the primary context -------------------------------------------------- */

struct sim_ctx *sim_primary_known(int device)
{
	return primaries[device] && primaries[device]->active ? primaries[device]
							      : NULL;
}

struct sim_ctx *sim_primary_open(int device)
{
	if (!primaries[device]) {
		primaries[device] = sim_ctx_new(device, 0, NULL);
		primaries[device]->primary = true;
	}
	if (!primaries[device]->active)
		ctx_open(primaries[device]);
	return primaries[device];
}

SIM_ENTRY(cuDevicePrimaryCtxRetain)
{
	SIM_FAIL_IF(INVALID_VALUE, !pctx);
	SIM_FAIL_IF(INVALID_DEVICE, !sim_device_valid(dev));
	*pctx = (CUcontext)sim_primary_open(dev);
	primaries[dev]->retains++;
	return CUDA_SUCCESS;
}

void sim_primary_release_gone(struct sim_ctx *ctx)
{
	if (ctx->retains == 0 && ctx->greens == 0 && ctx->active)
		sim_ctx_empty(ctx);
}

SIM_ENTRY(cuDevicePrimaryCtxRelease_v2)
{
	struct sim_ctx *ctx;

	SIM_FAIL_IF(INVALID_DEVICE, !sim_device_valid(dev));
	ctx = primaries[dev];
	SIM_FAIL_IF(NOT_PERMITTED, ctx && ctx->retains == 0 && ctx->greens > 0);
	SIM_FAIL_IF(INVALID_CONTEXT, !ctx || ctx->retains == 0);
	ctx->retains--;
	sim_primary_release_gone(ctx);
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuDevicePrimaryCtxReset_v2)
{
	SIM_FAIL_IF(INVALID_DEVICE, !sim_device_valid(dev));
	SIM_FAIL_IF(NOT_PERMITTED, primaries[dev] && primaries[dev]->greens > 0);
	if (primaries[dev] && primaries[dev]->active)
		sim_ctx_empty(primaries[dev]);
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuDevicePrimaryCtxGetState)
{
	const struct sim_ctx *ctx;

	SIM_FAIL_IF(INVALID_DEVICE, !sim_device_valid(dev));
	SIM_FAIL_IF(INVALID_VALUE, !flags || !active);
	ctx = primaries[dev];
	*flags = ctx ? ctx->flags : 0;
	*active = ctx && ctx->active;
	return CUDA_SUCCESS;
}
