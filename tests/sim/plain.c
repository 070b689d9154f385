/* SPDX-License-Identifier: MIT */
/*
 * plain.c - what plain CUDA would do with the program's calls, beside what is done
 * with the calls that reach the driver: how much memory it would take, and what it
 * would wait for. A test compares the two.
 *
 * Memory has the same rules as the driver's own (space.c), and the same limit. Of
 * waiting there is one rule: a free waits for all work that its memory's context was
 * given before (api_memory.c), so such work may be waited for from then on, and no
 * other. A kernel that was not waited for may need what the program does next.
 *
 * Called from tests, and by schedule.c and event.c where something waits. Knows
 * nothing of what stands between the program and the driver.
 */
#include "graph.h"

/* --- memory ----------------------------------------------------------------- */

enum { PINNED_UNIT = 512 };

struct plain {
	struct sim_alloc alloc;
	int device; /* -1: pinned */
};

static struct sim_space spaces[SIM_DEVICES_MAX];
static uint64_t pinned_used, pinned_peak;

/* The device's memory may change at any time; its addresses do not. */
static struct sim_space *space_of(int device)
{
	struct sim_space *space = &spaces[device];

	if (!space->chunks) {
		sim_space_init(space, 0, sim_memory_span(device));
		space->base = SIM_CHUNK;
	}
	space->limit = sim_memory_limit(device);
	return space;
}

static bool place_pinned(struct sim_alloc *alloc)
{
	alloc->physical = (alloc->bytes + PINNED_UNIT - 1) / PINNED_UNIT * PINNED_UNIT;
	if (sim.host_limit && pinned_used + alloc->physical > sim.host_limit)
		return false;
	pinned_used += alloc->physical;
	if (pinned_peak < pinned_used)
		pinned_peak = pinned_used;
	return true;
}

uint64_t gcpsim_plain_alloc(int device, uint64_t bytes)
{
	struct plain *plain = sim_calloc(sizeof(*plain));
	bool placed;

	plain->device = device;
	plain->alloc.bytes = bytes;
	plain->alloc.kind = device < 0 ? SIM_MEMORY_PINNED : SIM_MEMORY_DEVICE;
	sim_lock();
	placed = device < 0 ? place_pinned(&plain->alloc)
			    : sim_space_place(space_of(device), &plain->alloc);
	sim_unlock();
	if (placed)
		return (uintptr_t)plain;
	free(plain);
	return 0;
}

void gcpsim_plain_free(uint64_t number)
{
	struct plain *plain = (struct plain *)(uintptr_t)number;

	if (!plain)
		return;
	sim_lock();
	if (plain->device < 0)
		pinned_used -= plain->alloc.physical;
	else
		sim_space_remove(&spaces[plain->device], &plain->alloc);
	sim_unlock();
	free(plain);
}

uint64_t gcpsim_plain_used(int device)
{
	SIM_HOLD;

	return device < 0 ? pinned_used : spaces[device].used;
}

uint64_t gcpsim_plain_peak(int device)
{
	SIM_HOLD;

	return device < 0 ? pinned_peak : spaces[device].peak;
}

int gcpsim_piece(uint64_t addr, uint64_t *ret_base, uint64_t *ret_bytes)
{
	const struct sim_alloc *alloc;
	int result = -1;
	SIM_HOLD;

	alloc = sim_memory_find(addr);
	if (alloc && sim_memory_piece(alloc, addr, ret_base, ret_bytes))
		result = 0;
	return result;
}

int gcpsim_usage(uint64_t addr)
{
	const struct sim_physical *physical;
	const struct sim_alloc *alloc;
	int usage;
	SIM_HOLD;

	alloc = sim_memory_find(addr);
	physical = alloc ? sim_physical_at(alloc, addr) : NULL;
	usage = physical ? (int)physical->usage : -1;
	return usage;
}

int gcpsim_is_on_host(uint64_t addr)
{
	const struct sim_physical *physical;
	const struct sim_alloc *alloc;
	SIM_HOLD;

	alloc = sim_memory_find(addr);
	physical = alloc ? sim_physical_at(alloc, addr) : NULL;
	return physical && physical->host;
}

