/* SPDX-License-Identifier: MIT */
/*
 * context_observers.h - the parts of the library that use contexts, and what each of
 * them does when one comes or goes.
 */
#ifndef GCP_INTERPOSE_CONTEXT_OBSERVERS_H
#define GCP_INTERPOSE_CONTEXT_OBSERVERS_H

#include "../cuda/contexts.h"

extern const struct gcp_context_observer gcp_context_observers[];
extern const size_t gcp_context_observer_count;

#endif
