/* SPDX-License-Identifier: MIT */
/*
 * util.c - see util.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "util.h"

const char *gcpt_arg_text(int argc, char **argv, const char *name, const char *fallback)
{
	for (int i = 1; i + 1 < argc; i++)
		if (!strcmp(argv[i], name))
			return argv[i + 1];
	return fallback;
}

uint64_t gcpt_arg(int argc, char **argv, const char *name, uint64_t fallback)
{
	const char *text = gcpt_arg_text(argc, argv, name, NULL);
	unsigned shift = 0;
	uint64_t value;
	char *end;

	if (!text)
		return fallback;
	value = strtoull(text, &end, 0);
	switch (*end) {
	case 'g':
	case 'G':
		shift = 30;
		break;
	case 'm':
	case 'M':
		shift = 20;
		break;
	case 'k':
	case 'K':
		shift = 10;
		break;
	case 0:
		break;
	default:
		fprintf(stderr, "%s %s: not a number\n", name, text);
		exit(2);
	}
	return value << shift;
}

bool gcpt_flag(int argc, char **argv, const char *name)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], name))
			return true;
	return false;
}

uint64_t gcpt_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t gcpt_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

uint64_t gcpt_random_size(uint64_t *state, uint64_t low, uint64_t high)
{
	unsigned first = 63 - (unsigned)__builtin_clzll(low | 1);
	unsigned last = 63 - (unsigned)__builtin_clzll(high | 1);
	unsigned shift = first + (unsigned)(gcpt_random(state) % (last - first + 1));
	uint64_t size = (1ull << shift) + gcpt_random(state) % (1ull << shift);

	return size < low ? low : size > high ? high : size;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double gcpt_median(double *values, unsigned count)
{
	qsort(values, count, sizeof(*values), compare);
	return count % 2 ? values[count / 2]
			 : (values[count / 2 - 1] + values[count / 2]) / 2;
}
