/* SPDX-License-Identifier: MIT */
/*
 * hooks_copy.h - copies between devices that are in graphs.
 */
#ifndef GCP_INTERPOSE_HOOKS_COPY_H
#define GCP_INTERPOSE_HOOKS_COPY_H

#include <stdbool.h>

#include "../cuda/symbols.h"

/* Before a graph gets a node that copies so, in `ctx` (NULL: the current context; but
 * anywhere: in one that is not known). */
void gcp_copy_node_made(const CUDA_MEMCPY3D *copy, CUcontext ctx, bool anywhere);

/* After a launch into `stream`, as gcp_stream_named gives it. */
void gcp_copy_graph_launched(CUstream stream);

#endif
