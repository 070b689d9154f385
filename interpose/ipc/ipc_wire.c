/* SPDX-License-Identifier: MIT */
/*
 * ipc_wire.c - see ipc_wire.h.
 */
#include "ipc_wire.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <linux/filter.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "../base/clock.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

#define GCP_IPC_MAPPED_MAGIC UINT64_C(0x67c9a60000000002)

/* --- handles --------------------------------------------------------------------- */

_Static_assert(sizeof(struct gcp_ipc_handle) == sizeof(CUipcMemHandle), "cuda.h");
_Static_assert(offsetof(struct gcp_ipc_handle, ones) == 32 &&
		   offsetof(struct gcp_ipc_handle, more_ones) == 52,
	       "what the driver looks at");

/* FNV-1a: against mistakes. Against malice there are the numbers of the process. */
static uint32_t handle_check(struct gcp_ipc_handle handle)
{
	const unsigned char *bytes = (const unsigned char *)&handle;
	uint32_t sum = 0x811c9dc5;

	handle.check = 0;
	for (size_t i = 0; i < sizeof(handle); i++)
		sum = (sum ^ bytes[i]) * 0x01000193;
	return sum;
}

void gcp_ipc_handle_make(const struct gcp_ipc_process *process, uint64_t addr,
			 uint64_t id, CUipcMemHandle *ret_handle)
{
	struct gcp_ipc_handle handle = {
	    .process = *process,
	    .id = id,
	    .ones = UINT64_MAX,
	    .addr = addr,
	    .more_ones = UINT32_MAX,
	    .magic = GCP_IPC_MAPPED_MAGIC,
	};

	handle.check = handle_check(handle);
	memcpy(ret_handle, &handle, sizeof(handle));
}

bool gcp_ipc_handle_read(const CUipcMemHandle *handle, struct gcp_ipc_handle *ret)
{
	memcpy(ret, handle, sizeof(*ret));
	return ret->magic == GCP_IPC_MAPPED_MAGIC && ret->ones == UINT64_MAX &&
	       ret->more_ones == UINT32_MAX && ret->check == handle_check(*ret);
}

/* --- messages -------------------------------------------------------------------- */

long gcp_ipc_deadline(long ms)
{
	return (long)(gcp_clock_ns() / 1000000) + ms;
}

/* Signals do not make the wait longer. */
static bool fd_wait(int fd, short events, long deadline)
{
	struct pollfd one = {.fd = fd, .events = events};
	int ready;

	do {
		long left = deadline ? deadline - gcp_ipc_deadline(0) : 0;

		ready = poll(&one, 1, left > 0 ? (int)left : 0);
	} while (ready < 0 && errno == EINTR);
	return ready == 1;
}

/* Aligned as a header of control data. */
union control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(sizeof(struct ucred)) +
		   CMSG_SPACE(GCP_IPC_PARTS * sizeof(int))];
};

bool gcp_ipc_send(int fd, const void *message, size_t bytes, const int *fds,
		  unsigned int count, long deadline)
{
	struct iovec data = {.iov_base = (void *)(uintptr_t)message, .iov_len = bytes};
	struct msghdr header = {.msg_iov = &data, .msg_iovlen = 1};
	union control control;
	long sent;

	assert(count <= GCP_IPC_PARTS);
	if (count > 0) {
		memset(&control, 0, sizeof(control));
		header.msg_control = &control;
		header.msg_controllen = CMSG_SPACE(count * sizeof(int));
		struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
		rights->cmsg_level = SOL_SOCKET;
		rights->cmsg_type = SCM_RIGHTS;
		rights->cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(rights), fds, count * sizeof(int));
	}
	do
		sent = sendmsg(fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (sent < 0 && errno == EAGAIN && fd_wait(fd, POLLOUT, deadline));
	return sent == (long)bytes;
}

/* How many files have come. One that wants to know its user gets that first. */
static unsigned int control_read(struct msghdr *header, int *ret_fds, bool *ret_trusted)
{
	unsigned int count = 0;
	struct ucred user;

	*ret_trusted = false;
	for (struct cmsghdr *one = CMSG_FIRSTHDR(header); one;
	     one = CMSG_NXTHDR(header, one)) {
		if (one->cmsg_level == SOL_SOCKET &&
		    one->cmsg_type == SCM_CREDENTIALS) {
			memcpy(&user, CMSG_DATA(one), sizeof(user));
			*ret_trusted = user.uid == geteuid() || user.uid == 0;
		}
		if (one->cmsg_level == SOL_SOCKET && one->cmsg_type == SCM_RIGHTS) {
			count = (one->cmsg_len - CMSG_LEN(0)) / sizeof(int);
			memcpy(ret_fds, CMSG_DATA(one), count * sizeof(int));
		}
	}
	return count;
}

