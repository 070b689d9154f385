/* SPDX-License-Identifier: MIT */
/*
 * play.c - plays a history as a program: its threads, one at a time, its steps,
 * and its end, where everything is given back.
 */
#include "explore.h"

#include <pthread.h>
#include <unistd.h>

#include "gcpool.h"

/* --- threads: one runs at a time ---------------------------------------------- */

static pthread_mutex_t baton_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t baton_moved = PTHREAD_COND_INITIALIZER;
static struct thread threads[THREADS_MAX];
static pthread_t handles[THREADS_MAX];

/* What the thread is to do: an operation, or to end. */
static const struct op ending;

static void *thread_run(void *data)
{
	struct thread *t = data;

	gcpsim_plain_watch();
	pthread_mutex_lock(&baton_lock);
	for (;;) {
		const struct op *op;

		while (!t->op)
			pthread_cond_wait(&baton_moved, &baton_lock);
		op = t->op;
		pthread_mutex_unlock(&baton_lock);
		if (op == &ending)
			return NULL;
		op_play(t, op);
		pthread_mutex_lock(&baton_lock);
		t->op = NULL;
		pthread_cond_broadcast(&baton_moved);
	}
}

static void thread_start(struct thread *t)
{
	if (t->alive)
		return;
	t->alive = true;
	t->context = -1;
	t->op = NULL;
	t->mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
	t->pool = 0;
	t->last = t->worked = NULL;
	if (t->number > 0 &&
	    pthread_create(&handles[t->number], NULL, thread_run, t) != 0)
		failure(t->model, "no thread for the explorer itself");
}

static void thread_end(struct thread *t)
{
	struct model *w = t->model;

	if (!t->alive || t->number == 0)
		return;
	for (unsigned i = 0; i < CAPTURE_SLOTS; i++)
		if (w->captures[i].live && w->captures[i].thread == (int)t->number)
			return;
	for (uint32_t i = 0; i < w->stream_count; i++)
		if (w->streams[i].capture && w->streams[i].thread == (int)t->number &&
		    w->streams[i].kind == STREAM_PER_THREAD)
			return;
	pthread_mutex_lock(&baton_lock);
	t->op = &ending;
	pthread_cond_broadcast(&baton_moved);
	pthread_mutex_unlock(&baton_lock);
	pthread_join(handles[t->number], NULL);
	t->alive = false;
	for (uint32_t i = 0; i < w->stream_count; i++)
		if (w->streams[i].kind == STREAM_PER_THREAD &&
		    w->streams[i].thread == (int)t->number)
			stream_detach(w, &w->streams[i]);
}

static void hand_over(struct thread *t, const struct op *op)
{
	thread_start(t);
	if (t->number == 0) {
		op_play(t, op);
		return;
	}
	pthread_mutex_lock(&baton_lock);
	t->op = op;
	pthread_cond_broadcast(&baton_moved);
	while (t->op)
		pthread_cond_wait(&baton_moved, &baton_lock);
	pthread_mutex_unlock(&baton_lock);
}

/* --- one step --- */

void alloc_play(struct thread *t, const struct op *op)
{
	struct block **slot = &t->model->slots[op->a % BLOCK_SLOTS];

	if (*slot)
		return;
	*slot = op->kind == OP_ALLOC
		    ? block_create(t, op->bytes ? op->bytes : 1)
		    : block_create_pitch(t, op->bytes % 3000 + 1, op->value % 100 + 1);
}

void free_play(struct thread *t, const struct op *op)
{
	struct block **slot = &t->model->slots[op->a % BLOCK_SLOTS];
	struct stream *s = NULL;

	if (*slot && op->kind != OP_FREE) {
		s = stream_pick(t, op->c);
		if (!s)
			return;
	}
	if (*slot && (s ? block_free_async(t, *slot, s) : block_free(t, *slot)))
		*slot = NULL;
}

static int context_first(const struct model *w)
{
	for (int i = 0; i < CONTEXTS_MAX; i++)
		if (w->contexts[i].live)
			return i;
	return -1;
}

static void (*const players[OP_KINDS])(struct thread *t, const struct op *op) = {
#define OPS_ROW(name, weight, group, player) [OP_##name] = player##_play,
    EXPLORE_OPS(OPS_ROW)};

