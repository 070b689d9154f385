/* SPDX-License-Identifier: MIT */
/*
 * ipc_server.c - see ipc_server.h.
 *
 * One thread answers the requests of other processes, one after the other, and never
 * waits for any of them: an answer that does not fit into the socket ends the
 * connection. There is one connection for each process that asks, and what it has open
 * is listed on it. When it ends, which the kernel sees to when the process ends, the
 * thread looks now and then whether the process has ended, which may have closed its
 * files and work on, or be not quite gone. What it had open is open until then; for
 * good if the process is not to be seen from here, in another namespace of pids.
 *
 * A program may close all files, and have its own in the place of the thread's: those
 * are told apart by gcp_ipc_file, and the next handle that is made opens the door
 * again.
 *
 * The thread takes no signals. It makes CUDA calls only under gcp_exports_lock, and
 * none once exit has said so under that lock, before the driver ends. In the child of a
 * fork there is no such thread, and its sockets are closed.
 */
#include "ipc_server.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../base/elfwalk.h"
#include "ipc_exports.h"
#include "ipc_wire.h"
#include "../base/log.h"
#include "../base/process.h"
#include "../cuda/resolve.h"

enum {
	PAUSE_NS = 20 * 1000 * 1000,
	LOOK_NS = 500 * 1000 * 1000, /* less than DOOR_MS */
	DOOR_MS = 1000,
};

/* A block that a process has open. */
struct opened {
	uint64_t open; /* its number there */
	gcp_addr addr;
	uint64_t id, bytes;
	struct opened *next;
};

struct connection {
	int fd; /* -1: it has ended */
	uint64_t file;
	pid_t pid; /* 0: not to be seen from here */
	struct opened *opened;
	struct connection *next;
};

static struct {
	struct gcp_mutex starting; /* guards all down to `has_name` */
	bool running;
	pid_t pid;
	struct gcp_ipc_process self;
	atomic_bool has_name; /* `self` does not change any more */
	int door;             /* what follows is guarded by gcp_exports_lock */
	uint64_t door_file;   /* 0: there is none */
	struct connection *connections;
	unsigned int count;
	bool ended;
} server = {
    .starting = GCP_MUTEX(GCP_RANK_SERVER),
};

/* --- what is open ---------------------------------------------------------------- */

/* Returns the link that points to it, or to the end of the list. */
static struct opened **opened_at(struct connection *connection, uint64_t open)
{
	gcp_assert_held(GCP_RANK_EXPORTS);
	struct opened **at = &connection->opened;

	while (*at && (*at)->open != open)
		at = &(*at)->next;
	return at;
}

static void opened_close(struct opened **at)
{
	gcp_assert_held(GCP_RANK_EXPORTS);
	assert(*at);
	struct opened *opened = *at;

	*at = opened->next;
	gcp_exports_close(opened->addr, opened->id);
	free(opened);
}

/* A block counts as open until it is closed or its process has ended. */
static CUresult opened_add(struct connection *connection,
			   const struct gcp_ipc_request *request)
{
	gcp_assert_held(GCP_RANK_EXPORTS);
	struct opened *opened = calloc(1, sizeof(*opened));
	uint64_t bytes;

	if (!opened)
		return CUDA_ERROR_OPERATING_SYSTEM;
	if (!gcp_exports_open(request->addr, request->id, &bytes)) {
		free(opened);
		return CUDA_ERROR_INVALID_VALUE;
	}
	*opened = (struct opened){
	    .open = request->open,
	    .addr = request->addr,
	    .id = request->id,
	    .bytes = bytes,
	    .next = connection->opened,
	};
	connection->opened = opened;
	return CUDA_SUCCESS;
}

/* --- answers --------------------------------------------------------------------- */

struct parts {
	struct gcp_ipc_answer *answer;
	gcp_addr from;
	int fds[GCP_IPC_PARTS];
};

/* gcp_pools_for_each_handle. */
static int part_add(void *arg, uint64_t handle, gcp_addr addr, uint64_t bytes)
{
	gcp_assert_held(GCP_RANK_EXPORTS);
	struct parts *parts = arg;
	struct gcp_ipc_answer *answer = parts->answer;

	if (answer->span == 0)
		answer->before = parts->from - addr;
	answer->span += bytes;
	if (answer->count == GCP_IPC_PARTS)
		return 0;
	answer->result = (int)gcp_exports_file(handle, &parts->fds[answer->count]);
	if (answer->result == CUDA_SUCCESS)
		answer->parts[answer->count++] = bytes;
	return answer->result;
}

