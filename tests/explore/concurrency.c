/* SPDX-License-Identifier: MIT */
/*
 * concurrency.c - what one step of one thread does not show: threads that run at the
 * same time, hundreds of frees in a row, and a kernel that begins to refuse things.
 *
 * The concurrent threads work on memory of their own and give all of it back, so the
 * model does not change by them; what they do together is found by the checkers of
 * the simulated driver and by the books afterwards. Which of them is when the faster
 * one no seed says.
 */
#include "explore.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "gcpool.h"

enum { MEMBERS_MAX = 4, HELD_MAX = 8, ROUNDS = 40 };

/* Where the kernel refuses suddenly, each look into a thread's cache takes 10 ms. */
enum { FILTERED_STEPS = 6 };

/* --- at the same time --------------------------------------------------------- */

struct held {
	CUdeviceptr addr; /* 0: none */
	uint64_t bytes;
};

struct member {
	struct model *model;
	const struct context *context;
	pthread_t handle;
	struct draw draw;
	CUstream stream;
	struct held held[HELD_MAX];
	void *pinned;
	bool left; /* memory that may not have been freed */
	unsigned refused;
	bool short_of_memory; /* of the device, for a block or a kernel */
	CUresult result;      /* the first that no program should meet */
	const char *call;
};

/* What all of them hold or ask for, now and at most: in whole pieces of the driver's
 * memory, and of small blocks each size of each thread may lie in a piece of its own.
 */
enum { PIECE = 2 << 20, SMALL_SIZES = 5 };
static _Atomic uint64_t asked, asked_most;

static uint64_t pieces(uint64_t bytes)
{
	return bytes < PIECE ? bytes : (bytes + PIECE - 1) / PIECE * PIECE;
}

static void asks_for(uint64_t bytes)
{
	uint64_t now = atomic_fetch_add(&asked, pieces(bytes)) + pieces(bytes);
	uint64_t most = atomic_load(&asked_most);

	while (most < now && !atomic_compare_exchange_weak(&asked_most, &most, now))
		;
}

static bool went(struct member *m, CUresult result, const char *call)
{
	const struct fault *fault = m->model->setting->fault;

	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		m->refused++;
	if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY &&
	    (!m->call || (fault && (int)m->result == fault->code))) {
		m->result = result;
		m->call = call;
	}
	return result == CUDA_SUCCESS;
}
#define WENT(m, call) went(m, (call), #call)

static void take(struct member *m, struct held *held)
{
	static const uint64_t sizes[] = {600, 5000, 5000, 40000, 300000, 3 << 20};
	uint64_t bytes = sizes[draw_below(&m->draw, 6)], words = bytes / 4, spin = 0;
	uint32_t value = (uint32_t)draw_next(&m->draw);
	void *params[] = {&held->addr, &words, &value, &spin};

	asks_for(bytes);
	held->bytes = bytes;
	if (!WENT(m, cuMemAlloc(&held->addr, bytes))) {
		held->addr = 0;
		atomic_fetch_sub(&asked, pieces(bytes));
		m->short_of_memory = true;
	} else if (draw_below(&m->draw, 2))
		WENT(m, cuMemsetD32Async(held->addr, value, words, m->stream));
	else
		WENT(m, cuLaunchKernel(m->context->functions[0], 1, 1, 1, 32, 1, 1, 0,
				       m->stream, params, NULL));
}

/* A free that reports an error of the device may have freed all the same, and another
 * thread may have the memory by now: it is not tried again. */
static void give(struct member *m, struct held *held)
{
	if (!held->addr)
		return;
	gcpsim_plain_waits(m->context->ctx, false);
	if (!WENT(m, cuMemFree(held->addr)))
		m->left = true;
	held->addr = 0;
	atomic_fetch_sub(&asked, pieces(held->bytes));
}

static void pin(struct member *m)
{
	if (!m->pinned) {
		if (!WENT(m, cuMemHostAlloc(&m->pinned, 5000, 0)))
			m->pinned = NULL;
		return;
	}
	gcpsim_plain_waits(m->context->ctx, false);
	if (!WENT(m, cuMemFreeHost(m->pinned)))
		m->left = true;
	m->pinned = NULL;
}

/* Where nothing ends by itself, work on pinned memory is done when it has been asked
 * for a thousand times, with pauses between: many such waits takes many seconds. */
bool pinned_is_slow(void)
{
	const char *speed = getenv("GCPSIM_SPEED");

	return speed && strcmp(speed, "never") == 0;
}

static void look(struct member *m, uint64_t what)
{
	struct gcpool_stats stats;
	size_t left, total;
	uint64_t id;
	int device = m->context->device;

	if (what == 0)
		WENT(m, cuMemGetInfo(&left, &total));
	else if (what == 1 && library.get_stats)
		library.get_stats(device, &stats, sizeof(stats));
	else if (what == 2 && library.trim)
		library.trim(device, draw_below(&m->draw, 4 << 20));
	else if (what == 3 && library.trim && !pinned_is_slow())
		library.trim(GCPOOL_HOST, 0);
	else if (what == 4 && library.pool_create && library.pool_create(&id) == 0)
		library.pool_release(id);
}

