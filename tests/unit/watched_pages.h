/* SPDX-License-Identifier: MIT */
/*
 * watched_pages.h - how many of many records are looked at. Each lies in a page of its
 * own that cannot be read meanwhile, so that a look at it is a fault, which is counted.
 * Included once by each test program.
 */
#ifndef GCP_TESTS_WATCHED_PAGES_H
#define GCP_TESTS_WATCHED_PAGES_H

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WATCHED_MAX = 10001 };

static struct {
	void *pages[WATCHED_MAX];
	size_t count, bytes; /* of pages, of one page */
	size_t looks;
	struct sigaction before;
} watched;

static void *watched_page(void)
{
	void *p = NULL;

	watched.bytes = (size_t)sysconf(_SC_PAGESIZE);
	assert_true(watched.count < WATCHED_MAX);
	assert_int_equal(posix_memalign(&p, watched.bytes, watched.bytes), 0);
	watched.pages[watched.count++] = p;
	return memset(p, 0, watched.bytes);
}

static void watched_protect(int protection)
{
	for (size_t i = 0; i < watched.count; i++)
		mprotect(watched.pages[i], watched.bytes, protection);
}

static void watched_fault(int number, siginfo_t *info, void *context)
{
	uintptr_t at = (uintptr_t)info->si_addr;

	(void)context;
	if (++watched.looks > watched.count) /* another fault, again and again */
		signal(number, SIG_DFL);
	mprotect((void *)(at - at % watched.bytes), watched.bytes,
		 PROT_READ | PROT_WRITE);
}

static void watch_begin(void)
{
	struct sigaction action = {.sa_sigaction = watched_fault,
				   .sa_flags = SA_SIGINFO};

	watched.looks = 0;
	sigaction(SIGSEGV, &action, &watched.before);
	watched_protect(PROT_NONE);
}

static void watch_end(void)
{
	sigaction(SIGSEGV, &watched.before, NULL);
	watched_protect(PROT_READ | PROT_WRITE);
}

#endif
