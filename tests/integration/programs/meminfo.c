/* SPDX-License-Identifier: MIT */
/*
 * meminfo.c - what cudaMemGetInfo says before, during and after allocations.
 * A library that keeps freed memory must count it as free.
 *
 * Styles: static shared linked dlsym
 */
#include <stdio.h>
#include <stdlib.h>

#include "api.h"
#include "util.h"

enum { BLOCKS = 40 };

static void say(const char *when)
{
	size_t unused, total;

	GCPT_OK(gcpt_sync(), gcpt_mem_info(&unused, &total));
	printf("meminfo: %-24s free %llu KiB of %llu KiB\n", when,
	       (unsigned long long)(unused >> 10), (unsigned long long)(total >> 10));
}

int main(void)
{
	void *block[BLOCKS], *p;
	size_t unused, total;
	uint64_t unit;

	GCPT_OK(gcpt_use(0), gcpt_mem_info(&unused, &total));
	unit = (total / 128 + 4095) & ~4095ull;
	say("at the start");
	for (unsigned i = 0; i < BLOCKS; i++)
		GCPT_OK(gcpt_malloc(&block[i], unit / 4 * (i % 11 + 1)));
	say("with all blocks");
	for (unsigned i = 0; i < BLOCKS; i += 2)
		GCPT_OK(gcpt_free(block[i]));
	say("with every other block");
	for (unsigned i = 1; i < BLOCKS; i += 2)
		GCPT_OK(gcpt_free(block[i]));
	say("after all frees");
	GCPT_OK(gcpt_malloc(&p, unit * 8));
	say("with one large block");
	GCPT_OK(gcpt_free(p));
	say("at the end");
	/* The out-parameters may be NULL. */
	printf("meminfo: both NULL: %d\n", gcpt_mem_info(NULL, NULL));
	return 0;
}
