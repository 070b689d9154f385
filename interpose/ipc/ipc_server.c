/* SPDX-License-Identifier: MIT */
/*
 * ipc_server.c - see ipc_server.h.
 *
 * One thread answers the requests of other processes, one after the other, and never
 * waits for any of them: an answer that does not fit into the socket ends the
 * connection. There is one connection for each process that asks, and what it has open
 * is listed on it, until the process closes it. A connection ends when its process
 * does, but the work of that on the device may end later: what it had open is open
 * until the process has ended for certain, which a file of its own tells, also from
 * another namespace of pids.
 *
 * CUDA wants memory to be freed only when other processes have closed it, and all of
 * them may do that late, end, or never do it: plain CUDA keeps the memory until then,
 * and gives the addresses to others meanwhile. Here the block is lent: the pool knows
 * its state.
 *
 *      exported -- free, not open --> the pool's
 *          |                             ^
 *          +-- free, open --> lent ------+  closed by the last one
 *
 * A handle is good until the free: nothing opens a lent block.
 *
 * The thread takes no signals. It makes CUDA calls only under the lock, and none once
 * exit has said so under that lock, before the driver ends. In the child of a fork
 * there is no such thread, and its files are closed.
 *
 * Rules of exported memory:
 *  I1 no free takes a block that another process may have open
 *  I2 an exported block is freed behind all work of its context
 *  I3 memory that another process has open is given to nothing else
 *  I4 what is opened begins where the block begins
 *  I5 a block is exported when earlier work on its memory is completed
 *  I6 memory is handed to processes of the same user and of root alone
 *  I7 a handle that is released has no file (handle_files.c)
 *  I8 no two allocations have the same id (gcp_block_id)
 */
#include "ipc_server.h"
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "../base/process.h"

enum { FILES_READY = 4 }; /* 0.6 ms each */

/* A block that a process has open. */
struct opened {
	uint64_t open; /* its number there */
	gcp_addr addr;
	uint64_t id;
	SLIST_ENTRY(opened) entry;
};

struct connection {
	int fd;  /* the socket; `end` once that has ended */
	int end; /* is ready when the process has ended; -1: there is none */
	SLIST_HEAD(, opened) opened;
	LIST_ENTRY(connection) entry;
};

CUresult (*gcp_ipc_server_file)(uint64_t handle, int *ret_fd);

static struct {
	struct gcp_mutex lock; /* guards all else */
	bool running, registered, ended;
	struct gcp_ipc_process self;
	int door, watch; /* the second: the door, and what each connection waits for */
	LIST_HEAD(, connection) connections;
} server = {
    .lock = GCP_MUTEX(GCP_RANK_SERVER),
};

/* --- what is open ---------------------------------------------------------------- */

static struct opened *opened_find(const struct connection *connection, uint64_t open)
{
	gcp_assert_held(GCP_RANK_SERVER);
	struct opened *opened;

	SLIST_FOREACH (opened, &connection->opened, entry)
		if (opened->open == open)
			break;
	return opened;
}

static void opened_close(struct connection *connection, struct opened *opened)
{
	gcp_assert_held(GCP_RANK_SERVER);
	assert(opened);
	SLIST_REMOVE(&connection->opened, opened, opened, entry);
	gcp_pools_close(gcp_process.pools, opened->addr, opened->id);
	free(opened);
}

/* A block counts as open until it is closed or its process has ended. */
static CUresult opened_add(struct connection *connection,
			   const struct gcp_ipc_request *request,
			   struct opened **ret_opened, uint64_t *ret_bytes)
{
	gcp_assert_held(GCP_RANK_SERVER);
	struct opened *opened = calloc(1, sizeof(*opened));

	assert(!opened_find(connection, request->open));
	if (!opened)
		return CUDA_ERROR_OPERATING_SYSTEM;
	opened->open = request->open;
	opened->addr = request->addr;
	opened->id = request->id;
	*ret_bytes = gcp_pools_open(gcp_process.pools, request->addr, request->id);
	if (*ret_bytes == 0) {
		free(opened);
		return CUDA_ERROR_INVALID_VALUE;
	}
	SLIST_INSERT_HEAD(&connection->opened, opened, entry);
	*ret_opened = opened;
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
	gcp_assert_held(GCP_RANK_SERVER);
	struct parts *parts = arg;
	struct gcp_ipc_answer *answer = parts->answer;

