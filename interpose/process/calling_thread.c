/* SPDX-License-Identifier: MIT */
/*
 * calling_thread.c - see calling_thread.h. Called by hooks, without locks.
 */
#include <string.h>

#include "calling_thread.h"
#include "passed.h"
#include "../observe/observer.h"
#include "../cuda/unknown_calls.h"

/* Thread exit: pthread_key_create and pthread_setspecific, which are in
 * libpthread before glibc 2.34 and therefore looked up. */
static pthread_key_t exit_key;
static int (*exit_key_set)(pthread_key_t, const void *);

void gcp_thread_exit_watch(void (*ended)(void *))
{
	int (*create)(pthread_key_t *, void (*)(void *));

	*(void **)&create = gcp_elf_libc_symbol("pthread_key_create");
	if (create && create(&exit_key, ended) == 0)
		*(void **)&exit_key_set = gcp_elf_libc_symbol("pthread_setspecific");
}

void gcp_thread_watch(void)
{
	if (!gcp_thread.exit_registered && exit_key_set)
		gcp_thread.exit_registered = exit_key_set(exit_key, &gcp_thread) == 0;
	gcp_thread.free_direct = gcp_thread.exit_registered && !gcp_process.observer;
}

/* A MIG instance has a UUID of its own, which nvidia-smi prints with another prefix. */
static void uuid_write(struct gcp_gpu *gpu, const CUuuid *uuid)
{
	struct gcp_text text;

	gcp_text_init(&text, gpu->uuid, sizeof(gpu->uuid));
	gcp_text_add(&text, strstr(gpu->name, " MIG ") ? "MIG" : "GPU");
	for (int i = 0; i < 16; i++)
		gcp_text_add(&text, "%s%02x",
			     i == 0 || (i >= 4 && i <= 10 && i % 2 == 0) ? "-" : "",
			     (unsigned char)uuid->bytes[i]);
}

/* Asks CUDA for the name of the device, for the statistics, if they are wanted: at exit
 * it is too late. */
static void gpu_note(int device)
{
	struct gcp_gpu gpu = {0};
	struct gcp_ctx_scope scope;
	size_t bytes = 0;
	CUuuid uuid;

	assert(device >= 0);
	if ((gcp_process.options.stats == GCP_STATS_OFF && !gcp_process.instruments) ||
	    gcp_report_knows_gpu(device) ||
	    gcp_ctx_scope_begin(&scope, NULL) != CUDA_SUCCESS)
		return;
	(void)gcp_real.cuDeviceGetName(gpu.name, sizeof(gpu.name), device);
	if (gcp_real.cuDeviceGetUuid_v2(&uuid, device) == CUDA_SUCCESS)
		uuid_write(&gpu, &uuid);
	(void)gcp_real.cuDeviceGetPCIBusId(gpu.pci, sizeof(gpu.pci), device);
	(void)gcp_real.cuDeviceTotalMem_v2(&bytes, device);
	(void)gcp_real.cuDriverGetVersion(&gpu.cuda);
	gcp_ctx_scope_end(&scope);
	gpu.bytes = bytes;
	gcp_report_note_gpu(device, &gpu);
	gcp_passed_note_others(device);
	if (gcp_process.instruments)
		gcp_process.instruments->device(device, &gpu);
}

int gcp_thread_pool_of(CUcontext ctx, CUcontext *ret_home, int *ret_device,
		       struct gcp_pool **ret_pool)
{
	int result = -ENOENT;

	gcp_thread_watch();
	if (!gcp_unknown_capture_seen() && gcp_contexts_home(ctx, ret_home, ret_device))
		result =
		    gcp_pool_get(gcp_process.pools, *ret_home, *ret_device, ret_pool);
	if (result != 0)
		return result;
	assert(*ret_pool && *ret_home && *ret_device >= 0);
	if (gcp_process.options.thread)
		gcp_poller_start();
	gpu_note(*ret_device);
	return 0;
}

struct gcp_pool *gcp_thread_pool_find(CUcontext ctx)
{
	uint64_t generation = gcp_contexts_now();
	struct gcp_pool *pool = NULL;
	CUcontext home = NULL;
	int device = -1, result = gcp_thread_pool_of(ctx, &home, &device, &pool);

	gcp_thread.ctx = result == -EBUSY ? NULL : ctx; /* asked again next time */
	gcp_thread.pool = pool;
	gcp_thread.device = device;
	gcp_thread.generation = generation;
	if (!pool)
		gcp_log(GCP_LOG_DEBUG, "context %p: its calls pass through",
			(void *)ctx);
	else
		gcp_observe_call(GCP_TRACE_context, (uintptr_t)home, 0, 0, 0);
	return pool;
}
