/*
 * things.c - streams, events, contexts, and calls that only look.
 */
#include "explore.h"

#include <string.h>

static const char *const kernels[] = {"gcpt_fill",      "gcpt_check", "gcpt_copy",
				      "gcpt_add",       "gcpt_spin",  "gcpt_fill_slow",
				      "gcpt_check_slow"};

/* Of older drivers; cuda.h shows the newest one only. */
CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev);
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* attach and detach */

/* --- contexts --- */

void space_use(struct thread *t, int slot)
{
	if (t->space == slot)
		return;
	if (FINE(t, cuCtxSetCurrent(t->world->spaces[slot].ctx)))
		t->space = slot;
}

static bool space_load(struct thread *t, struct space *space)
{
	CUmodule module;

	if (!FINE(t, cuModuleLoadData(&module, "")))
		return false;
	for (size_t i = 0; i < sizeof(kernels) / sizeof(*kernels); i++)
		if (!FINE(t, cuModuleGetFunction(&space->functions[i], module,
						 kernels[i])))
			return false;
	space->counter = block_create(t, 8);
	if (!space->counter)
		return false;
	return FINE(t, cuMemsetD8(space->counter->addr, 0, 8)) &&
	       FINE(t, cuStreamSynchronize(0));
}

static void peers_enable(struct thread *t, int slot)
{
	struct world *w = t->world;

	for (int i = 0; i < SPACES_MAX; i++) {
		if (!w->spaces[i].live || w->spaces[i].device == w->spaces[slot].device)
			continue;
		space_use(t, i);
		cuCtxEnablePeerAccess(w->spaces[slot].ctx, 0);
		space_use(t, slot);
		cuCtxEnablePeerAccess(w->spaces[i].ctx, 0);
	}
	space_use(t, slot);
}

bool space_open(struct thread *t, int slot, int device, bool primary)
{
	struct world *w = t->world;
	struct space *space = &w->spaces[slot];
	CUcontext popped;

	if (primary ? !FINE(t, cuDevicePrimaryCtxRetain(&space->ctx, device))
		    : !FINE(t, cuCtxCreate_v2(&space->ctx, 0, device)))
		return false;
	w->primary_refs[device] += primary;
	if (!primary) {
		FINE(t, cuCtxPopCurrent(&popped));
		t->space = -1;
	}
	space->device = device;
	space->primary = primary;
	space->live = true;
	space_use(t, slot);
	peers_enable(t, slot);
	return space_load(t, space);
}

/* Everything of the context is gone. */
void space_forget(struct world *w, int slot)
{
	for (struct block *block = w->blocks; block; block = block->next)
		if (block->space == slot)
			block_lose(block);
	for (unsigned i = 0; i < BLOCK_SLOTS; i++)
		if (w->slots[i] && w->slots[i]->space == slot)
			w->slots[i] = NULL;
	for (unsigned i = 0; i < PIN_SLOTS; i++)
		if (w->pins[i] && w->pins[i]->space == slot)
			w->pins[i] = NULL;
	for (uint32_t i = 0; i < w->stream_count; i++) {
		if (w->streams[i].space != slot)
			continue;
		stream_forget(w, &w->streams[i]);
		w->host.at[i] = w->streams[i].count;
	}
	for (unsigned i = 0; i < EVENT_SLOTS; i++)
		if (w->events[i].handle && w->events[i].space == slot)
			w->events[i] = (struct event){0};
	for (unsigned i = 0; i < THREADS_MAX; i++)
		if (w->threads[i].space == slot)
			w->threads[i].space = -1;
	graphs_forget_space(w, slot);
	pools_forget(w);
	w->spaces[slot] = (struct space){0};
}

/* By its last reference. */
static bool primary_release(struct thread *t, int device)
{
	int *refs = &t->world->primary_refs[device];

	while (*refs > 0) {
		if (!FINE(t, cuDevicePrimaryCtxRelease(device)))
			return false;
		--*refs;
	}
	return true;
}

