/* SPDX-License-Identifier: MIT */
/*
 * cancel.h - no thread ends by pthread_cancel inside the library while it holds what
 * others need: a lock, a waiter's place at a fence, a pin. Part of pool.h.
 *
 * The library itself sleeps with gcp_sleep. Calls of the driver, of files and the like
 * may be cancellation points: where they are made under a lock the end is deferred.
 */
#ifndef GCP_POOL_CANCEL_H
#define GCP_POOL_CANCEL_H

#include <errno.h>
#include <stdint.h>

/* Puts errno back at the end of the block. */
#define GCP_KEEP_ERRNO                                                                 \
	int kept_errno __attribute__((cleanup(gcp_errno_restore), unused)) = errno
static inline void gcp_errno_restore(const int *kept)
{
	errno = *kept;
}

/* Until gcp_cancel_restore, which gets what the first one gave, a cancellation of the
 * calling thread stays pending. They nest, and the inner ones cost nothing; errno
 * stays. */
int gcp_cancel_defer(void);
void gcp_cancel_restore(const int *state);
/* From here to the end of the block. */
#define GCP_CANCEL_LATER                                                               \
	int cancel __attribute__((cleanup(gcp_cancel_restore))) = gcp_cancel_defer()

/* Sleeps for `ns` nanoseconds, less if a signal comes. No cancellation point; errno
 * stays. */
void gcp_sleep(uint64_t ns);

#endif
