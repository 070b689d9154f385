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
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
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

SCENARIO(another_user_gets_no_memory)
{
	/* The user that sends messages: this one where it may not become another. */
	const uid_t self = is_root() ? USER : (uid_t)syscall(SYS_geteuid);
	struct gcp_ipc_handle handle;

	sees_real_users = true;
	(void)primary();
	handle = handle_of(allocated(4096));
	say_that_the_peer_is(self + 1, self);
	must(!answers(connected(&handle), &handle), "another user gets memory");
	say_that_the_peer_is(self, self);
	must(answers(connected(&handle), &handle), "the same user gets none");
	say_that_the_peer_is(ROOT, self);
	must(answers(connected(&handle), &handle), "root gets none");
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

static bool file_arrives(int to, const void *message)
{
	int before = messages, fd;

	must(pair_sent(to, message, 16, &fd), "not sent");
	usleep(20 * 1000);
	close(fd);
	return messages > before;
}

/* A file that the exporter's threads had to close could take them any time. */
SCENARIO(a_stranger_sends_the_exporter_no_file)
{
	struct gcp_ipc_handle handle;
	uint32_t words[4];
	int to;

	(void)primary();
	handle = handle_of(allocated(4096));
	door_watched = door_end();
	to = stranger(door_watched);
	for (size_t i = 0; i < 4; i++) {
		memcpy(words, &handle.process, sizeof(words));
		words[i] ^= 1;
		must(!file_arrives(to, words), "a stranger's file comes");
	}
	must(file_arrives(to, &handle.process), "none comes");
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
	uint64_t words[2];
	int to, fd;

	has_no_filters = true;
	(void)primary();
	handle = handle_of(allocated(4096));
	to = stranger(door_end());
	words[0] = handle.process.name;
	words[1] = handle.process.key ^ 1;
	must(pair_sent(to, words, sizeof(words), &fd), "not sent");
	must(!answers(fd, &handle), "a stranger gets memory");
	words[1] = handle.process.key;
	must(pair_sent(to, words, sizeof(words), &fd), "not sent");
	must(answers(fd, &handle), "the handle is of no use");
}

/* --- another user has the name of a process --- */

/* Linux has a user for each thread. Where this one may not become another, the library
 * takes itself for another. */
static void *answers_as_another(void *ret_op)
{
	struct gcp_ipc_answer answer = {.reply = played.reply,
					.result = CUDA_ERROR_INVALID_VALUE};
	int fd;

	sees_real_users = true;
	fd = connection_of_door(5000);
	*(uint64_t *)ret_op = asked(fd).op;
	if (users.said)
		(void)syscall(SYS_setresuid, users.peer, users.peer, users.peer);
	(void)gcp_ipc_send(fd, &answer, sizeof(answer), NULL, 0, GCP_IPC_NO_WAIT);
	close(fd);
	return NULL;
}

/* What the library makes of the answer of a process that `user` runs. */
static CUresult answer_of(uid_t user)
{
	uint64_t op = 0;
	pthread_t thread;
	CUdeviceptr p;
	CUresult result;

	say_that_the_peer_is(user, is_root() ? USER : (uid_t)syscall(SYS_geteuid) + 1);
	pthread_create(&thread, NULL, answers_as_another, &op);
	result = opened_by(played_handle(1), &p);
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
	usleep(100 * 1000); /* until the thread has closed the connection */
	must(files_open() == files - (int)made + 1, "files are left");
}
