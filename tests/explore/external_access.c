/* SPDX-License-Identifier: MIT */
/*
 * external_access.c - what is in no stream: host functions, network cards, other
 * processes, forks of this one, and a device that others take memory from.
 *
 * A device outside every queue may write only once all is done, on plain CUDA after a
 * wait, and at once into memory that is fresh.
 */
#include "explore.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- devices and processes that write by themselves --- */

static bool all_is_done(struct thread *t, struct block *block)
{
	return order_host(t, &block->regions[0], WANT_WRITE) &&
	       order_host(t, &block->regions[1], WANT_WRITE);
}

/* And graphs of its pools: a program that names a pool for several captures knows that
 * each of them may write what the others were given. */
static bool graphs_are_done(struct thread *t, const struct block *block)
{
	struct model *w = t->model;

	for (uint32_t i = 1; i <= w->pool_count; i++)
		if ((block->pools | pool_bit(block->named_pool)) & pool_bit(i) &&
		    !order_host(t, &w->pools[i].launches, WANT_WRITE))
			return false;
	return true;
}

/* The block is filled from outside now. */
static void fill_externally(struct model *w, struct block *block, uint32_t value)
{
	for (unsigned r = 0; r < REGIONS; r++) {
		struct region *region = &block->regions[r];
		uint64_t at = block->addr + region->offset;

		if (region->words == 0)
			continue;
		gcpsim_touch(at, region->words * 4, 1);
		for (uint32_t i = 0; i < region->words; i++)
			if (gcpsim_poke(at + i * 4, &value, 4) != 0)
				failure(w, "there is no memory at 0x%lx", at);
		region->known = region->words;
		region->value = value;
	}
}

bool external_export(struct thread *t, struct block *block, CUipcMemHandle *ret_handle)
{
	struct model *w = t->model;
	CUresult result;

	if (!awake(w))
		return false;
	context_use(t, block->context);
	plain_may_wait(w, EXCUSE_WAIT_EXPORT);
	result = cuIpcGetMemHandle(ret_handle, block->addr);
	if (block->async || block->spilled) {
		if (result != CUDA_ERROR_INVALID_VALUE)
			failure(w, "a handle that CUDA does not give: %d", (int)result);
		return false;
	}
	block->exported = true;
	return fine(w, result, "cuIpcGetMemHandle");
}

static void external_write(struct thread *t, struct block *block, const struct op *op)
{
	struct model *w = t->model;
	CUipcMemHandle handle;

	if (!block || block->borrowed || block_is_early(w, block))
		return;
	if (op->kind == OP_EXPORT) {
		/* Waits where it has to; in a capture it cannot. */
		if (!all_is_calm(w) && !may_be_unsafe(t))
			return;
		if (!all_is_done(t, block) || !external_export(t, block, &handle))
			return;
	} else if ((!w->setting->completed && !w->writers) || !all_is_done(t, block) ||
		   !graphs_are_done(t, block)) {
		return; /* nothing told the library of such a device */
	}
	fill_externally(w, block, op->value);
}

/* --- forks --- */

/* CUDA does not work in the child, and the library must not get in the way. */
static int fork_child(const struct model *w)
{
	CUdeviceptr addr = 0;
	CUcontext ctx = NULL;

	alarm(w->setting->step_s);
	if (cuMemAlloc(&addr, 1000) != CUDA_ERROR_NOT_INITIALIZED)
		return 2;
	if (w->blocks && cuMemFree(w->blocks->addr) != CUDA_ERROR_NOT_INITIALIZED)
		return 3;
	if (cuCtxGetCurrent(&ctx) == CUDA_SUCCESS)
		return 4;
	if (library.trim && library.trim(0, 0) != 0)
		return 5;
	return library.active && library.active() ? 6 : 0;
}

static void fork_op(struct thread *t)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(fork_child(t->model));
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
		failure(t->model, "a forked child ends with status 0x%x", status);
}

/* --- host functions, less memory --- */

static void host_function(void *data)
{
	__atomic_add_fetch((uint64_t *)data, 1, __ATOMIC_RELAXED);
}

static void host_function_op(struct thread *t, const struct op *op)
{
	static uint64_t calls;
	struct stream *s = stream_pick(t, op->c);

	if (!s || s->capture ||
	    (s->kind == STREAM_LEGACY && !legacy_is_free(t->model, s->context)))
		return;
	if (FINE(t, cuLaunchHostFunc(stream_handle(t, s), host_function, &calls)))
		order_step(t->model, s);
}

/* Another process takes memory of the device, or leaves some. What a wake needs is
 * there: faults show what comes of it else. */
static void shrink_op(struct thread *t, const struct op *op)
{
	struct model *w = t->model;
	int device = op->a % w->setting->devices;
	uint64_t memory = w->setting->memory, used = gcpsim_memory_used(device);

	if (!w->setting->memory_small || (library.asleep && library.asleep()))
		return;
	if (op->how & 1)
		memory -= memory / 2 * (op->how / 2) / 128;
	if (w->setting->sleep && memory < used)
		memory = used;
	w->memory[device] = memory;
	gcpsim_set_memory(device, memory);
}

/* A library is loaded whose devices write by themselves. They do if it was there before
 * anything was freed: else nothing says since when our library knows. */
static void verbs_op(struct thread *t)
{
	const char *backend = getenv("GCPOOL_BACKEND");
	char path[512];
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 20);

	if (length < 0 || !all_is_calm(t->model))
		return;
	path[length] = 0;
	strcpy(strrchr(path, '/') + 1, "libibverbs.so");
	if (!dlopen(path, RTLD_NOW | RTLD_LOCAL))
		failure(t->model, "cannot load %s: %s", path, dlerror());
	t->model->writers |= t->model->frees == 0;
	t->model->ordinary |= !backend || strcmp(backend, "auto") == 0;
}

void external_access_play(struct thread *t, const struct op *op)
{
	if (op->kind == OP_EXTERNAL_WRITE || op->kind == OP_EXPORT)
		external_write(t, t->model->slots[op->a % BLOCK_SLOTS], op);
	else if (op->kind == OP_FORK)
		fork_op(t);
	else if (op->kind == OP_HOST_FUNCTION)
		host_function_op(t, op);
	else if (op->kind == OP_SHRINK)
		shrink_op(t, op);
	else
		verbs_op(t);
}
