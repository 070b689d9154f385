/* SPDX-License-Identifier: MIT */
/*
 * order.c - what the program knows of order, and makes sure of before it touches
 * memory: one vector clock for each stream and one for the host.
 *
 * A third book beside the two of the simulated driver, and the careful one: it
 * claims only the order that CUDA promises (streams, events, the legacy stream,
 * waiting), never what the driver or the library happens to do. Above all a free
 * orders nothing here but the freed memory itself.
 */
#include "explore.h"

void clock_join(struct clock *clock, const struct clock *other)
{
	for (unsigned i = 0; i < LINES_MAX; i++)
		if (clock->at[i] < other->at[i])
			clock->at[i] = other->at[i];
}

bool is_blocking(const struct stream *s)
{
	return s->kind == STREAM_BLOCKING || s->kind == STREAM_PER_THREAD;
}

void order_base(struct model *w, const struct stream *s, struct clock *ret_clock)
{
	*ret_clock = s->clock;
	clock_join(ret_clock, &w->host);
	if (s->kind == STREAM_FREE)
		return;
	for (uint32_t i = 0; i < w->stream_count; i++) {
		const struct stream *other = &w->streams[i];

		if (!other->live || other->context != s->context)
			continue;
		if (s->kind == STREAM_LEGACY ? is_blocking(other)
					     : other->kind == STREAM_LEGACY)
			clock_join(ret_clock, &other->clock);
	}
}

struct mark order_step(struct model *w, struct stream *s)
{
	struct clock clock;

	order_base(w, s, &clock);
	s->clock = clock;
	s->clock.at[s->number] = ++s->count;
	return (struct mark){s->number, s->count};
}

/* --- the host waits --- */

bool may_be_unsafe(const struct thread *t)
{
	for (unsigned i = 0; i < CAPTURE_SLOTS; i++) {
		const struct capture *c = &t->model->captures[i];

		if (!c->live || t->mode == CU_STREAM_CAPTURE_MODE_RELAXED)
			continue;
		if (c->thread == (int)t->number &&
		    c->mode != CU_STREAM_CAPTURE_MODE_RELAXED)
			return false;
		if (t->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
		    c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL)
			return false;
	}
	return true;
}

bool context_is_calm(const struct model *w, int context)
{
	for (uint32_t i = 0; i < w->stream_count; i++)
		if (w->streams[i].context == context && w->streams[i].capture)
			return false;
	return true;
}

bool legacy_is_free(const struct model *w, int context)
{
	for (uint32_t i = 0; i < w->stream_count; i++)
		if (w->streams[i].context == context && w->streams[i].capture &&
		    is_blocking(&w->streams[i]))
			return false;
	return true;
}

bool all_is_calm(const struct model *w)
{
	for (unsigned i = 0; i < CAPTURE_SLOTS; i++)
		if (w->captures[i].live)
			return false;
	return true;
}

bool can_name(const struct thread *t, const struct stream *s)
{
	return s->kind != STREAM_PER_THREAD || s->thread == (int)t->number;
}

bool host_wait_stream(struct thread *t, struct stream *s)
{
	struct model *w = t->model;
	CUstream handle;
	bool good;

	if (s->capture || !may_be_unsafe(t))
		return false;
	if (!can_name(t, s))
		return host_wait_context(t, s->context);
	if (s->kind == STREAM_LEGACY && !legacy_is_free(w, s->context))
		return false;
	handle = stream_handle(t, s);
	gcpsim_plain_asks(1);
	good = FINE(t, cuStreamSynchronize(handle));
	gcpsim_plain_asks(-1);
	if (!good)
		return false;
	clock_join(&w->host, &s->clock);
	if (s->kind != STREAM_LEGACY)
		return true;
	for (uint32_t i = 0; i < w->stream_count; i++)
		if (w->streams[i].live && w->streams[i].context == s->context &&
		    is_blocking(&w->streams[i]))
			clock_join(&w->host, &w->streams[i].clock);
	return true;
}

/* For all that the context has ever been given. */
bool host_wait_context(struct thread *t, int context)
{
	struct model *w = t->model;

	if (!w->contexts[context].live)
		return true;
	if (!may_be_unsafe(t) || !context_is_calm(w, context))
		return false;
	context_use(t, context);
	plain_waits(w, context);
	if (!FINE(t, cuCtxSynchronize()))
		return false;
	for (uint32_t i = 0; i < w->stream_count; i++)
		if (w->streams[i].context == context)
			w->host.at[i] = w->streams[i].count;
	return true;
}

