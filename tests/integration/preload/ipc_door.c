/* SPDX-License-Identifier: MIT */
/*
 * ipc_door.c - what comes by the door of a process that exports (ipc_wire.h), and where
 * from: other users, strangers, and a process that is stopped.
 *
 *   ipc_door SCENARIO    plays one; 0: all is as it was promised
 *
 * Needs: interpose/ipc/ipc_wire.c interpose/base/process_identity.c
 * Environment: GCPOOL_BACKEND=vmm
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "ipc_played.h"

/* --- another user at the other end --- */

enum { ROOT = 0, USER = 1000, ANOTHER = 1001 };

/* The user of the process at the other end of each socket, as the library hears it, and
 * the user of this process; else what is true. */
static struct {
	atomic_bool said;
	atomic_uint peer, self;
} users;
static __thread bool sees_real_users;

/* The library calls these. */
__attribute__((visibility("default"))) uid_t geteuid(void)
{
	return users.said && !sees_real_users ? users.self
					      : (uid_t)syscall(SYS_geteuid);
}

__attribute__((visibility("default"))) int getsockopt(int fd, int level, int option,
						      void *ret, socklen_t *size)
{
	int result = (int)syscall(SYS_getsockopt, fd, level, option, ret, size);
	struct ucred *peer = ret;

	if (result == 0 && option == SO_PEERCRED && users.said && !sees_real_users)
		peer->uid = users.peer;
	return result;
}

static bool is_root(void)
{
	return syscall(SYS_geteuid) == ROOT;
}

static void say_that_the_peer_is(uid_t user, uid_t self)
{
	users.peer = user;
	users.self = self;
	users.said = true;
}

/* Whether the exporter, this process, answers a request on this connection. */
static bool answers(int fd, const struct gcp_ipc_handle *handle)
{
	struct gcp_ipc_request request = {
	    .cookie = {handle->cookie[0], handle->cookie[1]},
	    .id = handle->id,
	    .op = GCP_IPC_OPEN,
	};
	struct gcp_ipc_answer answer = {.result = -1};
	int fds[GCP_IPC_PARTS];
	unsigned int count = 0;
	bool good;

	must(fd >= 0, "no connection");
	good = gcp_ipc_send(fd, &request, sizeof(request), NULL, 0) &&
	       gcp_ipc_receive(fd, &answer, sizeof(answer), fds, &count,
			       gcp_ipc_deadline());
	must(!good || (answer.result == CUDA_SUCCESS && count > 0), "no memory");
	for (unsigned int i = 0; i < count; i++)
		close(fds[i]);
	close(fd);
	return good;
}

static int connection_by_name(const struct gcp_ipc_handle *handle)
{
	CUresult result;

	return gcp_ipc_connect(handle, gcp_ipc_deadline(), &result);
}

/* A message as a stranger sends it: *ret_end is its end of the pair. */
static bool pair_sent(int to, const uint64_t cookie[2], size_t bytes, int *ret_end)
{
	int pair[2];
	bool sent;

	must(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0, "no pair");
	sent = gcp_ipc_send(to, cookie, bytes, &pair[1], 1);
	close(pair[1]);
	*ret_end = pair[0];
	return sent;
}

static struct gcp_ipc_handle handle_of(CUdeviceptr p)
{
	CUipcMemHandle exported_one = exported(p);
	struct gcp_ipc_handle handle;

	must(gcp_ipc_handle_read(&exported_one, &handle), "memory is not mapped");
	return handle;
}

/* As one that has a copy of the entrance. */
static int connection_by_entrance(const struct gcp_ipc_handle *handle)
{
	int fd;

	must(pair_sent(handle->entrance, handle->cookie, sizeof(handle->cookie), &fd),
	     "no entrance");
	return fd;
}

static void memory_is_for_its_user(int (*connection)(const struct gcp_ipc_handle *))
{
	/* The user that sends messages: this one where it may not become another. */
	const uid_t self = is_root() ? USER : (uid_t)syscall(SYS_geteuid);
	struct gcp_ipc_handle handle;

	sees_real_users = true;
	(void)primary();
	handle = handle_of(allocated(4096));
	say_that_the_peer_is(self + 1, self);
	must(!answers(connection(&handle), &handle), "another user gets memory");
	say_that_the_peer_is(self, self);
	must(answers(connection(&handle), &handle), "the same user gets none");
	say_that_the_peer_is(ROOT, self);
	must(answers(connection(&handle), &handle), "root gets none");
}

