/* SPDX-License-Identifier: MIT */
/*
 * ipc_door.c - what comes by the door of a process that exports (ipc_wire.h), and where
 * from: other users, strangers, and a process that is stopped.
 *
 *   ipc_door SCENARIO    plays one; 0: all is as it was promised
 *
 * Needs: interpose/ipc/ipc_wire.c
 * Environment: GCPOOL_BACKEND=vmm
 */
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "ipc_played.h"

/* --- another user at the other end --- */

enum { ROOT = 0, USER = 1000, ANOTHER = 1001 };

/* The user of this process as the library hears it, if it is said; and of all messages
 * what is true. */
static atomic_bool user_said;
static atomic_uint user_self;
static __thread bool sees_real_user;

/* The library calls this. */
__attribute__((visibility("default"))) uid_t geteuid(void)
{
	return user_said && !sees_real_user ? user_self : (uid_t)syscall(SYS_geteuid);
}

static bool is_root(void)
{
	return syscall(SYS_geteuid) == ROOT;
}

static void say_that_the_user_is(uid_t self)
{
	user_self = self;
	user_said = true;
}

/* A message as a stranger sends it: *ret_end is its end of the pair. */
static bool pair_sent(int to, const void *message, size_t bytes, int *ret_end)
{
	const int yes = 1;
	int pair[2];
	bool sent;

	must(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0, "no pair");
	(void)setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes));
	sent = gcp_ipc_send(to, message, bytes, &pair[1], 1, GCP_IPC_NO_WAIT);
	close(pair[1]);
	*ret_end = pair[0];
	return sent;
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
	sent->end = connected(sent->handle);
	return NULL;
}

static bool answers_pair_of(uid_t user, const struct gcp_ipc_handle *handle)
{
	struct pair_of_a_user sent = {.user = user, .handle = handle};

	(void)play_elsewhere(sends_a_pair, &sent);
	return answers(sent.end, handle);
}

/* Linux has a user for each thread. Where this one may not become another, the library
 * takes itself for another. */
SCENARIO(another_user_gets_no_memory)
{
	struct gcp_ipc_handle handle;

	sees_real_user = true;
	(void)primary();
	handle = handle_of(allocated(4096));
	say_that_the_user_is(is_root() ? USER : (uid_t)syscall(SYS_geteuid) + 1);
	must(!answers_pair_of(ANOTHER, &handle), "another user gets memory");
	if (!is_root())
		return;
	must(answers_pair_of(USER, &handle), "the same user gets none");
	must(answers_pair_of(ROOT, &handle), "root gets none");
}

/* --- a stranger: it knows the name, and not the key --- */

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

static atomic_int door_watched = -1, messages;

/* The library calls this. */
__attribute__((visibility("default"))) ssize_t recvmsg(int fd, struct msghdr *message,
						       int flags)
{
	ssize_t received = syscall(SYS_recvmsg, fd, message, flags);

	messages += received > 0 && fd == door_watched;
	return received;
}

/* turns: of 10 ms that it may take. */
static bool file_arrives(int to, const void *message, int turns)
{
	int before = messages, fd;

	must(pair_sent(to, message, sizeof(uint64_t), &fd), "not sent");
	while (turns-- > 0 && messages == before)
		usleep(10 * 1000);
	close(fd);
	return messages > before;
}

