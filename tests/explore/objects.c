/* SPDX-License-Identifier: MIT */
/*
 * objects.c - streams, events, contexts, and calls that only look.
 */
#include "explore.h"

#include "gcpool.h"

static const char *const kernels[] = {"gcpt_fill",      "gcpt_check", "gcpt_copy",
				      "gcpt_add",       "gcpt_spin",  "gcpt_fill_slow",
				      "gcpt_check_slow"};

/* Of older drivers; cuda.h shows the newest one only. */
CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev);
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* attach and detach */

/* --- contexts --- */

void context_use(struct thread *t, int slot)
{
	if (t->context == slot)
		return;
	if (FINE(t, cuCtxSetCurrent(t->model->contexts[slot].ctx)))
		t->context = slot;
}

static bool wait_asked(struct thread *t, CUstream stream)
{
	bool good;

	gcpsim_plain_asks(1);
	good = FINE(t, cuStreamSynchronize(stream));
	gcpsim_plain_asks(-1);
	return good;
}

/* The thread gives work to the legacy stream, which captures nothing: from then on no
 * capture is to have what it allocates for that of the stream that it named last. */
static void work_legacy(struct thread *t)
{
	t->worked = NULL;
	if (!all_is_calm(t->model))
		t->last = NULL;
}

static bool context_load(struct thread *t, struct context *context)
{
	CUmodule module;

	if (!FINE(t, cuModuleLoadData(&module, "")))
		return false;
	for (size_t i = 0; i < sizeof(kernels) / sizeof(*kernels); i++)
		if (!FINE(t, cuModuleGetFunction(&context->functions[i], module,
						 kernels[i])))
			return false;
	context->counter = block_create(t, 8);
	if (!context->counter)
		return false;
	work_legacy(t);
	return FINE(t, cuMemsetD8(context->counter->addr, 0, 8)) &&
	       wait_asked(t, CU_STREAM_LEGACY);
}

static void peers_enable(struct thread *t, int slot)
{
	struct model *w = t->model;

	for (int i = 0; i < CONTEXTS_MAX && peers_are_open(w->setting); i++) {
		if (!w->contexts[i].live ||
		    w->contexts[i].device == w->contexts[slot].device)
			continue;
		context_use(t, i);
		cuCtxEnablePeerAccess(w->contexts[slot].ctx, 0);
		context_use(t, slot);
		cuCtxEnablePeerAccess(w->contexts[i].ctx, 0);
	}
	context_use(t, slot);
}

static void contexts_count(struct model *w)
{
	unsigned live = 0;

	for (int i = 0; i < CONTEXTS_MAX; i++)
		live += w->contexts[i].live;
	if (w->contexts_peak < live)
		w->contexts_peak = live;
}

bool context_open(struct thread *t, int slot, int device, bool primary)
{
	struct model *w = t->model;
	struct context *context = &w->contexts[slot];
	CUcontext popped;

	/* It joins barriers that stand already. */
	if (w->capture_numbers > 0)
		plain_may_wait(w, EXCUSE_WAIT_CAPTURE);
	if (primary ? !FINE(t, cuDevicePrimaryCtxRetain(&context->ctx, device))
		    : !FINE(t, cuCtxCreate_v2(&context->ctx, 0, device)))
		return false;
	w->primary_refs[device] += primary;
	if (!primary) {
		FINE(t, cuCtxPopCurrent(&popped));
		t->context = -1;
	}
	context->device = device;
	context->primary = primary;
	context->live = true;
	contexts_count(w);
	context_use(t, slot);
	peers_enable(t, slot);
	return context_load(t, context);
}

/* Everything of the context is gone. */
void context_detach(struct model *w, int slot)
{
	for (struct block *block = w->blocks; block; block = block->next)
		if (block->context == slot)
			block_lose(block);
	for (unsigned i = 0; i < BLOCK_SLOTS; i++)
		if (w->slots[i] && w->slots[i]->context == slot)
			w->slots[i] = NULL;
	for (unsigned i = 0; i < PINNED_SLOTS; i++)
		if (w->pinned[i] && w->pinned[i]->context == slot)
			w->pinned[i] = NULL;
	for (uint32_t i = 0; i < w->stream_count; i++) {
		if (w->streams[i].context != slot)
			continue;
		stream_detach(w, &w->streams[i]);
		w->host.at[i] = w->streams[i].count;
	}
	for (unsigned i = 0; i < EVENT_SLOTS; i++)
		if (w->events[i].handle && w->events[i].context == slot)
			w->events[i] = (struct event){0};
	for (unsigned i = 0; i < THREADS_MAX; i++)
		if (w->threads[i].context == slot)
			w->threads[i].context = -1;
	graphs_detach_context(w, slot);
	pools_reset(w);
	w->contexts[slot] = (struct context){0};
}

