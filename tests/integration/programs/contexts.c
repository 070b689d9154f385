/* SPDX-License-Identifier: MIT */
/*
 * contexts.c - memory over the life of contexts: reset, destroyed, several on
 * one device, several devices. The transcript must be the same with and without
 * the library, so no address is printed.
 *
 *   --devices N  use at most so many devices (default 2)
 *
 * Tried: everywhere
 * Run: transcript.py GCPSIM_DEVICES=2 @
 */
#include <pthread.h>

#include "api.h"
#include "kernels.h"
#include "util.h"

static void say(const char *what, int code)
{
	printf("%-58s %d %s\n", what, code, gcpt_error_name(code));
	gcpt_last_error();
}

/* Whether the current context can use the block. */
static void use(const char *what, void *p, size_t bytes)
{
	unsigned long long wrong = 0;
	struct gcpt_kernels k;
	void *counter;

	GCPT_OK(gcpt_kernels_load(&k), gcpt_malloc(&counter, sizeof(wrong)));
	GCPT_OK(gcpt_copy(counter, &wrong, sizeof(wrong)));
	GCPT_OK(gcpt_launch_fill(&k, NULL, p, bytes / 4, 7));
	GCPT_OK(gcpt_launch_check(&k, NULL, p, bytes / 4, 7, counter));
	GCPT_OK(gcpt_copy(&wrong, counter, sizeof(wrong)), gcpt_free(counter));
	GCPT_OK(cu.cuModuleUnload(k.module));
	printf("%-58s %llu wrong words\n", what, wrong);
}

static void reset(size_t bytes)
{
	void *p, *q;

	printf("-- reset, %zu bytes\n", bytes);
	GCPT_OK(gcpt_use(0), gcpt_malloc(&p, bytes), gcpt_malloc(&q, bytes));
	GCPT_OK(gcpt_free(q));
	say("reset", gcpt_device_reset(0));
	say("the device again", gcpt_use(0));
	say("free of a block from before the reset", gcpt_free(p));
	say("free of a block that was free before the reset", gcpt_free(q));
	say("malloc after the reset", gcpt_malloc(&p, bytes));
	use("it works", p, bytes);
	say("its free", gcpt_free(p));
}

static CUcontext create(int device)
{
	CUcontext context;

	GCPT_OK(cu.cuCtxCreate(&context, NULL, 0, device));
	return context;
}

static bool lives_in(void *p, CUcontext context)
{
	CUcontext found = NULL;

	GCPT_OK(cu.cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_CONTEXT,
					 (CUdeviceptr)(uintptr_t)p));
	return found == context;
}

static void destroyed(size_t bytes)
{
	CUcontext a, ignored;
	void *p, *q;

	printf("-- a context of the program's own, %zu bytes\n", bytes);
	a = create(0);
	say("malloc in it", gcpt_malloc(&p, bytes));
	use("it works", p, bytes);
	GCPT_OK(gcpt_malloc(&q, bytes), gcpt_free(q));
	say("destroy it with a live block", (int)cu.cuCtxDestroy(a));
	cu.cuCtxPopCurrent(&ignored);
	say("the primary context", gcpt_use(0));
	say("free of the dead context's block", gcpt_free(p));
	say("free of a block that was free before", gcpt_free(q));
}

/* What one context freed must not be given out in another: it would vanish with
 * the first. */
static void two_on_one_device(size_t bytes)
{
	CUcontext a, b, ignored;
	void *p, *q, *r;

	printf("-- two contexts on one device, %zu bytes\n", bytes);
	a = create(0);
	GCPT_OK(gcpt_malloc(&p, bytes));
	b = create(0);
	GCPT_OK(gcpt_malloc(&q, bytes));
	printf("blocks live where they were allocated: %s, %s\n",
	       lives_in(p, a) ? "yes" : "no", lives_in(q, b) ? "yes" : "no");
	say("free of a's block while b is current", gcpt_free(p));
	GCPT_OK(gcpt_malloc(&r, bytes));
	printf("the next block of b lives in b: %s\n", lives_in(r, b) ? "yes" : "no");
	say("destroy a", (int)cu.cuCtxDestroy(a));
	use("b's blocks work", r, bytes);
	use("b's blocks work", q, bytes);
	say("destroy b", (int)cu.cuCtxDestroy(b));
	cu.cuCtxPopCurrent(&ignored);
	GCPT_OK(gcpt_use(0));
}

struct task {
	void *p;
	int device, code;
};

static void *free_elsewhere(void *arg)
{
	struct task *task = arg;

	GCPT_OK(gcpt_use(task->device));
	task->code = gcpt_free(task->p);
	return NULL;
}

static void threads(size_t bytes)
{
	struct task task = {.device = 0};
	pthread_t thread;

	printf("-- threads, %zu bytes\n", bytes);
	GCPT_OK(gcpt_use(0), gcpt_malloc(&task.p, bytes));
	pthread_create(&thread, NULL, free_elsewhere, &task);
	pthread_join(thread, NULL);
	say("free by another thread", task.code);
	say("the same again", gcpt_free(task.p));
}

static void two_devices(size_t bytes)
{
	void *p, *q;

	printf("-- two devices, %zu bytes\n", bytes);
	GCPT_OK(gcpt_use(0), gcpt_malloc(&p, bytes), gcpt_use(1));
	GCPT_OK(gcpt_malloc(&q, bytes));
	use("device 1's block works", q, bytes);
	say("copy from device 1 to device 0", gcpt_copy(p, q, bytes));
	GCPT_OK(gcpt_sync()); /* the free below waits for device 0 alone */
	say("free of device 0's block on device 1", gcpt_free(p));
	say("the same again", gcpt_free(p));
	GCPT_OK(gcpt_use(0));
	say("free of device 1's block on device 0", gcpt_free(q));
	say("reset of device 1", gcpt_device_reset(1));
	GCPT_OK(gcpt_use(0), gcpt_malloc(&p, bytes));
	use("device 0 still works", p, bytes);
	GCPT_OK(gcpt_free(p));
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = {1000, 300000, 5 << 20};
	int count = 0, most = (int)gcpt_arg(argc, argv, "--devices", 2);

	GCPT_OK(gcpt_use(0), gcpt_device_count(&count));
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		threads(sizes[i]);
		reset(sizes[i]);
		if (!cu.cuCtxCreate) { /* this ABI came with CUDA 12.5 */
			printf("no cuCtxCreate_v4, left out\n");
			continue;
		}
		destroyed(sizes[i]);
		two_on_one_device(sizes[i]);
		if (count > 1 && most > 1)
			two_devices(sizes[i]);
	}
	return 0;
}
