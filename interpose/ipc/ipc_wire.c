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
#include <linux/filter.h>
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

#include "../base/process_identity.h"

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

enum { ASK_MS = 30 * 1000, ROOM_MS = 1000, PAUSE_MS = 10 };

/* struct ucred and its message, which want _GNU_SOURCE. */
struct user {
	pid_t pid;
	uid_t uid;
	gid_t gid;
};
enum { USER_MESSAGE = 2, PIDFD_MESSAGE = 4, USERS_WITHOUT_NUMBER = 65534 };

/* --- handles --------------------------------------------------------------------- */

_Static_assert(sizeof(struct gcp_ipc_handle) == sizeof(CUipcMemHandle), "cuda.h");
_Static_assert(offsetof(struct gcp_ipc_handle, ones) == 32 &&
		   offsetof(struct gcp_ipc_handle, more_ones) == 52,
	       "what the driver looks at");

/* FNV-1a: against mistakes. Against malice there is the second half of the cookie. */
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

/* --- messages -------------------------------------------------------------------- */

/* Aligned as a header of control data. */
union control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(sizeof(struct user)) +
		   CMSG_SPACE(GCP_IPC_PARTS * sizeof(int))];
};

/* As sendmsg answers. */
static long message_send(int fd, const void *message, size_t bytes, const int *fds,
			 unsigned int count)
{
	struct iovec data = {.iov_base = (void *)(uintptr_t)message, .iov_len = bytes};
	struct msghdr header = {.msg_iov = &data, .msg_iovlen = 1};
	union control control;

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
	return syscall(SYS_sendmsg, fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool gcp_ipc_send(int fd, const void *message, size_t bytes, const int *fds,
		  unsigned int count)
{
	int saved = errno;
	long sent = message_send(fd, message, bytes, fds, count);

	errno = saved;
	return sent == (long)bytes;
}

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000L + now.tv_nsec / 1000000L;
}

long gcp_ipc_deadline(void)
{
	return now_ms() + ASK_MS;
}

/* What is left until then; 0: nothing. */
static int ms_until(long deadline)
{
	long left = deadline - now_ms();

	return left > 0 ? (int)left : 0;
}

/* Whether something can be read, or written, within `ms`. The system call sets `left`
 * to what is left, so that signals do not make the wait longer. */
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

/* What has come with a message. */
struct arrival {
	int fds[sizeof(union control) / sizeof(int)]; /* more than it has room for */
	unsigned int count;
	int flags; /* of the message */
	bool told; /* whose it is */
	bool trusted;
};

/* Not in a user namespace that has no number for some: they share one there. One range
 * holds all numbers elsewhere (user_namespaces(7)). */
static bool each_user_has_a_number(void)
{
	char text[256];

	return file_read("/proc/self/uid_map", text, sizeof(text)) > 0 &&
	       strstr(text, " 4294967295\n");
}

static bool user_is_trusted(uid_t uid)
{
	if (uid == geteuid())
		return uid != USERS_WITHOUT_NUMBER || each_user_has_a_number();
	return uid == 0;
}

static void control_read(struct msghdr *header, struct arrival *ret)
{
	struct user user;

	ret->count = 0;
	ret->flags = header->msg_flags;
	ret->told = false;
	ret->trusted = true;
	for (struct cmsghdr *one = CMSG_FIRSTHDR(header); one;
	     one = CMSG_NXTHDR(header, one)) {
		if (one->cmsg_level != SOL_SOCKET)
			continue;
		if (one->cmsg_type == USER_MESSAGE) {
			memcpy(&user, CMSG_DATA(one), sizeof(user));
			ret->told = true;
			ret->trusted &= user_is_trusted(user.uid);
		}
		/* The other end may have this socket tell the sender by a file, too. */
		if (one->cmsg_type == SCM_RIGHTS || one->cmsg_type == PIDFD_MESSAGE) {
			size_t bytes = one->cmsg_len - CMSG_LEN(0);

			memcpy(ret->fds + ret->count, CMSG_DATA(one), bytes);
			ret->count += (unsigned int)(bytes / sizeof(int));
		}
	}
}

/* As recvmsg answers; -1: nothing has come. */
static long message_receive(int fd, void *ret_message, size_t bytes, int flags,
			    struct arrival *ret)
{
	struct iovec data = {.iov_base = ret_message, .iov_len = bytes};
	union control control;
	struct msghdr header = {
	    .msg_iov = &data,
	    .msg_iovlen = 1,
	    .msg_control = &control,
	    .msg_controllen = sizeof(control),
	};
	long received =
	    syscall(SYS_recvmsg, fd, &header, flags | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (received < 0)
		header.msg_controllen = 0;
	control_read(&header, ret);
	return received;
}

enum sender { SENDER_NONE, SENDER_TRUSTED, SENDER_OTHER };

/* Of the message that comes next, whose files stay where they are. None: there is no
 * message. */
static enum sender next_sender(int fd)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(struct user))];
	} control;
	struct arrival arrival;
	char none;
	struct iovec data = {.iov_base = &none, .iov_len = sizeof(none)};
	struct msghdr header = {
	    .msg_iov = &data,
	    .msg_iovlen = 1,
	    .msg_control = &control,
	    .msg_controllen = sizeof(control),
	};
	long received;

	/* An error comes once, before what was sent ahead of it. */
	do
		received = syscall(SYS_recvmsg, fd, &header, MSG_PEEK | MSG_DONTWAIT);
	while (received < 0 && errno == ECONNRESET);
	if (received < 0)
		return errno == EAGAIN ? SENDER_NONE : SENDER_OTHER;
	control_read(&header, &arrival);
	if (received == 0 && !arrival.told)
		return SENDER_NONE; /* the other end is closed */
	return arrival.trusted ? SENDER_TRUSTED : SENDER_OTHER;
}