/* By its last reference. */
static bool primary_release(struct thread *t, int device)
{
	int *refs = &t->model->primary_refs[device];

	while (*refs > 0) {
		if (!FINE(t, cuDevicePrimaryCtxRelease(device)))
			return false;
		--*refs;
	}
	return true;
}

static bool context_end(struct thread *t, int slot, bool idle, bool release)
{
	struct model *w = t->model;
	struct context *context = &w->contexts[slot];

	for (struct block *block = w->blocks; block; block = block->next)
		if (block->context == slot && !order_free(t, block))
			return false;
	if (!ipc_peer_closes_all(t, slot) || (idle && !host_wait_context(t, slot)))
		return false;
	if (idle)
		oracle_counter(w, slot);
	plain_waits(w, slot);
	if (!all_is_calm(w))
		plain_may_wait(w, EXCUSE_WAIT_CAPTURE);
	if (context->primary) {
		if (release ? !primary_release(t, context->device)
			    : !FINE(t, cuDevicePrimaryCtxReset(context->device)))
			return false;
	} else if (!FINE(t, cuCtxDestroy(context->ctx))) {
		return false;
	}
	w->streams_gone++; /* those of the context */
	captures_go(w, slot);
	context_detach(w, slot);
	return true;
}

/* What could be its end, and is not. */
static void context_hold(struct thread *t, int slot)
{
	const struct context *context = &t->model->contexts[slot];
	CUcontext ctx;

	context_use(t, slot);
	if (context->primary) {
		if (FINE(t, cuDevicePrimaryCtxRetain(&ctx, context->device)) &&
		    !FINE(t, cuDevicePrimaryCtxRelease(context->device)))
			t->model->primary_refs[context->device]++;
	} else if (FINE(t, cuCtxAttach(&ctx, 0))) {
		FINE(t, cuCtxDetach(ctx));
	}
}

static bool captures_itself(const struct thread *t)
{
	for (unsigned i = 0; i < CAPTURE_SLOTS; i++)
		if (t->model->captures[i].live &&
		    t->model->captures[i].thread == (int)t->number)
			return true;
	return false;
}

/* While captures are under way. */
static bool fits_captures(const struct thread *t, enum op_kind kind, int slot)
{
	if (kind == OP_CONTEXT_CREATE)
		return may_be_unsafe(t) && !captures_itself(t);
	return kind != OP_CONTEXT_HOLD && captures_may_go(t, slot);
}

void contexts_play(struct thread *t, const struct op *op)
{
	struct model *w = t->model;
	int slot = op->a % CONTEXTS_MAX, devices = w->setting->devices;
	struct context *context = &w->contexts[slot];

	if (op->kind == OP_USE_CONTEXT) {
		if (context->live)
			context_use(t, slot);
		return;
	}
	if (!all_is_calm(w) && !fits_captures(t, op->kind, slot))
		return;
	if (op->kind == OP_CONTEXT_HOLD) {
		if (context->live)
			context_hold(t, slot);
		return;
	}
	if (op->kind == OP_CONTEXT_CREATE) {
		if (!context->live)
			context_open(t, slot, slot < devices ? slot : op->b % devices,
				     slot < devices);
		return;
	}
	if (!context->live || context->primary != (op->kind != OP_CONTEXT_DESTROY) ||
	    !context_end(t, slot, op->how & 2, op->kind == OP_CONTEXT_RELEASE))
		return;
	if (slot == 0 || op->how & 1)
		context_open(t, slot, slot < devices ? slot : op->b % devices,
			     slot < devices);
}

/* --- streams --- */

static struct stream *stream_new(struct model *w, enum stream_kind kind, int context)
{
	struct stream *s;

	if (w->stream_count == STREAMS_MAX)
		return NULL;
	s = &w->streams[w->stream_count];
	*s = (struct stream){.kind = kind,
			     .live = true,
			     .context = context,
			     .number = w->stream_count++};
	return s;
}

void stream_detach(struct model *w, struct stream *s)
{
	s->live = false;
	for (unsigned i = 0; i < STREAM_SLOTS; i++)
		if (w->stream_slots[i] == s)
			w->stream_slots[i] = NULL;
}

/* A default stream of the current context. */
static struct stream *stream_default(struct thread *t, enum stream_kind kind)
{
	struct model *w = t->model;
	struct stream *s;

