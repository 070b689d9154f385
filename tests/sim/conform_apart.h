/* SPDX-License-Identifier: MIT */
/*
 * conform_apart.h - sections of a conformance program that run in processes of their
 * own, so that a driver may crash or hang on one and the transcript goes on. Included
 * instead of conform_tell.h; the process that forks never calls CUDA itself.
 *
 * Also user objects that count how many are gone.
 */
#ifndef CONFORM_APART_H
#define CONFORM_APART_H

#include "conform_tell.h"

#include <sys/wait.h>
#include <unistd.h>

enum { APART_SECONDS = 20 };

static int apart_argc;
static char **apart_argv;

static inline void apart_init(int argc, char **argv)
{
	apart_argc = argc;
	apart_argv = argv;
	setvbuf(stdout, NULL, _IOLBF, 0);
}

/* Of a process that has ended, unless it did so well. */
static inline void apart_ended(int status)
{
	if (WIFSIGNALED(status))
		tell("ended by signal", WTERMSIG(status));
	else if (WEXITSTATUS(status) != 0)
		tell("ended with", WEXITSTATUS(status));
}

static inline void apart(const char *title, void (*play)(void))
{
	int status = 0;
	pid_t child;

	section(title);
	fflush(stdout);
	child = fork();
	if (child == 0) {
		alarm(APART_SECONDS);
		tell_start(apart_argc, apart_argv);
		play();
		fflush(stdout);
		_exit(0);
	}
	waitpid(child, &status, 0);
	apart_ended(status);
}

#define APART(play) apart(#play, play)

/* --- user objects --------------------------------------------------------- */

static int apart_destroyed, apart_made, apart_counted;

static void CUDA_CB destroy(void *data)
{
	(void)data;
	__atomic_fetch_add(&apart_destroyed, 1, __ATOMIC_SEQ_CST);
}

/* Whether the simulated driver has yet to run destructors: its thread may have to wait
 * for a processor for long. */
static inline bool apart_is_behind(void)
{
	uint64_t (*alive)(void);
	void *symbol = dlsym(RTLD_DEFAULT, "gcpsim_user_objects");
	int destroyed = __atomic_load_n(&apart_destroyed, __ATOMIC_SEQ_CST);

	memcpy(&alive, &symbol, sizeof(symbol));
	return alive && (uint64_t)destroyed + alive() < (uint64_t)apart_made;
}

/* Gives the driver's thread time; then says how many are gone since the last call. */
__attribute__((unused)) static int gone(void)
{
	struct timespec pause = {0, 50000000};
	int before = apart_counted;

	do
		nanosleep(&pause, NULL);
	while (apart_is_behind());
	apart_counted = __atomic_load_n(&apart_destroyed, __ATOMIC_SEQ_CST);
	return apart_counted - before;
}

__attribute__((unused)) static CUuserObject new_object(void)
{
	CUuserObject user;

	MUST(cuUserObjectCreate(&user, NULL, destroy, 1,
				CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	apart_made++;
	return user;
}

__attribute__((unused)) static void attach(CUgraph g)
{
	CUuserObject user = new_object();

	MUST(cuGraphRetainUserObject(g, user, 1, CU_GRAPH_USER_OBJECT_MOVE));
}

/* --- graphs --------------------------------------------------------------- */

__attribute__((unused)) static long long nodes_of(CUgraph g)
{
	size_t count = 0;
	CUresult result = cuGraphGetNodes(g, NULL, &count);

	return result ? -(long long)result : (long long)count;
}

__attribute__((unused)) static CUgraph captured_graph(CUstream stream)
{
	CUgraph g = NULL;

	MUST(cuStreamGetCaptureInfo(stream, &(CUstreamCaptureStatus){0}, NULL, &g, NULL,
				    NULL, NULL));
	return g;
}

/* The first word at `p`, as the device has it now. */
__attribute__((unused)) static long long word_at(CUdeviceptr at)
{
	uint32_t word = 0;
	CUresult result = cuMemcpyDtoH(&word, at, sizeof(word));

	return result ? -(long long)result : (long long)word;
}

#endif
