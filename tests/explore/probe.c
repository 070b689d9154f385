/*
 * probe.c - what the explorer's builds of the library have in addition: a door to
 * the checks of the invariants. Never part of libgcpool.so.
 */
#include "../../interpose/process.h"

__attribute__((visibility("default"))) const char *gcpool_explore_check(void);

const char *gcpool_explore_check(void)
{
	return gcp_process_pooling() ? gcp_pools_check(gcp_process.pools) : NULL;
}
