/* SPDX-License-Identifier: MIT */
/*
 * ipc_played.h - what the programs about sockets between processes share: a process
 * that exports, which the program plays with sockets as the library has them
 * (ipc_wire.h).
 */
#ifndef GCP_TESTS_IPC_PLAYED_H
#define GCP_TESTS_IPC_PLAYED_H

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "scenarios.h"

#include "../../../interpose/ipc/ipc_wire.h"

__attribute__((unused)) static CUipcMemHandle exported(CUdeviceptr p)
{
	CUipcMemHandle handle;

	OK(cuIpcGetMemHandle(&handle, p));
	return handle;
}

/* A process that exports, as this one plays it: it has a name of its own. */
static struct gcp_ipc_process played;
static int door = -1;

__attribute__((unused)) static void play_exporter(void)
{
	played = (struct gcp_ipc_process){
	    .name = (uint64_t)getpid(),
	    .key = 0x0123456789abcdef,
	    .reply = 0xfedcba9876543210,
	};
	door = gcp_ipc_door_open(&played);
	must(door >= 0, "no sockets to be had");
}

__attribute__((unused)) static CUipcMemHandle played_handle(uint64_t id)
{
	CUipcMemHandle handle;

	gcp_ipc_handle_make(&played, 2 * MIB, id, &handle);
	return handle;
}

__attribute__((unused)) static int connection_of_door(int ms)
{
	struct pollfd waits = {.fd = door, .events = POLLIN};
	int end = -1, fd;

	poll(&waits, 1, ms);
	fd = gcp_ipc_door_take(door, &played, &end);
	close(end);
	return fd;
}

/* The next request of a connection, within ten seconds; its op is 0: there is none. */
__attribute__((unused)) static struct gcp_ipc_request asked(int fd)
{
	struct gcp_ipc_request request;

	if (gcp_ipc_receive(fd, &request, sizeof(request), NULL, NULL,
			    gcp_ipc_deadline(10 * 1000)) != GCP_IPC_MESSAGE)
		request.op = 0;
	return request;
}

/* What the library opens. */
__attribute__((unused)) static CUresult opened_by(CUipcMemHandle handle,
						  CUdeviceptr *ret_p)
{
	return cuIpcOpenMemHandle_v2(ret_p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

/* A connection to the exporter of a handle; -1: it has no door. */
__attribute__((unused)) static int connected(const struct gcp_ipc_handle *handle)
{
	int fd;

	return gcp_ipc_connect(&handle->process, gcp_ipc_deadline(20 * 1000), &fd) ==
		       CUDA_SUCCESS
		   ? fd
		   : -1;
}

__attribute__((unused)) static struct gcp_ipc_handle handle_of(CUdeviceptr p)
{
	CUipcMemHandle exported_one = exported(p);
	struct gcp_ipc_handle handle;

	must(gcp_ipc_handle_read(&exported_one, &handle), "memory is not mapped");
	return handle;
}

__attribute__((unused)) static struct gcp_ipc_request
open_request(const struct gcp_ipc_handle *handle)
{
	return (struct gcp_ipc_request){
	    .open = 1,
	    .addr = handle->addr,
	    .id = handle->id,
	    .from = handle->addr,
	    .op = GCP_IPC_OPEN,
	};
}

/* Whether the exporter, this process, answers a request on this connection. */
__attribute__((unused)) static bool answers(int fd, const struct gcp_ipc_handle *handle)
{
	struct gcp_ipc_request request = open_request(handle);
	struct gcp_ipc_answer answer = {.result = -1};
	int fds[GCP_IPC_PARTS];
	unsigned int count = 0;
	bool good;

	must(fd >= 0, "no connection");
	good = gcp_ipc_send(fd, &request, sizeof(request), NULL, 0, GCP_IPC_NO_WAIT) &&
	       gcp_ipc_receive(fd, &answer, sizeof(answer), fds, &count,
			       gcp_ipc_deadline(20 * 1000)) == GCP_IPC_MESSAGE;
	must(!good || (answer.result == CUDA_SUCCESS && count > 0), "no memory");
	for (unsigned int i = 0; good && i < count; i++)
		close(fds[i]);
	request.op = GCP_IPC_CLOSE;
	(void)gcp_ipc_send(fd, &request, sizeof(request), NULL, 0, GCP_IPC_NO_WAIT);
	close(fd);
	return good;
}

__attribute__((unused)) static int files_open(void)
{
	int count = 0;

	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
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
