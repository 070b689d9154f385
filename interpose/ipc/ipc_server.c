/* SPDX-License-Identifier: MIT */
/*
 * ipc_server.c - see ipc_server.h.
 *
 * One thread answers the requests of other processes, one after the other, and never
 * waits for any of them: an answer that does not fit into the socket ends the
 * connection. What a process has open is counted on its connection. A connection that
 * ends while something is open on it stays in the list until its process has ended, for
 * its work may run until then; a process that closed its sockets and lives on may
 * have it open for ever. The process has sent a file descriptor that tells its end;
 * where the system has none, its number and start do, which another PID namespace
 * hides.
 *
 * The thread takes no signals. It makes CUDA calls only under `serving`, and none once
 * exit has said so under that lock, before the driver ends. In the child of a fork
 * there is no such thread, and its sockets are closed.
 */
#include "ipc_server.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../cuda/ctx_scope.h"
#include "../base/elfwalk.h"
#include "ipc_exports.h"
#include "ipc_wire.h"
#include "../base/log.h"
#include "../base/process_identity.h"
#include "../base/process.h"
#include "../cuda/resolve.h"

enum {
	PAUSE_NS = 20 * 1000 * 1000,
	LOOK_NS = 500 * 1000 * 1000, /* less than ENDS_MS */
	CONNECTIONS_MAX = 4096,
	ENDS_MS = 1000,
};

/* A block that a process has open. */
struct opened {
	uint64_t id, count;
	struct opened *next;
};

struct connection {
	int fd; /* -1: it has ended */
	uint64_t file;
	int process; /* gcp_ipc_process_self of the other end; -1: it has sent none */
	uint64_t process_file;
	pid_t pid; /* of the process at the other end; 0: not to be seen from here */
	uint64_t started; /* the same */
	struct opened *opened;
	struct connection *next;
};

static struct {
	struct gcp_mutex starting; /* guards all down to `running` */
	bool running;
	struct gcp_ipc_process self;
	struct gcp_ipc_door door;
	uint64_t end_file, entrance_file;
	atomic_bool has_cookie;   /* self.cookie does not change any more */
	struct gcp_mutex serving; /* guards what follows, and CUDA calls */
	struct connection *connections;
	unsigned int count;
	bool ended;
} server = {
    .starting = GCP_MUTEX(GCP_RANK_SERVER),
    .serving = GCP_MUTEX(GCP_RANK_SERVING),
};

/* --- what is open ---------------------------------------------------------------- */

static bool opened_add(struct connection *connection, uint64_t id)
{
	gcp_assert_held(GCP_RANK_SERVING);
	struct opened *opened = connection->opened;

	while (opened && opened->id != id)
		opened = opened->next;
	if (!opened) {
		opened = calloc(1, sizeof(*opened));
		if (!opened)
			return false;
		opened->id = id;
		opened->next = connection->opened;
		connection->opened = opened;
	}
	opened->count++;
	return true;
}

/* False: it was not open. */
static bool opened_remove(struct connection *connection, uint64_t id)
{
	gcp_assert_held(GCP_RANK_SERVING);
	struct opened **link = &connection->opened, *opened;

	while (*link && (*link)->id != id)
		link = &(*link)->next;
	opened = *link;
	if (!opened)
		return false;
	if (--opened->count == 0) {
		*link = opened->next;
		free(opened);
	}
	return true;
}

static bool opened_has(const struct connection *connection, uint64_t id)
{
	gcp_assert_held(GCP_RANK_SERVING);
	const struct opened *opened = connection->opened;

	while (opened && opened->id != id)
		opened = opened->next;
	return opened != NULL;
}

/* All of it is closed. */
static void opened_end(struct connection *connection)
{
	gcp_assert_held(GCP_RANK_SERVING);
	struct opened *opened;

	while ((opened = connection->opened)) {
		connection->opened = opened->next;
		for (; opened->count > 0; opened->count--)
			gcp_exports_close(opened->id);
		free(opened);
	}
}

/* --- answers --------------------------------------------------------------------- */

struct parts {
	struct gcp_ipc_answer *answer;
	int fds[GCP_IPC_PARTS];
};

