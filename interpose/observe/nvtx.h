/* SPDX-License-Identifier: MIT */
/*
 * nvtx.h - tells tools that are injected through NVTX, as compute-sanitizer is, which
 * parts of segments are blocks, so that an access beyond a block or to a freed one is
 * found.
 *
 * Called by instruments.c, with no lock of the pools held but where it says so. A
 * segment is a heap of a sub-allocator, and a block a region of as many bytes as the
 * program asked for; of mapped memory each handle is a heap where it is mapped. Blocks
 * of graph pools stay regions when they are freed: graphs address them. While a tool
 * listens, a free waits for the device, as plain cudaFree does: else work of before
 * would look as if it used freed memory.
 */
#ifndef GCP_INTERPOSE_NVTX_H
#define GCP_INTERPOSE_NVTX_H

#include "../../pool/pool.h"

#if __has_include(<nvtx3/nvToolsExtMem.h>)
#define GCP_NVTX 1
#else
#define GCP_NVTX 0
#endif

/* Whether a tool is injected (NVTX_INJECTION64_PATH). It is loaded later. */
bool gcp_nvtx_wanted(void);

#if GCP_NVTX
/* Puts itself between pool/ and the driver, for segments. */
void gcp_nvtx_driver(struct gcp_driver *driver);

/* A context is current, and CUDA initialised: now the tool may be asked. */
void gcp_nvtx_ready(void);

/* A block was given to the program; it is about to be freed, and is still the
 * program's. */
void gcp_nvtx_alloc(const struct gcp_block_info *block);
void gcp_nvtx_free(const struct gcp_block_info *block);
#else
#define gcp_nvtx_driver(driver) (void)(driver)
#define gcp_nvtx_ready()        (void)0
#define gcp_nvtx_alloc(block)   (void)(block)
#define gcp_nvtx_free(block)    (void)(block)
#endif

#endif
