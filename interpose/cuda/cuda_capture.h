/* SPDX-License-Identifier: MIT */
/*
 * cuda_capture.h - the real driver as capture/ wants to see it.
 */
#ifndef GCP_INTERPOSE_CUDA_CAPTURE_H
#define GCP_INTERPOSE_CUDA_CAPTURE_H

#include "../../capture/capture.h"

void gcp_driver_fill_capture(struct gcp_capture_driver *ret_driver);

#endif
