/* SPDX-License-Identifier: MIT */
/*
 * observe.h - loads libgcpool-observe.so where an option asks for an instrument, and
 * tells it what happens. Called by process_life.c and the hooks.
 */
#ifndef GCP_INTERPOSE_OBSERVE_H
#define GCP_INTERPOSE_OBSERVE_H

#include "../observe/observer.h"

/* Loads the library, if the environment asks for it. The loader has a lock of its own,
 * and holds it while the constructors of a library run, which may come here: with no
 * lock held. */
void gcp_observe_load(void);
/* Starts it, before the pools are made. Called with GCP_RANK_START held. */
void gcp_observe_start(const struct gcp_options *options);

/* The same way as without observers, and then they are told. */
int gcp_observe_alloc(struct gcp_pool *pool, uint64_t bytes, gcp_addr *ret_addr);
int gcp_observe_free(gcp_addr addr);
int gcp_observe_free_async(gcp_addr addr, uint64_t order, void *stream);
int gcp_observe_alloc_async(struct gcp_pool *pool, uint64_t bytes, void *stream,
			    struct gcp_stream_order *order, gcp_addr *ret_addr);

#endif
