/* SPDX-License-Identifier: MIT */
/*
 * handles_list.h - the handles that the pool knows: in use, on their way back, and
 * free, on a list for each library and context. Called by handles.c, and where the
 * library hears of ends of contexts and of forks.
 *
 * Every function may be called from any thread, while gcp_process_pooling.
 */
#ifndef GCP_INTERPOSE_HANDLES_LIST_H
#define GCP_INTERPOSE_HANDLES_LIST_H

#include <stdbool.h>

#include "handles_library.h"

struct gcp_handle;
struct gcp_handle_list;

/* The list for handles that `library` creates while `ctx` is current. NULL: none,
 * they are not pooled. */
struct gcp_handle_list *gcp_handle_list_of(struct gcp_handle_library *library,
					   CUcontext ctx);

/* A free handle like a new one, which now is in use; NULL: there is none. */
void *gcp_handle_list_take(struct gcp_handle_list *list);

/* The library has just created `pointer`: from now on it is known, and in use, unless
 * its state cannot be read or the host is out of memory. */
void gcp_handle_list_adopt(struct gcp_handle_list *list, void *pointer);

/* The program destroys `pointer`. */
enum gcp_handle_claim {
	GCP_HANDLE_UNKNOWN,   /* not known: its library's business */
	GCP_HANDLE_DESTROYED, /* it has been destroyed already */
	GCP_HANDLE_SHARED,    /* others have it still: nothing more is to be done */
	GCP_HANDLE_CLAIMED,   /* one of the two below follows, with *ret_handle */
};
enum gcp_handle_claim gcp_handle_claim(struct gcp_handle_library *library,
				       void *pointer, struct gcp_handle **ret_handle);

/* Puts it on its list. wait: behind a wait for the context. False: it cannot be kept,
 * and must be detached. */
bool gcp_handle_return(struct gcp_handle *handle, bool wait);

/* The library is about to destroy it. */
void gcp_handle_detach(struct gcp_handle *handle);

/* `ending` more calls (1 or -1) are under way that may end `ctx`: its handles are left
 * alone. `gone`: it has ended, and they are detached. */
void gcp_handle_lists_tell(CUcontext ctx, int ending, bool gone);

/* Returns when no fence is being recorded by a thread that saw no capture. */
void gcp_handle_lists_pause(void);

/* In the child of a fork. */
void gcp_handle_lists_after_fork(void);

#endif
