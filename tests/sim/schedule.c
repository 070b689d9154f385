/* SPDX-License-Identifier: MIT */
/*
 * schedule.c - operations, the device's clock, and what runs when.
 *
 * An operation waits for others; when the last of them is done it is ready and
 * gets the time at which it will be done: now, or when it became ready, plus
 * its duration, plus a delay drawn from the seed. Ready operations lie in a
 * heap by that time. The clock moves when calls are made (sim_schedule_tick),
 * and when the host waits. So every schedule that the order allows can happen,
 * and the same seed gives the same one.
 *
 * Called by stream.c, event.c, context.c and exec.c, under the big lock. Host
 * functions run on a thread of the driver's without the lock; a thread that
 * makes them run waits a little for them, so that runs repeat, but not for ever,
 * because a host function may need a lock that the caller holds.
 */
#include "sim.h"

#include <time.h>

static int64_t speed = GCPSIM_RANDOM;
static uint64_t now_ns, random_state = 1, order_next, unfinished;
static uint64_t ticks, tempo = 1;

static struct sim_op **heap;
static uint32_t heap_count, heap_capacity;

static void op_ready(struct sim_op *op);

/* --- randomness ----------------------------------------------------------- */

static uint64_t draw(uint64_t below)
{
	random_state += 0x9E3779B97F4A7C15ull; /* splitmix64 */
	uint64_t z = random_state;

	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
	return (z ^ (z >> 31)) % below;
}

/* Mostly short, sometimes longer than everything around it. */
static uint64_t draw_delay(void)
{
	if (speed != GCPSIM_RANDOM)
		return 1000;
	switch (draw(8)) {
	case 0:
		return draw(500000);
	case 1:
	case 2:
		return draw(30000);
	default:
		return draw(2000);
	}
}

void sim_schedule_seed(uint64_t seed)
{
	random_state = seed * 0xD1342543DE82EF95ull + 1;
	ticks = 0;
	tempo = 1;
}

/* --- the heap of ready operations ----------------------------------------- */

static bool earlier(const struct sim_op *a, const struct sim_op *b)
{
	if (a->finish_ns != b->finish_ns)
		return a->finish_ns < b->finish_ns;
	return a->order < b->order;
}

static void heap_put(uint32_t i, struct sim_op *op)
{
	heap[i] = op;
	op->heap_at = i;
}

static void heap_up(uint32_t i, struct sim_op *op)
{
	while (i > 0 && earlier(op, heap[(i - 1) / 2])) {
		heap_put(i, heap[(i - 1) / 2]);
		i = (i - 1) / 2;
	}
	heap_put(i, op);
}

static void heap_down(uint32_t i, struct sim_op *op)
{
	for (;;) {
		uint32_t child = 2 * i + 1;

		if (child + 1 < heap_count && earlier(heap[child + 1], heap[child]))
			child++;
		if (child >= heap_count || !earlier(heap[child], op))
			break;
		heap_put(i, heap[child]);
		i = child;
	}
	heap_put(i, op);
}

static void heap_add(struct sim_op *op)
{
	heap = sim_grow(heap, &heap_capacity, heap_count + 1, sizeof(*heap));
	heap_up(heap_count++, op);
}

static void heap_remove(struct sim_op *op)
{
	uint32_t i = op->heap_at;
	struct sim_op *last = heap[--heap_count];

	if (last == op)
		return;
	if (i > 0 && earlier(last, heap[(i - 1) / 2]))
		heap_up(i, last);
	else
		heap_down(i, last);
}

/* --- operations ----------------------------------------------------------- */

struct sim_op *sim_op_get(struct sim_op *op)
{
	if (op)
		op->refs++;
	return op;
}

void sim_op_put(struct sim_op *op)
{
	if (!op || --op->refs > 0)
		return;
	sim_work_finish(&op->work);
	sim_tags_free(op->tags);
	free(op->before);
	free(op->after);
	free(op);
}

bool sim_op_done(const struct sim_op *op)
{
	return !op || op->state == SIM_OP_DONE;
}

void sim_ops_add(struct sim_ops *ops, struct sim_op *op)
{
	if (sim_op_done(op))
		return;
	for (uint32_t i = 0; i < ops->count; i++)
		if (ops->at[i] == op)
			return;
	ops->at = sim_grow(ops->at, &ops->capacity, ops->count + 1, sizeof(*ops->at));
	ops->at[ops->count++] = sim_op_get(op);
}

void sim_ops_free(struct sim_ops *ops)
{
	for (uint32_t i = 0; i < ops->count; i++)
		sim_op_put(ops->at[i]);
	free(ops->at);
	*ops = (struct sim_ops){0};
}