/* A file that the exporter's threads had to close could take them any time. */
SCENARIO_PRIMARY(a_stranger_sends_the_exporter_no_file)
{
	struct gcp_ipc_handle handle = handle_of(allocated(4096));
	uint32_t words[2];
	int to;

	door_watched = door_end();
	to = stranger(door_watched);
	for (size_t i = 0; i < 2; i++) {
		memcpy(words, &handle.process.key, sizeof(words));
		words[i] ^= 1;
		must(!file_arrives(to, words, 2), "a stranger's file comes");
	}
	must(file_arrives(to, &handle.process.key, 1000), "none comes");
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
SCENARIO(a_message_without_the_key_is_no_connection)
{
	struct gcp_ipc_handle handle;
	uint64_t key;
	int to, fd;

	has_no_filters = true;
	(void)primary();
	handle = handle_of(allocated(4096));
	to = stranger(door_end());
	key = handle.process.key ^ 1;
	must(pair_sent(to, &key, sizeof(key), &fd), "not sent");
	must(!answers(fd, &handle), "a stranger gets memory");
	key = handle.process.key;
	must(pair_sent(to, &key, sizeof(key), &fd), "not sent");
	must(answers(fd, &handle), "the handle is of no use");
}

/* --- another user has the name of a process --- */

/* Linux has a user for each thread. Where this one may not become another, the library
 * takes itself for another. */
struct answer_of_a_user {
	uid_t user;
	uint64_t op;
};

static void *answers_as_another(void *ret)
{
	struct answer_of_a_user *answers = ret;
	struct gcp_ipc_answer answer = {.reply = played.reply,
					.result = CUDA_ERROR_INVALID_VALUE};
	int fd;

	sees_real_user = true;
	fd = connection_of_door(20 * 1000);
	answers->op = asked(fd).op;
	if (is_root())
		(void)syscall(SYS_setresuid, answers->user, answers->user,
			      answers->user);
	(void)gcp_ipc_send(fd, &answer, sizeof(answer), NULL, 0, GCP_IPC_NO_WAIT);
	close(fd);
	return NULL;
}

/* What the library makes of the answer of a process that `user` runs. */
static CUresult answer_of(uid_t user)
{
	struct answer_of_a_user answers = {.user = user};
	pthread_t thread;
	CUdeviceptr p;
	CUresult result;

	say_that_the_user_is(is_root() ? USER : (uid_t)syscall(SYS_geteuid) + 1);
	pthread_create(&thread, NULL, answers_as_another, &answers);
	result = opened_by(played_handle(1), &p);
	pthread_join(thread, NULL);
	must(answers.op == GCP_IPC_OPEN, "it was not asked");
	return result;
}

/* It may have taken the name of a process that is gone. */
SCENARIO_PRIMARY(another_users_answer_is_not_taken)
{
	play_exporter();
	must(answer_of(ANOTHER) == CUDA_ERROR_OPERATING_SYSTEM,
	     "another user's answer was taken");
	if (!is_root())
		return;
	must(answer_of(USER) == CUDA_ERROR_INVALID_VALUE, "the same user's was not");
	must(answer_of(ROOT) == CUDA_ERROR_INVALID_VALUE, "root's was not");
}

/* --- files of handles --- */

/* Of memory that is given back, none; the simulated memory is a file, too. */
SCENARIO(a_handles_file_is_made_once_and_goes_with_it)
{
	uint64_t (*trim)(int, uint64_t), made;
	struct gcp_ipc_handle handle;
	CUdeviceptr p;
	int files;

	*(void **)&trim = dlsym(RTLD_DEFAULT, "gcpool_trim");
	(void)primary();
	p = allocated(8 * MIB);
	(void)handle_of(allocated(4096)); /* the door and the thread */
	files = files_open();
	handle = handle_of(p);
	made = gcpsim_calls("cuMemExportToShareableHandle");
	must(answers(connected(&handle), &handle) &&
		 gcpsim_calls("cuMemExportToShareableHandle") == made,
	     "made once more");
	OK(cuMemFree(p));
	(void)trim(0, 0);
	/* The thread closes a connection. */
	AWAIT(files_open() == files - (int)made + 1);
	must(files_open() == files - (int)made + 1, "files are left");
}

/* --- another process has the name of one that is gone --- */

/* A TCP connection whose other end reads nothing: its last close takes LINGERS s. */
enum { LINGERS = 40 };
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

/* It has no handle, and so none of the words that an answer begins with. */
static void *answers_with_a_file(void *unused)
{
	struct gcp_ipc_answer answer = {.reply = played.reply ^ 1,
					.result = CUDA_ERROR_INVALID_VALUE};
	const struct linger none = {.l_onoff = 0};
	int file = lingering_file(), fd = connection_of_door(20 * 1000);

	must(asked(fd).op == GCP_IPC_OPEN, "it was not asked");
	(void)gcp_ipc_send(fd, &answer, sizeof(answer), &file, 1, GCP_IPC_NO_WAIT);
	close(door);
	close(fd);
	(void)setsockopt(file, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
	close(file);
	return unused;
}

/* Of a process that is gone, whose name another one has. */
static void open_beside_a_stranger(CUresult wanted)
{
	time_t begin = time(NULL);
	pthread_t thread;
	CUdeviceptr p;

	play_exporter();
	pthread_create(&thread, NULL, answers_with_a_file, NULL);
	must(opened_by(played_handle(1), &p) == wanted, "another error");
	must(time(NULL) - begin < LINGERS / 2, "it waits for a file");
	pthread_join(thread, NULL);
}

SCENARIO_PRIMARY(a_strangers_answer_never_arrives_and_leaves_no_file)
{
	int before;

	open_beside_a_stranger(CUDA_ERROR_INVALID_HANDLE);
	before = files_open();
	open_beside_a_stranger(CUDA_ERROR_INVALID_HANDLE);
	must(files_open() <= before + 1, "files are left"); /* one is the player's */
}

/* --- an exporter that is stopped --- */

/* Which others have asked before: its door is full. */
static void door_fill(void)
{
	int to = stranger(door), fd;

	while (pair_sent(to, &played.key, sizeof(played.key), &fd))
		;
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
	must(opened_by(handle, &p) == CUDA_ERROR_INVALID_HANDLE, "another error");
	pthread_join(thread, NULL);
}

static atomic_int seconds_ahead, opens; /* the thread that opens */

/* The library calls this. */
__attribute__((visibility("default"))) int clock_gettime(clockid_t clock,
							 struct timespec *ret)
{
	int result = (int)syscall(SYS_clock_gettime, clock, ret);

	if (result == 0 && clock == CLOCK_MONOTONIC)
		ret->tv_sec += seconds_ahead;
	return result;
}

/* After what is 29 seconds for the library. */
static void *takes_all_and_answers_none(void *unused)
{
	await_asleep(&opens, NULL);
	seconds_ahead = 29;
	while (connection_of_door(3000) >= 0)
		;
	return unused;
}

/* The wait for room and that for an answer are one. */
SCENARIO(open_by_a_slow_door_ends_as_soon)
{
	time_t begin = time(NULL);
	pthread_t thread;
	CUdeviceptr p;

	(void)primary();
	play_exporter();
	door_fill();
	opens = getpid();
	pthread_create(&thread, NULL, takes_all_and_answers_none, NULL);
	must(opened_by(played_handle(1), &p) == CUDA_ERROR_OPERATING_SYSTEM,
	     "another error");
	must(time(NULL) < begin + 20, "it is waited for longer");
}

/* --- a child that has the exporter's files --- */

/* Until it runs its own program: no handlers of forks run in it. */
SCENARIO(a_connection_that_a_child_has_open_ends)
{
	struct gcp_ipc_handle handle;
	pid_t child;
	CUdeviceptr p;
	int end;

	(void)primary();
	p = allocated(4096);
	handle = handle_of(p);
	end = connected(&handle);
	usleep(100 * 1000); /* until the thread has it */
	child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	while (child == 0)
		pause();
	must(shutdown(end, SHUT_RDWR) == 0, "no connection");
	usleep(100 * 1000); /* until the thread knows */
	OK(cuMemFree_v2(p));
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}