void op_play(struct thread *t, const struct op *op)
{
	/* Any call of the operation may be the one that wakes the process, and waits.
	 */
	int asks = library.asleep && library.asleep();

	gcpsim_plain_asks(asks);
	if (t->context < 0) {
		int context = context_first(t->model);

		if (context < 0)
			context_open(t, 0, 0, true);
		else
			context_use(t, context);
	}
	if (t->context >= 0) /* else a planned fault was in the way */
		players[op->kind](t, op);
	gcpsim_plain_asks(-asks);
}

/* --- the whole --- */

static bool holds_memory_of_cudas(const struct model *w)
{
	for (const struct block *block = w->blocks; block; block = block->next)
		if (block->live && block->passed)
			return true;
	return false;
}

/* The program ends with its memory in use: where all of that is the library's. */
static bool may_exit_with_memory(const struct model *w)
{
	const struct setting *setting = w->setting;
	struct gcpool_host_stats stats;

	return setting->exit_with_memory && !setting->tight && !setting->leak &&
	       !setting->plain && !setting->quota && !setting->host_memory &&
	       !setting->host_quota && !holds_memory_of_cudas(w) && library.active &&
	       library.active() && library.get_host_stats(&stats, sizeof(stats)) == 0;
}

static void end_play(struct model *w)
{
	struct thread *t = &w->threads[0];

	fault_disarm();
	gcpsim_plain_asks(1);
	if (library.asleep && library.asleep() && library.wake() != 0)
		failure(w, "gcpool_wake fails");
	gcpsim_plain_asks(-1);
	plain_bounds(w);
	for (unsigned i = 0; i < CAPTURE_SLOTS; i++)
		if (w->captures[i].live) {
			struct op end = {
			    .kind = OP_CAPTURE_END, .how = 255, .a = (uint8_t)i};

			hand_over(&w->threads[w->captures[i].thread], &end);
		}
	graphs_end(t);
	for (int i = 0; i < CONTEXTS_MAX; i++)
		if (w->contexts[i].live)
			host_wait_context(t, i);
	for (int i = 0; i < CONTEXTS_MAX; i++)
		oracle_counter(w, i);
	results_check(w);
	promises_end(t);
	ipc_peer_closes_all(t, -1);
	ipc_peer_end(w);
	if (may_exit_with_memory(w)) {
		oracle_finish(w);
		return;
	}
	pinned_end(t);
	for (struct block *block = w->blocks; block; block = block->next)
		if (block->live && !block->host)
			block_free(t, block);
	oracle_end(w);
	if (w->setting->exit_with_memory)
		oracle_finish(w);
}

/* From here on calls are counted, or one of them fails. */
static void faults_begin(const struct setting *setting)
{
	if (setting->fault)
		fault_arm(setting->fault);
	else
		for (unsigned i = 0; fault_name(i); i++)
			outcome->calls[i] -= fault_count(i);
}

void play(const struct setting *setting, const struct history *history,
	  const uint8_t *kept)
{
	static struct setting mine;
	static struct model model;
	struct model *w = &model;

	mine = *setting;
	w->setting = &mine;
	w->history = history;
	w->threads = threads;
	w->memory[0] = w->memory[1] = setting->memory;
	for (unsigned i = 0; i < THREADS_MAX; i++)
		threads[i] = (struct thread){.model = w, .number = i, .context = -1};
	thread_start(&threads[0]);
	if (!FINE(&threads[0], cuInit(0)))
		return;
	oracle_init();
	oracle_finish_prepare();
	if (setting->filter)
		concurrency_filter(w);
	if (setting->early)
		faults_begin(setting);
	for (int i = 0; i < setting->devices; i++)
		context_open(&threads[0], i, i, true);
	/* Without memory for its pools the library leaves everything to CUDA. */
	mine.plain |= library.active && !library.active() && fault_excuses(w);
	if (!setting->early)
		faults_begin(setting);
	for (w->step = 0; w->step < history->count; w->step++) {
		const struct op *op = &history->ops[w->step];
		struct thread *t = &threads[op->thread % THREADS_MAX];

		outcome->step = w->step;
		if (kept && !kept[w->step])
			continue;
		outcome->steps++;
		alarm(setting->step_s);
		/* Most captures can be ended only by the thread that began them. */
		if (op->kind == OP_CAPTURE_END && capture_near(w, op->a)->live)
			t = &threads[capture_near(w, op->a)->thread];
		if (op->kind == OP_THREAD_END)
			thread_end(t);
		else
			hand_over(t, op);
		oracle_step(w);
		results_check(w);
	}
	for (unsigned i = 0; !setting->fault && fault_name(i); i++)
		outcome->calls[i] += fault_count(i);
	alarm(setting->step_s);
	end_play(w);
}