/* --- before memory is touched --- */

bool stream_wait(struct thread *t, struct stream *s, CUevent event)
{
	CUstream handle = stream_handle(t, s);
	bool good;

	gcpsim_plain_asks(1);
	good = FINE(t, cuStreamWaitEvent(handle, event, 0));
	gcpsim_plain_asks(-1);
	return good;
}

/* A stream waits for all that another one was given. */
static bool stream_follow(struct thread *t, struct stream *s, struct stream *before)
{
	struct model *w = t->model;
	CUevent event;
	bool good;

	/* Only its own thread can name a per-thread stream. */
	if (!can_name(t, before))
		return host_wait_context(t, before->context);
	if (before->capture || s->capture ||
	    (before->kind == STREAM_LEGACY && !legacy_is_free(w, before->context)))
		return false;
	context_use(t, before->context);
	if (!FINE(t, cuEventCreate(&event, CU_EVENT_DISABLE_TIMING)))
		return false;
	good = FINE(t, cuEventRecord(event, stream_handle(t, before))) &&
	       stream_wait(t, s, event);
	if (good) {
		struct clock clock;

		order_base(w, before, &clock);
		clock_join(&s->clock, &clock);
	}
	FINE(t, cuEventDestroy(event));
	return good;
}

static bool order_mark(struct thread *t, struct stream *s, struct mark mark,
		       unsigned how)
{
	struct stream *before = &t->model->streams[mark.stream];
	struct clock clock;

	order_base(t->model, s, &clock);
	if (clock_covers(&clock, mark))
		return true;
	if (!before->live)
		return host_wait_context(t, before->context);
	switch (how % 8) {
	case 0:
		return host_wait_context(t, before->context);
	case 1:
		return host_wait_stream(t, before);
	default:
		return stream_follow(t, s, before);
	}
}

bool order_region(struct thread *t, struct stream *s, const struct region *region,
		  int want, unsigned how)
{
	if (!order_mark(t, s, region->writer, how))
		return false;
	for (uint32_t i = 0; want == WANT_WRITE && i < t->model->stream_count; i++)
		if (!order_mark(t, s, (struct mark){i, region->readers.at[i]}, how))
			return false;
	return true;
}

static bool host_mark(struct thread *t, struct mark mark)
{
	struct stream *before = &t->model->streams[mark.stream];

	if (clock_covers(&t->model->host, mark))
		return true;
	return before->live ? host_wait_stream(t, before)
			    : host_wait_context(t, before->context);
}

bool order_host(struct thread *t, const struct region *region, int want)
{
	if (!host_mark(t, region->writer))
		return false;
	for (uint32_t i = 0; want == WANT_WRITE && i < t->model->stream_count; i++)
		if (!host_mark(t, (struct mark){i, region->readers.at[i]}))
			return false;
	return true;
}

void region_touch(struct region *region, struct mark mark, int want)
{
	if (want == WANT_READ) {
		region->readers.at[mark.stream] = mark.n;
		return;
	}
	region->writer = mark;
	memset(&region->readers, 0, sizeof(region->readers));
}

/* --- before memory is freed --- */

/* Whether work of the block's own context comes after: what a free of CUDA waits
 * for. */
static bool own_mark(struct thread *t, const struct block *block, struct mark mark)
{
	struct model *w = t->model;

	if (clock_covers(&w->host, mark) ||
	    w->streams[mark.stream].context == block->context)
		return true;
	for (uint32_t i = 0; i < w->stream_count; i++)
		if (w->streams[i].live && w->streams[i].context == block->context &&
		    clock_covers(&w->streams[i].clock, mark))
			return true;
	return host_mark(t, mark);
}

bool order_free(struct thread *t, struct block *block)
{
	for (unsigned r = 0; r < REGIONS; r++) {
		const struct region *region = &block->regions[r];

		if (!own_mark(t, block, region->writer))
			return false;
		for (uint32_t i = 0; i < t->model->stream_count; i++) {
			struct mark mark = {i, region->readers.at[i]};

			if (!own_mark(t, block, mark))
				return false;
		}
	}
	return true;
}
