/* SPDX-License-Identifier: MIT */
/*
 * calls.h - how the files of pool/ call the driver's table: counted and timed. Part of
 * pool_types.h; any lock of the room may be held.
 */
#ifndef GCP_POOL_CALLS_H
#define GCP_POOL_CALLS_H

#include "../pool.h"

/* gcp_tick(pools): driver_table.h, tick. */
#define gcp_tick(pools)                                                                \
	do {                                                                           \
		if (__builtin_expect((pools)->driver.tick != NULL, 0))                 \
			(pools)->driver.tick();                                        \
	} while (0)

/* Calls graphs_look of the driver table, if there is one. Returns true if memory came.
 */
#define gcp_graphs_look(pools)                                                         \
	((pools)->driver.graphs_look && (pools)->driver.graphs_look())

/* What gcp_pools_refusal says of the calling thread. */
void gcp_refusal_set(enum gcp_refusal refusal);

#define GCP_X(name) GCP_CALL_##name,
enum gcp_driver_call { GCP_DRIVER_CALLS(GCP_X) GCP_CALL_COUNT };
#undef GCP_X

/* What calls of the driver of one kind have cost. Atomic, without a lock. */
enum gcp_cost {
	GCP_COST_COUNT,
	GCP_COST_NS,
	GCP_COST_MAX_NS,
	GCP_COST_MIN_NS, /* UINT64_MAX less that, so that it only grows */
	GCP_COSTS
};

/* A call that has begun at `start_ns`. */
void gcp_cost_add(struct gcp_pools *pools, _Atomic uint64_t cost[GCP_COSTS],
		  uint64_t start_ns);
#define GCP_TIMED(pools, cost, name, ...)                                              \
	({                                                                             \
		uint64_t start_ = (pools)->driver.clock_ns();                          \
		__auto_type result_ = (pools)->driver.name(__VA_ARGS__);               \
		gcp_cost_add((pools), (cost), start_);                                 \
		result_;                                                               \
	})
/* GCP_CALL(pool, mem_free, ctx, addr): a driver call, counted and timed. */
#define GCP_CALL(pool, name, ...)                                                      \
	GCP_TIMED((pool)->pools, (pool)->calls[GCP_CALL_##name], name, __VA_ARGS__)

#endif
