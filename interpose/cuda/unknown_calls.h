/* SPDX-License-Identifier: MIT */
/*
 * unknown_calls.h - functions of a newer driver that this library does not know.
 *
 * A fence that is recorded while a stream captures destroys the capture, and memory
 * that the capture addresses must not be given to another owner. Both rules need the
 * begin of every capture. So a look-up of a function whose name says that it begins a
 * capture, and that symbols.h lacks, is answered with a stub. When the program calls
 * the stub, the library steps aside before the real function runs: from then on no
 * fence is recorded, every allocation goes to CUDA, and what plain CUDA does in such a
 * capture is what happens. Blocks that the program holds stay valid and are taken
 * back when they are freed; freed memory is not reused, but is given back to the driver
 * when an allocation runs out of memory.
 *
 * Every other function that neither symbols.h hooks nor symbols.list names may
 * submit work, or change the order of a capture: it gets a stub too, and while a
 * capture is under way a call of it counts as both.
 *
 * A program that is linked with such a function of libcuda, instead of asking for it
 * by name, is out of reach.
 */
#ifndef GCP_INTERPOSE_UNKNOWN_CALLS_H
#define GCP_INTERPOSE_UNKNOWN_CALLS_H

#include <stdbool.h>
#include <stdint.h>

/* Returns true if it is one of the driver's functions that give the device no work, up
 * to CUDA 13.0, or one of 13.1 that returns numbers of graphs, in a known version. */
bool gcp_known_call(const char *name);

/* Whether a function of the driver of that name needs a stub, if it has no hook. */
bool gcp_unknown_call_is(const char *name);

/* What a look-up of `name` gives in the place of `real`, which no hook stands for: a
 * stub, or `real` for every other name and for NULL. newer: it is a version of the
 * function that is not known. The same function gets the same stub each time. When no
 * stub is left the library steps aside at once. Any thread. */
void *gcp_unknown_call_wrap(const char *name, void *real, bool newer);

/* Whether the library has stepped aside. One relaxed load. */
bool gcp_unknown_capture_seen(void);

/* The pools have just been made: keeps them from recording fences if the library had
 * stepped aside before. */
void gcp_unknown_capture_hold(void);

/* Called by the stubs: does what the call asks for, and gives the real function. */
void *gcp_unknown_call_called(uint32_t stub);

/* In the child of a fork. */
void gcp_unknown_calls_after_fork(void);

#endif
