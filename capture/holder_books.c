/* SPDX-License-Identifier: MIT */
/*
 * holder_books.c - the list of holders, by their handles: see holders.c. There may be
 * two of one handle, of which one is ending.
 */
#include "holders.h"

static struct gcp_holder_list *bucket_of(struct gcp_tracker *tracker,
					 const void *handle)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	uintptr_t number = (uintptr_t)handle;

	return &tracker->holders[(number >> 4 ^ number >> 13) % GCP_HOLDER_BUCKETS];
}

static bool is_of(const struct gcp_holder *holder, const void *handle, bool is_exec)
{
	return holder->handle == handle && holder->is_exec == is_exec;
}

static struct gcp_holder *first_of(struct gcp_holder *holder, const void *handle,
				   bool is_exec)
{
	while (holder && !is_of(holder, handle, is_exec))
		holder = LIST_NEXT(holder, link);
	return holder;
}

struct gcp_holder *gcp_holder_first(struct gcp_tracker *tracker, const void *handle,
				    bool is_exec)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	return first_of(LIST_FIRST(bucket_of(tracker, handle)), handle, is_exec);
}

struct gcp_holder *gcp_holder_next(const struct gcp_holder *holder)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	return first_of(LIST_NEXT(holder, link), holder->handle, holder->is_exec);
}

struct gcp_holder *gcp_holder_find(struct gcp_tracker *tracker, const void *handle,
				   bool is_exec)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_holder *holder = gcp_holder_first(tracker, handle, is_exec);

	while (holder && holder->ending)
		holder = gcp_holder_next(holder);
	return holder;
}

void gcp_holder_list(struct gcp_tracker *tracker, struct gcp_holder *holder,
		     const void *handle, bool is_exec)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	assert(handle && !holder->handle);
	holder->handle = handle;
	holder->is_exec = is_exec;
	LIST_INSERT_HEAD(bucket_of(tracker, handle), holder, link);
	atomic_fetch_add(&tracker->holder_count, 1);
}

struct gcp_holder *gcp_holder_create(void)
{
	int saved = errno;
	struct gcp_holder *holder = calloc(1, sizeof(*holder));

	errno = saved;
	return holder;
}

/* NULL: no memory. */
struct gcp_holder *gcp_holder_get(struct gcp_tracker *tracker, const void *handle,
				  bool is_exec)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_holder *holder = gcp_holder_find(tracker, handle, is_exec);

	if (!holder)
		holder = gcp_holder_create();
	if (holder && !holder->handle)
		gcp_holder_list(tracker, holder, handle, is_exec);
	return holder;
}

/* The graph that it is embedded in, however deep. */
struct gcp_holder *gcp_holder_root(struct gcp_holder *holder)
{
	while (holder->parent)
		holder = holder->parent;
	return holder;
}
