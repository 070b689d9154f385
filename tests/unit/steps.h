/* SPDX-License-Identifier: MIT */
/*
 * steps.h - how much the pool and the tracker do, without a clock: their basic blocks,
 * which the compiler has call a function (-fsanitize-coverage=trace-pc), and what they
 * have libc move. It is the same in each run, on each machine, however busy that is.
 */
#ifndef GCP_TESTS_STEPS_H
#define GCP_TESTS_STEPS_H

#include <stdint.h>

/* Since the start; what a test itself does is not counted. */
uint64_t steps_done(void);

#endif