static bool space_end(struct thread *t, int slot, bool idle, bool release)
{
	struct world *w = t->world;
	struct space *space = &w->spaces[slot];

	for (struct block *block = w->blocks; block; block = block->next)
		if (block->space == slot && !order_free(t, block))
			return false;
	if (!neighbour_closes_all(t, slot) || (idle && !host_wait_space(t, slot)))
		return false;
	if (idle)
		oracle_counter(w, slot);
	if (space->primary) {
		if (release ? !primary_release(t, space->device)
			    : !FINE(t, cuDevicePrimaryCtxReset(space->device)))
			return false;
	} else if (!FINE(t, cuCtxDestroy(space->ctx))) {
		return false;
	}
	w->streams_gone++; /* those of the context */
	captures_go(w);
	space_forget(w, slot);
	return true;
}

/* What could be its end, and is not. */
static void space_hold(struct thread *t, int slot)
{
	const struct space *space = &t->world->spaces[slot];
	CUcontext ctx;

	space_use(t, slot);
	if (space->primary) {
		if (FINE(t, cuDevicePrimaryCtxRetain(&ctx, space->device)))
			FINE(t, cuDevicePrimaryCtxRelease(space->device));
	} else if (FINE(t, cuCtxAttach(&ctx, 0))) {
		FINE(t, cuCtxDetach(ctx));
	}
}

static bool captures_itself(const struct thread *t)
{
	for (unsigned i = 0; i < CAPTURE_SLOTS; i++)
		if (t->world->captures[i].live &&
		    t->world->captures[i].thread == (int)t->number)
			return true;
	return false;
}

/* While captures are under way. */
static bool fits_captures(const struct thread *t, enum op_kind kind, int slot)
{
	unsigned generation = t->world->setting->generation;

	if (kind == OP_SPACE_CREATE)
		return generation > 1 && may_be_unsafe(t) && !captures_itself(t);
	return kind != OP_SPACE_HOLD && generation > 3 && captures_may_go(t, slot);
}

static void space_op(struct thread *t, const struct op *op)
{
	struct world *w = t->world;
	int slot = op->a % SPACES_MAX, devices = w->setting->devices;
	struct space *space = &w->spaces[slot];

	if (op->kind == OP_USE_SPACE) {
		if (space->live)
			space_use(t, slot);
		return;
	}
	if (!all_is_calm(w) && !fits_captures(t, op->kind, slot))
		return;
	if (op->kind == OP_SPACE_HOLD) {
		if (space->live)
			space_hold(t, slot);
		return;
	}
	if (op->kind == OP_SPACE_CREATE) {
		if (!space->live)
			space_open(t, slot, slot < devices ? slot : op->b % devices,
				   slot < devices);
		return;
	}
	if (!space->live || space->primary != (op->kind != OP_SPACE_DESTROY) ||
	    !space_end(t, slot, op->how & 2, op->kind == OP_SPACE_RELEASE))
		return;
	if (slot == 0 || op->how & 1)
		space_open(t, slot, slot < devices ? slot : op->b % devices,
			   slot < devices);
}

/* --- streams --- */

static struct stream *stream_new(struct world *w, enum stream_kind kind, int space)
{
	struct stream *s;

	if (w->stream_count == STREAMS_MAX)
		return NULL;
	s = &w->streams[w->stream_count];
	*s = (struct stream){
	    .kind = kind, .live = true, .space = space, .number = w->stream_count++};
	return s;
}

void stream_forget(struct world *w, struct stream *s)
{
	s->live = false;
	for (unsigned i = 0; i < STREAM_SLOTS; i++)
		if (w->stream_slots[i] == s)
			w->stream_slots[i] = NULL;
}

/* A default stream of the current context. */
static struct stream *stream_default(struct thread *t, enum stream_kind kind)
{
	struct world *w = t->world;
	struct stream *s;

	for (uint32_t i = 0; i < w->stream_count; i++) {
		s = &w->streams[i];
		if (s->live && s->kind == kind && s->space == t->space &&
		    (kind == STREAM_LEGACY || s->thread == (int)t->number))
			return s;
	}
	s = stream_new(w, kind, t->space);
	if (s)
		s->thread = (int)t->number;
	return s;
}

static struct stream *stream_create(struct thread *t, unsigned slot, unsigned how)
{
	struct world *w = t->world;
	struct stream *s;
	CUstream handle;

