/* SPDX-License-Identifier: MIT */
/*
 * ipc_wire.c - see ipc_wire.h.
 *
 * System calls are made by their numbers: the functions of libc are cancellation
 * points, and a thread that ended in one would leave locks behind.
 */
#include "ipc_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "../base/log.h"

#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

#define GCP_IPC_MAPPED_MAGIC UINT64_C(0x67c9a60000000001)

enum { RECEIVE_MS = 30 * 1000, ROOM_MS = 1000 };

/* --- handles --------------------------------------------------------------------- */

_Static_assert(sizeof(struct gcp_ipc_handle) == sizeof(CUipcMemHandle), "cuda.h");
_Static_assert(offsetof(struct gcp_ipc_handle, ones) == 32 &&
		   offsetof(struct gcp_ipc_handle, more_ones) == 52,
	       "what the driver looks at");

/* FNV-1a: against mistakes. Against malice there is the cookie. */
static uint32_t handle_check(struct gcp_ipc_handle handle)
{
	const unsigned char *bytes = (const unsigned char *)&handle;
	uint32_t sum = 0x811c9dc5;

	handle.check = 0;
	for (size_t i = 0; i < sizeof(handle); i++)
		sum = (sum ^ bytes[i]) * 0x01000193;
	return sum;
}

void gcp_ipc_handle_make(const struct gcp_ipc_process *process, int entrance,
			 uint64_t id, CUipcMemHandle *ret_handle)
{
	struct gcp_ipc_handle handle = {
	    .cookie = {process->cookie[0], process->cookie[1]},
	    .id = id,
	    .pid = process->pid,
	    .entrance = entrance,
	    .ones = UINT64_MAX,
	    .started = process->started,
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

/* --- file descriptors ------------------------------------------------------------ */

static void fd_close(int fd)
{
	int saved = errno;

	if (fd >= 0)
		(void)syscall(SYS_close, fd);
	errno = saved;
}

uint64_t gcp_ipc_file(int fd)
{
	struct stat status;
	int saved = errno;
	bool there = fd >= 0 && syscall(SYS_fstat, fd, &status) == 0;

	errno = saved;
	return there ? (uint64_t)status.st_dev << 48 ^ (uint64_t)status.st_ino : 0;
}

void gcp_ipc_close(int fd, uint64_t file)
{
	if (fd >= 0 && gcp_ipc_file(fd) == file)
		fd_close(fd);
}

/* --- messages -------------------------------------------------------------------- */

/* Aligned as a header of control data. */
union control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(GCP_IPC_PARTS * sizeof(int))];
};

