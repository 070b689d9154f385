/* SPDX-License-Identifier: MIT */
/*
 * pin.c - a pool whose context may be ending is pinned while it is used; and the short
 * wait for what another thread does. Any lock, or none, may be held, but not for
 * gcp_pool_pin_wait.
 */
#include "timeline.h"

void gcp_backoff(void)
{
	gcp_sleep(50 * 1000);
}

/* Whether the caller may use the pool's context, which another thread may be destroying
 * just now. Until gcp_pool_unpin it stays. */
bool gcp_pool_pin(struct gcp_pool *pool)
{
	atomic_fetch_add(&pool->pins, 1);
	if (atomic_load(&pool->live) && !atomic_load(&pool->detaching))
		return true;
	gcp_pool_unpin(pool);
	return false;
}

bool gcp_pool_is_live(const struct gcp_pool *pool)
{
	return pool->live;
}

void gcp_pool_unpin(struct gcp_pool *pool)
{
	assert(atomic_load(&pool->pins) > 0); /* K4 */
	atomic_fetch_sub(&pool->pins, 1);
}

bool gcp_pool_pin_wait(struct gcp_pool *pool)
{
	bool has_pin = gcp_pool_pin(pool);

	for (int i = 0; i < GCP_WAIT_LIMIT && !has_pin && atomic_load(&pool->live);
	     i++) {
		gcp_backoff();
		has_pin = gcp_pool_pin(pool);
	}
	return has_pin;
}
