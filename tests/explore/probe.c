/* SPDX-License-Identifier: MIT */
/*
 * probe.c - what the explorer's builds of the library have in addition: a door to
 * the checks of the invariants and to which graph pool a block is of, and memory of the
 * host that can run out. Never part of libgcpool.so.
 *
 * The library is linked with --wrap for the functions of memory_fails.h.
 */
#include "../../interpose/cuda/gate.h"
#include "../../pool/check/check.h"
#include "../memory_fails.h"
#include "probe_captures.h"

#define DOOR __attribute__((visibility("default")))

DOOR const char *gcpool_explore_check(void);
DOOR uint64_t gcpool_explore_lent(void);
DOOR uint64_t gcpool_explore_captures(void);
DOOR int gcpool_explore_keeps(uint64_t addr, uint64_t capture);
DOOR int gcpool_explore_keeps_some(void);
DOOR int gcpool_explore_asleep(void);
DOOR uint64_t gcpool_explore_graph_pool(uint64_t addr);
DOOR void gcpool_explore_finish(void);
DOOR void gcpool_explore_fail_memory(unsigned at, int onwards);
DOOR uint64_t gcpool_explore_memory_calls(void);

const char *gcpool_explore_check(void)
{
	return gcp_process_pooling() ? gcp_pools_check(gcp_process.pools) : NULL;
}

/* Bytes of freed blocks that other processes have open. */
uint64_t gcpool_explore_lent(void)
{
	const struct gcp_heap *heap;
	uint64_t bytes = 0;

	if (!gcp_process_pooling())
		return 0;
	for (struct gcp_pool *pool = gcp_process.pools->first; pool;
	     pool = pool->next) {
		gcp_mutex_lock(&pool->lock);
		bytes += pool->common.lent_bytes;
		TAILQ_FOREACH (heap, &pool->private_heaps, link)
			bytes += heap->lent_bytes;
		gcp_mutex_unlock(&pool->lock);
	}
	return bytes;
}

uint64_t gcpool_explore_captures(void)
{
	return gcp_process_pooling() ? gcp_tracker_captures_begun(gcp_process.tracker)
				     : 0;
}

int gcpool_explore_keeps(uint64_t addr, uint64_t capture)
{
	return gcp_process_pooling() &&
	       probe_capture_keeps(gcp_process.tracker, addr, capture);
}

int gcpool_explore_asleep(void)
{
	return atomic_load(&gcp_gate.asleep);
}

int gcpool_explore_keeps_some(void)
{
	return gcp_process_pooling() && probe_keeps_some(gcp_process.tracker);
}

uint64_t gcpool_explore_graph_pool(uint64_t addr)
{
	return gcp_process_pooling() ? probe_graph_pool(gcp_process.tracker, addr) : 0;
}

/* Takes the pools down: what they have, used or not, goes back to the driver, and
 * the process goes on without them. No graph is left, and no other thread is inside. */
void gcpool_explore_finish(void)
{
	if (!gcp_process_pooling())
		return;
	atomic_store(&gcp_process.run_mode, GCP_RUN_PASSIVE);
	probe_tracker_destroy(gcp_process.tracker);
	gcp_pools_destroy(gcp_process.pools);
	gcp_process.tracker = NULL;
	gcp_process.pools = NULL;
}

void gcpool_explore_fail_memory(unsigned at, int onwards)
{
	memory_fail(at, onwards);
}

uint64_t gcpool_explore_memory_calls(void)
{
	return atomic_load(&memory_calls);
}