static void op_wait_for(struct sim_op *op, struct sim_op *before)
{
	before->after = sim_grow(before->after, &before->afters_capacity,
				 before->afters + 1, sizeof(struct sim_op *));
	before->after[before->afters++] = op;
	op->before[op->befores++] = sim_op_get(before);
	op->pending++;
}

struct sim_op *sim_op_submit(struct sim_ctx *ctx, const struct sim_work *work,
			     const struct sim_ops *before)
{
	struct sim_op *op = sim_calloc(sizeof(*op));

	sim_work_copy(&op->work, work);
	op->ctx = ctx;
	op->refs = 2; /* the caller's and the scheduler's */
	op->order = order_next++;
	op->ready_ns = now_ns;
	op->before = sim_calloc((before ? before->count : 0) * sizeof(struct sim_op *));
	op->tags = sim_tags_submit(work, op->order + 1);
	unfinished++;
	for (uint32_t i = 0; before && i < before->count; i++)
		if (!sim_op_done(before->at[i]))
			op_wait_for(op, before->at[i]);
	if (op->pending == 0)
		op_ready(op);
	return op;
}

static void op_done(struct sim_op *op)
{
	op->state = SIM_OP_DONE;
	unfinished--;
	for (uint32_t i = 0; i < op->befores; i++)
		sim_op_put(op->before[i]);
	op->befores = 0;
	for (uint32_t i = 0; i < op->afters; i++) {
		struct sim_op *after = op->after[i];

		if (after->ready_ns < op->finish_ns)
			after->ready_ns = op->finish_ns;
		if (--after->pending == 0)
			op_ready(after);
	}
	op->afters = 0;
	sim_hold_put(op->hold);
	op->hold = NULL;
	sim_op_put(op);
}

static void op_run(struct sim_op *op)
{
	struct sim_ctx *ctx = op->ctx->parent ? op->ctx->parent : op->ctx;
	struct sim_work *work = &op->work;
	CUresult result;

	if (now_ns < op->finish_ns)
		now_ns = op->finish_ns;
	if (work->kind == SIM_WORK_HOST && ctx->error == CUDA_SUCCESS) {
		op->state = SIM_OP_RUNNING;
		sim_host_post(work->host.fn, work->host.data, op);
		return;
	}
	if (ctx->error == CUDA_SUCCESS) {
		sim_tags_run(op->tags, work, op->order + 1);
		result = sim_work_run(ctx, work);
		if (result != CUDA_SUCCESS)
			SIM_STORE(ctx->error, result);
	}
	op_done(op);
}

static void op_ready(struct sim_op *op)
{
	op->state = SIM_OP_READY;
	op->finish_ns = op->ready_ns > now_ns ? op->ready_ns : now_ns;
	if (op->work.kind != SIM_WORK_NOTHING)
		op->finish_ns += op->work.duration_ns + draw_delay();
	if (speed == GCPSIM_IDLE) {
		op_run(op);
		return;
	}
	heap_add(op);
	/* An order takes no time: it is done with what it waited for. */
	if (op->work.kind == SIM_WORK_NOTHING && op->finish_ns <= now_ns) {
		heap_remove(op);
		op_run(op);
	}
}

/* --- the driver's thread -------------------------------------------------- */

struct host_job {
	void (*fn)(void *data);
	void *data;
	struct sim_op *op;
	struct host_job *next;
};

static struct host_job *jobs_first, *jobs_last;
static uint64_t jobs_posted, jobs_finished;
static pthread_cond_t jobs_there = PTHREAD_COND_INITIALIZER;
static pthread_cond_t jobs_done = PTHREAD_COND_INITIALIZER;
static bool host_thread_runs;

static void *host_thread(void *unused)
{
	(void)unused;
	sim_thread_self()->in_callback = true;
	sim_lock();
	for (;;) {
		struct host_job *job;

		while (!jobs_first)
			pthread_cond_wait(&jobs_there, &sim_big_lock);
		job = jobs_first;
		jobs_first = job->next;
		sim_unlock();
		job->fn(job->data);
		sim_lock();
		if (job->op)
			op_done(job->op);
		free(job);
		jobs_finished++;
		pthread_cond_broadcast(&jobs_done);
	}
	return NULL;
}

static void host_thread_start(void)
{
	pthread_attr_t attr;
	pthread_t thread;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&thread, &attr, host_thread, NULL) != 0)
		abort();
	pthread_attr_destroy(&attr);
	host_thread_runs = true;
}

/* A thread that is cancelled in a wait leaves the lock, as the driver's calls do. */
static void big_lock_leave(void *unused)
{
	(void)unused;
	pthread_mutex_unlock(&sim_big_lock);
}

