/* SPDX-License-Identifier: MIT */
/*
 * ipc_opens.c - blocks of one segment, which is one memory to CUDA, opened and closed
 * by several threads of another process at once.
 *
 *   ipc_opens SCENARIO    plays one; 0: all is as with memory of their own
 *
 * Needs: interpose/ipc/ipc_opened.c
 * Environment: GCPOOL_BACKEND=segments
 */
#include <sys/wait.h>

#include "scenarios.h"

#include "../../../interpose/cuda/resolve.h"
#include "../../../interpose/ipc/ipc_opened.h"

enum { BLOCKS = 2 };

#define LAZY CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

struct gcp_real gcp_real; /* for ipc_opened.c, which the last scenario calls itself */

static CUipcMemHandle handles[BLOCKS];
static CUcontext ctx;
static CUresult opened;
static uint64_t tries;

/* --- the importer --- */

static void import(int from)
{
	OK(cuInit(0));
	ctx = primary();
	must(read(from, handles, sizeof(handles)) == sizeof(handles), "pipe");
}

static CUresult open_refused_once(void)
{
	uint64_t before = gcpsim_calls("cuIpcOpenMemHandle_v2");
	CUdeviceptr p;
	CUresult result;

	must(gcpsim_fail("cuIpcOpenMemHandle_v2:1:208") == 0, "no such failure");
	result = cuIpcOpenMemHandle_v2(&p, handles[1], LAZY);
	tries = gcpsim_calls("cuIpcOpenMemHandle_v2") - before;
	if (result == CUDA_SUCCESS)
		OK(cuIpcCloseMemHandle(p));
	return result;
}

static void *opens(void *unused)
{
	OK(cuCtxSetCurrent(ctx));
	opened = open_refused_once();
	return unused;
}

/* Before the other thread's call has returned. */
static void opens_meanwhile(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, opens, NULL);
	pthread_join(thread, NULL);
}

static void refused_beside(const char *symbol)
{
	CUdeviceptr p;

	OK(cuIpcOpenMemHandle_v2(&p, handles[0], LAZY));
	must(gcpsim_when_called(symbol, opens_meanwhile) == 0, "no call");
	if (strcmp(symbol, "cuIpcOpenMemHandle_v2") == 0)
		OK(cuIpcOpenMemHandle_v2(&p, handles[0], LAZY));
	OK(cuIpcCloseMemHandle(p));
	must(opened == CUDA_SUCCESS, "an open is refused for the sake of another's");
	must(tries == 2, "it was not tried again, or without end");
}

static void refused_beside_a_close(void)
{
	refused_beside("cuIpcCloseMemHandle");
}

static void refused_beside_an_open(void)
{
	refused_beside("cuIpcOpenMemHandle_v2");
}

/* --- pointers --- */

/* CUDA has closed what lay there, the thread that asked for it has not noted that, and
 * another thread opens something: at the same address from another base. */
SCENARIO(address_opened_while_it_is_closed)
{
	const CUdeviceptr ptr = 64 * MIB, base = 62 * MIB, other = 63 * MIB;

	gcp_real.cuCtxGetCurrent = cuCtxGetCurrent;
	must(gcp_ipc_opened_add(base, ptr - base), "not added");
	must(gcp_ipc_opened_base(ptr) == base, "not what was opened");
	must(gcp_ipc_opened_add(other, ptr - other), "not added");
	must(gcp_ipc_opened_base(ptr) == other, "not what was opened last");
	gcp_ipc_opened_closed(ptr, base);
	must(gcp_ipc_opened_base(ptr) == other, "what was opened last is lost");
	gcp_ipc_opened_closed(ptr, other);
	must(gcp_ipc_opened_base(ptr) == ptr, "it is open still");
}

/* ---------------------------------------------------------------------------- */

/* The second process starts before the first one uses CUDA. */
static void imported(void (*play)(void))
{
	int down[2], status = 1;
	pid_t child;

	must(pipe(down) == 0, "pipe");
	child = fork();
	if (child == 0) {
		import(down[0]);
		play();
		exit(wrong);
	}
	OK(cuInit(0));
	(void)primary();
	(void)allocated(4096); /* the head of the segment */
	for (int i = 0; i < BLOCKS; i++)
		OK(cuIpcGetMemHandle(&handles[i], allocated(4096)));
	must(write(down[1], handles, sizeof(handles)) == sizeof(handles), "pipe");
	waitpid(child, &status, 0);
	must(status == 0, "the importer has failed");
}

SCENARIO_BEFORE_CUDA(open_beside_a_close)
{
	imported(refused_beside_a_close);
}

SCENARIO_BEFORE_CUDA(open_beside_an_open)
{
	imported(refused_beside_an_open);
}
