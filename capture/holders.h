/* SPDX-License-Identifier: MIT */
/*
 * holders.h - the records of holders, for holding.c: which graphs and executables can
 * run on the memory of graph pools. tracker->lock is held.
 */
#ifndef GCP_CAPTURE_HOLDERS_H
#define GCP_CAPTURE_HOLDERS_H

#include "capture_types.h"

/* --- holder_books.c ----------------------------------------------------------- */

/* Those of the handle, ending or not, one after the other; NULL: no more. */
struct gcp_holder *gcp_holder_first(struct gcp_tracker *tracker, const void *handle,
				    bool is_exec);
struct gcp_holder *gcp_holder_next(const struct gcp_holder *holder);
/* The one that is not ending, or NULL. The second makes it when needed; NULL: no
 * memory. */
struct gcp_holder *gcp_holder_find(struct gcp_tracker *tracker, const void *handle,
				   bool is_exec);
struct gcp_holder *gcp_holder_get(struct gcp_tracker *tracker, const void *handle,
				  bool is_exec);
/* Without a handle. NULL: no memory. Any thread, with or without the lock. */
struct gcp_holder *gcp_holder_create(void);
/* It gets the handle. */
void gcp_holder_list(struct gcp_tracker *tracker, struct gcp_holder *holder,
		     const void *handle, bool is_exec);
/* The graph that it is embedded in, however deep; or itself. */
struct gcp_holder *gcp_holder_root(struct gcp_holder *holder);

/* --- holders.c ---------------------------------------------------------------- */

/* With its parts. */
void gcp_holder_free(struct gcp_tracker *tracker, struct gcp_holder *holder);
/* The graph is a part of `parent` from now on (NULL: of one that is not known). */
void gcp_holder_embed(struct gcp_holder *part, struct gcp_holder *parent);
/* The graph is embedded in another one: a capture that makes a graph of this handle has
 * lost it, after an error. */
void gcp_graph_is_part(struct gcp_tracker *tracker, const void *graph);
/* The driver has given out the handle: what had it before is gone, also the graph of a
 * capture under way. */
void gcp_handle_is_new(struct gcp_tracker *tracker, const void *handle, bool is_exec);

void gcp_graph_pool_keep(struct gcp_graph_pool *graph_pool);
void gcp_holds_move(struct gcp_holder *from, struct gcp_holder *to);
/* `to` holds what those of the handle do. -ENOMEM. */
int gcp_holds_of(struct gcp_tracker *tracker, const void *handle, bool is_exec,
		 struct gcp_holder *to);

#endif