/* At the end of a call, when the queues are whole: others come in meanwhile.
 * Up to 20 ms: long enough for runs to repeat, short enough for a function
 * that needs something the caller holds. */
static void host_wait_briefly(uint64_t job)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 20000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	pthread_cleanup_push(big_lock_leave, NULL);
	while (jobs_finished < job)
		if (pthread_cond_timedwait(&jobs_done, &sim_big_lock, &until) != 0)
			break;
	pthread_cleanup_pop(0);
}

void sim_host_post(void (*fn)(void *data), void *data, struct sim_op *op)
{
	struct host_job *job = sim_calloc(sizeof(*job));

	job->fn = fn;
	job->data = data;
	job->op = op;
	if (jobs_first)
		jobs_last->next = job;
	else
		jobs_first = job;
	jobs_last = job;
	jobs_posted++;
	if (!host_thread_runs)
		host_thread_start();
	pthread_cond_signal(&jobs_there);
	if (!sim_thread_self()->in_callback)
		sim_thread_self()->posted = jobs_posted;
}

void sim_host_wait_posted(struct sim_thread *thread)
{
	uint64_t job = thread->posted;

	thread->posted = 0;
	if (job > 0)
		host_wait_briefly(job);
}

/* --- time ----------------------------------------------------------------- */

static void run_until(uint64_t until)
{
	while (heap_count > 0 && heap[0]->finish_ns <= until) {
		struct sim_op *op = heap[0];

		heap_remove(op);
		op_run(op);
	}
	if (now_ns < until)
		now_ns = until;
}

void sim_schedule_tick(void)
{
	uint64_t step;

	if (speed == GCPSIM_IDLE || speed == GCPSIM_NEVER)
		return;
	if (speed > 0) {
		step = (uint64_t)speed;
	} else {
		/* The host is now faster, now slower than the device. */
		if (ticks++ % 32 == 0) {
			static const uint64_t tempos[] = {0, 1, 1, 30};

			tempo = tempos[draw(4)];
		}
		step = tempo * (100 + draw(900));
	}
	run_until(now_ns + step);
}

void sim_schedule_advance(uint64_t ns)
{
	run_until(now_ns + ns);
}

static void wait_for_host_thread(void)
{
	pthread_cond_wait(&jobs_done, &sim_big_lock);
}

void sim_schedule_drain(void)
{
	while (unfinished > 0) {
		if (heap_count > 0)
			run_until(heap[0]->finish_ns);
		else
			wait_for_host_thread();
	}
}

static struct sim_op *first_unfinished(const struct sim_op *op)
{
	for (uint32_t i = 0; i < op->befores; i++)
		if (!sim_op_done(op->before[i]))
			return op->before[i];
	return NULL;
}

/* NEVER: only what `op` needs, depth first, without recursion because queues
 * get long. Stops at what runs on the host. */
static void run_before(struct sim_op *op)
{
	struct sim_ops stack = {0};

	sim_ops_add(&stack, op);
	while (stack.count > 0) {
		struct sim_op *top = stack.at[stack.count - 1];

		if (top->state == SIM_OP_WAITING) {
			stack.at = sim_grow(stack.at, &stack.capacity, stack.count + 1,
					    sizeof(*stack.at));
			stack.at[stack.count++] = sim_op_get(first_unfinished(top));
			continue;
		}
		if (top->state == SIM_OP_READY) {
			heap_remove(top);
			op_run(top);
		}
		if (top->state == SIM_OP_RUNNING)
			break;
		sim_op_put(top);
		stack.count--;
	}
	sim_ops_free(&stack);
}

void sim_op_wait(struct sim_op *op)
{
	sim_plain_wait(op);
	sim_op_get(op);
	while (!sim_op_done(op)) {
		if (speed == GCPSIM_NEVER) {
			run_before(op);
			if (!sim_op_done(op))
				wait_for_host_thread();
		} else if (heap_count > 0) {
			run_until(heap[0]->finish_ns);
		} else {
			wait_for_host_thread();
		}
	}
	sim_op_put(op);
}

void sim_ops_wait(struct sim_ops *ops)
{
	for (uint32_t i = 0; i < ops->count; i++)
		sim_op_wait(ops->at[i]);
	sim_ops_free(ops);
}

void sim_schedule_set_speed(int64_t value)
{
	speed = value;
	if (speed == GCPSIM_IDLE)
		sim_schedule_drain();
}

int64_t sim_schedule_speed(void)
{
	return speed;
}

uint64_t sim_schedule_order(void)
{
	return order_next;
}

uint64_t sim_schedule_clock(void)
{
	return now_ns;
}

uint64_t sim_schedule_pending(void)
{
	return unfinished;
}
