/*
 * writers.h - whether someone outside of CUDA's queues may write into device
 * memory: a network card, or a driver mapping of it into the CPU.
 */
#ifndef GCP_INTERPOSE_WRITERS_H
#define GCP_INTERPOSE_WRITERS_H

#include <stdbool.h>

/* Looks through the loaded libraries again only when more were loaded since.
 * Once true it stays true. Never waits, holds the loader's list lock shortly. */
bool gcp_writers_present(void);

#endif
