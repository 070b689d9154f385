/* SPDX-License-Identifier: MIT */
/*
 * process_identity.h - what tells one process from another that had the same number
 * before, and what it was started as. Reads /proc, allocates nothing, leaves errno as
 * it was, and is no cancellation point.
 */
#ifndef GCP_INTERPOSE_PROCESS_IDENTITY_H
#define GCP_INTERPOSE_PROCESS_IDENTITY_H

#include <stddef.h>
#include <stdint.h>

/* When this process began, in clock ticks since boot. 0: it cannot be told. */
uint64_t gcp_process_start_time(void);

/* What tells the numbers of processes here from those of other containers; 0: it is not
 * known. */
uint64_t gcp_process_namespace(void);

/* Up to `capacity` - 1 bytes of a small file, and a zero. How many; -1: it cannot be
 * read. */
long gcp_file_read(const char *path, char *bytes, size_t capacity);

/* The calling process's arguments with spaces between, cut to `capacity` bytes with the
 * closing zero. */
void gcp_process_program(char *bytes, size_t capacity);

#endif
