/* SPDX-License-Identifier: MIT */
/*
 * waits.c - what an unmodified program waits for when memory is short: no more than on
 * plain CUDA. Work that ends only when the host has done its next step stands in a
 * stream; an allocation that waited for it would not return.
 *
 *   waits SCENARIO    plays one; 0: all is as it should be
 *
 * Environment: GCPSIM_MEMORY=1g GCPSIM_SPEED=never
 * Ways: GCPOOL_BACKEND=segments, GCPOOL_BACKEND=vmm
 */
#include "scenarios.h"

#include <glob.h>

enum { WATCHDOG_MS = 50000 }; /* then it takes the host's next step */

static atomic_bool stepped, helped, over;
static pthread_t watchdog;
static CUstream stream;

static void *watch(void *unused)
{
	for (int i = 0; i < WATCHDOG_MS / 10 && !atomic_load(&over); i++)
		usleep(10 * 1000);
	atomic_store(&helped, !atomic_load(&over));
	atomic_store(&stepped, true);
	return unused;
}

/* From here to the next step the stream does not get on. */
static void stand(void)
{
	atomic_store(&stepped, false);
	atomic_store(&over, false);
	OK(cuLaunchHostFunc(stream, wait_for_flag, &stepped));
	must(pthread_create(&watchdog, NULL, watch, NULL) == 0, "no watchdog");
}

static void step(void)
{
	atomic_store(&over, true);
	pthread_join(watchdog, NULL);
	must(!atomic_load(&helped), "it waited for work submitted after the free");
	OK(cuStreamSynchronize(stream));
}

static size_t device_bytes(void)
{
	size_t left, total;

	OK(cuMemGetInfo(&left, &total));
	return total;
}

static void begin(void)
{
	(void)primary();
	stream = stream_new();
}

BEGIN_WITH(begin)

/* Memory of `bytes` that work has used, and a small block that has not been freed with
 * so much else that its epoch is closed. */
static void use_and_free(size_t bytes)
{
	CUdeviceptr large = allocated(bytes), small = allocated(4096);

	OK(cuMemsetD8Async(large, 1, MIB, stream));
	OK(cuMemsetD8Async(small, 1, 4096, stream), cuStreamSynchronize(stream));
	OK(cuMemFree(large), cuMemFree(small));
}

SCENARIO(what_was_freed_before_a_kernel_for_other_kinds_of_memory)
{
	CUstream other;
	CUdeviceptr p;

	other = stream_new();
	use_and_free(device_bytes() / 10 * 6);
	stand();
	OK(cuMemAllocAsync(&p, device_bytes() / 10 * 7, other));
	step();
}

/* Another thread waits for what it has freed, as plain CUDA's free would. */
static void *frees_and_allocates(void *ctx)
{
	OK(cuCtxSetCurrent(ctx));
	work_on_blocks(stream, 1, 600 * MIB);
	(void)memory_made(700 * MIB);
	return NULL;
}

static pthread_t wait_in_another_thread(CUcontext ctx)
{
	uint64_t before = gcpsim_calls("cuEventSynchronize");
	pthread_t thread;

	pthread_create(&thread, NULL, frees_and_allocates, ctx);
	while (gcpsim_calls("cuEventSynchronize") == before && !atomic_load(&stepped))
		usleep(1000);
	must(!atomic_load(&stepped), "the other thread waits for nothing");
	return thread;
}

/* A context that others have retained does not end: this waits for nothing. */
SCENARIO(release_beside_a_wait)
{
	pthread_t thread;
	CUcontext ctx;

	ctx = primary(); /* retained twice */
	stand();
	thread = wait_in_another_thread(ctx);
	OK(cuDevicePrimaryCtxRelease(0), cuDevicePrimaryCtxRetain(&ctx, 0));
	step();
	pthread_join(thread, NULL);
}

static void *look_and_step(void *ret_calls)
{
	usleep(200 * 1000);
	*(uint64_t *)ret_calls = gcpsim_calls("cuDevicePrimaryCtxRelease_v2");
	atomic_store(&stepped, true);
	return NULL;
}

/* CUDA waits for all work of a context that ends, and so for what the other thread
 * waits for: which has to be out of the context before. */
SCENARIO(last_release_beside_a_wait)
{
	pthread_t stepper, thread;
	uint64_t calls = 1;
	CUcontext ctx;

	OK(cuCtxGetCurrent(&ctx), cuLaunchHostFunc(stream, wait_for_flag, &stepped));
	thread = wait_in_another_thread(ctx);
	pthread_create(&stepper, NULL, look_and_step, &calls);
	OK(cuDevicePrimaryCtxRelease(0));
	pthread_join(stepper, NULL);
	pthread_join(thread, NULL);
	must(calls == 0, "the context ends under a thread that uses it");
}

/* Threads of this process that block all signals that can be blocked. */
static unsigned threads_without_signals(void)
{
	unsigned count = 0;
	glob_t paths;

	if (glob("/proc/self/task/*/status", 0, NULL, &paths) != 0)
		return 0;
	for (size_t i = 0; i < paths.gl_pathc; i++) {
		char line[100];
		FILE *status = fopen(paths.gl_pathv[i], "r");

		while (status && fgets(line, sizeof(line), status))
			count += strncmp(line, "SigBlk:", 7) == 0 &&
				 strstr(line, "fffffffe7ffbfeff");
		if (status)
			fclose(status);
	}
	globfree(&paths);
	return count;
}

SCENARIO(the_thread_takes_no_signals,
	 "GCPSIM_SPEED=random GCPOOL_THREAD=1 GCPOOL_DECAY=300 GCPOOL_BACKEND=segments")
{
	unsigned without = 0;

	use_and_free(600 * MIB);
	stand();
	/* The simulated driver has one thread, too. */
	AWAIT((without = threads_without_signals()) == 2);
	must(without == 2, "the thread takes signals");
	step();
}

SCENARIO(an_idle_program_gives_back,
	 "GCPSIM_SPEED=random GCPOOL_THREAD=1 GCPOOL_DECAY=300")
{
	use_and_free(600 * MIB);
	/* Beside work that does not end: nothing of the thread's waits. */
	stand();
	AWAIT(gcpsim_memory_used(0) < 16 * MIB);
	must(gcpsim_memory_used(0) < 16 * MIB,
	     "a program that calls nothing keeps its memory");
	step();
	must(fork() != 0 || (_exit(0), 0), "no child");
	(void)allocated(700 * MIB);
}

/* It asks as long as work stands that the block may be for; no call of the program
 * does, and nothing of device memory. */
SCENARIO(the_thread_polls_pinned_memory,
	 "GCPSIM_SPEED=random GCPOOL_THREAD=1 GCPOOL_DECAY=0 GCPOOL_BACKEND=segments")
{
	uint64_t asked;
	void *host;

	OK(cuMemAllocHost(&host, 65536));
	OK(cuMemcpyDtoHAsync(host, allocated(65536), 65536, stream));
	stand();
	OK(cuMemFreeHost(host));
	asked = gcpsim_calls("cuEventQuery");
	AWAIT(gcpsim_calls("cuEventQuery") > asked);
	must(gcpsim_calls("cuEventQuery") > asked,
	     "the thread does not poll pinned memory");
	step();
}
