/* SPDX-License-Identifier: MIT */
/*
 * pool.h - what a test program asks the library, if it is there. Nothing is
 * linked: gcpool.h says how a program finds it.
 */
#ifndef GCPT_POOL_H
#define GCPT_POOL_H

#include <stdbool.h>

#include "../../../interpose/gcpool.h"

/* Whether the library is there and serves device 0; fills *ret_stats then. */
bool gcpt_pool_stats(struct gcpool_stats *ret_stats);

/* Bytes in pools of graphs; 0 without the library. */
uint64_t gcpt_private_bytes(void);

/* Waits for the device, and until at most `bytes` are in pools of graphs, for two
 * seconds at most: CUDA tells of a graph's end on a thread of its own, and the
 * library listens when it is asked for memory. No stream captures meanwhile. */
bool gcpt_private_wait(uint64_t bytes);

/* gcpool_trim(0, 0). False: the library is not there. */
bool gcpt_pool_trim(uint64_t *ret_bytes);

#endif
