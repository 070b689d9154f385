/* SPDX-License-Identifier: MIT */
/*
 * pitch.h - how wide CUDA makes the rows of pitched memory.
 */
#ifndef GCP_INTERPOSE_PITCH_H
#define GCP_INTERPOSE_PITCH_H

#include <stdbool.h>
#include <stddef.h>

#include "symbols.h"

/* Whether CUDA takes elements of so many bytes. */
static inline bool gcp_pitch_known(unsigned int element)
{
	return element == 4 || element == 8 || element == 16;
}

/* The pitch that CUDA would choose on the current device for rows of `width`
 * bytes; 0 if it is not known, or if CUDA would refuse `element`. */
size_t gcp_pitch_of(size_t width, unsigned int element);

/* The real function, counted. */
CUresult gcp_pitch_pass(CUdeviceptr *ret_ptr, size_t *ret_pitch, size_t width,
			size_t height, unsigned int element);

#endif