	assert(handle != 0 && bytes > 0 && answer->count <= GCP_IPC_PARTS);
	if (answer->span == 0)
		answer->before = parts->from - addr;
	answer->span += bytes;
	if (answer->count == GCP_IPC_PARTS)
		return 0;
	answer->result = (int)gcp_ipc_server_file(handle, &parts->fds[answer->count]);
	if (answer->result == CUDA_SUCCESS)
		answer->parts[answer->count++] = bytes;
	return answer->result;
}

/* The parts of the block from `from` on, as many as a message holds. False: the
 * connection is of no use. */
static bool answer_send(const struct connection *connection,
			const struct opened *opened, struct parts *parts)
{
	gcp_assert_held(GCP_RANK_SERVER);
	struct gcp_ipc_answer *answer = parts->answer;
	bool sent;

	assert(connection->fd >= 0 && connection->fd != connection->end);
	if (opened && gcp_pools_for_each_handle(gcp_process.pools, opened->addr,
						parts->from, part_add, parts) < 0)
		answer->result = CUDA_ERROR_INVALID_VALUE; /* gone meanwhile */
	sent = gcp_ipc_send(connection->fd, answer, sizeof(*answer), parts->fds,
			    answer->result == CUDA_SUCCESS ? answer->count : 0,
			    GCP_IPC_NO_WAIT);
	for (unsigned int i = 0; i < answer->count; i++)
		close(parts->fds[i]);
	return sent;
}

/* False: the connection is of no use. */
static bool request_serve(struct connection *connection,
			  const struct gcp_ipc_request *request)
{
	gcp_assert_held(GCP_RANK_SERVER);
	struct gcp_ipc_answer answer = {.reply = server.self.reply};
	struct parts parts = {.answer = &answer, .from = request->from};
	struct opened *opened = opened_find(connection, request->open);
	bool sent = true;

	if (request->op == GCP_IPC_OPEN && !opened)
		answer.result =
		    (int)opened_add(connection, request, &opened, &answer.bytes);
	if (request->op != GCP_IPC_CLOSE)
		sent = answer_send(connection, opened, &parts);
	/* The other process has none of it. */
	if (opened && (request->op == GCP_IPC_CLOSE || !sent || answer.result))
		opened_close(connection, opened);
	return sent;
}

/* --- connections ----------------------------------------------------------------- */

/* The thread wakes when there is something; `connection` is NULL for the door. */
static bool watch(int fd, struct connection *connection)
{
	gcp_assert_held(GCP_RANK_SERVER);
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};

	return epoll_ctl(server.watch, EPOLL_CTL_ADD, fd, &event) == 0;
}

static void door_serve(void)
{
	gcp_assert_held(GCP_RANK_SERVER);
	struct connection *connection;
	int end = -1, fd = gcp_ipc_door_take(server.door, &server.self, &end);

	if (fd < 0)
		return;
	assert(fd != end);
	connection = calloc(1, sizeof(*connection));
	if (connection && watch(fd, connection)) {
		connection->fd = fd;
		connection->end = end;
		LIST_INSERT_HEAD(&server.connections, connection, entry);
		return;
	}
	free(connection);
	close(fd);
	close(end);
}

/* The connection has ended, and its process may work on what it has open until that has
 * ended as well. */
static void connection_end(struct connection *connection)
{
	gcp_assert_held(GCP_RANK_SERVER);
	assert(connection->fd >= 0);
	/* A child that has not begun its own program may have it open, too. */
	(void)epoll_ctl(server.watch, EPOLL_CTL_DEL, connection->fd, NULL);
	close(connection->fd);
	if (connection->fd == connection->end)
		while (!SLIST_EMPTY(&connection->opened))
			opened_close(connection, SLIST_FIRST(&connection->opened));
	else if (!SLIST_EMPTY(&connection->opened)) {
		connection->fd = connection->end;
		(void)watch(connection->fd, connection);
		return;
	} else
		close(connection->end);
	LIST_REMOVE(connection, entry);
	free(connection);
}

/* One request that has come, or the end. */
static void connection_serve(struct connection *connection)
{
	gcp_assert_held(GCP_RANK_SERVER);
	struct gcp_ipc_request request;
	enum gcp_ipc_got got = GCP_IPC_ENDED;

	if (connection->fd != connection->end)
		got = gcp_ipc_receive(connection->fd, &request, sizeof(request), NULL,
				      NULL, GCP_IPC_NO_WAIT);
	if (got != GCP_IPC_NOTHING &&
	    (got != GCP_IPC_MESSAGE || !request_serve(connection, &request)))
		connection_end(connection);
}

