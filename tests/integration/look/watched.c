/* SPDX-License-Identifier: MIT */
/*
 * watched.c - programs that are recorded or looked at, and do what few programs do.
 *
 *   watched SCENARIO    plays one; 0: nothing has happened to the program
 */
#include <sys/mman.h>

#include "../preload/scenarios.h"

/* --- threads that are cancelled ----------------------------------------------- */

/* So many events need several pieces of a recording. */
enum { PAIRS = 12000 };

static CUcontext ctx;
static bool through;

static void pairs(int count)
{
	for (int i = 0; i < count; i++)
		OK(cuMemFree(allocated(4096)));
}

static void *is_cancelled(void *unused)
{
	OK(cuCtxSetCurrent(ctx));
	pthread_cancel(pthread_self()); /* pending until a cancellation point */
	pairs(PAIRS);
	through = true;
	return unused;
}

SCENARIO(a_cancelled_thread_leaves_no_lock)
{
	ctx = primary();
	pairs(1);
	(void)play_elsewhere(is_cancelled, NULL);
	must(through, "a thread has ended inside a call");
	pairs(PAIRS);
}

/* --- call stacks -------------------------------------------------------------- */

/* The memory: no call is the last thing. */
static __attribute__((noinline)) void innermost(CUdeviceptr *ret_p)
{
	OK(cuMemAlloc(ret_p, 512), cuMemFree(*ret_p));
}

static __attribute__((noinline)) void middle(CUdeviceptr *ret_p)
{
	innermost(ret_p);
	*ret_p = 0;
}

static __attribute__((noinline)) void outermost(CUdeviceptr *ret_p)
{
	middle(ret_p);
	*ret_p = 1;
}

SCENARIO(calls_lie_in_calls)
{
	CUdeviceptr p;

	ctx = primary();
	for (int i = 0; i < 3; i++)
		outermost(&p);
}

#if defined(__x86_64__)
/* With -X perf CPython calls each function of the program through such code, made at
 * run time: that of 3.12, and that of 3.14. */
typedef void trampoline(CUdeviceptr *p, void *, void *,
			void (*function)(CUdeviceptr *));
static trampoline *trampolines[2];

static void trampolines_make(void)
{
	static const char codes[2][16] = {
	    "\x48\x83\xec\x08\xff\xd1\x48\x83\xc4\x08\xc3",
	    "\x55\x48\x89\xe5\xff\xd1\x5d\xc3",
	};
	char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memcpy(page, codes, sizeof(codes));
	mprotect(page, 4096, PROT_READ | PROT_EXEC);
	for (int i = 0; i < 2; i++)
		*(void **)&trampolines[i] = page + i * sizeof(codes[0]);
}

static void behind_both(CUdeviceptr *ret_p)
{
	innermost(ret_p);
	*ret_p = 0;
}

static void between_them(CUdeviceptr *ret_p)
{
	trampolines[1](ret_p, NULL, NULL, behind_both);
	*ret_p = 1;
}

SCENARIO(trampolines_are_left)
{
	CUdeviceptr p;

	ctx = primary();
	trampolines_make();
	for (int i = 0; i < 3; i++)
		trampolines[0](&p, NULL, NULL, between_them);
}
#else
SCENARIO(trampolines_are_left)
{
	puts("left out on this processor");
}
#endif