/* --- waiting ---------------------------------------------------------------- */

static bool watching;
static uint64_t walks, returned;
static uint32_t nodes_waited; /* the latest one when plain CUDA waited last */

void gcpsim_plain_watch(void)
{
	sim_lock();
	watching = true;
	sim_unlock();
	sim_thread_self()->watched = true;
}

/* All is waited for that these are behind. */
static void before_waited(const struct sim_ops *ops, bool pinned)
{
	struct sim_op **stack = NULL;
	uint32_t count = 0, capacity = 0;

	for (uint32_t i = 0; i < ops->count; i++) {
		stack = sim_grow(stack, &capacity, count + 1, sizeof(*stack));
		stack[count++] = ops->at[i];
		while (count > 0) {
			struct sim_op *top = stack[--count];

			if (sim_op_done(top) ||
			    (top->plain_waited && (top->pinned_waited || !pinned)))
				continue;
			top->plain_waited = true;
			top->pinned_waited |= pinned;
			stack = sim_grow(stack, &capacity, count + top->befores,
					 sizeof(*stack));
			for (uint32_t b = 0; b < top->befores; b++)
				stack[count++] = top->before[b];
		}
	}
	free(stack);
}

void gcpsim_plain_waits(void *handle, bool pinned)
{
	struct sim_ops ops = {0};
	struct sim_ctx *ctx;
	SIM_HOLD;

	ctx = sim_object_check(handle, SIM_CTX);
	nodes_waited = sim.latest_node;
	if (ctx) {
		ctx = sim_ctx_memory(ctx);
		ctx->waited = sim_schedule_order();
		sim_ctx_ops(ctx, &ops);
		before_waited(&ops, pinned);
		sim_ops_free(&ops);
	}
}

void sim_plain_node(const struct sim_nodes *ends, const struct sim_node *before)
{
	if (watching && before->object.id > nodes_waited &&
	    !sim_nodes_reach(ends, before))
		sim_report(&sim.new_orders,
			   "captured work is to follow node %u, which plain CUDA has "
			   "not waited for",
			   before->object.id);
}

static unsigned asking; /* threads, or the same one several times */

void gcpsim_plain_asks(int change)
{
	__atomic_fetch_add(&asking, (unsigned)change, __ATOMIC_RELAXED);
}

void gcpsim_plain_returned(void)
{
	sim_lock();
	returned++;
	sim_unlock();
}

uint32_t sim_polls_count(struct sim_polls *polls)
{
	if (polls->returned != returned)
		polls->count = 0;
	polls->returned = returned;
	return ++polls->count;
}

/* A wait for such work is one for all before it, too. */
static bool waited_in(const struct sim_op *op, const struct sim_ctx *ctx)
{
	return ctx && op->order < ctx->waited;
}

/* A copy between devices in any of its contexts. pinned: by frees of pinned memory. */
static bool is_waited(const struct sim_op *op, bool pinned)
{
	if (pinned)
		return sim_op_done(op) || op->pinned_waited;
	return sim_op_done(op) || op->plain_waited ||
	       waited_in(op, sim_ctx_memory(op->ctx)) || waited_in(op, op->work.by) ||
	       waited_in(op, op->work.also) || waited_in(op, op->work.waits);
}

/* Memory comes and goes on a stream as soon as what is before it is done. */
static bool takes_time(const struct sim_op *op)
{
	switch (op->work.kind) {
	case SIM_WORK_NOTHING:
	case SIM_WORK_ALLOC:
	case SIM_WORK_FREE:
	case SIM_WORK_GRAPH_FREE:
		return false;
	default:
		return true;
	}
}

/* Some work, of what `op` is behind and this walk has not met, that plain CUDA has not
 * waited for; or NULL. Without `looks` it only meets all of it. */
