/* SPDX-License-Identifier: MIT */
/*
 * cross_device_copy.c - copies between two devices without peer access: from each
 * device's context, in both directions, with memory that was allocated before the
 * other device was used, and after.
 *
 * Prints the code of each copy, and whether the data arrived. Exit code: 0; 2 an error
 * of CUDA elsewhere, 77 one device only.
 *
 * Run: both: transcript.py GCPSIM_DEVICES=2 @
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "util.h"

enum { BYTES = 5 << 20 };

static unsigned char *host;

/* The last byte tells: it is behind all others. */
static void fill(void *p, int byte)
{
	memset(host, byte, BYTES);
	GCPT_OK(gcpt_copy(p, host, BYTES));
}

static void copy(const char *name, void *to, const void *from, int wanted)
{
	int code = gcpt_copy(to, from, BYTES);

	memset(host, 0, BYTES);
	if (code == 0)
		GCPT_OK(gcpt_copy(host, to, BYTES));
	printf("%s: %d, data %s\n", name, code,
	       code == 0 && host[0] == wanted && host[BYTES - 1] == wanted
		   ? "arrived"
		   : "did not arrive");
}

int main(void)
{
	void *early, *late, *other;
	int count = 0;

	host = malloc(BYTES);
	GCPT_OK(gcpt_use(0));
	GCPT_OK(gcpt_device_count(&count));
	if (count < 2)
		return 77;
	GCPT_OK(gcpt_malloc(&early, BYTES));
	fill(early, 1);
	GCPT_OK(gcpt_use(1));
	GCPT_OK(gcpt_malloc(&other, BYTES));
	copy("0 to 1, in device 1", other, early, 1);
	fill(other, 2);
	copy("1 to 0, in device 1", early, other, 2);
	GCPT_OK(gcpt_use(0));
	GCPT_OK(gcpt_malloc(&late, BYTES));
	copy("1 to 0, in device 0", late, other, 2);
	fill(late, 3);
	copy("0 to 1, in device 0", other, late, 3);
	GCPT_OK(gcpt_use(1));
	fill(other, 4);
	copy("1 to 0, in device 1, later memory", late, other, 4);
	GCPT_OK(gcpt_free(other));
	GCPT_OK(gcpt_free(late));
	GCPT_OK(gcpt_free(early));
	free(host);
	return 0;
}