SCENARIO(another_user_gets_no_memory)
{
	memory_is_for_its_user(connection_by_name);
}

SCENARIO(another_user_gets_no_memory_by_the_entrance)
{
	memory_is_for_its_user(connection_by_entrance);
}

struct pair_of_a_user {
	uid_t user;
	const struct gcp_ipc_handle *handle;
	int end;
};

/* Sends a pair as the user of `ret`, which becomes an end of it. */
static void *sends_a_pair(void *ret)
{
	struct pair_of_a_user *sent = ret;

	if (is_root())
		(void)syscall(SYS_setresuid, sent->user, sent->user, sent->user);
	sent->end = connection_by_entrance(sent->handle);
	return NULL;
}

static bool answers_pair_of(uid_t user, const struct gcp_ipc_handle *handle)
{
	struct pair_of_a_user sent = {.user = user, .handle = handle};
	pthread_t thread;

	pthread_create(&thread, NULL, sends_a_pair, &sent);
	pthread_join(thread, NULL);
	return answers(sent.end, handle);
}

/* The library takes each pair for root's: a daemon may have made it as root, and then
 * dropped to another user. Linux has a user for each thread. Where this one may not
 * become another, the library takes itself for another. */
SCENARIO(the_sender_of_a_pair_counts_and_not_its_maker)
{
	struct gcp_ipc_handle handle;

	sees_real_users = true;
	(void)primary();
	handle = handle_of(allocated(4096));
	say_that_the_peer_is(ROOT, is_root() ? USER : (uid_t)syscall(SYS_geteuid) + 1);
	must(!answers_pair_of(ANOTHER, &handle), "another user gets memory");
	if (!is_root())
		return;
	must(answers_pair_of(USER, &handle), "the same user gets none");
	must(answers_pair_of(ROOT, &handle), "root gets none");
}

/* Of which this one is one, in a user namespace without numbers. */
SCENARIO_BEFORE_CUDA(users_without_a_number_get_no_memory)
{
	struct gcp_ipc_handle handle;

	if (unshare(CLONE_NEWUSER) != 0) {
		printf("there are no user namespaces here\n");
		exit(77);
	}
	OK(cuInit(0));
	(void)primary();
	handle = handle_of(allocated(4096));
	/* By a socket at which the program itself trusts all. */
	must(!answers(connection_by_entrance(&handle), &handle),
	     "any user gets memory");
}

/* --- a stranger: it knows the name, and not the cookie --- */

/* A socket to the door of this process. */
static int stranger(int end)
{
	int to = socket(AF_UNIX, SOCK_DGRAM, 0);
	struct sockaddr_un address = {0};
	socklen_t size = sizeof(address);

	must(getsockname(end, (struct sockaddr *)&address, &size) == 0 &&
		 connect(to, (struct sockaddr *)&address, size) == 0,
	     "no such name");
	return to;
}

static bool is_closed(int fd)
{
	struct pollfd ended = {.fd = fd};

	return poll(&ended, 1, 0) == 1 && (ended.revents & POLLHUP) != 0;
}

/* Numbers 0 and 1 are taken: a message with a file stays at the door, if it comes there
 * at all. */
static void files_end(bool end)
{
	static struct rlimit before;
	struct rlimit none;

	if (before.rlim_max == 0)
		getrlimit(RLIMIT_NOFILE, &before);
	none = before;
	none.rlim_cur = 2;
	must(setrlimit(RLIMIT_NOFILE, end ? &none : &before) == 0, "no limit");
}

static bool file_arrives(int to, const uint64_t cookie[2], size_t bytes)
{
	int pair[2];
	bool closed;

	must(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0, "no pair");
	files_end(true);
	must(gcp_ipc_send(to, cookie, bytes, &pair[1], 1), "not sent");
	close(pair[1]);
	closed = is_closed(pair[0]);
	files_end(false);
	close(pair[0]);
	return !closed;
}

