/*
 * neighbour.h - what a history asks of its neighbour, another process that opens the
 * memory which this one exports, and the other way round. Between neighbour.c of the
 * explorer and the program in neighbour_main.c, over a socket.
 */
#ifndef EXPLORE_NEIGHBOUR_H
#define EXPLORE_NEIGHBOUR_H

#include <stdint.h>

#include <cuda.h>

enum { NEIGHBOUR_SLOTS = 16, NEIGHBOUR_WORDS_MAX = 1 << 16 };

enum ask_kind {
	ASK_OPEN,  /* handle -> slot */
	ASK_CLOSE, /* slot */
	ASK_MAKE,  /* bytes -> slot, handle */
	ASK_FREE,  /* slot */
	ASK_CHECK, /* words at offset hold value -> wrong */
	ASK_FILL,  /* they do now */
};

struct ask {
	uint32_t kind, slot;
	int32_t device;
	uint32_t words, value;
	uint64_t offset, bytes;
	CUipcMemHandle handle;
};

struct answer {
	int32_t result; /* CUresult */
	uint32_t wrong; /* words */
	CUipcMemHandle handle;
};

#endif