/* The parts of the block from `from` on, as many as a message holds. */
static void parts_fill(struct parts *parts, const struct opened *opened)
{
	gcp_assert_held(GCP_RANK_EXPORTS);
	parts->answer->bytes = opened->bytes;
	if (gcp_pools_for_each_handle(gcp_process.pools, opened->addr, parts->from,
				      part_add, parts) < 0)
		parts->answer->result = CUDA_ERROR_INVALID_VALUE; /* gone meanwhile */
}

/* False: the connection is of no use. */
static bool request_serve(struct connection *connection,
			  const struct gcp_ipc_request *request)
{
	gcp_assert_held(GCP_RANK_EXPORTS);
	struct gcp_ipc_answer answer = {.reply = server.self.reply};
	struct parts parts = {.answer = &answer, .from = request->from};
	struct opened **at = opened_at(connection, request->open);
	bool sent = true;

	if (request->op == GCP_IPC_OPEN) {
		answer.result = (int)opened_add(connection, request);
		parts.from = request->addr;
		at = opened_at(connection, request->open);
	}
	if (request->op != GCP_IPC_CLOSE) {
		if (*at)
			parts_fill(&parts, *at);
		sent = gcp_ipc_send(connection->fd, &answer, sizeof(answer), parts.fds,
				    answer.result == CUDA_SUCCESS ? answer.count : 0,
				    GCP_IPC_NO_WAIT);
		for (unsigned int i = 0; i < answer.count; i++)
			close(parts.fds[i]);
	}
	/* The other process has none of it. */
	if (*at && (request->op == GCP_IPC_CLOSE || !sent || answer.result))
		opened_close(at);
	return sent;
}

/* --- connections ----------------------------------------------------------------- */

static void connection_add(int fd, pid_t pid)
{
	gcp_assert_held(GCP_RANK_EXPORTS);
	struct connection *connection = calloc(1, sizeof(*connection));

	if (!connection) {
		close(fd);
		return;
	}
	*connection = (struct connection){
	    .fd = fd,
	    .file = gcp_ipc_file(fd),
	    .pid = pid,
	    .next = server.connections,
	};
	server.connections = connection;
	server.count++;
}

/* The connection has ended, and its process may work on what it has open until that has
 * ended as well. Returns true if it has. */
static bool process_look(struct connection *connection)
{
	gcp_assert_held(GCP_RANK_EXPORTS);
	if (!connection->opened || !gcp_ipc_process_has_ended(connection->pid))
		return false;
	while (connection->opened)
		opened_close(&connection->opened);
	return true;
}

/* All requests that have come, and the end. True: there was something. */
static bool connection_serve(struct connection *connection)
{
	gcp_assert_held(GCP_RANK_EXPORTS);
	bool ours = gcp_ipc_file(connection->fd) == connection->file, busy = false;
	enum gcp_ipc_got got = GCP_IPC_ENDED;
	struct gcp_ipc_request request;

	if (connection->fd < 0)
		return process_look(connection);
	while (ours &&
	       (got = gcp_ipc_receive(connection->fd, &request, sizeof(request), NULL,
				      NULL, GCP_IPC_NO_WAIT)) == GCP_IPC_MESSAGE &&
	       request_serve(connection, &request))
		busy = true;
	if (got == GCP_IPC_NOTHING)
		return busy;
	gcp_ipc_close(connection->fd, connection->file);
	connection->fd = -1;
	(void)process_look(connection);
	return true;
}

/* True: there was something. */
static bool connections_serve(void)
{
	gcp_assert_held(GCP_RANK_EXPORTS);
	struct connection **at = &server.connections, *connection;
	bool busy = false;

	while ((connection = *at)) {
		busy |= connection_serve(connection);
		if (connection->fd >= 0 || connection->opened) {
			at = &connection->next;
			continue;
		}
		*at = connection->next;
		free(connection);
		server.count--;
	}
	return busy;
}

void gcp_ipc_server_catch_up(void)
{
	gcp_assert_held(GCP_RANK_EXPORTS);

	if (!server.ended)
		(void)connections_serve();
}

/* --- the thread ------------------------------------------------------------------ */

static bool door_is_ours(void)
{
	gcp_assert_held(GCP_RANK_EXPORTS);
	return server.door_file != 0 && gcp_ipc_file(server.door) == server.door_file;
}

