/* SPDX-License-Identifier: MIT */
/*
 * records.c - the records of the tracker and of captures: made, read and freed. What
 * the other files of capture/ do with them is theirs.
 */
#include "capture_types.h"

_Static_assert(offsetof(struct gcp_tracker, counts) == 0, "it begins with them");

int gcp_tracker_create(struct gcp_pools *pools, const struct gcp_capture_driver *driver,
		       bool sharing, struct gcp_tracker **ret_tracker)
{
	struct gcp_tracker *tracker = calloc(1, sizeof(*tracker));

	if (!tracker)
		return -ENOMEM;
	tracker->pools = pools;
	tracker->driver = *driver;
	tracker->sharing = sharing;
	gcp_mutex_init(&tracker->lock, GCP_RANK_TRACKER);
	TAILQ_INIT(&tracker->captures);
	TAILQ_INIT(&tracker->graph_pools);
	TAILQ_INIT(&tracker->tracks);
	TAILQ_INIT(&tracker->fresh);
	TAILQ_INIT(&tracker->waiting);
	*ret_tracker = tracker;
	return 0;
}

bool gcp_streams_may_capture(const struct gcp_tracker *tracker)
{
	return gcp_tracker_capturing(tracker) ||
	       atomic_load_explicit(&tracker->captures_unseen, memory_order_relaxed);
}

uint64_t gcp_thread_number(void)
{
	static _Atomic uint64_t last;
	static __thread uint64_t number __attribute__((tls_model("initial-exec")));

	if (number == 0)
		number = atomic_fetch_add(&last, 1) + 1;
	return number;
}

/* --- captures -------------------------------------------------------------- */

void gcp_capture_destroy(struct gcp_capture *capture)
{
	struct gcp_free_group *free_group;

	if (!capture)
		return;
	assert(SLIST_EMPTY(&capture->streams) && !capture->pool && !capture->common);
	while ((free_group = STAILQ_FIRST(&capture->free_groups))) {
		STAILQ_REMOVE_HEAD(&capture->free_groups, link);
		free(free_group);
	}
	free(capture->released);
	free(capture->reach.places);
	free(capture->frontier.items);
	free(capture->kept.items);
	free(capture->strays.items);
	free(capture->unseen.items);
	free(capture);
}

/* Whether it is the one that CUDA calls `id`. In doubt it is: memory that too many
 * hold stays longer, and that is all. */
bool gcp_capture_may_be(const struct gcp_capture *capture, uint64_t id)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	return capture->id == id || capture->id == 0 || id == 0;
}

bool gcp_holds_has(const struct gcp_holds *holds,
		   const struct gcp_graph_pool *graph_pool)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	const struct gcp_hold *hold;

	SLIST_FOREACH (hold, holds, link)
		if (hold->graph_pool == graph_pool)
			return true;
	return false;
}

/* --- holders --------------------------------------------------------------- */

struct gcp_holder_list *gcp_holder_bucket(struct gcp_tracker *tracker,
					  const void *handle)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	uintptr_t number = (uintptr_t)handle;

	return &tracker->holders[(number >> 4 ^ number >> 13) % GCP_HOLDER_BUCKETS];
}

struct gcp_holder *gcp_holder_find(struct gcp_tracker *tracker, const void *handle,
				   bool is_exec)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_holder *holder;

	LIST_FOREACH (holder, gcp_holder_bucket(tracker, handle), link)
		if (holder->handle == handle && holder->is_exec == is_exec)
			break;
	return holder;
}

struct gcp_holder *gcp_holder_root(struct gcp_holder *holder)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	while (holder->parent)
		holder = holder->parent;
	return holder;
}

/* --- references of graph pools --------------------------------------------------- */

uint64_t gcp_graph_pool_references(const struct gcp_graph_pool *graph_pool)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	return graph_pool->captures + graph_pool->graphs + graph_pool->held +
	       graph_pool->kept;
}

/* Also if it waits already, and was used meanwhile. */
void gcp_graph_pool_ref_released(struct gcp_tracker *tracker,
				 struct gcp_graph_pool *graph_pool)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	if (gcp_graph_pool_references(graph_pool) > 0)
		return;
	assert(!graph_pool->kept); /* Y1: a reference by itself */
	if (graph_pool->away || graph_pool->unseen)
		graph_pool->awaits = tracker->driver.launches_latest();
	if (graph_pool->waits)
		return;
	graph_pool->waits = true;
	TAILQ_INSERT_TAIL(&tracker->waiting, graph_pool, waiting_link);
	atomic_fetch_add(&tracker->counts.waiting, 1);
}
