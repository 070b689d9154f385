/* SPDX-License-Identifier: MIT */
/*
 * memory_fails.h - memory of the host that can run out: for what is linked with --wrap
 * for the functions below, so that its own calls come here and no others. (With 64-bit
 * file offsets mmap is mmap64.) Included by one file of it.
 */
#ifndef GCP_TESTS_MEMORY_FAILS_H
#define GCP_TESTS_MEMORY_FAILS_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_mmap64(void *addr, size_t length, int prot, int flags, int fd,
		    off_t offset);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_mmap64(void *addr, size_t length, int prot, int flags, int fd,
		    off_t offset);

static _Atomic uint64_t memory_calls, memory_fail_at;
static atomic_bool memory_fail_on, memory_failed;

/* The call number `at` from now on fails, and all later ones if `onwards`; 0: none. */
static void memory_fail(unsigned at, bool onwards)
{
	memory_fail_on = onwards;
	memory_failed = false;
	memory_fail_at = at ? memory_calls + at : 0;
}

static bool memory_fails(void)
{
	uint64_t number = ++memory_calls, at = memory_fail_at;
	bool fails = at && (number == at || (number > at && memory_fail_on));

	if (fails) {
		errno = ENOMEM;
		memory_failed = true;
	}
	return fails;
}

void *__wrap_malloc(size_t bytes)
{
	return memory_fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
	return memory_fails() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_mmap64(void *addr, size_t length, int prot, int flags, int fd,
		    off_t offset)
{
	return memory_fails() ? MAP_FAILED
			      : __real_mmap64(addr, length, prot, flags, fd, offset);
}

#endif
