/* SPDX-License-Identifier: MIT */
/*
 * steps.c - see steps.h. Bytes that are moved count as a step for each 64, from the
 * 65th on: small ones are the compiler's to move, here or there.
 */
#include "steps.h"

#include <stddef.h>

enum { BYTES_OF_A_STEP = 64 };

static uint64_t steps;

uint64_t steps_done(void)
{
	return steps;
}

/* The compiler's name. */
void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void)
{
	steps++;
}

void *__real_memmove(void *to, const void *from, size_t bytes);
void *__wrap_memmove(void *to, const void *from, size_t bytes);
void *__real_memcpy(void *to, const void *from, size_t bytes);
void *__wrap_memcpy(void *to, const void *from, size_t bytes);
void *__real_memset(void *to, int byte, size_t bytes);
void *__wrap_memset(void *to, int byte, size_t bytes);

void *__wrap_memmove(void *to, const void *from, size_t bytes)
{
	steps += bytes / BYTES_OF_A_STEP;
	return __real_memmove(to, from, bytes);
}

void *__wrap_memcpy(void *to, const void *from, size_t bytes)
{
	steps += bytes / BYTES_OF_A_STEP;
	return __real_memcpy(to, from, bytes);
}

void *__wrap_memset(void *to, int byte, size_t bytes)
{
	steps += bytes / BYTES_OF_A_STEP;
	return __real_memset(to, byte, bytes);
}
