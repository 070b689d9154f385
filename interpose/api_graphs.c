/* SPDX-License-Identifier: MIT */
/*
 * api_graphs.c - the public functions of gcpool.h, section 4: graph pools that
 * captures share. They hand on to capture/; in forked children, in the other
 * modes and before the first allocation there is nothing to hand on to.
 */
#define GCPOOL_API __attribute__((visibility("default")))
#include "gcpool.h"

#include <assert.h>
#include <errno.h>

#include "process.h"

/* The public struct is the one of capture.h under a public name. */
static_assert(sizeof(struct gcpool_graph_pool) == sizeof(struct gcp_graph_pool_info),
	      "gcpool.h and capture.h list the same of a graph pool");
static_assert(offsetof(struct gcpool_graph_pool, last_capture_id) ==
		  offsetof(struct gcp_graph_pool_info, last_capture_id),
	      "gcpool.h and capture.h list it in the same order");

int gcpool_graph_pool_create(uint64_t *id)
{
	return gcp_process_pooling() ? gcp_graph_pool_create(gcp_process.tracker, id)
				     : -ENOENT;
}

int gcpool_graph_pool_use(uint64_t id)
{
	return gcp_process_pooling() ? gcp_graph_pool_use(gcp_process.tracker, id)
				     : -ENOENT;
}

int gcpool_graph_pool_retain(uint64_t id)
{
	return gcp_process_pooling() ? gcp_graph_pool_retain(gcp_process.tracker, id)
				     : -ENOENT;
}

int gcpool_graph_pool_release(uint64_t id)
{
	return gcp_process_pooling() ? gcp_graph_pool_release(gcp_process.tracker, id)
				     : -ENOENT;
}

size_t gcpool_graph_pools(struct gcpool_graph_pool *pools, size_t count)
{
	if (!gcp_process_pooling())
		return 0;
	return gcp_graph_pools_list(gcp_process.tracker,
				    (struct gcp_graph_pool_info *)pools, count);
}

int gcpool_graph_pool_checkpoint(uint64_t id, struct gcpool_checkpoint **checkpoint)
{
	if (!gcp_process_pooling())
		return -ENOENT;
	return gcp_graph_pool_checkpoint(gcp_process.tracker, id,
					 (struct gcp_graph_checkpoint **)checkpoint);
}

int gcpool_graph_pool_restore(uint64_t id, const struct gcpool_checkpoint *checkpoint)
{
	if (!gcp_process_pooling())
		return -ENOENT;
	if (!checkpoint)
		return -ESTALE;
	return gcp_graph_pool_restore(gcp_process.tracker, id,
				      (const struct gcp_graph_checkpoint *)checkpoint);
}

void gcpool_graph_pool_checkpoint_free(struct gcpool_checkpoint *checkpoint)
{
	gcp_graph_checkpoint_destroy((struct gcp_graph_checkpoint *)checkpoint);
}