bool gcp_ipc_receive(int fd, void *ret_message, size_t bytes, int *ret_fds,
		     unsigned int *ret_count, long deadline)
{
	int saved = errno;
	struct arrival arrival = {.count = 0};
	long received = -1;

	if (deadline == GCP_IPC_NO_WAIT || (fd_wait(fd, POLLIN, ms_until(deadline)) &&
					    next_sender(fd) == SENDER_TRUSTED))
		received = message_receive(fd, ret_message, bytes, 0, &arrival);
	bool good = received == (long)bytes && arrival.trusted &&
		    !(arrival.flags & (MSG_TRUNC | MSG_CTRUNC)) &&
		    arrival.count <= (ret_fds ? GCP_IPC_PARTS : 0);
	for (unsigned int i = 0; !good && i < arrival.count; i++)
		fd_close(arrival.fds[i]);
	if (good && ret_fds) {
		memcpy(ret_fds, arrival.fds, arrival.count * sizeof(int));
		*ret_count = arrival.count;
	}
	errno = saved;
	return good;
}

void gcp_ipc_leave(int fd, uint64_t file)
{
	int saved = errno;
	enum sender sender;
	struct arrival arrival;
	char none;

	if (fd < 0 || gcp_ipc_file(fd) != file)
		return;
	(void)shutdown(fd, SHUT_RDWR); /* nothing comes any more */
	while ((sender = next_sender(fd)) == SENDER_TRUSTED) {
		(void)message_receive(fd, &none, sizeof(none), 0, &arrival);
		for (unsigned int i = 0; i < arrival.count; i++)
			fd_close(arrival.fds[i]);
	}
	if (sender == SENDER_NONE)
		fd_close(fd);
	errno = saved;
}

/* --- the other end ---------------------------------------------------------------- */

bool gcp_ipc_peer(int fd, pid_t *ret_pid, uid_t *ret_uid)
{
	struct user peer;
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

	return gcp_ipc_peer(fd, &pid, &uid) && user_is_trusted(uid);
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

/* --- the door -------------------------------------------------------------------- */

/* An abstract address, which is gone with the socket. All users can list these names,
 * and send to them: it holds the first half of the cookie alone. */
static socklen_t address_of(const uint64_t cookie[2], struct sockaddr_un *ret_address)
{
	static const char name[] = "libgcpool-ipc-";
	char *path = ret_address->sun_path;
	size_t at = 1;

	memset(ret_address, 0, sizeof(*ret_address));
	ret_address->sun_family = AF_UNIX;
	memcpy(path + at, name, sizeof(name) - 1);
	at += sizeof(name) - 1;
	for (int bit = 60; bit >= 0; bit -= 4)
		path[at++] = "0123456789abcdef"[cookie[0] >> bit & 15];
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + at);
}

