/* SPDX-License-Identifier: MIT */
/*
 * ipc_opens.c - blocks of one segment, which is one memory to CUDA, opened and closed
 * by several threads of another process at once.
 *
 *   ipc_opens SCENARIO    plays one; 0: all is as with memory of their own
 *
 * Environment: GCPOOL_BACKEND=segments
 */
#include <sys/wait.h>

#include "scenarios.h"

#define LAZY CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

static CUipcMemHandle handles[2];
static CUcontext ctx;
static CUresult opened;
static uint64_t tries;

/* The second one, and is refused once. */
static void *opens(void *other_thread)
{
	uint64_t before = gcpsim_calls("cuIpcOpenMemHandle_v2");
	CUdeviceptr p;

	if (other_thread)
		OK(cuCtxSetCurrent(ctx));
	calls_fail("cuIpcOpenMemHandle_v2:1:208");
	opened = cuIpcOpenMemHandle_v2(&p, handles[1], LAZY);
	tries = gcpsim_calls("cuIpcOpenMemHandle_v2") - before;
	if (opened == CUDA_SUCCESS)
		OK(cuIpcCloseMemHandle(p));
	return NULL;
}

/* Before the other thread's call has returned. */
static void opens_meanwhile(void)
{
	(void)play_elsewhere(opens, &ctx);
}

static void open_refused_once(void)
{
	CUdeviceptr p;

	OK(cuIpcOpenMemHandle_v2(&p, handles[0], LAZY));
	when_called("cuIpcCloseMemHandle", opens_meanwhile);
	OK(cuIpcCloseMemHandle(p));
	must(opened == CUDA_SUCCESS && tries == 2, "refused for the sake of another's");
}

/* The second process starts before the first one uses CUDA. */
SCENARIO_BEFORE_CUDA(an_open_that_others_hold_up_is_tried_again)
{
	int down[2], status = 1;
	pid_t child;

	must(pipe(down) == 0, "pipe");
	child = fork();
	OK(cuInit(0));
	ctx = primary();
	if (child == 0) {
		must(read(down[0], handles, sizeof(handles)) == sizeof(handles),
		     "pipe");
		open_refused_once();
		exit(wrong);
	}
	(void)allocated(4096); /* the head of the segment */
	for (int i = 0; i < 2; i++)
		OK(cuIpcGetMemHandle(&handles[i], allocated(4096)));
	must(write(down[1], handles, sizeof(handles)) == sizeof(handles), "pipe");
	waitpid(child, &status, 0);
	must(status == 0, "the importer has failed");
}
