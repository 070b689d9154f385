/* SPDX-License-Identifier: MIT */
/*
 * errors.c - what CUDA answers to wrong and borderline calls. The transcript
 * must be the same with and without the library, so no address is printed.
 *
 * Tried: everywhere
 * Run: transcript.py @
 */

#include "api.h"
#include "kernels.h"

static void say(const char *what, int code)
{
	int last = gcpt_last_error(), again = gcpt_last_error();

	printf("%-52s %d %s; last error %d, then %d\n", what, code,
	       gcpt_error_name(code), last, again);
}

static void *at(void *p, long offset)
{
	return (void *)((uintptr_t)p + (uintptr_t)offset);
}

static void zero_sizes(void)
{
	void *p = (void *)0x1000;
	size_t pitch = 12345;
	int code = gcpt_malloc(&p, 0);

	say("malloc of 0 bytes", code);
	printf("  pointer afterwards: %s\n", !p                    ? "NULL"
					     : p == (void *)0x1000 ? "untouched"
								   : "set");
	say("free of NULL", gcpt_free(NULL));
	p = (void *)0x1000;
	say("pitched malloc of width 0", gcpt_malloc_pitch(&p, &pitch, 0, 4));
	p = (void *)0x1000;
	say("pitched malloc of height 0", gcpt_malloc_pitch(&p, &pitch, 4, 0));
}

static void too_much(void)
{
	void *p = (void *)0x1000;

	say("malloc of 2^46 bytes", gcpt_malloc(&p, (size_t)1 << 46));
	say("malloc of 2^64 - 1 bytes", gcpt_malloc(&p, ~(size_t)0));
	say("malloc of 64 bytes after that", gcpt_malloc(&p, 64));
	say("its free", gcpt_free(p));
}

/* Sizes on both sides of every kind of bookkeeping that an allocator may have. */
static void wrong_frees(size_t bytes)
{
	char what[96];
	void *p, *q;

	GCPT_OK(gcpt_malloc(&p, bytes), gcpt_malloc(&q, bytes));
	printf("-- blocks of %zu bytes\n", bytes);
	snprintf(what, sizeof(what), "free of the start + 1");
	say(what, gcpt_free(at(p, 1)));
	say("free of the start + 256", gcpt_free(at(p, 256)));
	say("free of the middle", gcpt_free(at(p, (long)(bytes / 2))));
	say("free of the last byte", gcpt_free(at(p, (long)bytes - 1)));
	say("free", gcpt_free(p));
	say("the same again", gcpt_free(p));
	say("interior of a freed block", gcpt_free(at(p, (long)(bytes / 2))));
	say("free of its neighbour", gcpt_free(q));
	say("the neighbour again", gcpt_free(q));
}

static void foreign_frees(void)
{
	static int global;
	int local;
	void *p;

	say("free of a stack address", gcpt_free(&local));
	say("free of a global", gcpt_free(&global));
	say("free of address 1", gcpt_free((void *)1));
	say("free of the highest address", gcpt_free((void *)~(uintptr_t)0));
	GCPT_OK(gcpt_malloc_host(&p, 4096));
	say("free of pinned host memory", gcpt_free(p));
	say("its right free", gcpt_free_host(p));
	GCPT_OK(gcpt_malloc(&p, 4096));
	say("host free of device memory", gcpt_free_host(p));
	say("its right free", gcpt_free(p));
}

/* Each kind of memory that the plain free takes besides malloc's. */
static void other_kinds(void)
{
	size_t pitch;
	void *p;

	GCPT_OK(gcpt_malloc_managed(&p, 1 << 16));
	say("free of managed memory", gcpt_free(p));
	say("again", gcpt_free(p));
	GCPT_OK(gcpt_malloc_pitch(&p, &pitch, 1000, 10));
	say("free of pitched memory", gcpt_free(p));
	say("again", gcpt_free(p));
	GCPT_OK(gcpt_malloc_async(&p, 1 << 16, NULL));
	GCPT_OK(gcpt_sync()); /* CUDA relies on it */
	say("plain free of stream-ordered memory", gcpt_free(p));
	GCPT_OK(gcpt_malloc(&p, 1 << 16));
	say("stream-ordered free of plain memory", gcpt_free_async(p, NULL));
	say("synchronize", gcpt_sync());
}

/* What a kernel has done wrong is reported by all that follows. Frees may report it
 * later. */
static void after_a_failure(void)
{
	static const size_t sizes[] = {1000, 100000, 3 << 20, 64 << 20};
	struct gcpt_kernels k;
	size_t available, total;
	void *p;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		GCPT_OK(gcpt_malloc(&p, sizes[i]));
		GCPT_OK(gcpt_free(p)); /* it is there, for a cache */
	}
	GCPT_OK(gcpt_malloc_host(&p, 1000), gcpt_free_host(p));
	GCPT_OK(gcpt_malloc_async(&p, 1000, NULL), gcpt_free_async(p, NULL));
	GCPT_OK(gcpt_kernels_load(&k), gcpt_launch_trap(&k, NULL));
	say("synchronize after a trap", gcpt_sync());
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		say("malloc of what was freed", gcpt_malloc(&p, sizes[i]));
	say("malloc of more", gcpt_malloc(&p, 200 << 20));
	say("pinned memory", gcpt_malloc_host(&p, 1000));
	say("stream-ordered memory", gcpt_malloc_async(&p, 1000, NULL));
	say("what is left", gcpt_mem_info(&available, &total));
	say("malloc again", gcpt_malloc(&p, 1000));
}

int main(void)
{
	printf("errors upon the %s\n", gcpt_api_name());
	GCPT_OK(gcpt_use(0));
	zero_sizes();
	say("malloc to a NULL pointer", gcpt_malloc(NULL, 16));
	too_much();
	wrong_frees(512);
	wrong_frees(100000);
	wrong_frees(3 << 20);
	wrong_frees(64 << 20);
	foreign_frees();
	other_kinds();
	after_a_failure();
	return 0;
}