	if (w->stream_count >= STREAMS_MAX - 8) /* room for default ones */
		return NULL;
	if (!FINE(t, cuStreamCreate(&handle, how & 1 ? CU_STREAM_NON_BLOCKING
						     : CU_STREAM_DEFAULT)))
		return NULL;
	s = stream_new(w, how & 1 ? STREAM_FREE : STREAM_BLOCKING, t->space);
	s->handle = handle;
	w->stream_slots[slot] = s;
	return s;
}

struct stream *stream_pick(struct thread *t, unsigned slot)
{
	struct stream *s;

	slot %= STREAM_SLOTS;
	if (slot == 0)
		return stream_default(t, STREAM_LEGACY);
	if (slot == 1)
		return stream_default(t, STREAM_PER_THREAD);
	s = t->world->stream_slots[slot];
	return s ? s : stream_create(t, slot, slot);
}

CUstream stream_handle(struct thread *t, struct stream *s)
{
	space_use(t, s->space);
	if (t->worked != s)
		t->worked = NULL;
	t->last = s; /* events, too, tell the library which stream is worked on */
	if (s->kind == STREAM_LEGACY)
		return s->count & 1 ? CU_STREAM_LEGACY : NULL;
	return s->kind == STREAM_PER_THREAD ? CU_STREAM_PER_THREAD : s->handle;
}

static void stream_op(struct thread *t, const struct op *op)
{
	unsigned slot = op->c % STREAM_SLOTS;
	struct stream *s = slot < 2 ? NULL : t->world->stream_slots[slot];
	uint64_t ns = op->bytes;
	void *spin[] = {&ns};

	switch ((enum op_kind)op->kind) {
	case OP_STREAM_CREATE:
		if (!s && slot >= 2)
			stream_create(t, slot, op->how);
		return;
	case OP_STREAM_DESTROY:
		if (s && !s->capture && FINE(t, cuStreamDestroy(s->handle))) {
			t->world->streams_gone++;
			stream_forget(t->world, s);
		}
		return;
	default:
		break;
	}
	s = stream_pick(t, slot);
	if (!s || s->capture)
		return;
	if (op->kind == OP_STREAM_SYNC) {
		host_wait_stream(t, s);
	} else if (op->kind == OP_STREAM_QUERY) {
		if (may_be_unsafe(t) &&
		    (s->kind != STREAM_LEGACY || legacy_is_free(t->world, s->space)) &&
		    fine_query(t->world, cuStreamQuery(stream_handle(t, s))))
			clock_join(&t->world->host, &s->clock);
	} else if (s->kind != STREAM_LEGACY || legacy_is_free(t->world, s->space)) {
		CUfunction f = t->world->spaces[s->space].functions[4];

		if (FINE(t, cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream_handle(t, s),
					   spin, NULL)))
			order_step(t->world, s);
	}
}

/* --- events --- */

/* It stands for what it stood for before, in a capture too. */
static void event_record_in_vain(struct thread *t, const struct event *event,
				 CUstream stream)
{
	if (t->world->setting->generation > 3 && !t->world->setting->fault &&
	    cuEventRecord(event->handle, stream) != CUDA_ERROR_INVALID_HANDLE)
		failure(t->world, "an event was recorded in another context");
}

static void event_record(struct thread *t, struct event *event, struct stream *s)
{
	CUstream handle = stream_handle(t, s);

	if (event->handle && event->space != s->space) {
		event_record_in_vain(t, event, handle);
		return;
	}
	if (!event->handle && !FINE(t, cuEventCreate(&event->handle, 0)))
		return;
	event->space = s->space;
	if (!FINE(t, cuEventRecord(event->handle, handle)))
		return;
	order_base(t->world, s, &event->clock);
	event->recorded = true;
	event->captured = 0;
}

