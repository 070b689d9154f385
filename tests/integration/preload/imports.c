/* SPDX-License-Identifier: MIT */
/*
 * imports.c - a context is made while memory of another process is open: the library
 * asks which devices can reach that, and the thread is cancelled meanwhile.
 *
 *   imports SCENARIO    plays one; 0: all is as on plain CUDA
 *
 * Environment: GCPOOL_BACKEND=vmm GCPSIM_DEVICES=2
 */
#include <signal.h>
#include <sys/wait.h>

#include "scenarios.h"

static CUipcMemHandle handle;

static CUdeviceptr opened(void)
{
	CUdeviceptr p;

	OK(cuIpcOpenMemHandle(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	return p;
}

static bool asked;

static void is_asked(void)
{
	asked = true;
	pthread_testcancel();
}

static void *is_cancelled_in_a_call(void *unused)
{
	CUcontext ctx;

	must(gcpsim_when_called("cuDeviceCanAccessPeer", is_asked) == 0, "no call");
	pthread_cancel(pthread_self());
	OK(cuCtxCreate(&ctx, NULL, 0, 0));
	pthread_testcancel();
	return unused;
}

static void is_cancelled_beside_an_import(void)
{
	CUdeviceptr p = opened();
	pthread_t victim;
	void *ended;

	pthread_create(&victim, NULL, is_cancelled_in_a_call, NULL);
	pthread_join(victim, &ended);
	must(asked && ended == PTHREAD_CANCELED, "it was not cancelled there");
	OK(cuMemsetD8(p, 1, MIB));
	OK(cuIpcCloseMemHandle(p));
	p = opened();
	OK(cuIpcCloseMemHandle(p));
	must(gcpsim_faults() == 0, gcpsim_last_report());
}

/* The second process starts before the first one uses CUDA. */
SCENARIO_BEFORE_CUDA(a_thread_is_cancelled_beside_an_import)
{
	int down[2], status = 1;
	pid_t child;

	must(pipe(down) == 0, "pipe");
	child = fork();
	if (child == 0) {
		OK(cuInit(0));
		(void)primary();
		must(read(down[0], &handle, sizeof(handle)) == sizeof(handle), "pipe");
		is_cancelled_beside_an_import();
		exit(wrong);
	}
	OK(cuInit(0));
	(void)primary();
	OK(cuIpcGetMemHandle(&handle, allocated(MIB)));
	must(write(down[1], &handle, sizeof(handle)) == sizeof(handle), "pipe");
	must(waitpid(child, &status, 0) == child && status == 0, "the importer");
}
