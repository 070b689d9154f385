/* SPDX-License-Identifier: MIT */
/*
 * ipc_peer.h - what a history asks of its IPC peer, another process that opens the
 * memory which this one exports, and the other way round. Between ipc_peer.c of the
 * explorer and the program in ipc_peer_main.c, over a socket.
 */
#ifndef EXPLORE_IPC_PEER_H
#define EXPLORE_IPC_PEER_H

#include <stdint.h>

#include <cuda.h>

enum { IPC_PEER_SLOTS = 16, IPC_PEER_WORDS_MAX = 1 << 16 };

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