/* How many; 0: the host is out of memory. */
static nfds_t polled_fill(struct pollfd **polled)
{
	gcp_assert_held(GCP_RANK_EXPORTS);
	struct pollfd *fds = realloc(*polled, (server.count + 1) * sizeof(*fds));
	nfds_t count = 0;

	if (!fds)
		return 0;
	*polled = fds;
	fds[count++] =
	    (struct pollfd){.fd = door_is_ours() ? server.door : -1, .events = POLLIN};
	for (const struct connection *one = server.connections; one; one = one->next)
		fds[count++] = (struct pollfd){.fd = one->fd, .events = POLLIN};
	return count;
}

/* The program may put a file of its own in the door's place while the thread waits, so
 * that looks now and then. Where the program may have fewer files now, the system waits
 * for none. */
static void *server_run(void *unused)
{
	struct pollfd *polled = NULL;
	bool going = true;

	(void)unused;
	while (going) {
		struct timespec time_out = {.tv_nsec = LOOK_NS};
		nfds_t count = 0;
		pid_t pid;
		int fd;

		gcp_mutex_lock(&gcp_exports_lock);
		going = !server.ended;
		fd = going && door_is_ours()
			 ? gcp_ipc_door_take(server.door, &server.self, &pid)
			 : -1;
		if (fd >= 0)
			connection_add(fd, pid);
		/* What others have closed is freed here, and of no use in this
		 * thread's cache. A look leaves all as it is. */
		if (going && connections_serve())
			gcp_pools_thread_exit(gcp_process.pools);
		if (going)
			count = polled_fill(&polled);
		gcp_mutex_unlock(&gcp_exports_lock);
		if (going && (count == 0 || ppoll(polled, count, &time_out, NULL) < 0))
			gcp_sleep(PAUSE_NS);
	}
	free(polled);
	return NULL;
}

/* --- start and end --------------------------------------------------------------- */

/* No CUDA call is made from now on. Whatever the thread does is over in a moment,
 * unless it waits for a thread that does not go on. */
static void serving_end(void)
{
	gcp_mutex_lock(&gcp_exports_lock);
	server.ended = true;
	gcp_mutex_unlock(&gcp_exports_lock);
}

static void server_end(void)
{
	if (server.pid == getpid())
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

/* The name of a door that the program has closed is taken while the thread waits at
 * what is left of it. */
static bool door_open(void)
{
	gcp_assert_held(GCP_RANK_SERVER);
	bool open = false;

	for (int i = 0; i < DOOR_MS; i++) {
		gcp_mutex_lock(&gcp_exports_lock);
		open = door_is_ours();
		if (!open) {
			server.door = gcp_ipc_door_open(&server.self);
			server.door_file = gcp_ipc_file(server.door);
			open = server.door >= 0;
		}
		gcp_mutex_unlock(&gcp_exports_lock);
		if (open || errno != EADDRINUSE)
			break;
		gcp_sleep(1000 * 1000);
	}
	return open;
}

static bool server_start(void)
{
	gcp_assert_held(GCP_RANK_SERVER);
	if (!atomic_load(&server.has_name)) {
		if (!gcp_ipc_process_make(&server.self) || atexit(server_end) != 0)
			return false;
		server.pid = getpid();
		atomic_store(&server.has_name, true);
	}
	if (!door_open())
		return false;
	if (server.running)
		return true;
	server.running = thread_start();
	if (!server.running) /* no other thread looks at the door */
		gcp_ipc_close(server.door, server.door_file);
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

CUresult gcp_ipc_server_handle(gcp_addr addr, uint64_t id, CUipcMemHandle *ret_handle)
{
	bool running;

	gcp_mutex_lock(&server.starting);
	running = server_start();
	gcp_mutex_unlock(&server.starting);
	if (!running) {
		gcp_log(GCP_LOG_ERROR,
			"cannot start the thread that hands memory to other "
			"processes, refusing to export; GCPOOL_BACKEND=segments "
			"needs none");
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	gcp_ipc_handle_make(&server.self, addr, id, ret_handle);
	return CUDA_SUCCESS;
}

bool gcp_ipc_server_is_self(const struct gcp_ipc_process *process)
{
	return atomic_load(&server.has_name) &&
	       memcmp(process, &server.self, sizeof(*process)) == 0;
}

void gcp_ipc_server_after_fork(void)
{
	gcp_ipc_close(server.door, server.door_file);
	for (struct connection *one = server.connections; one; one = one->next)
		gcp_ipc_close(one->fd, one->file);
	gcp_mutex_init(&server.starting, GCP_RANK_SERVER);
	server.running = false;
	atomic_store(&server.has_name, false);
	server.door_file = 0;
	server.connections = NULL;
	server.count = 0;
}
