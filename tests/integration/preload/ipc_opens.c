/* SPDX-License-Identifier: MIT */
/*
 * ipc_opens.c - blocks of one segment, which is one memory to CUDA, opened by another
 * process. CUDA refuses that now and then beside other threads.
 *
 *   ipc_opens SCENARIO    plays one; 0: all is as with memory of their own
 *
 * Environment: GCPOOL_BACKEND=segments
 */
#include <sys/wait.h>

#include "scenarios.h"

static CUipcMemHandle handles[2];

static void open_refused_once(void)
{
	uint64_t before = gcpsim_calls("cuIpcOpenMemHandle_v2");

	calls_fail("cuIpcOpenMemHandle_v2:1:208");
	for (int i = 0; i < 2; i++) {
		CUdeviceptr p;

		OK(cuIpcOpenMemHandle_v2(&p, handles[i],
					 CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
		OK(cuIpcCloseMemHandle(p));
	}
	must(gcpsim_calls("cuIpcOpenMemHandle_v2") == before + 3, "not tried again");
}

/* The second process starts before the first one uses CUDA. */
SCENARIO_BEFORE_CUDA(an_open_that_others_hold_up_is_tried_again)
{
	int down[2], status = 1;
	pid_t child;

	must(pipe(down) == 0, "pipe");
	child = fork();
	OK(cuInit(0));
	(void)primary();
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