enum gcp_ipc_got gcp_ipc_receive(int fd, void *ret_message, size_t bytes, int *ret_fds,
				 unsigned int *ret_count, long deadline)
{
	struct iovec data = {.iov_base = ret_message, .iov_len = bytes};
	struct msghdr header = {.msg_iov = &data, .msg_iovlen = 1};
	union control control;
	bool trusted = true;
	long received;

	if (ret_fds) {
		header.msg_control = &control;
		header.msg_controllen = sizeof(control);
	}
	if (deadline != GCP_IPC_NO_WAIT && !fd_wait(fd, POLLIN, deadline))
		return GCP_IPC_NOTHING;
	received = recvmsg(fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (received <= 0)
		return received < 0 && errno == EAGAIN ? GCP_IPC_NOTHING
						       : GCP_IPC_ENDED;
	if (ret_fds)
		*ret_count = control_read(&header, ret_fds, &trusted);
	if (received == (long)bytes && trusted &&
	    !(header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
		return GCP_IPC_MESSAGE;
	for (unsigned int i = 0; ret_fds && i < *ret_count; i++)
		close(ret_fds[i]);
	return GCP_IPC_WRONG;
}

/* --- the door -------------------------------------------------------------------- */

/* An abstract address, which is gone with the socket. */
static socklen_t address_of(uint64_t name, struct sockaddr_un *ret_address)
{
	static const char begin[] = "libgcpool-ipc-";
	char *path = ret_address->sun_path + 1;

	memset(ret_address, 0, sizeof(*ret_address));
	ret_address->sun_family = AF_UNIX;
	memcpy(path, begin, sizeof(begin) - 1);
	path += sizeof(begin) - 1;
	for (int bit = 60; bit >= 0; bit -= 4)
		*path++ = "0123456789abcdef"[name >> bit & 15];
	return (socklen_t)(path - (char *)ret_address);
}

/* The kernel drops what does not begin with the secret, in the thread that sends it: it
 * takes no room, and its file descriptors do not come here, to close which could take
 * any time. Where the system has no such filters the receivers look. Each message that
 * comes tells the user that sends it. */
static bool guard(int fd, uint64_t secret)
{
	uint32_t words[2];
	const int yes = 1;

	memcpy(words, &secret, sizeof(words));
	struct sock_filter code[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ntohl(words[0]), 0, 3),
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 4),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ntohl(words[1]), 0, 1),
	    BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
	    BPF_STMT(BPF_RET | BPF_K, 0),
	};
	struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]),
				     .filter = code};
	(void)setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
	return setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes)) == 0;
}

int gcp_ipc_door_open(const struct gcp_ipc_process *process)
{
	struct sockaddr_un address;
	socklen_t size = address_of(process->name, &address);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && guard(fd, process->key) &&
	    bind(fd, (struct sockaddr *)&address, size) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

int gcp_ipc_door_take(int door, const struct gcp_ipc_process *process, int *ret_end)
{
	uint64_t key;
	int fds[GCP_IPC_PARTS];
	unsigned int count;

	if (gcp_ipc_receive(door, &key, sizeof(key), fds, &count, GCP_IPC_NO_WAIT) !=
	    GCP_IPC_MESSAGE)
		return -1;
	*ret_end = count == 2 ? fds[1] : -1;
	if (key == process->key && (count == 1 || count == 2))
		return fds[0];
	for (unsigned int i = 0; i < count; i++)
		close(fds[i]);
	return -1;
}

CUresult gcp_ipc_connect(const struct gcp_ipc_process *process, long deadline,
			 int *ret_fd)
{
	struct sockaddr_un address;
	socklen_t size = address_of(process->name, &address);
	CUresult result = CUDA_ERROR_OPERATING_SYSTEM;
	int door, pair[2], fds[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
		return result;
	door = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	fds[0] = pair[1];
	fds[1] = (int)syscall(SYS_pidfd_open, getpid(), 0);
	if (door >= 0 && (fds[1] >= 0 || errno != EMFILE) &&
	    guard(pair[0], process->reply)) {
		if (connect(door, (struct sockaddr *)&address, size) == 0 &&
		    gcp_ipc_send(door, &process->key, sizeof(process->key), fds,
				 fds[1] < 0 ? 1 : 2, deadline))
			result = CUDA_SUCCESS;
		else if (errno == ECONNREFUSED)
			result = CUDA_ERROR_INVALID_HANDLE;
	}
	if (result == CUDA_SUCCESS)
		*ret_fd = pair[0];
	else
		close(pair[0]);
	close(pair[1]);
	close(fds[1]);
	close(door);
	return result;
}