static const struct sim_op *walk_from(struct sim_op *op, bool looks, bool pinned)
{
	struct sim_op **stack = NULL;
	uint32_t count = 0, capacity = 0;
	const struct sim_op *found = NULL;

	stack = sim_grow(stack, &capacity, 1, sizeof(*stack));
	stack[count++] = op;
	while (count > 0 && !found) {
		struct sim_op *top = stack[--count];

		if (is_waited(top, pinned) || top->walk == walks)
			continue;
		top->walk = walks;
		if (looks && takes_time(top))
			found = top;
		stack =
		    sim_grow(stack, &capacity, count + top->befores, sizeof(*stack));
		for (uint32_t i = 0; i < top->befores; i++)
			stack[count++] = top->before[i];
	}
	free(stack);
	return found;
}

/* As sim_ctx_wait waits. */
static bool is_stuck(struct sim_ctx *ctx)
{
	struct sim_ops ops = {0};
	bool stuck = false;

	walks++;
	sim_ctx_ops(ctx, &ops);
	for (uint32_t i = 0; i < ops.count && !stuck; i++)
		stuck = walk_from(ops.at[i], true, true) != NULL;
	sim_ops_free(&ops);
	return stuck;
}

static uint64_t pinned_in(const struct sim_ctx *ctx)
{
	uint64_t bytes = 0;

	for (const struct sim_alloc *alloc = sim_memory_first(); alloc;
	     alloc = alloc->next)
		if (alloc->kind == SIM_MEMORY_PINNED && alloc->ctx == ctx)
			bytes += alloc->bytes;
	return bytes;
}

uint64_t gcpsim_plain_pinned(void *handle)
{
	const struct sim_ctx *ctx;
	uint64_t bytes;
	SIM_HOLD;

	ctx = sim_object_check(handle, SIM_CTX);
	bytes = ctx ? pinned_in(ctx) : 0;
	return bytes;
}

uint64_t gcpsim_plain_stuck(void *handle)
{
	struct sim_ctx *ctx, *current = NULL;
	uint64_t bytes = 0;
	SIM_HOLD;

	ctx = sim_object_check(handle, SIM_CTX);
	(void)sim_ctx_current(&current);
	if (ctx && ctx == sim_ctx_memory(ctx) &&
	    (!current || ctx != sim_ctx_memory(current)) && is_stuck(ctx))
		bytes = pinned_in(ctx);
	return bytes;
}

static bool asks(const struct sim_thread *self)
{
	return self->fn == SIM_FN_cuEventQuery || self->fn == SIM_FN_cuStreamQuery;
}

static void tell(const struct sim_op *found, const char *what)
{
	if (!found)
		return;
	if (asks(sim_thread_self()))
		__atomic_fetch_add(&sim.new_looks, 1, __ATOMIC_RELAXED);
	sim_report(&sim.new_waits,
		   "%s: %s waits for operation %lu (%s) of context %u, which "
		   "plain CUDA has not waited for",
		   sim_fn_names[sim_thread_self()->fn], what, found->order,
		   sim_work_name(&found->work), found->ctx->object.id);
}

static bool is_looked_at(const struct sim_op *op)
{
	const struct sim_thread *self = sim_thread_self();

	/* A thread that is not the program's has asked until the work was done; while
	 * one thread asks to wait, others may work for it. */
	return watching && !__atomic_load_n(&asking, __ATOMIC_RELAXED) &&
	       (self->watched || !asks(self)) && !is_waited(op, false);
}

void sim_plain_wait(struct sim_op *op)
{
	walks++;
	if (is_looked_at(op))
		tell(walk_from(op, true, false), "the host");
}

/* A barrier that is set again, as one is behind a context that did not end after all,
 * holds back nothing that is not held back already. */
void sim_plain_order(const struct sim_ctx *ctx, struct sim_op *op)
{
	if (!is_looked_at(op))
		return;
	walks++;
	if (ctx->barrier)
		walk_from(ctx->barrier, false, false);
	tell(walk_from(op, true, false), "later work");
}

void sim_plain_follow(struct sim_stream *stream, struct sim_op *op)
{
	struct sim_ops before = {0};
	struct sim_vc vc = {0};

	if (!is_looked_at(op))
		return;
	walks++;
	sim_stream_before(stream, &before, &vc);
	for (uint32_t i = 0; i < before.count; i++)
		walk_from(before.at[i], false, false);
	tell(walk_from(op, true, false), "later work of a stream");
	sim_ops_free(&before);
	sim_vc_free(&vc);
}