/* A file that the exporter's threads had to close could take them any time. */
SCENARIO(a_stranger_sends_the_exporter_no_file)
{
	struct gcp_ipc_handle handle;
	uint32_t words[6] = {0};
	int to;

	if (geteuid() != 0) {
		printf(
		    "the files of a user on their way are counted with this limit\n");
		exit(77);
	}
	(void)primary();
	handle = handle_of(allocated(4096));
	to = stranger(door_end());
	for (size_t i = 0; i < 4; i++) {
		memcpy(words, handle.cookie, sizeof(handle.cookie));
		words[i] ^= 1;
		must(!file_arrives(to, (uint64_t *)words, sizeof(handle.cookie)),
		     "a stranger's file comes");
	}
	memcpy(words, handle.cookie, sizeof(handle.cookie));
	must(!file_arrives(to, (uint64_t *)words, sizeof(words)), "a longer one comes");
	must(file_arrives(to, handle.cookie, sizeof(handle.cookie)), "none comes");
}

static bool has_no_filters;

/* The library calls this. */
__attribute__((visibility("default"))) int setsockopt(int fd, int level, int option,
						      const void *value, socklen_t size)
{
	if (option == SO_ATTACH_FILTER && has_no_filters) {
		errno = ENOPROTOOPT;
		return -1;
	}
	return (int)syscall(SYS_setsockopt, fd, level, option, value, size);
}

/* Where the system has no filter for that. */
SCENARIO(a_message_without_the_cookie_is_no_connection)
{
	struct gcp_ipc_handle handle;
	uint64_t cookie[2];
	int to, fd;

	has_no_filters = true;
	(void)primary();
	handle = handle_of(allocated(4096));
	to = stranger(door_end());
	cookie[0] = handle.cookie[0];
	cookie[1] = handle.cookie[1] ^ 1;
	must(pair_sent(to, cookie, sizeof(cookie), &fd), "not sent");
	must(!answers(fd, &handle), "a stranger gets memory");
	must(pair_sent(to, handle.cookie, sizeof(cookie), &fd), "not sent");
	must(answers(fd, &handle), "the handle is of no use");
}

/* The name is all that others see of the cookie. */
SCENARIO(the_name_tells_half_of_the_cookie)
{
	struct sockaddr_un address = {0};
	socklen_t size = sizeof(address);
	struct gcp_ipc_handle handle;
	char half[17];

	(void)primary();
	handle = handle_of(allocated(4096));
	must(getsockname(door_end(), (struct sockaddr *)&address, &size) == 0,
	     "no name");
	snprintf(half, sizeof(half), "%016llx", (unsigned long long)handle.cookie[1]);
	must(!strstr(address.sun_path + 1, half), "the name tells the secret");
}

/* --- another user has the name of a process --- */

/* Linux has a user for each thread. Where this one may not become another, the library
 * takes itself for another. */
static void *answers_as_another(void *ret_op)
{
	struct gcp_ipc_answer answer = {.result = CUDA_ERROR_INVALID_VALUE};
	int fd;

	sees_real_users = true;
	fd = connection_of_door(5000);
	*(uint32_t *)ret_op = asked(fd);
	if (users.said)
		(void)syscall(SYS_setresuid, users.peer, users.peer, users.peer);
	(void)gcp_ipc_send(fd, &answer, sizeof(answer), NULL, 0);
	close(fd);
	return NULL;
}

/* What the library makes of the answer of a process that `user` runs. */
static CUresult answer_of(uid_t user)
{
	CUipcMemHandle handle;
	uint32_t op = 0;
	pthread_t thread;
	CUdeviceptr p;
	CUresult result;

	say_that_the_peer_is(user, is_root() ? USER : (uid_t)syscall(SYS_geteuid) + 1);
	gcp_ipc_handle_make(&played, -1, 1, &handle);
	pthread_create(&thread, NULL, answers_as_another, &op);
	result = cuIpcOpenMemHandle_v2(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	pthread_join(thread, NULL);
	must(op == GCP_IPC_OPEN, "it was not asked");
	return result;
}

/* It may have taken the name of a process that is gone. */
SCENARIO(another_users_answer_is_not_taken)
{
	(void)primary();
	play_exporter();
	must(answer_of(ANOTHER) == CUDA_ERROR_OPERATING_SYSTEM,
	     "another user's answer was taken");
	if (!is_root())
		return;
	must(answer_of(USER) == CUDA_ERROR_INVALID_VALUE, "the same user's was not");
	must(answer_of(ROOT) == CUDA_ERROR_INVALID_VALUE, "root's was not");
}

static int files_open(void)
{
	int count = 0;

	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

/* Before the library waits: the file is in its message alone. */
static atomic_bool waits_for_file, file_is_sent;

/* A TCP connection whose other end reads nothing: its last close takes LINGERS s. */
enum { LINGERS = 8 };
static int lingering_file(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	const struct linger linger = {.l_onoff = 1, .l_linger = LINGERS};
	socklen_t size = sizeof(address);
	int listening = socket(AF_INET, SOCK_STREAM, 0), fd;
	char bytes[4096] = {0};

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listening, (struct sockaddr *)&address, size) != 0 ||
	    listen(listening, 1) != 0 ||
	    getsockname(listening, (struct sockaddr *)&address, &size) != 0 ||
	    connect(fd, (struct sockaddr *)&address, size) != 0) {
		printf("there is no network here\n");
		exit(77);
	}
	while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	must(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)) == 0,
	     "no linger");
	return fd;
}

