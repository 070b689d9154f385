/* SPDX-License-Identifier: MIT */
/*
 * probe_captures.h - what the explorer's builds of the library tell of captures: which
 * graph pool a block is of (probe.c).
 */
#ifndef EXPLORE_PROBE_CAPTURES_H
#define EXPLORE_PROBE_CAPTURES_H

#include <stdbool.h>
#include <stdint.h>

struct gcp_tracker;

/* Whether the block in use that begins there is of a graph pool which the capture of
 * that number, that goes on, holds. */
bool probe_capture_keeps(struct gcp_tracker *tracker, uint64_t addr, uint64_t number);
/* The id of the block's graph pool; 0: it is of none. */
uint64_t probe_graph_pool(struct gcp_tracker *tracker, uint64_t addr);
/* Returns true if memory of graphs is kept, since the host had no memory to note whose
 * the parts of a graph are. */
bool probe_keeps_some(const struct gcp_tracker *tracker);
/* Takes the tracker down: the library never does. */
void probe_tracker_destroy(struct gcp_tracker *tracker);

#endif