/* gcp_pools_for_each_handle. 1: no more fit. */
static int part_add(void *arg, uint64_t handle, gcp_addr addr, uint64_t bytes)
{
	gcp_assert_held(GCP_RANK_SERVING);
	struct parts *parts = arg;
	struct gcp_ipc_answer *answer = parts->answer;
	CUresult result;

	if (answer->count == GCP_IPC_PARTS)
		return 1;
	result = gcp_real.cuMemExportToShareableHandle(
	    &parts->fds[answer->count], handle,
	    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	if (result != CUDA_SUCCESS) {
		answer->result = (int)result;
		return 2;
	}
	answer->parts[answer->count].addr = addr;
	answer->parts[answer->count].bytes = bytes;
	answer->count++;
	return 0;
}

/* The parts of the block from `from` on, as many as a message holds. */
static bool parts_send(int fd, struct gcp_ipc_answer *answer, gcp_addr from)
{
	gcp_assert_held(GCP_RANK_SERVING);
	struct parts parts = {.answer = answer};
	struct gcp_ctx_scope scope;
	bool sent;
	int result;

	gcp_ctx_scope_begin(&scope, NULL);
	result = gcp_pools_for_each_handle(gcp_process.pools, answer->addr, from,
					   part_add, &parts);
	gcp_ctx_scope_end(&scope);
	if (result < 0)
		answer->result = CUDA_ERROR_INVALID_VALUE; /* gone meanwhile */
	sent = gcp_ipc_send(fd, answer, sizeof(*answer), parts.fds,
			    answer->result == CUDA_SUCCESS ? answer->count : 0);
	for (unsigned int i = 0; i < answer->count; i++)
		(void)syscall(SYS_close, parts.fds[i]);
	return sent;
}

/* False: the connection is of no use. */
static bool open_answer(struct connection *connection,
			const struct gcp_ipc_request *request)
{
	gcp_assert_held(GCP_RANK_SERVING);
	struct gcp_ipc_answer answer = {.result = CUDA_ERROR_INVALID_VALUE};
	bool sent;

	if (!gcp_exports_open(request->id, &answer.addr, &answer.bytes))
		return gcp_ipc_send(connection->fd, &answer, sizeof(answer), NULL, 0);
	/* The connection stays: what was opened over it counts as open until it is
	 * closed, or else until the other process ends. */
	if (!opened_add(connection, request->id)) {
		gcp_exports_close(request->id);
		answer.result = CUDA_ERROR_OPERATING_SYSTEM;
		return gcp_ipc_send(connection->fd, &answer, sizeof(answer), NULL, 0);
	}
	answer.result = CUDA_SUCCESS;
	sent = parts_send(connection->fd, &answer, 0);
	if (sent && answer.result == CUDA_SUCCESS)
		return true;
	/* The other process has given up or is refused: nothing has reached it. */
	(void)opened_remove(connection, request->id);
	gcp_exports_close(request->id);
	return sent;
}

static bool more_answer(const struct connection *connection,
			const struct gcp_ipc_request *request)
{
	gcp_assert_held(GCP_RANK_SERVING);
	struct gcp_ipc_answer answer = {.result = CUDA_SUCCESS};

	if (!opened_has(connection, request->id) ||
	    !gcp_exports_find(request->id, &answer.addr, &answer.bytes)) {
		answer.result = CUDA_ERROR_INVALID_VALUE;
		return gcp_ipc_send(connection->fd, &answer, sizeof(answer), NULL, 0);
	}
	return parts_send(connection->fd, &answer, request->from);
}

/* The process of the other end is told once. Other files come from no such library. */
static bool request_receive(struct connection *connection,
			    struct gcp_ipc_request *request)
{
	gcp_assert_held(GCP_RANK_SERVING);
	int fds[GCP_IPC_PARTS];
	unsigned int count = 0;

	if (!gcp_ipc_receive(connection->fd, request, sizeof(*request), fds, &count,
			     GCP_IPC_NO_WAIT))
		return false;
	if (memcmp(request->cookie, server.self.cookie, sizeof(request->cookie)) == 0 &&
	    count == (request->op == GCP_IPC_PROCESS) &&
	    (count == 0 || (connection->process < 0 && gcp_ipc_is_process(fds[0])))) {
		if (count > 0) {
			connection->process = fds[0];
			connection->process_file = gcp_ipc_file(fds[0]);
		}
		return true;
	}
	for (unsigned int i = 0; i < count; i++)
		(void)syscall(SYS_close, fds[i]);
	return false;
}

static bool request_serve(struct connection *connection)
{
	gcp_assert_held(GCP_RANK_SERVING);
	struct gcp_ipc_request request;

	if (!request_receive(connection, &request))
		return false;
	switch (request.op) {
	case GCP_IPC_PROCESS:
		return true;
	case GCP_IPC_OPEN:
		return open_answer(connection, &request);
	case GCP_IPC_MORE:
		return more_answer(connection, &request);
	case GCP_IPC_CLOSE:
		if (opened_remove(connection, request.id))
			gcp_exports_close(request.id);
		return true;
	case GCP_IPC_END:
		opened_end(connection);
		return false;
	default:
		return false;
	}
}

/* --- connections ----------------------------------------------------------------- */

/* False: it is to be closed. */
static bool connection_add(int fd)
{
	gcp_assert_held(GCP_RANK_SERVING);
	struct connection *connection = NULL;
	uid_t uid;

	if (!server.ended && server.count < CONNECTIONS_MAX &&
	    gcp_ipc_peer_is_trusted(fd))
		connection = calloc(1, sizeof(*connection));
	if (!connection)
		return false;
	(void)gcp_ipc_peer(fd, &connection->pid, &uid);
	connection->started = gcp_process_start_time(connection->pid);
	connection->process = -1;
	connection->fd = fd;
	connection->file = gcp_ipc_file(fd);
	connection->next = server.connections;
	server.connections = connection;
	server.count++;
	return true;
}

/* Files of this kind have one number on older systems. */
static bool has_process(const struct connection *connection)
{
	return connection->process >= 0 &&
	       gcp_ipc_file(connection->process) == connection->process_file &&
	       gcp_ipc_is_process(connection->process);
}

/* One that has sent nothing and is not seen from here is never known to have ended. */
static bool process_has_ended(const struct connection *connection)
{
	gcp_assert_held(GCP_RANK_SERVING);
	uint64_t started;

	if (has_process(connection))
		return gcp_ipc_process_has_ended(connection->process);
	started = gcp_process_start_time(connection->pid);
	return connection->started != 0 && connection->started != GCP_PROCESS_UNKNOWN &&
	       started != GCP_PROCESS_UNKNOWN && started != connection->started;
}

static void connection_end(struct connection *connection)
{
	gcp_assert_held(GCP_RANK_SERVING);
	gcp_ipc_close(connection->fd, connection->file);
	connection->fd = -1;
}

/* Removes connections that have ended, when nothing can be open on them. True: there
 * are some that are waited for, and whose end no file tells. */
static bool connections_clean(void)
{
	gcp_assert_held(GCP_RANK_SERVING);
	struct connection **link = &server.connections, *connection;
	bool waiting = false;

	while ((connection = *link)) {
		/* A child that was not seen may have the other end, too. */
		if (has_process(connection) &&
		    gcp_ipc_process_has_ended(connection->process))
			connection_end(connection);
		if (connection->fd >= 0 ||
		    (connection->opened && !process_has_ended(connection))) {
			waiting |= connection->fd < 0 && !has_process(connection);
			link = &connection->next;
			continue;
		}
		opened_end(connection);
		if (has_process(connection))
			gcp_ipc_close(connection->process, connection->process_file);
		*link = connection->next;
		free(connection);
		server.count--;
	}
	return waiting;
}

/* --- the thread ------------------------------------------------------------------ */

struct polled {
	struct pollfd *fds; /* the door, then those of the connections */
	unsigned int count, room;
};

static void polled_add(struct polled *polled, int fd)
{
	gcp_assert_held(GCP_RANK_SERVING);
	if (fd >= 0)
		polled->fds[polled->count++] =
		    (struct pollfd){.fd = fd, .events = POLLIN};
}

/* No more than are open: the system refuses more than may be. */
static bool polled_fill(struct polled *polled)
{
	gcp_assert_held(GCP_RANK_SERVING);
	struct connection *connection;

	if (polled->room < 2 * server.count + 1) {
		unsigned int room = 2 * (2 * server.count + 1);
		struct pollfd *fds = realloc(polled->fds, room * sizeof(*fds));

		if (!fds)
			return false;
		polled->fds = fds;
		polled->room = room;
	}
	polled->count = 0;
	polled_add(polled, server.door.end);
	for (connection = server.connections; connection;
	     connection = connection->next) {
		polled_add(polled, connection->fd);
		if (has_process(connection))
			polled_add(polled, connection->process);
	}
	return true;
}

/* All requests that have come. */
static void connections_serve(void)
{
	gcp_assert_held(GCP_RANK_SERVING);
	struct connection *connection;

	for (connection = server.connections; connection; connection = connection->next)
		while (connection->fd >= 0 &&
		       (gcp_ipc_file(connection->fd) != connection->file ||
			gcp_ipc_is_ready(connection->fd)))
			if (gcp_ipc_file(connection->fd) != connection->file ||
			    !request_serve(connection))
				connection_end(connection);
}

void gcp_ipc_server_catch_up(void)
{
	int saved = errno;

	gcp_mutex_lock(&server.serving);
	if (!server.ended)
		connections_serve();
	gcp_mutex_unlock(&server.serving);
	errno = saved;
}

/* A program that closes all files has closed ours, and may have its own in their place.
 * The thread ends then, and the next handle that is made starts another. */
static bool door_is_ours(void)
{
	return gcp_ipc_file(server.door.end) == server.end_file;
}

/* `starting` is held. What is left open keeps its name, which the next thread needs. */
static void door_close(void)
{
	gcp_ipc_close(server.door.end, server.end_file);
	gcp_ipc_close(server.door.entrance, server.entrance_file);
}

/* What comes by the door is received and refused outside `serving`, which exit waits
 * for: to close a file of another process may take any time. False: the process has no
 * file for a connection. */
static bool door_serve(void)
{
	bool no_file, added;
	int fd;

	if (!door_is_ours())
		return true;
	fd = gcp_ipc_accept(server.door.end, server.self.cookie, &no_file);
	if (fd < 0)
		return !no_file;
	gcp_mutex_lock(&server.serving);
	added = connection_add(fd);
	gcp_mutex_unlock(&server.serving);
	if (!added)
		(void)syscall(SYS_close, fd);
	return true;
}

static void *server_run(void *unused)
{
	struct polled polled = {0};
	bool waiting = false;
	long ready;

	(void)unused;
	for (;;) {
		gcp_mutex_lock(&server.serving);
		bool going = !server.ended && door_is_ours() && polled_fill(&polled);
		gcp_mutex_unlock(&server.serving);
		if (!going)
			break;
		/* Set anew: the system call sets it to what is left. The program may
		 * put a file of its own in the door's place just before that call,
		 * where no message comes: so the thread looks now and then. */
		struct timespec time_out = {.tv_nsec = waiting ? PAUSE_NS : LOOK_NS};
		ready =
		    syscall(SYS_ppoll, polled.fds, polled.count, &time_out, NULL, 0);
		if (ready < 0) { /* as where the program may have fewer files now */
			gcp_sleep(PAUSE_NS);
			polled.fds[0].revents = POLLIN;
		}
		gcp_mutex_lock(&server.serving);
		going = ready != 0 && !server.ended && door_is_ours();
		if (going)
			connections_serve();
		/* What others have closed is freed here, and of no use in this
		 * thread's cache. A look at the door leaves all as it is. */
		if (!server.ended && (ready != 0 || waiting)) {
			waiting = connections_clean();
			gcp_pools_thread_exit(gcp_process.pools);
		}
		gcp_mutex_unlock(&server.serving);
		/* One that the process has no file for stays ready. */
		if (going && polled.fds[0].revents && !door_serve())
			gcp_sleep(PAUSE_NS);
	}
	free(polled.fds);
	gcp_mutex_lock(&server.serving);
	for (struct connection *one = server.connections; one; one = one->next) {
		connection_end(one);
		one->process = -1; /* may be the program's: see door_is_ours */
	}
	gcp_mutex_unlock(&server.serving);
	gcp_mutex_lock(&server.starting);
	door_close();
	server.running = false;
	gcp_mutex_unlock(&server.starting);
	return NULL;
}

/* --- start and end --------------------------------------------------------------- */

/* No CUDA call is made from now on. Whatever the thread does is over in a moment,
 * unless it waits for a thread that does not go on. */
static void serving_end(void)
{
	gcp_mutex_lock(&server.serving);
	server.ended = true;
	gcp_mutex_unlock(&server.serving);
}

static void server_end(void)
{
	if (server.self.pid == (uint32_t)getpid())
		(void)gcp_end_step(serving_end);
}

static bool thread_start(void)
{
	gcp_assert_held(GCP_RANK_SERVER);
	int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
	sigset_t all, before; /* of this thread: Linux means no more by sigprocmask */
	pthread_attr_t attributes;
	pthread_t thread;
	bool created;

	*(void **)&create = gcp_elf_libc_symbol("pthread_create");
	if (!create)
		return false;
	sigfillset(&all);
	if (pthread_attr_init(&attributes) != 0)
		return false;
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	sigprocmask(SIG_BLOCK, &all, &before);
	created = create(&thread, &attributes, server_run, NULL) == 0;
	sigprocmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return created;
}

/* `starting` is held, and let go meanwhile. A thread whose door the program has closed
 * waits at what is left of it until a message comes. False: it has not ended. */
static bool server_end_without_door(void)
{
	for (int i = 0; server.running && !door_is_ours() && i < ENDS_MS; i++) {
		gcp_mutex_unlock(&server.starting);
		gcp_ipc_knock(server.self.cookie);
		gcp_sleep(1000 * 1000);
		gcp_mutex_lock(&server.starting);
	}
	return !server.running || door_is_ours();
}

/* `starting` is held. */
static bool server_start(void)
{
	gcp_assert_held(GCP_RANK_SERVER);
	if (!server_end_without_door())
		return false;
	if (server.running)
		return true;
	if (!atomic_load(&server.has_cookie)) {
		if (!gcp_ipc_random(server.self.cookie, sizeof(server.self.cookie)) ||
		    atexit(server_end) != 0)
			return false;
		server.self.pid = (uint32_t)getpid();
		server.self.started = gcp_process_start_time(getpid());
		atomic_store(&server.has_cookie, true);
	}
	if (!gcp_ipc_door_open(server.self.cookie, &server.door))
		return false;
	server.end_file = gcp_ipc_file(server.door.end);
	server.entrance_file = gcp_ipc_file(server.door.entrance);
	server.running = thread_start();
	if (!server.running)
		door_close();
	return server.running;
}

bool gcp_ipc_server_possible(int device)
{
	int able = 0;

	return gcp_real.cuDeviceGetAttribute(
		   &able,
		   CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
		   device) == CUDA_SUCCESS &&
	       able;
}

CUresult gcp_ipc_server_handle(uint64_t id, CUipcMemHandle *ret_handle)
{
	int saved = errno;
	bool running;

	gcp_mutex_lock(&server.starting);
	running = server_start();
	gcp_mutex_unlock(&server.starting);
	errno = saved;
	if (!running) {
		gcp_log(GCP_LOG_ERROR,
			"cannot start the thread that hands memory to other "
			"processes, refusing to export; GCPOOL_BACKEND=segments "
			"needs none");
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	gcp_ipc_handle_make(&server.self, server.door.entrance, id, ret_handle);
	return CUDA_SUCCESS;
}

bool gcp_ipc_server_is_self(const uint64_t cookie[2])
{
	return atomic_load(&server.has_cookie) &&
	       memcmp(cookie, server.self.cookie, sizeof(server.self.cookie)) == 0;
}

void gcp_ipc_server_after_fork(void)
{
	if (server.running)
		door_close();
	for (struct connection *one = server.connections; one; one = one->next) {
		gcp_ipc_close(one->fd, one->file);
		if (has_process(one))
			gcp_ipc_close(one->process, one->process_file);
	}
	gcp_mutex_init(&server.starting, GCP_RANK_SERVER);
	gcp_mutex_init(&server.serving, GCP_RANK_SERVING);
	server.running = false;
	atomic_store(&server.has_cookie, false);
	server.connections = NULL;
	server.count = 0;
}
