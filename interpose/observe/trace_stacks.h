/* SPDX-License-Identifier: MIT */
/*
 * trace_stacks.h - call stacks of a recording: return addresses as they are, each stack
 * stored once. What function an address belongs to is found later, by
 * scripts/gcpool-trace.
 *
 * Called by trace.c for each event that has a stack, with no lock held. Frame pointers
 * first; where a program has none, the unwinder of libgcc, which is loaded when stacks
 * are asked for. Never calls CUDA.
 */
#ifndef GCP_INTERPOSE_TRACE_STACKS_H
#define GCP_INTERPOSE_TRACE_STACKS_H

#include <stdbool.h>
#include <stdint.h>

/* In the order of GCPOOL_TRACE_UNWIND's choices. */
enum gcp_trace_unwind {
	GCP_UNWIND_AUTO,   /* frame pointers, and where they lead nowhere, tables */
	GCP_UNWIND_FRAMES, /* frame pointers */
	GCP_UNWIND_TABLES, /* libgcc, by the tables that exceptions use */
};

/* Where the program has called the library: the return address, and what the frame
 * pointer was there. */
struct gcp_caller {
	uintptr_t address, frame;
};

/* Stacks have up to `frames` frames. False: no memory, and one line has said so. */
bool gcp_stacks_start(uint32_t frames, enum gcp_trace_unwind unwind);

/* Loads the unwinder, if one is wanted; until then stacks are walked without it. The
 * loader has a lock of its own, and holds it while the constructors of a library run,
 * which may come here: with no lock held that such a call takes. */
void gcp_stacks_load(void);

/* The number of the calling thread's stack from `caller` outwards; 0: it could not be
 * stored. */
uint32_t gcp_stacks_number(const struct gcp_caller *caller);

/* The stack itself, at most GCP_TRACE_FRAMES_MAX frames; the caller's alone where no
 * stacks were started. Returns how many; 0: the caller is not known. */
uint32_t gcp_stacks_walk(const struct gcp_caller *caller, uintptr_t *ret_frames);

/* Writes the executable mappings of the process as they are now. */
void gcp_stacks_modules(void);

#endif
