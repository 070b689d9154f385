/* SPDX-License-Identifier: MIT */
/*
 * calls.c - what calls of the driver have cost. See calls.h.
 */
#include "../pool_types.h"

void gcp_cost_add(struct gcp_pools *pools, _Atomic uint64_t cost[GCP_COSTS],
		  uint64_t start_ns)
{
	uint64_t ns = pools->driver.clock_ns() - start_ns;

	gcp_assert_driver_call();
	atomic_fetch_add_explicit(&cost[GCP_COST_COUNT], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&cost[GCP_COST_NS], ns, memory_order_relaxed);
	gcp_raise(&cost[GCP_COST_MAX_NS], ns);
	gcp_raise(&cost[GCP_COST_MIN_NS], UINT64_MAX - ns);
}

bool gcp_search_others(const struct gcp_pools *pools, struct gcp_search *search)
{
	const struct gcp_driver *driver = &pools->driver;
	uint64_t given = driver->given_by_others ? driver->given_by_others() : 0;
	bool others = given != search->given;

	search->given = given;
	return others;
}
