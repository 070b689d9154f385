/* SPDX-License-Identifier: MIT */
/*
 * ipc_wire.h - what two processes with this library say to each other so that one can
 * open mapped memory of the other: the form of a handle, messages, and sockets.
 *
 * CUDA makes no legacy IPC handle of mapped memory. The handle that this library makes
 * names a block of a process; the physical memory is asked for when it is opened, as
 * file descriptors, over a socket (ipc_server.c answers, ipc_imports.c asks).
 *
 * A process that exports has one door, a socket with a name that all users can list
 * and send to. It takes one kind of message: the key, which handles alone tell, with
 * one end of a pair of sockets, which is a connection from then on, and a file that
 * tells the end of the process that asks. What the kernel takes for either side must
 * begin with a secret of the handle: strangers' messages, and the files in them, never
 * arrive (guard).
 *
 * No function here raises SIGPIPE. The caller saves errno and defers cancellation, as
 * its lock does. File descriptors are closed on exec. A program that closes them has
 * closed those of CUDA, too.
 */
#ifndef GCP_INTERPOSE_IPC_WIRE_H
#define GCP_INTERPOSE_IPC_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "../cuda/symbols.h"

/* --- handles -------------------------------------------------------------------- */

/* Random numbers of a process that exports. */
struct gcp_ipc_process {
	uint64_t name, key; /* of its door */
	uint64_t reply;     /* what its answers begin with */
};

/* A CUipcMemHandle of mapped memory. The driver refuses one whose bytes 32 to 39 or 52
 * to 55 are ones (driver 580, measured): a process without this library gets an error,
 * never the wrong memory. */
struct gcp_ipc_handle {
	struct gcp_ipc_process process;
	uint64_t id; /* of the block: gcp_block_info */
	uint64_t ones;
	uint64_t addr;  /* of the block there */
	uint32_t check; /* a sum of all others */
	uint32_t more_ones;
	uint64_t magic;
};

/* Makes a handle, and reads one. False: it is none of these, or was changed. */
void gcp_ipc_handle_make(const struct gcp_ipc_process *process, uint64_t addr,
			 uint64_t id, CUipcMemHandle *ret_handle);
bool gcp_ipc_handle_read(const CUipcMemHandle *handle, struct gcp_ipc_handle *ret);

/* --- messages ------------------------------------------------------------------- */

enum gcp_ipc_op {
	GCP_IPC_OPEN = 1, /* the block is open until closed, and its parts from address
			   * `from` on are the answer */
	GCP_IPC_CLOSE,    /* no answer; nothing happens if it is not open */
};

enum { GCP_IPC_PARTS = 64 }; /* file descriptors in a message */

struct gcp_ipc_request {
	uint64_t open;     /* a number that the asker gives to what it opens */
	uint64_t addr, id; /* of the block: GCP_IPC_OPEN */
	uint64_t from;
	uint64_t op;
};

struct gcp_ipc_answer {
	uint64_t reply;
	int32_t result;  /* a CUresult; nothing else counts if it is an error */
	uint32_t count;  /* of parts, with a file descriptor for each */
	uint64_t bytes;  /* that the program asked for */
	uint64_t before; /* of the first part, in front of the block */
	uint64_t span;   /* of all parts from here on */
	uint64_t parts[GCP_IPC_PARTS]; /* bytes of each: they lie in a row */
};

/* --- sockets -------------------------------------------------------------------- */

/* The receiving end of the door, -1: it cannot be, and errno says why. */
int gcp_ipc_door_open(const struct gcp_ipc_process *process);

/* A new connection, which the same user or root has sent; -1: none. *ret_end: its file
 * is ready when the process that asks has ended; -1: it has none (before Linux 5.3).
 * Never waits. */
int gcp_ipc_door_take(int door, const struct gcp_ipc_process *process, int *ret_end);

/* Makes a connection to that process: one end of a pair of sockets, of which the other
 * goes to its door. Waits for room there, until the deadline at most. INVALID_HANDLE:
 * there is no such door, as CUDA says when the process is gone (measured). */
CUresult gcp_ipc_connect(const struct gcp_ipc_process *process, long deadline,
			 int *ret_fd);

/* When a wait of that many ms that begins now ends. */
long gcp_ipc_deadline(long ms);
enum { GCP_IPC_NO_WAIT = 0, GCP_IPC_ASK_MS = 30 * 1000, GCP_IPC_ROOM_MS = 1000 };

/* Sends a message with file descriptors; waits for room, until the deadline at most. */
bool gcp_ipc_send(int fd, const void *message, size_t bytes, const int *fds,
		  unsigned int count, long deadline);

/* Receives a message of just that many bytes, and waits for it until the deadline at
 * most. ret_fds: NULL, where none is wanted, or room for GCP_IPC_PARTS, and the message
 * must come from the same user or root. A message that is not as it must be is
 * GCP_IPC_WRONG, and its files are closed. */
enum gcp_ipc_got { GCP_IPC_MESSAGE, GCP_IPC_NOTHING, GCP_IPC_ENDED, GCP_IPC_WRONG };
enum gcp_ipc_got gcp_ipc_receive(int fd, void *ret_message, size_t bytes, int *ret_fds,
				 unsigned int *ret_count, long deadline);

#endif
