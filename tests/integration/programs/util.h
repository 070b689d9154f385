/* SPDX-License-Identifier: MIT */
/*
 * util.h - arguments, time, random numbers and error checks of the test
 * programs. Knows nothing of CUDA.
 */
#ifndef GCPT_UTIL_H
#define GCPT_UTIL_H

#include <stdbool.h>
#include <stdint.h>

/* `--name value`, or `fallback`. The value may end in k, m or g (binary). */
uint64_t gcpt_arg(int argc, char **argv, const char *name, uint64_t fallback);

/* The value as text, or `fallback`. */
const char *gcpt_arg_text(int argc, char **argv, const char *name,
			  const char *fallback);

/* Whether `--name` stands among the arguments. */
bool gcpt_flag(int argc, char **argv, const char *name);

/* Monotonic time. */
uint64_t gcpt_now_ns(void);

/* A small generator (splitmix64): every thread has its own state. */
uint64_t gcpt_random(uint64_t *state);

/* Log-uniform in [low, high]. */
uint64_t gcpt_random_size(uint64_t *state, uint64_t low, uint64_t high);

/* Median of `values`, which it sorts. */
double gcpt_median(double *values, unsigned count);

#endif
