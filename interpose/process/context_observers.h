/* SPDX-License-Identifier: MIT */
/*
 * context_observers.h - what the library does when a context begins or ends.
 */
#ifndef GCP_INTERPOSE_CONTEXT_OBSERVERS_H
#define GCP_INTERPOSE_CONTEXT_OBSERVERS_H

#include "../cuda/contexts.h"

extern const struct gcp_context_observer gcp_contexts_observer;

#endif
