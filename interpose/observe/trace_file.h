/* SPDX-License-Identifier: MIT */
/*
 * trace_file.h - the mapped file of a recording: its chunks, and slots and entries in
 * them. Called by trace.c and trace_stacks.c with any lock held. Never calls CUDA, and
 * allocates nothing but mappings.
 *
 * Disk space is taken before it is mapped, so a full disk is an error here and no
 * signal. No descriptor stays open: the file is opened again for each chunk, and must
 * still be the same one.
 */
#ifndef GCP_INTERPOSE_TRACE_FILE_H
#define GCP_INTERPOSE_TRACE_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "trace_format.h"

/* Makes the file of `pattern` (%p: the process id), which may grow to `bytes`. False:
 * one line has said why not. */
bool gcp_trace_file_create(const char *pattern, uint64_t bytes, uint32_t frames);
/* The recording is over, by itself. */
void gcp_trace_file_end(void);
/* In a forked child: the file is the parent's. */
void gcp_trace_file_leave(void);

/* The slot for an event of the calling thread, and what its stamp has to be. NULL:
 * there is no room, and one line has said so. */
struct gcp_trace_event *gcp_trace_slot(uint32_t *ret_stamp);
struct gcp_trace_event *gcp_trace_slot_rare(uint32_t *ret_stamp);

/* The next entry of stacks, and its number; NULL: no room. */
uint64_t *gcp_trace_stack_entry(uint32_t *ret_number);
/* An entry that was given out before. */
const uint64_t *gcp_trace_stack_at(uint32_t number);

/* Appends to the modules. One caller at a time. */
void gcp_trace_module_add(const struct gcp_trace_module *module, const char *path);

void gcp_trace_count_lost_stack(void);

#endif
