/* SPDX-License-Identifier: MIT */
/*
 * trace_stacks.h - call stacks of a recording and of GCPOOL_DEBUG: return addresses as
 * they are, each stack of a recording stored once. What function an address belongs to
 * is found later, by scripts/gcpool-trace.
 *
 * Called by trace.c for each event that has a stack, and by debug_book.c, with no lock
 * held. Stacks are walked by libgcc's unwinder, which is loaded when they are asked
 * for: where it is missing there are none. Never calls CUDA.
 */
#ifndef GCP_INTERPOSE_TRACE_STACKS_H
#define GCP_INTERPOSE_TRACE_STACKS_H

#include <stdbool.h>
#include <stdint.h>

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

#endif