static int socket_new(void)
{
	return socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

/* Each message that comes over it tells the user that has sent it (control_read). */
static bool passes_users(int fd)
{
	const int yes = 1;

	return setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes)) == 0;
}

/* The kernel drops what is not just the cookie, in the thread that sends it: it takes
 * no room, and its file descriptors do not come here, to close which could take any
 * time. gcp_ipc_accept looks at the cookie where the system has no such filters. */
static void filter_set(int fd, const uint64_t cookie[2])
{
	enum { WORDS = 2 * sizeof(cookie[0]) / sizeof(uint32_t), CODE = 2 * WORDS + 4 };
	struct sock_filter code[CODE];
	struct sock_fprog program = {.len = CODE, .filter = code};
	unsigned char bytes[WORDS][4];
	int at = 0;

	memcpy(bytes, cookie, sizeof(bytes));
	code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0);
	code[at] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
						sizeof(bytes), 0, CODE - 2 - at);
	at++;
	for (unsigned int i = 0; i < WORDS; i++) {
		uint32_t word = (uint32_t)bytes[i][0] << 24 | bytes[i][1] << 16 |
				bytes[i][2] << 8 | bytes[i][3];

		code[at++] =
		    (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 4 * i);
		code[at] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, word,
							0, CODE - 2 - at);
		at++;
	}
	code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, UINT32_MAX);
	code[at] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0);
	(void)setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

static bool door_bind(const uint64_t cookie[2], const struct gcp_ipc_door *door)
{
	struct sockaddr_un address;
	socklen_t size = address_of(cookie, &address);

	if (door->end < 0 || door->entrance < 0)
		return false;
	filter_set(door->end, cookie);
	return passes_users(door->end) &&
	       bind(door->end, (struct sockaddr *)&address, size) == 0 &&
	       syscall(SYS_connect, door->entrance, &address, size) == 0;
}

bool gcp_ipc_door_open(const uint64_t cookie[2], struct gcp_ipc_door *ret_door)
{
	int saved = errno;
	bool open;

	*ret_door =
	    (struct gcp_ipc_door){.end = socket_new(), .entrance = socket_new()};
	open = door_bind(cookie, ret_door);
	if (!open) {
		fd_close(ret_door->end);
		fd_close(ret_door->entrance);
	}
	errno = saved;
	return open;
}

/* --- connections ----------------------------------------------------------------- */

/* The message stays until there is a file for the socket that comes with it. The user
 * that has made that socket need not be the one that sends it: a process that root has
 * started may have made it before it became another user's. */
int gcp_ipc_accept(int door_end, const uint64_t cookie[2], bool *ret_no_file)
{
	struct arrival arrival;
	uint64_t said[2];
	int saved = errno, fd = -1;
	long received =
	    message_receive(door_end, said, sizeof(said), MSG_PEEK, &arrival);

	*ret_no_file = received >= 0 && arrival.trusted && arrival.count == 0 &&
		       (arrival.flags & MSG_CTRUNC) != 0;
	if (received >= 0 && !*ret_no_file) {
		char none;

		(void)syscall(SYS_recvfrom, door_end, &none, sizeof(none), MSG_DONTWAIT,
			      NULL, NULL);
		if (arrival.trusted && arrival.count == 1 && received == sizeof(said) &&
		    !(arrival.flags & MSG_TRUNC) &&
		    memcmp(said, cookie, sizeof(said)) == 0)
			fd = arrival.fds[0];
	}
	for (unsigned int i = 0; fd < 0 && i < arrival.count; i++)
		fd_close(arrival.fds[i]);
	errno = saved;
	return fd;
}

