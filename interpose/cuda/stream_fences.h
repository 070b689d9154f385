/* SPDX-License-Identifier: MIT */
/*
 * stream_fences.h - fences where this library is loaded, and not preloaded: events in
 * the streams that frees have named, in the place of events behind all work of a
 * context.
 */
#ifndef GCP_INTERPOSE_STREAM_FENCES_H
#define GCP_INTERPOSE_STREAM_FENCES_H

#include <stdbool.h>
#include <stdint.h>

#include "../../pool/pool.h"
#include "symbols.h"

/* Whether the driver has what they need. */
bool gcp_stream_fences_possible(void);

/* Takes their place in the table, and takes out of it what needs hooks. */
void gcp_stream_fences_fill(struct gcp_driver *driver);

/* Before a block is freed: all fences recorded from now on cover what `stream` was
 * given before the call. `id` is the stream's, `ctx` its context, which is current; the
 * stream does not capture. On an error nothing is covered. */
CUresult gcp_stream_fences_record(CUcontext ctx, CUstream stream, uint64_t id);

#endif
