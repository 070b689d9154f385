/*
 * world.h - fences of the world: an event in every context of the process, for
 * pinned memory, which every context can use. Filled into the driver table by
 * driver.c; contexts.c reports the ends of contexts.
 */
#ifndef GCP_INTERPOSE_WORLD_H
#define GCP_INTERPOSE_WORLD_H

#include <stdbool.h>

#include "symbols.h"

/* As driver.h says. */
int gcp_world_create(void **ret_world);
void gcp_world_destroy(void *world);
int gcp_world_record(void *world);
int gcp_world_query(void *world);
int gcp_world_wait(void *world, void *ctx);

/* The context is about to be destroyed: its events are not touched any more, and
 * count as pending. NULL: nothing happens. */
void gcp_world_context_ending(CUcontext ctx);
/* The real call returned. `gone`: they count as done, for good. */
void gcp_world_context_ended(CUcontext ctx, bool gone);

/* In the child of a fork. */
void gcp_world_after_fork(void);

#endif