static int door_by_name(const uint64_t cookie[2])
{
	int fd = socket_new();
	struct sockaddr_un address;
	socklen_t size = address_of(cookie, &address);

	if (fd >= 0 && syscall(SYS_connect, fd, &address, size) != 0) {
		fd_close(fd);
		fd = -1;
	}
	return fd;
}

void gcp_ipc_knock(const uint64_t cookie[2])
{
	int saved = errno, door = door_by_name(cookie);

	if (door >= 0)
		(void)message_send(door, cookie, 2 * sizeof(cookie[0]), NULL, 0);
	fd_close(door);
	errno = saved;
}

/* A copy of the file descriptor that the handle names, if it is the entrance still: a
 * socket that is connected to the door's address. */
static int door_by_copy(const struct gcp_ipc_handle *handle)
{
	struct sockaddr_un address, found;
	socklen_t size = address_of(handle->cookie, &address), length;
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

/* Waits while the door has no room, as that of a process that is stopped. */
static bool door_send(int door, const uint64_t cookie[2], int fd, long deadline)
{
	const size_t bytes = 2 * sizeof(cookie[0]);
	int left;

	do {
		long sent = message_send(door, cookie, bytes, &fd, 1);

		if (sent >= 0 || errno != EAGAIN)
			return sent == (long)bytes;
		left = ms_until(deadline);
	} while (left > 0 && fd_wait(door, POLLOUT, left));
	return false;
}

/* The files of the latest connection, for the child of a fork. Only the last of them
 * stays open once it is there. */
enum { DOOR, THEIRS, OURS, FILES };
static struct {
	int fd;
	uint64_t file; /* 0: none */
} connecting[FILES];

static void connecting_keep(int which, int fd)
{
	connecting[which].fd = fd;
	connecting[which].file = gcp_ipc_file(fd);
}

/* `file` is set first: then a child closes no other file that has the number since. */
static void connecting_close(int which)
{
	uint64_t file = connecting[which].file;

	connecting[which].file = 0;
	gcp_ipc_close(connecting[which].fd, file);
}

void gcp_ipc_connect_after_fork(void)
{
	for (int which = 0; which < FILES; which++)
		connecting_close(which);
}

static int connect_through(int door, const uint64_t cookie[2], long deadline)
{
	int pair[2];
	bool sent;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
		return -1;
	connecting_keep(OURS, pair[0]);
	connecting_keep(THEIRS, pair[1]);
	sent = passes_users(pair[0]) && door_send(door, cookie, pair[1], deadline);
	connecting_close(THEIRS);
	if (!sent)
		connecting_close(OURS);
	return sent ? pair[0] : -1;
}

/* Or may be there. */
static bool process_is_there(const struct gcp_ipc_handle *handle)
{
	return handle->started != 0 &&
	       gcp_process_may_live((pid_t)handle->pid, handle->started);
}

int gcp_ipc_connect(const struct gcp_ipc_handle *handle, long deadline,
		    CUresult *ret_result)
{
	int saved = errno, door = door_by_name(handle->cookie), fd = -1;

	if (door < 0 && process_is_there(handle))
		door = door_by_copy(handle);
	else if (door < 0) {
		/* As CUDA answers when the process is gone (measured). */
		*ret_result = CUDA_ERROR_INVALID_HANDLE;
		errno = saved;
		return -1;
	}
	*ret_result = CUDA_ERROR_OPERATING_SYSTEM;
	connecting_keep(DOOR, door);
	if (door >= 0)
		fd = connect_through(door, handle->cookie, deadline);
	connecting_close(DOOR);
	errno = saved;
	return fd;
}

/* The name goes with the files of a process that ends, a moment before the process. */
bool gcp_ipc_has_ended(const struct gcp_ipc_handle *handle)
{
	const long end = now_ms() + ROOM_MS;
	int saved = errno, door;
	bool there;

	do {
		door = door_by_name(handle->cookie);
		there = process_is_there(handle);
		fd_close(door);
	} while (door < 0 && there && now_ms() < end && !fd_wait(-1, 0, PAUSE_MS));
	errno = saved;
	return door < 0 && !there;
}