/* The next thing that has come. False: nothing has. */
static bool serve(void)
{
	gcp_assert_held(GCP_RANK_SERVER);
	struct epoll_event event;

	if (!server.running || server.ended ||
	    epoll_wait(server.watch, &event, 1, 0) != 1)
		return false;
	if (event.data.ptr)
		connection_serve(event.data.ptr);
	else
		door_serve();
	return true;
}

static void *server_run(void *unused)
{
	struct epoll_event event;
	bool going = true;

	while (going) {
		assert(gcp_ranks_held == 0); /* no lock while it waits */
		if (epoll_wait(server.watch, &event, 1, -1) < 0 && errno != EINTR)
			break; /* the program has closed it */
		gcp_mutex_lock(&server.lock);
		(void)serve();
		going = !server.ended;
		gcp_mutex_unlock(&server.lock);
	}
	return unused;
}

/* --- start and end --------------------------------------------------------------- */

/* No CUDA call is made from now on. Whatever the thread does is over in a moment,
 * unless it waits for a thread that does not go on. */
static void serving_end(void)
{
	GCP_LOCKED(&server.lock);
	server.ended = true;
}

static void server_end(void)
{
	(void)gcp_end_step(serving_end);
}

static bool server_start(void)
{
	GCP_LOCKED(&server.lock);
	pthread_t thread;

	if (server.running)
		return true;
	server.registered = server.registered || atexit(server_end) == 0;
	if (!server.registered ||
	    syscall(SYS_getrandom, &server.self, sizeof(server.self), 0) !=
		sizeof(server.self))
		return false;
	server.door = gcp_ipc_door_open(&server.self);
	server.watch = epoll_create1(EPOLL_CLOEXEC);
	server.running = server.door >= 0 && server.watch >= 0 &&
			 watch(server.door, NULL) &&
			 gcp_thread_create(&thread, server_run, NULL);
	if (!server.running) {
		close(server.door);
		close(server.watch);
	}
	return server.running;
}

/* gcp_pools_for_each_handle: makes the files that other processes will ask for, of the
 * first handles of a block. Returns true at the last one, which ends the walk. */
static int file_ready(void *left, uint64_t handle, gcp_addr addr, uint64_t bytes)
{
	int fd;

	(void)addr, (void)bytes;
	if (gcp_ipc_server_file(handle, &fd) == CUDA_SUCCESS)
		close(fd);
	return --*(int *)left == 0;
}

CUresult gcp_ipc_server_handle(const struct gcp_block_info *info,
			       CUipcMemHandle *ret_handle)
{
	assert(info->mapped && !info->async && info->id != 0);
	if (!server_start()) {
		gcp_log(GCP_LOG_ERROR,
			"cannot start the thread that hands memory to other "
			"processes, refusing to export; GCPOOL_BACKEND=segments "
			"needs none");
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	(void)gcp_pools_for_each_handle(gcp_process.pools, info->addr, info->addr,
					file_ready, &(int){FILES_READY});
	gcp_ipc_handle_make(&server.self, info->addr, info->id, ret_handle);
	return CUDA_SUCCESS;
}

int gcp_ipc_server_free(gcp_addr addr, bool waits)
{
	struct gcp_pool *pool = gcp_pools_exporter(gcp_process.pools, addr);
	int lent, result = 0;

	gcp_mutex_lock(&server.lock);
	while (serve()) /* another process may have closed it already */
		;
	lent = gcp_pools_unexport(gcp_process.pools, addr);
	gcp_mutex_unlock(&server.lock);
	if (!pool || lent < 0)
		return -EINVAL; /* it is lent already: freed twice */
	if (!lent)
		result = waits ? gcp_pools_free(gcp_process.pools, addr)
			       : gcp_pools_free_async(gcp_process.pools, addr, 0);
	/* This closes the epoch that the block was freed into. */
	if (waits && result == 0)
		result = gcp_pool_finish(pool);
	/* Waiting during a capture takes memory, if little, and there is none: the
	 * block's epoch alone keeps its memory from being used too early. */
	return result == GCP_CUDA_OUT_OF_MEMORY ? 0 : result;
}

bool gcp_ipc_server_is_self(const struct gcp_ipc_process *process)
{
	GCP_LOCKED(&server.lock);
	return server.running && memcmp(process, &server.self, sizeof(*process)) == 0;
}

void gcp_ipc_server_after_fork(void)
{
	struct connection *connection;

	if (server.running) {
		close(server.door);
		close(server.watch);
	}
	LIST_FOREACH (connection, &server.connections, entry) {
		close(connection->fd);
		if (connection->end != connection->fd)
			close(connection->end);
	}
	gcp_mutex_init(&server.lock, GCP_RANK_SERVER);
	LIST_INIT(&server.connections);
	server.running = false;
}