static void *member_run(void *data)
{
	struct member *m = data;

	/* What a free of one thread waits for of another one's work no order says. */
	gcpsim_plain_asks(1);
	if (!WENT(m, cuCtxSetCurrent(m->context->ctx)) ||
	    !WENT(m, cuStreamCreate(&m->stream, CU_STREAM_NON_BLOCKING)))
		return NULL;
	for (int round = 0; round < ROUNDS && !m->call; round++) {
		struct held *held = &m->held[draw_below(&m->draw, HELD_MAX)];
		uint64_t what = draw_below(&m->draw, 24);

		if (what < 5)
			look(m, what);
		else if (what < 8)
			pin(m);
		else if (held->addr)
			give(m, held);
		else
			take(m, held);
	}
	for (int i = 0; i < HELD_MAX; i++)
		give(m, &m->held[i]);
	if (m->pinned)
		pin(m);
	WENT(m, cuStreamDestroy(m->stream));
	return NULL;
}

static void concurrent_threads(struct thread *t, const struct op *op)
{
	static struct member members[MEMBERS_MAX];
	struct model *w = t->model;
	unsigned count = 2 + op->how % (MEMBERS_MAX - 1);

	if (!all_is_calm(w) || w->setting->leak)
		return;
	w->frees++;
	atomic_store(&asked, 0);
	atomic_store(&asked_most, 0);
	for (unsigned i = 0; i < count; i++) {
		members[i] = (struct member){.model = w,
					     .context = &w->contexts[t->context],
					     .draw = {.state = op->value + i}};
		if (pthread_create(&members[i].handle, NULL, member_run, &members[i]))
			failure(w, "no thread for the explorer itself");
	}
	for (unsigned i = 0; i < count; i++)
		pthread_join(members[i].handle, NULL);
	for (unsigned i = 0; i < count; i++) {
		w->left |= members[i].left;
		for (unsigned k = 0; k < members[i].refused; k++)
			excused(EXCUSE_CONCURRENT);
		if (members[i].short_of_memory && !w->setting->leak &&
		    !w->setting->plain &&
		    !plain_lacks(w, w->contexts[t->context].device,
				 asked_most + count * SMALL_SIZES * PIECE) &&
		    !fault_excuses(w))
			failure(w,
				"several threads asked for %lu bytes at most, and "
				"were refused",
				asked_most);
	}
	w->streams_gone += count; /* theirs */
	for (unsigned i = 0; i < count; i++)
		if (members[i].call && !fault_gives(w, members[i].result))
			failure(w, "with other threads %.40s gives %d", members[i].call,
				(int)members[i].result);
}

/* --- one after the other ------------------------------------------------------ */

/* One block more than the books will show afterwards. */
static void peak_raise(struct model *w, int device, uint64_t bytes)
{
	uint64_t blocks = 1;

	w->frees++;
	for (const struct block *block = w->blocks; block; block = block->next)
		if (block->live && !block->host && !block->borrowed && !block->passed &&
		    block->device == device) {
			bytes += block->bytes;
			blocks++;
		}
	if (w->peak_blocks[device] < blocks)
		w->peak_blocks[device] = blocks;
	if (w->peak_bytes[device] < bytes)
		w->peak_bytes[device] = bytes;
}

static bool storm_turn(struct thread *t, bool pinned, uint64_t bytes)
{
	int device = pinned ? -1 : t->model->contexts[t->context].device;
	uint64_t plain = plain_take(t->model, device, bytes);
	CUdeviceptr addr = 0;
	void *p = NULL;
	CUresult result;

	result = pinned ? cuMemAllocHost(&p, bytes) : cuMemAlloc(&addr, bytes);
	plain_compare(t->model, device, bytes, plain, result);
	if (result == CUDA_ERROR_OUT_OF_MEMORY ||
	    !fine(t->model, result, "an allocation of many"))
		return false;
	if (!pinned)
		peak_raise(t->model, t->model->contexts[t->context].device, bytes);
	gcpsim_plain_free(plain);
	plain_waits(t->model, t->context);
	result = pinned ? cuMemFreeHost(p) : cuMemFree(addr);
	if (!fine(t->model, result, "a free of many"))
		(void)(pinned ? cuMemFreeHost(p) : cuMemFree(addr));
	return true;
}

/* More frees than there is room for fences, behind work that takes its time. */
static void storm(struct thread *t, const struct op *op)
{
	enum { FREES = 600, PINNED_FREES = 300 };
	struct model *w = t->model;
	struct stream *s = stream_pick(t, op->c);
	uint64_t ns = 1000000, bytes = 512 + op->bytes % 4096;
	void *spin[] = {&ns};
	bool pinned = op->how & 1;

	/* Frees ask for what streams of other contexts have; a thousand queries of one
	 * event are a wait in the simulator, where nothing runs by itself. */
	if (!s || !all_is_calm(w) || !may_be_unsafe(t) || w->setting->leak ||
	    w->freed_elsewhere)
		return;
	if (FINE(t, cuLaunchKernel(w->contexts[s->context].functions[4], 1, 1, 1, 32, 1,
				   1, 0, stream_handle(t, s), spin, NULL)))
		order_step(w, s);
	for (int i = pinned ? PINNED_FREES : FREES; i > 0; i--)
		if (!storm_turn(t, pinned, bytes))
			return;
}

/* --- a kernel that refuses ---------------------------------------------------- */

/* membarrier(2) fails from now on, in this thread and those it starts, as under a
 * filter of a container. */
void concurrency_filter(struct model *w)
{
	struct sock_filter rules[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof(rules) / sizeof(*rules),
				     .filter = rules};

	if (w->filtered)
		return;
	w->filtered = true;
	/* Where that is not allowed, there is nothing to see. */
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
		(void)prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

void concurrency_play(struct thread *t, const struct op *op)
{
	if (op->kind == OP_CONCURRENT)
		concurrent_threads(t, op);
	else if (op->kind == OP_STORM)
		storm(t, op);
	else if (t->model->step + FILTERED_STEPS > t->model->history->count)
		concurrency_filter(t->model);
}