static void event_op(struct thread *t, const struct op *op)
{
	struct event *event = &t->world->events[op->a % EVENT_SLOTS];
	struct stream *s;

	if (op->kind == OP_EVENT_DESTROY) {
		if (event->handle && FINE(t, cuEventDestroy(event->handle)))
			*event = (struct event){0};
		return;
	}
	if (op->kind == OP_EVENT_SYNC) {
		if (event->recorded && !event->captured && may_be_unsafe(t) &&
		    FINE(t, cuEventSynchronize(event->handle)))
			clock_join(&t->world->host, &event->clock);
		return;
	}
	s = stream_pick(t, op->c);
	if (!s || (s->kind == STREAM_LEGACY && !legacy_is_free(t->world, s->space)))
		return;
	if (op->kind == OP_EVENT_RECORD && s->capture) {
		capture_event_record(t, event, s);
		return;
	}
	if (op->kind == OP_EVENT_WAIT && (s->capture || event->captured)) {
		capture_event_wait(t, event, s);
		return;
	}
	if (op->kind == OP_EVENT_RECORD)
		event_record(t, event, s);
	else if (event->recorded &&
		 FINE(t, cuStreamWaitEvent(stream_handle(t, s), event->handle, 0)))
		clock_join(&s->clock, &event->clock);
}

/* --- calls that only look --- */

/* Of several blocks in one place one is counted: that which lives, and restoring lets
 * old ones live again; else the newest. */
static bool is_alone(const struct world *w, const struct block *block)
{
	bool newer = true;

	for (const struct block *other = w->blocks; other; other = other->next) {
		newer &= other != block;
		if (other != block &&
		    (other->live || (newer && block_is_kept(w, other))) &&
		    block->addr < other->addr + other->bytes &&
		    other->addr < block->addr + block->bytes)
			return block->live;
	}
	return true;
}

/* What is in use, and what graphs keep although it was freed. */
static uint64_t bytes_taken(const struct world *w, int device)
{
	uint64_t bytes = 0;

	for (const struct block *block = w->blocks; block; block = block->next)
		if (block->device == device && !block->host && !block->borrowed &&
		    (block->live || block_is_kept(w, block)) && is_alone(w, block))
			bytes += block->bytes;
	return bytes;
}

static void mem_info(struct thread *t)
{
	size_t left = 0, total = 0;

	if (!FINE(t, cuMemGetInfo(&left, &total)))
		return;
	if (left > total ||
	    total != t->world->memory[t->world->spaces[t->space].device])
		failure(t->world, "cuMemGetInfo says %llu of %llu",
			(unsigned long long)left, (unsigned long long)total);
	if (t->world->setting->memory_small || t->world->setting->fault ||
	    t->world->setting->leak)
		return;
	if (left > total - bytes_taken(t->world, t->world->spaces[t->space].device))
		failure(t->world, "cuMemGetInfo says %llu of %llu, and %llu are taken",
			(unsigned long long)left, (unsigned long long)total,
			(unsigned long long)bytes_taken(
			    t->world, t->world->spaces[t->space].device));
}

/* The books are looked at before: peaks are of what was live since. */
static void peaks_reset(struct world *w, int device)
{
	if (library.reset_peaks(device) == 0)
		w->peak_blocks[device] = w->peak_bytes[device] = 0;
}

static void look_op(struct thread *t, const struct op *op)
{
	int device = op->a % t->world->setting->devices;

	switch ((enum op_kind)op->kind) {
	case OP_ADVANCE:
		gcpsim_advance(op->bytes);
		break;
	case OP_TRIM:
		if (library.trim)
			library.trim(device, op->how & 1 ? 0 : op->bytes << 6);
		break;
	case OP_RESET_PEAKS:
		if (library.reset_peaks && library.active())
			peaks_reset(t->world, device);
		break;
	case OP_MEM_INFO:
		mem_info(t);
		break;
	case OP_CTX_SYNC:
		host_wait_space(t, t->space);
		break;
	default:
		oracle_books(t->world);
		break;
	}
}

void things_play(struct thread *t, const struct op *op)
{
	switch ((enum op_kind)op->kind) {
	case OP_STREAM_CREATE:
	case OP_STREAM_DESTROY:
	case OP_STREAM_SYNC:
	case OP_STREAM_QUERY:
	case OP_SPIN:
		stream_op(t, op);
		break;
	case OP_EVENT_RECORD:
	case OP_EVENT_WAIT:
	case OP_EVENT_SYNC:
	case OP_EVENT_DESTROY:
		event_op(t, op);
		break;
	case OP_USE_SPACE:
	case OP_SPACE_CREATE:
	case OP_SPACE_DESTROY:
	case OP_SPACE_RESET:
	case OP_SPACE_HOLD:
	case OP_SPACE_RELEASE:
		space_op(t, op);
		break;
	default:
		look_op(t, op);
		break;
	}
}
