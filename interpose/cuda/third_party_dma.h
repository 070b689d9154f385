/* SPDX-License-Identifier: MIT */
/*
 * third_party_dma.h - whether devices are written to by others than CUDA.
 */
#ifndef GCP_INTERPOSE_THIRD_PARTY_DMA_H
#define GCP_INTERPOSE_THIRD_PARTY_DMA_H

#include <stdbool.h>

/* Whether something outside of CUDA's queues may write into device memory: a network
 * card, or a driver mapping of it into the CPU. Looks through the loaded libraries
 * again only when more were loaded since. Once true it stays true. Never waits, holds
 * the loader's list lock shortly. */
bool gcp_third_party_dma_present(void);

/* The program asks for what makes memory known outside of CUDA, or uses a context that
 * no barrier reaches: from now on something there may write, also where no known
 * library is loaded. */
void gcp_third_party_dma_told(void);
/* Whether memory may be reused only when the device is done with it. */
bool gcp_third_party_dma_possible(void);

#endif
