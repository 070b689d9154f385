/* SPDX-License-Identifier: MIT */
/*
 * staging_devices.c - pinned memory that two devices use: allocated under one, copied
 * from by the other, freed under the first at once. Without peer access or flags: with
 * unified addressing every context can use all pinned memory.
 *
 * The free of plain CUDA waits for the context of the memory; the other device is
 * waited for by the program, as it must on plain CUDA, but only after it has freed and
 * allocated again. So a cache that fences one context alone gives the block out too
 * early.
 *
 *   --rounds N --words N
 *
 * Exit code: 0 no wrong word, 1 wrong words, 2 an error of CUDA, 77 one device only.
 *
 * Run: staging_devices.py @
 */
#include <stdio.h>

#include "api.h"
#include "kernels.h"
#include "touch.h"
#include "util.h"

struct device {
	CUstream stream;
	struct gcpt_kernels kernels;
	void *buffer, *counter;
};

static void device_open(struct device *d, int number, size_t words)
{
	unsigned long long zero = 0;

	GCPT_OK(gcpt_use(number));
	GCPT_OK(gcpt_kernels_load(&d->kernels));
	GCPT_OK(gcpt_stream_create(&d->stream));
	GCPT_OK(gcpt_malloc(&d->buffer, words * 4));
	GCPT_OK(gcpt_malloc(&d->counter, sizeof(zero)));
	GCPT_OK(gcpt_copy(d->counter, &zero, sizeof(zero)));
}

static void *filled(size_t words, uint32_t value)
{
	uint32_t *p;

	GCPT_OK(gcpt_malloc_host((void **)&p, words * 4));
	gcpt_host_writes(p, words * 4);
	for (size_t i = 0; i < words; i++)
		p[i] = value;
	return p;
}

/* The second device copies from a block of the first's. */
static void round_once(struct device *d, size_t words, uint32_t value)
{
	void *p;

	GCPT_OK(gcpt_use(0));
	p = filled(words, value);
	GCPT_OK(gcpt_use(1));
	GCPT_OK(gcpt_launch_spin(&d[1].kernels, d[1].stream, 200000));
	GCPT_OK(gcpt_copy_async(d[1].buffer, p, words * 4, d[1].stream));
	GCPT_OK(gcpt_launch_check(&d[1].kernels, d[1].stream, d[1].buffer, words, value,
				  d[1].counter));
	GCPT_OK(gcpt_use(0));
	GCPT_OK(gcpt_free_host(p));
	for (uint32_t i = 1; i < 4; i++)
		GCPT_OK(gcpt_free_host(filled(words, value + i)));
	GCPT_OK(gcpt_stream_sync(d[1].stream));
}

int main(int argc, char **argv)
{
	size_t words = gcpt_arg(argc, argv, "--words", 16384);
	uint64_t rounds = gcpt_arg(argc, argv, "--rounds", 50);
	unsigned long long wrong;
	struct device devices[2];
	int count = 0;

	GCPT_OK(gcpt_use(0));
	GCPT_OK(gcpt_device_count(&count));
	if (count < 2)
		return 77;
	device_open(&devices[0], 0, words);
	device_open(&devices[1], 1, words);
	for (uint32_t i = 0; i < rounds; i++)
		round_once(devices, words, 16 * i);
	GCPT_OK(gcpt_copy(&wrong, devices[1].counter, sizeof(wrong)));
	printf("staging_devices: %llu rounds: wrong words: %llu\n",
	       (unsigned long long)rounds, wrong);
	return wrong ? 1 : 0;
}