	for (uint32_t i = 0; i < w->stream_count; i++) {
		s = &w->streams[i];
		if (s->live && s->kind == kind && s->context == t->context &&
		    (kind == STREAM_LEGACY || s->thread == (int)t->number))
			return s;
	}
	s = stream_new(w, kind, t->context);
	if (s)
		s->thread = (int)t->number;
	return s;
}

static struct stream *stream_create(struct thread *t, unsigned slot, unsigned how)
{
	struct model *w = t->model;
	struct stream *s;
	CUstream handle;

	if (w->stream_count >= STREAMS_MAX - 8) /* room for default ones */
		return NULL;
	if (!FINE(t, cuStreamCreate(&handle, how & 1 ? CU_STREAM_NON_BLOCKING
						     : CU_STREAM_DEFAULT)))
		return NULL;
	s = stream_new(w, how & 1 ? STREAM_FREE : STREAM_BLOCKING, t->context);
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
	s = t->model->stream_slots[slot];
	return s ? s : stream_create(t, slot, slot);
}

CUstream stream_handle(struct thread *t, struct stream *s)
{
	context_use(t, s->context);
	if (t->worked != s)
		t->worked = NULL;
	t->last = s; /* events, too, tell the library which stream is worked on */
	if (s->kind == (STREAM_0_IS_PER_THREAD ? STREAM_PER_THREAD : STREAM_LEGACY) &&
	    !(s->count & 1))
		return NULL;
	if (s->kind == STREAM_LEGACY)
		return CU_STREAM_LEGACY;
	return s->kind == STREAM_PER_THREAD ? CU_STREAM_PER_THREAD : s->handle;
}

void streams_play(struct thread *t, const struct op *op)
{
	unsigned slot = op->c % STREAM_SLOTS;
	struct stream *s = slot < 2 ? NULL : t->model->stream_slots[slot];
	uint64_t ns = op->bytes;
	void *spin[] = {&ns};

	if (op->kind == OP_STREAM_CREATE) {
		if (!s && slot >= 2)
			stream_create(t, slot, op->how);
		return;
	}
	if (op->kind == OP_STREAM_DESTROY) {
		if (s && !s->capture && FINE(t, cuStreamDestroy(s->handle))) {
			t->model->streams_gone++;
			stream_detach(t->model, s);
		}
		return;
	}
	s = stream_pick(t, slot);
	if (!s || s->capture)
		return;
	if (op->kind == OP_STREAM_SYNC) {
		host_wait_stream(t, s);
	} else if (op->kind == OP_STREAM_QUERY) {
		if (may_be_unsafe(t) &&
		    (s->kind != STREAM_LEGACY ||
		     legacy_is_free(t->model, s->context)) &&
		    fine_query(t->model, cuStreamQuery(stream_handle(t, s))))
			clock_join(&t->model->host, &s->clock);
	} else if (s->kind != STREAM_LEGACY || legacy_is_free(t->model, s->context)) {
		CUfunction f = t->model->contexts[s->context].functions[4];

		if (FINE(t, cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream_handle(t, s),
					   spin, NULL)))
			order_step(t->model, s);
	}
}

/* --- events --- */

/* It stands for what it stood for before, in a capture too. */
static void event_record_refused(struct thread *t, const struct event *event,
				 CUstream stream)
{
	CUresult result = cuEventRecord(event->handle, stream);

	if (result != CUDA_ERROR_INVALID_HANDLE &&
	    fine(t->model, result, "a record in another context"))
		failure(t->model, "an event was recorded in another context");
}

static void event_record(struct thread *t, struct event *event, struct stream *s)
{
	CUstream handle = stream_handle(t, s);

	if (event->handle && event->context != s->context) {
		event_record_refused(t, event, handle);
		return;
	}
	if (!event->handle && !FINE(t, cuEventCreate(&event->handle, 0)))
		return;
	event->context = s->context;
	if (!FINE(t, cuEventRecord(event->handle, handle)))
		return;
	order_base(t->model, s, &event->clock);
	event->recorded = true;
	event->captured = 0;
}

static void event_sync(struct thread *t, const struct event *event)
{
	gcpsim_plain_asks(1);
	if (FINE(t, cuEventSynchronize(event->handle)))
		clock_join(&t->model->host, &event->clock);
	gcpsim_plain_asks(-1);
}

void events_play(struct thread *t, const struct op *op)
{
	struct event *event = &t->model->events[op->a % EVENT_SLOTS];
	struct stream *s;

	if (op->kind == OP_EVENT_DESTROY) {
		if (event->handle && FINE(t, cuEventDestroy(event->handle)))
			*event = (struct event){0};
		return;
	}
	if (op->kind == OP_EVENT_SYNC) {
		if (event->recorded && !event->captured && may_be_unsafe(t))
			event_sync(t, event);
		return;
	}
	s = stream_pick(t, op->c);
	if (!s || (s->kind == STREAM_LEGACY && !legacy_is_free(t->model, s->context)))
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
	else if (event->recorded && stream_wait(t, s, event->handle))
		clock_join(&s->clock, &event->clock);
}

