/* SPDX-License-Identifier: MIT */
/*
 * lookups.c - the first look-up of CUDA in a process, in which the library finds the
 * functions of the driver, and what happens meanwhile.
 *
 *   lookups SCENARIO    plays one; 0: all is as on plain CUDA
 */
#include <dlfcn.h>
#include <sys/wait.h>

#include "scenarios.h"

/* The driver is asked for each function. */
static const char asked[] = "cuGetProcAddress_v2";

static atomic_bool inside, forked;

static void is_pooled(void)
{
	uint64_t frees;

	OK(cuInit(0));
	(void)primary();
	frees = gcpsim_calls("cuMemFree_v2");
	for (int i = 0; i < 8; i++)
		OK(cuMemFree(allocated(MIB)));
	must(gcpsim_calls("cuMemFree_v2") == frees, "there is no pool");
}

static void stays_inside(void)
{
	inside = true;
	while (!forked)
		sched_yield();
}

static void *looks_up(void *unused)
{
	must(gcpsim_when_called(asked, stays_inside) == 0, "no such call");
	must(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"), "not found");
	return unused;
}

/* The parent has not used CUDA: the child may. */
SCENARIO_BEFORE_CUDA(a_fork_beside_the_first_lookup)
{
	pthread_t thread;
	int status = 1;
	pid_t child;

	hang_watch();
	pthread_create(&thread, NULL, looks_up, NULL);
	while (!inside)
		sched_yield();
	child = fork();
	if (child == 0) {
		hang_watch();
		is_pooled();
		_exit(wrong);
	}
	must(waitpid(child, &status, 0) == child && status == 0, "the child");
	forked = true;
	pthread_join(thread, NULL);
	is_pooled();
}