/* What the other end of a connection does. */
enum { READS = 1, SENDS_A_FILE = 2 };

static void *takes_the_connection(void *does)
{
	struct gcp_ipc_answer answer = {.result = CUDA_ERROR_INVALID_VALUE};
	struct gcp_ipc_request request;
	int *what = does, fd, file = -1;

	if (*what & SENDS_A_FILE)
		file = lingering_file();
	sees_real_users = true;
	fd = connection_of_door(5000);
	(void)syscall(SYS_setresuid, users.peer, users.peer, users.peer);
	while ((*what & READS) && recv(fd, &request, sizeof(request), 0) > 0 &&
	       request.op != GCP_IPC_OPEN)
		;
	if (*what & SENDS_A_FILE)
		(void)gcp_ipc_send(fd, &answer, sizeof(answer), &file, 1);
	close(file);
	close(fd);
	atomic_store(&file_is_sent, true);
	return NULL;
}

/* Seconds of an open of a process that is gone, whose name another user has. */
static time_t open_beside(int does)
{
	CUipcMemHandle handle;
	time_t begin;
	pthread_t thread;
	CUdeviceptr p;

	say_that_the_peer_is(ANOTHER,
			     is_root() ? USER : (uid_t)syscall(SYS_geteuid) + 1);
	gcp_ipc_handle_make(&played, -1, 1, &handle);
	atomic_store(&file_is_sent, false);
	pthread_create(&thread, NULL, takes_the_connection, &does);
	begin = time(NULL);
	atomic_store(&waits_for_file, (does & READS) == 0);
	must(cuIpcOpenMemHandle_v2(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
		 CUDA_ERROR_OPERATING_SYSTEM,
	     "another error");
	atomic_store(&waits_for_file, false);
	pthread_join(thread, NULL);
	printf("%d s\n", (int)(time(NULL) - begin));
	return time(NULL) - begin;
}

SCENARIO(another_users_file_does_not_hold_up_an_open)
{
	(void)primary();
	play_exporter();
	must(open_beside(SENDS_A_FILE) < LINGERS / 2, "it waits for a file");
	must(open_beside(SENDS_A_FILE | READS) < LINGERS / 2,
	     "it waits for a file in an answer");
}

SCENARIO(a_connection_that_is_not_answered_leaves_no_file)
{
	int before;

	(void)primary();
	play_exporter();
	(void)open_beside(0);
	before = files_open();
	(void)open_beside(0);
	(void)open_beside(READS);
	must(files_open() <= before, "files are left");
}

/* Which is told as an error. */
SCENARIO(a_connection_that_is_closed_unread_leaves_no_file)
{
	int pair[2];

	must(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0 &&
		 send(pair[0], pair, sizeof(pair), 0) > 0 && close(pair[1]) == 0,
	     "no pair");
	gcp_ipc_leave(pair[0], gcp_ipc_file(pair[0]));
	must(fcntl(pair[0], F_GETFD) < 0, "it is open");
}

/* --- a file that was the entrance --- */

static int pair_of_the_program[2];

/* Refuses what the library asks by it, so that its call ends. */
static void *takes_a_message(void *unused)
{
	struct pollfd ready = {.fd = pair_of_the_program[1], .events = POLLIN};
	char message[64];

	poll(&ready, 1, 5000);
	must(read(ready.fd, message, sizeof(message)) == 2,
	     "a message of the library's has come");
	return unused;
}

static bool files_can_be_copied(void)
{
	long pidfd = syscall(434 /* pidfd_open */, getpid(), 0);

	return pidfd >= 0 &&
	       syscall(438 /* pidfd_getfd */, pidfd, pair_of_the_program[0], 0) >= 0;
}

/* The exporter, this process, has closed the entrance and has a socket of its own in
 * its place: no message of the library's reaches that. */
SCENARIO(a_file_that_is_not_the_entrance_gets_no_message)
{
	struct gcp_ipc_process process = {
	    .cookie = {4, (uint64_t)getpid()},
	    .started = gcp_process_start_time(getpid()),
	    .pid = (uint32_t)getpid(),
	};
	CUipcMemHandle handle;
	pthread_t thread;
	CUdeviceptr p;

	(void)primary();
	must(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair_of_the_program) == 0,
	     "no sockets to be had");
	if (!files_can_be_copied()) {
		printf("file descriptors are not to be had here\n");
		exit(77);
	}
	pthread_create(&thread, NULL, takes_a_message, NULL);
	gcp_ipc_handle_make(&process, pair_of_the_program[0], 1, &handle);
	must(cuIpcOpenMemHandle_v2(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
		 CUDA_ERROR_OPERATING_SYSTEM,
	     "another error");
	must(write(pair_of_the_program[0], "no", 2) == 2, "not sent");
	pthread_join(thread, NULL);
}

/* --- an exporter that is stopped --- */

/* Of a process that is stopped, which others have asked before: its door is full. */
SCENARIO(open_by_a_full_door_ends)
{
	CUipcMemHandle handle;
	CUdeviceptr p;
	int to, fd;

	alarm(45);
	(void)primary();
	play_exporter();
	to = stranger(door.end);
	while (pair_sent(to, played.cookie, sizeof(played.cookie), &fd))
		;
	gcp_ipc_handle_make(&played, -1, 1, &handle);
	must(cuIpcOpenMemHandle_v2(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
		 CUDA_ERROR_OPERATING_SYSTEM,
	     "another error");
}

static void *opens_and_waits(void *unused)
{
	CUipcMemHandle handle;
	CUdeviceptr p;

	(void)primary();
	gcp_ipc_handle_make(&played, -1, 1, &handle);
	must(cuIpcOpenMemHandle_v2(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
		 CUDA_ERROR_OPERATING_SYSTEM,
	     "another error");
	return unused;
}

/* Those of a child would hide the end of the exporter, and that of the importer. */
SCENARIO(a_child_has_no_file_of_an_open)
{
	int to, fd, before, status = 1;
	pthread_t thread;
	pid_t child;

	(void)primary();
	play_exporter();
	to = stranger(door.end);
	while (pair_sent(to, played.cookie, sizeof(played.cookie), &fd))
		;
	before = files_open();
	pthread_create(&thread, NULL, opens_and_waits, NULL);
	for (int i = 0; i < 100 && files_open() != before + 3; i++)
		usleep(20 * 1000);
	must(files_open() == before + 3, "it does not wait at the door");
	child = fork();
	if (child == 0)
		_exit(files_open() != before);
	waitpid(child, &status, 0);
	must(status == 0, "the child has files of it");
	while ((fd = connection_of_door(1000)) >= 0)
		close(fd);
	pthread_join(thread, NULL);
	must(files_open() < before + 3, "files are left");
}

/* A socket that this end has told to say by a file which process sends (Linux 6.5). */
SCENARIO(a_connection_leaves_no_file_with_the_exporter)
{
	const int yes = 1;
	struct gcp_ipc_request request = {.op = GCP_IPC_CLOSE};
	struct gcp_ipc_handle handle;
	int pair[2], before;

	(void)primary();
	handle = handle_of(allocated(4096));
	must(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0, "no pair");
	if (setsockopt(pair[1], SOL_SOCKET, 76 /* SO_PASSPIDFD */, &yes, sizeof(yes))) {
		printf("the system has no such files\n");
		exit(77);
	}
	must(gcp_ipc_send(handle.entrance, handle.cookie, sizeof(handle.cookie),
			  &pair[1], 1),
	     "no entrance");
	usleep(100 * 1000);
	before = files_open();
	memcpy(request.cookie, handle.cookie, sizeof(request.cookie));
	for (int i = 0; i < 100; i++)
		must(gcp_ipc_send(pair[0], &request, sizeof(request), NULL, 0),
		     "not sent");
	usleep(300 * 1000);
	printf("files: %d, then %d\n", before, files_open());
	must(files_open() <= before, "files are left");
}

static void *kills(void *process)
{
	usleep(300 * 1000);
	kill(*(pid_t *)process, SIGKILL);
	return process;
}

/* The child is stopped, and killed while it is asked. */
SCENARIO_BEFORE_CUDA(open_of_a_process_that_is_killed_says_so)
{
	int up[2], stopped;
	CUipcMemHandle handle;
	pthread_t thread;
	CUdeviceptr p;
	pid_t child;

	must(pipe(up) == 0, "pipe");
	child = fork();
	if (child == 0) {
		OK(cuInit(0));
		(void)primary();
		handle = exported(allocated(4096));
		must(write(up[1], &handle, sizeof(handle)) == sizeof(handle), "pipe");
		pause();
	}
	OK(cuInit(0));
	(void)primary();
	must(read(up[0], &handle, sizeof(handle)) == sizeof(handle), "pipe");
	kill(child, SIGSTOP);
	waitpid(child, &stopped, WUNTRACED);
	pthread_create(&thread, NULL, kills, &child);
	must(cuIpcOpenMemHandle_v2(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
		 CUDA_ERROR_INVALID_HANDLE,
	     "another error");
	pthread_join(thread, NULL);
}

static atomic_int seconds_ahead;

/* The library calls this. */
__attribute__((visibility("default"))) int clock_gettime(clockid_t clock,
							 struct timespec *ret)
{
	int result = (int)syscall(SYS_clock_gettime, clock, ret);

	/* In vain before the deadline is known, when nothing is connected yet. */
	if (waits_for_file && !sees_real_users && clock == CLOCK_MONOTONIC)
		for (int i = 0; i < 50 && !file_is_sent; i++)
			usleep(10 * 1000);
	if (result == 0 && clock == CLOCK_MONOTONIC)
		ret->tv_sec += seconds_ahead;
	return result;
}

/* After what is 29 seconds for the library. */
static void *takes_all_and_answers_none(void *unused)
{
	usleep(200 * 1000);
	seconds_ahead = 29;
	while (connection_of_door(3000) >= 0)
		;
	return unused;
}

/* The wait for room and that for an answer are one. */
SCENARIO(open_by_a_slow_door_ends_as_soon)
{
	CUipcMemHandle handle;
	time_t begin = time(NULL);
	pthread_t thread;
	CUdeviceptr p;
	int to, fd;

	(void)primary();
	play_exporter();
	to = stranger(door.end);
	while (pair_sent(to, played.cookie, sizeof(played.cookie), &fd))
		;
	pthread_create(&thread, NULL, takes_all_and_answers_none, NULL);
	gcp_ipc_handle_make(&played, -1, 1, &handle);
	must(cuIpcOpenMemHandle_v2(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
		 CUDA_ERROR_OPERATING_SYSTEM,
	     "another error");
	must(time(NULL) < begin + 10, "it is waited for longer");
}

/* --- an exporter that closes its files --- */

SCENARIO(a_handle_made_after_the_door_was_closed_is_of_use)
{
	struct gcp_ipc_handle handle;
	CUdeviceptr p;

	(void)primary();
	p = allocated(4096);
	(void)exported(p);
	usleep(100 * 1000); /* until the thread waits */
	close(door_end());
	handle = handle_of(p);
	must(answers(connection_by_name(&handle), &handle), "nothing answers");
}

/* The program closes its files and opens others just before the thread waits at the
 * door: it waits at another file then. */
static struct {
	atomic_bool held, goes_on; /* the thread, before it waits */
} thread;

/* The library calls this. */
__attribute__((visibility("default"))) long syscall(long number, ...)
{
	typedef long call_fn(long number, ...);
	static _Atomic(call_fn *) real;
	long a[6];
	va_list more;

	va_start(more, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(more, long);
	va_end(more);
	if (!real)
		real = (call_fn *)dlsym(RTLD_NEXT, "syscall");
	if (number == SYS_ppoll && thread.held && !thread.goes_on) {
		thread.held = false;
		while (!thread.goes_on)
			sched_yield();
	}
	return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

SCENARIO(a_file_in_the_doors_place_holds_up_no_handle)
{
	struct gcp_ipc_handle handle;
	CUdeviceptr p;
	int end, ends[2];

	(void)primary();
	p = allocated(4096);
	handle = handle_of(p);
	thread.held = true; /* at the next turn, which a message brings */
	gcp_ipc_knock(handle.cookie);
	while (thread.held)
		sched_yield();
	end = door_end();
	must(pipe(ends) == 0 && dup2(ends[0], end) == end, "no file");
	thread.goes_on = true;
	handle = handle_of(p);
	must(answers(connection_by_name(&handle), &handle), "nothing answers");
}