/* --- calls that only look --- */

/* Of several blocks in one place one is counted: that which lives, and restoring lets
 * old ones live again; else the newest. */
static bool is_alone(const struct model *w, const struct block *block)
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

/* What is in use, and what graphs keep although it was freed, unless they share that.
 * What CUDA has given after a failure may be in no books. */
static uint64_t bytes_taken(const struct model *w, int device)
{
	uint64_t bytes = 0;

	for (const struct block *block = w->blocks; block; block = block->next)
		if (block->device == device && !block->host && !block->borrowed &&
		    !gcpsim_is_on_host(block->addr) &&
		    !(block->passed && fault_excuses(w)) &&
		    (block->live || (!w->setting->share && block_is_kept(w, block))) &&
		    is_alone(w, block))
			bytes += block->bytes;
	return bytes;
}

static void mem_info(struct thread *t)
{
	const struct setting *setting = t->model->setting;
	size_t left = 0, total = 0, memory = setting->memory, taken;

	if (setting->quota && setting->quota < memory && !setting->plain)
		memory = setting->quota >> 21 << 21; /* in steps of 2 MiB */
	if (!FINE(t, cuMemGetInfo(&left, &total)))
		return;
	if (left > total || total != memory)
		failure(t->model, "cuMemGetInfo says %lu of %lu", left, total);
	if (setting->memory_small || setting->leak)
		return;
	taken = bytes_taken(t->model, t->model->contexts[t->context].device);
	if (left + taken > total)
		failure(t->model, "cuMemGetInfo says %lu of %lu, and %lu are taken",
			left, total, taken);
}

/* The books are looked at before: peaks are of what was live since. */
static void peaks_reset(struct model *w, int device)
{
	if (library.reset_peaks(device) == 0)
		w->peak_blocks[device] = w->peak_bytes[device] = 0;
}

/* The program has waited for everything, or not. What wakes the library is a call of
 * its own, or the program's next one. */
static void sleep_play(struct thread *t, const struct op *op)
{
	uint64_t before[2] = {gcpsim_memory_used(0), gcpsim_memory_used(1)};
	struct gcpool_stats stats;
	struct model *w = t->model;
	int result, wakes = 0;

	if (!library.sleep || w->setting->plain || !w->setting->sleep)
		return;
	for (int i = 0; i < CONTEXTS_MAX && op->how & 1 && all_is_calm(w); i++)
		if (w->contexts[i].live && !host_wait_context(t, i))
			return;
	gcpsim_plain_asks(1);
	result = library.sleep(op->how & 1 && all_is_calm(w) ? 100 : 0);
	outcome->sleeps += result == 0;
	if (result == 0 && !all_is_calm(w))
		failure(w, "asleep while a stream captures");
	for (int i = 0; i < w->setting->devices && result == 0; i++)
		if (library.get_stats(i, &stats, sizeof(stats)) == 0 &&
		    gcpsim_memory_used(i) + stats.allocated_bytes.current > before[i] &&
		    !fault_excuses(w))
			failure(w, "asleep, and device %d has %lu bytes of %lu", i,
				gcpsim_memory_used(i), before[i]);
	if (library.asleep() && op->how & 2)
		wakes = library.wake();
	gcpsim_plain_asks(-1);
	if ((result > 0 || wakes) && !fault_excuses(w))
		failure(w, "gcpool_sleep gives %d, gcpool_wake %d", result, wakes);
}

void looks_play(struct thread *t, const struct op *op)
{
	int device = op->a % t->model->setting->devices;

	if (op->kind == OP_ADVANCE) {
		gcpsim_advance(op->bytes);
	} else if (op->kind == OP_TRIM && library.trim) {
		gcpsim_plain_asks(1);
		library.trim(device, op->how & 1 ? 0 : op->bytes << 6);
		gcpsim_plain_asks(-1);
	} else if (op->kind == OP_SLEEP) {
		sleep_play(t, op);
	} else if (op->kind == OP_RESET_PEAKS) {
		if (library.reset_peaks && library.active())
			peaks_reset(t->model, device);
	} else if (op->kind == OP_MEM_INFO) {
		mem_info(t);
	} else if (op->kind == OP_CTX_SYNC) {
		host_wait_context(t, t->context);
	} else if (op->kind == OP_STATS || op->kind == OP_THREAD_END) {
		oracle_books(t->model);
	}
}
