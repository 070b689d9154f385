/* SPDX-License-Identifier: MIT */
/*
 * replay_space.h - the replay's virtual memory: addresses, and physical memory in
 * pieces of one grain, which count as reserved while they exist.
 */
#ifndef GCP_BENCH_REPLAY_SPACE_H
#define GCP_BENCH_REPLAY_SPACE_H

#include "../../pool/check/check.h"
#include "../../pool/pool.h"

/* Adds the vm_ functions to a driver; `changed` hears what is made and released,
 * `spend` what a call costs the host. */
void space_fill(struct gcp_driver *driver, void (*changed)(int64_t bytes),
		void (*spend)(uint64_t ns));

#endif
