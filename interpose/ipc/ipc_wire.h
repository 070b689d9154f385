/* SPDX-License-Identifier: MIT */
/*
 * ipc_wire.h - what two processes with this library say to each other so that one can
 * open mapped memory of the other: the form of a handle, messages, and sockets.
 *
 * CUDA makes no legacy IPC handle of mapped memory. The handle that this library makes
 * names a block of a process; the physical memory is asked for when it is opened, as
 * file descriptors, over a socket (ipc_server.c answers, ipc_imports.c asks).
 *
 * No function here is a cancellation point, raises SIGPIPE or leaves a mark in errno.
 * File descriptors are closed on exec.
 */
#ifndef GCP_INTERPOSE_IPC_WIRE_H
#define GCP_INTERPOSE_IPC_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "../cuda/symbols.h"

/* --- handles -------------------------------------------------------------------- */

/* Which process it was, whatever becomes of its number. */
struct gcp_ipc_process {
	uint64_t cookie[2]; /* random: a name, and what handles alone tell */
	uint64_t started;   /* in ticks since the system started */
	uint32_t pid;       /* as it sees itself */
};

/* A CUipcMemHandle of mapped memory. The driver refuses one whose bytes 32 to 39 or 52
 * to 55 are ones (driver 580, measured): a process without this library gets an error,
 * never the wrong memory. */
struct gcp_ipc_handle {
	uint64_t cookie[2];
	uint64_t id; /* of the block, never used twice in the process */
	uint32_t pid;
	int32_t entrance; /* a file descriptor of the process: see gcp_ipc_connect */
	uint64_t ones;
	uint64_t started;
	uint32_t check; /* a sum of all others */
	uint32_t more_ones;
	uint64_t magic;
};

/* Makes a handle, and reads one. False: it is none of these, or was changed. */
void gcp_ipc_handle_make(const struct gcp_ipc_process *process, int entrance,
			 uint64_t id, CUipcMemHandle *ret_handle);
bool gcp_ipc_handle_read(const CUipcMemHandle *handle, struct gcp_ipc_handle *ret);

/* --- messages ------------------------------------------------------------------- */

enum gcp_ipc_op {
	GCP_IPC_OPEN =
	    1,           /* counts as open until closed; answers with the first parts */
	GCP_IPC_MORE,    /* the parts from address `from` on */
	GCP_IPC_CLOSE,   /* no answer */
	GCP_IPC_END,     /* nothing is open on this connection any more; no answer */
	GCP_IPC_PROCESS, /* comes with gcp_ipc_process_self of the asker; no answer */
};

enum { GCP_IPC_PARTS = 32 }; /* file descriptors in a message */

struct gcp_ipc_request {
	uint64_t cookie[2]; /* of the process that is asked */
	uint64_t id, from;
	uint32_t op;
	uint32_t unused;
};

struct gcp_ipc_answer {
	int32_t result; /* a CUresult; nothing else counts if it is an error */
	uint32_t count; /* of parts */
	uint64_t addr;  /* of the block, in the process that has it */
	uint64_t bytes; /* that its program asked for */
	struct {
		uint64_t addr, bytes; /* where the memory is mapped there */
	} parts[GCP_IPC_PARTS];       /* one file descriptor for each */
};

/* --- sockets -------------------------------------------------------------------- */

/* A process that exports has one door: a socket that takes one kind of message, the
 * cookie with one end of a pair of sockets, which is a connection from then on. */

/* The receiving end, which has a name that all users can list and send to, and the
 * entrance, which is connected to it. A message without the whole cookie, of which the
 * name is half, does not arrive. False: it cannot be. */
struct gcp_ipc_door {
	int end, entrance;
};
bool gcp_ipc_door_open(const uint64_t cookie[2], struct gcp_ipc_door *ret_door);

/* When all waits for another process end that begin now: in 30 seconds. In ms. */
long gcp_ipc_deadline(void);
enum { GCP_IPC_NO_WAIT = 0 };

/* A new connection, which the same user or root has sent; -1: none. *ret_no_file: there
 * is one, which can be had when the process may have another file. */
int gcp_ipc_accept(int door_end, const uint64_t cookie[2], bool *ret_no_file);

/* A message to the door of that name which is no connection: its process looks. */
void gcp_ipc_knock(const uint64_t cookie[2]);

/* A connection to the process of the handle, -1 if there is none; *ret_result says why.
 * Through its door by the name; and where the process is in another network namespace,
 * in which the name is not known, by a copy of its file descriptor `entrance`
 * (pidfd_getfd, if the system allows that). Waits for room, until the deadline at most.
 * One thread at a time. */
int gcp_ipc_connect(const struct gcp_ipc_handle *handle, long deadline,
		    CUresult *ret_result);
/* In the child of a fork: what it has of a connection that is being made, and of the
 * latest one. */
void gcp_ipc_connect_after_fork(void);

/* Whether that process has ended meanwhile, as far as it can be seen from here: waits a
 * second at most for one that is ending. */
bool gcp_ipc_has_ended(const struct gcp_ipc_handle *handle);

/* Sends a message with file descriptors, never waiting. */
bool gcp_ipc_send(int fd, const void *message, size_t bytes, const int *fds,
		  unsigned int count);
/* Whether there is room for another message, which a process that is slow to read
 * makes: waits a second at most. */
bool gcp_ipc_has_room(int fd);
/* Receives one of just that many bytes, waiting for it until the deadline at most.
 * False: there is none, or another one, or not so many file descriptors, or, on a
 * socket of gcp_ipc_connect, one that another user but root has sent; then none is left
 * open. */
bool gcp_ipc_receive(int fd, void *ret_message, size_t bytes, int *ret_fds,
		     unsigned int *ret_count, long deadline);

/* Whether gcp_ipc_receive would not wait. */
bool gcp_ipc_is_ready(int fd);

/* Which user and process is at the other end. */
bool gcp_ipc_peer(int fd, pid_t *ret_pid, uid_t *ret_uid);
/* Whether the other end may be talked to: the same user, or root. */
bool gcp_ipc_peer_is_trusted(int fd);

/* A number of the file behind it, for a program that closes what is not its own: 0 if
 * there is none. And closing it, unless it is another file by now. */
uint64_t gcp_ipc_file(int fd);
void gcp_ipc_close(int fd, uint64_t file);
/* The same for a connection that another user's process may have the other end of.
 * What that has sent is left alone, and so is the file then: to close it could take any
 * time, as that of a socket with SO_LINGER does. */
void gcp_ipc_leave(int fd, uint64_t file);

/* --- processes ------------------------------------------------------------------ */

/* A file descriptor by which another process, in whatever namespace, hears that this
 * one has ended, though another one may have its number then. -1: the system has none.
 */
int gcp_ipc_process_self(void);
/* Whether it is such a one; and whether its process has ended, as above. */
bool gcp_ipc_is_process(int fd);
bool gcp_ipc_process_has_ended(int fd);

bool gcp_ipc_random(void *ret_bytes, size_t count);

#endif
