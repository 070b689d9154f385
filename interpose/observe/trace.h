/* SPDX-License-Identifier: MIT */
/*
 * trace.h - a recording of what the program and the pool do (GCPOOL_TRACE): events and
 * call stacks, in a mapped file. Called by instruments.c and trace_driver.c, with any
 * lock held unless it says otherwise. Nothing here calls CUDA or the pool but
 * gcp_trace_sample.
 */
#ifndef GCP_INTERPOSE_TRACE_H
#define GCP_INTERPOSE_TRACE_H

#include "../statistics/report.h"
#include "trace_format.h"

/* Opens the recording that the options ask for. False: they ask for none, or it could
 * not be opened, which one line has said. */
bool gcp_trace_start(const struct gcp_options *options);

/* One event, if there is a recording. device: -1, it is not known; stack: with the
 * calling thread's. */
void gcp_trace_add(enum gcp_trace_kind kind, int device, uint64_t addr, uint64_t bytes,
		   uint64_t arg, uint32_t more, bool stack);

/* For `more`: ns since `start_ns`, or as many as fit. */
uint32_t gcp_trace_took(uint64_t start_ns);

/* The same of how much memory there is, now and then, or `now`: no lock of the pools is
 * held. */
void gcp_trace_sample(struct gcp_pools *pools, bool now);

/* A device is used for the first time. */
void gcp_trace_device(int device, const struct gcp_gpu *gpu);

/* Puts itself between pool/ and the driver, for GCPOOL_DEBUG, too. */
void gcp_trace_driver(struct gcp_driver *driver);

/* --- trace_stacks.c: call stacks, of GCPOOL_DEBUG, too ------------------------ */

/* Return addresses as they are, each stack of a recording stored once. What function an
 * address belongs to is found later, by scripts/gcpool-trace. Stacks are walked by
 * libgcc's unwinder, which is loaded when they are asked for: where it is missing there
 * are none. Called with no lock held. */

/* Makes room for the stacks of a recording, of up to `frames` frames. False: no memory,
 * and one line has said so. */
bool gcp_stacks_start(uint32_t frames);

/* Loads the unwinder; until then no stack is walked. The loader has a lock of its own,
 * and holds it while the constructors of a library run, which may come here: with no
 * lock held that such a call takes. */
void gcp_stacks_load(void);

/* The number of the calling thread's stack from the program's frame outwards; 0: it
 * could not be stored. After gcp_stacks_start. */
uint32_t gcp_stacks_number(void);

/* The stack itself, at most `most` (up to GCP_TRACE_FRAMES_MAX) frames. Returns how
 * many; 0: they are not known. */
uint32_t gcp_stacks_walk(uint32_t most, uintptr_t *ret_frames);

/* --- trace_file.c: the file, its chunks, and slots and entries in them -------- */

/* Disk space is taken before it is mapped, so a full disk is an error here and no
 * signal. No descriptor stays open: the file is opened again for each chunk, and must
 * still be the same one. Allocates nothing but mappings. */

/* Makes the file of `pattern` (%p: the process id), which may grow to `bytes`. False:
 * one line has said why not. */
bool gcp_trace_file_create(const char *pattern, uint64_t bytes, uint32_t frames);
/* The recording is over, by itself. */
void gcp_trace_file_end(void);

/* The next slot of events (RARE: of those that are never overwritten, while there is
 * room) or entry of stacks, and its number, from 1. NULL: there is no room, and one
 * line has said so. */
void *gcp_trace_slot(enum gcp_trace_content content, uint32_t *ret_number);
/* An entry of stacks that was given out before. */
const uint64_t *gcp_trace_stack_at(uint32_t number);

/* Appends to the modules. One caller at a time. */
void gcp_trace_module_add(const struct gcp_trace_module *module, const char *path);

void gcp_trace_count_lost_stack(void);

#endif
