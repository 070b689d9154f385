/* SPDX-License-Identifier: MIT */
/*
 * ipc_played.h - what the programs about sockets between processes share: a process
 * that exports, which the program plays with sockets as the library has them
 * (ipc_wire.h).
 */
#ifndef GCP_TESTS_IPC_PLAYED_H
#define GCP_TESTS_IPC_PLAYED_H

#include <poll.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "scenarios.h"

#include "../../../interpose/base/process_identity.h"
#include "../../../interpose/ipc/ipc_wire.h"

__attribute__((unused)) static CUipcMemHandle exported(CUdeviceptr p)
{
	CUipcMemHandle handle;

	OK(cuIpcGetMemHandle(&handle, p));
	return handle;
}

/* A process that exports, as this one plays it: it has a name of its own. */
static struct gcp_ipc_process played;
static struct gcp_ipc_door door;

__attribute__((unused)) static void play_exporter(void)
{
	played.cookie[0] = (uint64_t)getpid();
	played.cookie[1] = 0x0123456789abcdef;
	must(gcp_ipc_door_open(played.cookie, &door), "no sockets to be had");
}

__attribute__((unused)) static int connection_of_door(int ms)
{
	struct pollfd end = {.fd = door.end, .events = POLLIN};
	bool no_file;

	poll(&end, 1, ms);
	return gcp_ipc_accept(door.end, played.cookie, &no_file);
}

/* The next request of a connection, within a second; 0: there is none. What it says
 * first of its process is none. */
__attribute__((unused)) static uint32_t asked(int fd)
{
	struct gcp_ipc_request request;
	struct pollfd ready = {.fd = fd, .events = POLLIN};

	do {
		request.op = 0;
		if (poll(&ready, 1, 1000) == 1)
			(void)gcp_ipc_receive(fd, &request, sizeof(request), NULL, NULL,
					      GCP_IPC_NO_WAIT);
	} while (request.op == GCP_IPC_PROCESS);
	return request.op;
}

/* The door of the library. */
__attribute__((unused)) static int door_end(void)
{
	static const char name[] = "libgcpool-ipc-";
	struct sockaddr_un address;
	socklen_t size;

	for (int fd = 3; fd < 1024; fd++) {
		size = sizeof(address);
		memset(&address, 0, sizeof(address));
		if (getsockname(fd, (struct sockaddr *)&address, &size) == 0 &&
		    size > offsetof(struct sockaddr_un, sun_path) + 1 &&
		    memcmp(address.sun_path + 1, name, sizeof(name) - 1) == 0)
			return fd;
	}
	return -1;
}

#endif
