/* SPDX-License-Identifier: MIT */
/*
 * linked.h - what the stubs of exports_stubs.S need.
 */
#ifndef GCP_INTERPOSE_LINKED_H
#define GCP_INTERPOSE_LINKED_H

#include <stdatomic.h>

/* True once it is known that all calls go to the entries. */
extern atomic_bool gcp_linked_alone __attribute__((visibility("hidden")));

/* The function that a call of a linked program goes to; `row`: in gcp_rows. */
void *gcp_linked_target(unsigned int row);

#endif
