/* SPDX-License-Identifier: MIT */
/*
 * replay_segments.h - which segments the pool holds, and what is in them, when most
 * is reserved.
 */
#ifndef GCP_BENCH_REPLAY_SEGMENTS_H
#define GCP_BENCH_REPLAY_SEGMENTS_H

#include <stdint.h>

struct gcp_pool;

/* Remembers what is there now, before `bytes` more are added; no lock held. */
void segments_look(struct gcp_pool *pool, uint64_t bytes);
/* Prints what was there at the latest look. */
void segments_print(void);

#endif