bool gcp_ipc_send(int fd, const void *message, size_t bytes, const int *fds,
		  unsigned int count)
{
	struct iovec data = {.iov_base = (void *)(uintptr_t)message, .iov_len = bytes};
	struct msghdr header = {.msg_iov = &data, .msg_iovlen = 1};
	union control control;
	int saved = errno;
	long sent;

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
	sent = syscall(SYS_sendmsg, fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
	errno = saved;
	return sent == (long)bytes;
}

/* Whether something can be read, or written, within `ms`. A signal makes it wait anew:
 * seldom enough for that to be of no matter. */
static bool fd_wait(int fd, short events, int ms)
{
	struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
	struct pollfd poll = {.fd = fd, .events = events};
	long ready;

	do
		ready = syscall(SYS_ppoll, &poll, 1, &left, NULL, 0);
	while (ready < 0 && errno == EINTR);
	return ready == 1;
}

bool gcp_ipc_is_ready(int fd)
{
	int saved = errno;
	bool ready = fd_wait(fd, POLLIN, 0);

	errno = saved;
	return ready;
}

bool gcp_ipc_has_room(int fd)
{
	int saved = errno;
	bool room = fd_wait(fd, POLLOUT, ROOM_MS);

	errno = saved;
	return room;
}

static unsigned int rights_take(struct msghdr *header, int *ret_fds)
{
	unsigned int count = 0;

	for (struct cmsghdr *one = CMSG_FIRSTHDR(header); one;
	     one = CMSG_NXTHDR(header, one)) {
		if (one->cmsg_level != SOL_SOCKET || one->cmsg_type != SCM_RIGHTS)
			continue;
		count = (unsigned int)((one->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(ret_fds, CMSG_DATA(one), count * sizeof(int));
	}
	return count;
}

bool gcp_ipc_receive(int fd, void *ret_message, size_t bytes, int *ret_fds,
		     unsigned int *ret_count, bool wait)
{
	struct iovec data = {.iov_base = ret_message, .iov_len = bytes};
	union control control;
	struct msghdr header = {
	    .msg_iov = &data,
	    .msg_iovlen = 1,
	    .msg_control = &control,
	    .msg_controllen = sizeof(control),
	};
	int saved = errno, fds[GCP_IPC_PARTS];
	unsigned int count = 0;
	long received = -1;

	if (!wait || fd_wait(fd, POLLIN, RECEIVE_MS))
		received =
		    syscall(SYS_recvmsg, fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (received >= 0)
		count = rights_take(&header, fds);
	bool good = received == (long)bytes &&
		    !(header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) &&
		    (count == 0 || ret_fds);
	for (unsigned int i = 0; !good && i < count; i++)
		fd_close(fds[i]);
	if (good && ret_fds) {
		memcpy(ret_fds, fds, count * sizeof(int));
		*ret_count = count;
	}
	errno = saved;
	return good;
}

/* --- the other end ---------------------------------------------------------------- */

bool gcp_ipc_peer(int fd, pid_t *ret_pid, uid_t *ret_uid)
{
	struct {
		pid_t pid;
		uid_t uid;
		gid_t gid;
	} peer; /* struct ucred, which wants _GNU_SOURCE */
	socklen_t size = sizeof(peer);
	int saved = errno;
	bool known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;

	errno = saved;
	if (known) {
		*ret_pid = peer.pid;
		*ret_uid = peer.uid;
	}
	return known;
}

bool gcp_ipc_peer_is_trusted(int fd)
{
	pid_t pid;
	uid_t uid;

	return gcp_ipc_peer(fd, &pid, &uid) && (uid == geteuid() || uid == 0);
}

static long file_read(const char *path, char *ret_text, size_t size)
{
	long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC), got = -1;

	if (fd < 0)
		return -1;
	got = syscall(SYS_read, fd, ret_text, size - 1);
	fd_close((int)fd);
	ret_text[got > 0 ? got : 0] = 0;
	return got;
}

static void pid_path(char *ret_path, pid_t pid)
{
	static const char end[] = "/stat";
	char digits[16];
	int count = 0, at = 6;

	memcpy(ret_path, "/proc/", 6);
	do
		digits[count++] = (char)('0' + pid % 10);
	while ((pid /= 10) > 0);
	while (count > 0)
		ret_path[at++] = digits[--count];
	memcpy(ret_path + at, end, sizeof(end));
}

/* proc(5): fields 3 (state), 20 (threads) and 22 (start) follow the name, which may
 * hold anything and ends with the last parenthesis. What is left of a process whose
 * last thread has ended is a zombie with one thread; its files are closed. */
uint64_t gcp_ipc_process_started(pid_t pid)
{
	char path[40], text[1024], *field;
	uint64_t threads = 0;
	int saved = errno;

	pid_path(path, pid);
	field = pid > 0 && file_read(path, text, sizeof(text)) > 0 ? strrchr(text, ')')
								   : NULL;
	errno = saved;
	if (!field || strlen(field) < 4)
		return 0;
	field += 2;
	char state = *field;
	for (int i = 3; field && i < 22; i++) {
		if (i == 20)
			threads = gcp_digits_read(field);
		field = strchr(field, ' ');
		field += field != NULL;
	}
	if (!field || state == 'X' || (state == 'Z' && threads <= 1))
		return 0;
	return gcp_digits_read(field);
}

int gcp_ipc_process_self(void)
{
	int saved = errno;
	long fd = syscall(SYS_pidfd_open, getpid(), 0);

	errno = saved;
	return (int)fd;
}

/* No signal is sent. To a process that is not seen from here none can be, which is
 * another error than that of another file. */
bool gcp_ipc_is_process(int fd)
{
	int saved = errno;
	bool good = fd >= 0 && (syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0) == 0 ||
				errno != EBADF);

	errno = saved;
	return good;
}

bool gcp_ipc_process_has_ended(int fd)
{
	return gcp_ipc_is_ready(fd);
}

bool gcp_ipc_random(void *ret_bytes, size_t count)
{
	int saved = errno;
	long fd = -1, got = -1;

#ifdef SYS_getrandom
	got = syscall(SYS_getrandom, ret_bytes, count, 0);
#endif
	if (got != (long)count) {
		fd =
		    syscall(SYS_openat, AT_FDCWD, "/dev/urandom", O_RDONLY | O_CLOEXEC);
		if (fd >= 0)
			got = syscall(SYS_read, fd, ret_bytes, count);
		fd_close((int)fd);
	}
	errno = saved;
	return got == (long)count;
}

/* --- names ----------------------------------------------------------------------- */

/* An abstract address, which is gone with the socket. */
static socklen_t address_of(const uint64_t cookie[2], char which,
			    struct sockaddr_un *ret_address)
{
	static const char name[] = "libgcpool-ipc-";
	char *path = ret_address->sun_path;
	size_t at = 1;

	memset(ret_address, 0, sizeof(*ret_address));
	ret_address->sun_family = AF_UNIX;
	memcpy(path + at, name, sizeof(name) - 1);
	at += sizeof(name) - 1;
	for (int i = 0; i < 2; i++)
		for (int bit = 60; bit >= 0; bit -= 4)
			path[at++] = "0123456789abcdef"[cookie[i] >> bit & 15];
	path[at++] = which;
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + at);
}

static int socket_new(int type)
{
	return socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
}

static bool doors_bind(const uint64_t cookie[2], const struct gcp_ipc_doors *doors)
{
	struct sockaddr_un address;
	socklen_t size = address_of(cookie, 'n', &address);

	if (doors->named < 0 || doors->entrance < 0 || doors->entrance_end < 0 ||
	    bind(doors->named, (struct sockaddr *)&address, size) != 0 ||
	    listen(doors->named, 64) != 0)
		return false;
	size = address_of(cookie, 'e', &address);
	return bind(doors->entrance_end, (struct sockaddr *)&address, size) == 0 &&
	       syscall(SYS_connect, doors->entrance, &address, size) == 0;
}

bool gcp_ipc_doors_open(const uint64_t cookie[2], struct gcp_ipc_doors *ret_doors)
{
	int saved = errno;
	bool open;

	*ret_doors = (struct gcp_ipc_doors){
	    .named = socket_new(SOCK_SEQPACKET),
	    .entrance = socket_new(SOCK_DGRAM),
	    .entrance_end = socket_new(SOCK_DGRAM),
	};
	open = doors_bind(cookie, ret_doors);
	if (!open) {
		fd_close(ret_doors->named);
		fd_close(ret_doors->entrance);
		fd_close(ret_doors->entrance_end);
	}
	errno = saved;
	return open;
}

/* --- connections ----------------------------------------------------------------- */

int gcp_ipc_accept(int named)
{
	int saved = errno;
	long fd = syscall(SYS_accept4, named, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	errno = saved;
	return (int)fd;
}

/* Through the entrance comes one end of a pair of sockets. */
int gcp_ipc_accept_entrance(int entrance_end)
{
	int fds[GCP_IPC_PARTS];
	unsigned int count = 0;
	char message;

	if (!gcp_ipc_receive(entrance_end, &message, sizeof(message), fds, &count,
			     false))
		return -1;
	for (unsigned int i = 1; i < count; i++)
		fd_close(fds[i]);
	return count > 0 ? fds[0] : -1;
}

static int connect_by_name(const struct gcp_ipc_handle *handle)
{
	int fd = socket_new(SOCK_SEQPACKET);
	struct sockaddr_un address;
	socklen_t size = address_of(handle->cookie, 'n', &address);

	if (fd >= 0 && (syscall(SYS_connect, fd, &address, size) != 0 ||
			!gcp_ipc_peer_is_trusted(fd))) {
		fd_close(fd);
		fd = -1;
	}
	return fd;
}

/* A copy of the file descriptor that the handle names, if it is the entrance still: a
 * socket that is connected to the entrance's own address. */
static int entrance_copy(const struct gcp_ipc_handle *handle)
{
	struct sockaddr_un address, found;
	socklen_t size = address_of(handle->cookie, 'e', &address), length;
	long pidfd = syscall(SYS_pidfd_open, handle->pid, 0), fd = -1;

	if (pidfd >= 0)
		fd = syscall(SYS_pidfd_getfd, pidfd, handle->entrance, 0);
	fd_close((int)pidfd);
	length = sizeof(found);
	memset(&found, 0, sizeof(found));
	if (fd >= 0 && (getpeername((int)fd, (struct sockaddr *)&found, &length) != 0 ||
			length != size || memcmp(&found, &address, size) != 0)) {
		fd_close((int)fd);
		fd = -1;
	}
	return (int)fd;
}

static int connect_by_entrance(const struct gcp_ipc_handle *handle)
{
	int entrance = entrance_copy(handle), pair[2];
	char message = 1;

	if (entrance < 0)
		return -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
		fd_close(entrance);
		return -1;
	}
	if (!gcp_ipc_send(entrance, &message, sizeof(message), &pair[1], 1)) {
		fd_close(pair[0]);
		pair[0] = -1;
	}
	fd_close(pair[1]);
	fd_close(entrance);
	return pair[0];
}

int gcp_ipc_connect(const struct gcp_ipc_handle *handle, CUresult *ret_result)
{
	int saved = errno, fd = connect_by_name(handle);

	/* As CUDA answers when the process is gone (measured). */
	*ret_result = CUDA_ERROR_INVALID_HANDLE;
	if (fd < 0 && handle->started != 0 &&
	    gcp_ipc_process_started((pid_t)handle->pid) == handle->started) {
		fd = connect_by_entrance(handle);
		*ret_result = CUDA_ERROR_OPERATING_SYSTEM;
	}
	errno = saved;
	return fd;
}
