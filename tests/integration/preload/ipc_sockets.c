/* SPDX-License-Identifier: MIT */
/*
 * ipc_sockets.c - what becomes of memory that processes share where one of them is
 * slow, or gone: played with sockets as the library has them (ipc_wire.h).
 *
 *   ipc_sockets SCENARIO    plays one; 0: all is as it was promised
 *
 * Needs: interpose/ipc/ipc_wire.c
 * Environment: GCPOOL_BACKEND=vmm
 */
#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "ipc_played.h"

#include "../../../interpose/gcpool.h"

static void ends_well(pid_t importer)
{
	int status = 1;

	waitpid(importer, &status, 0);
	must(status == 0, "the importer has failed");
}

enum { BLOCKS = 490, CLOSED = BLOCKS - 1 }; /* nearly all memory */

/* No more than there are. */
static struct rlimit files_none(void)
{
	struct rlimit files;
	int first_free = dup(0);

	close(first_free);
	getrlimit(RLIMIT_NOFILE, &files);
	return (struct rlimit){.rlim_cur = (rlim_t)first_free,
			       .rlim_max = files.rlim_max};
}

static CUdeviceptr open_from(int from)
{
	CUipcMemHandle handle;
	CUdeviceptr p;

	OK(cuInit(0));
	(void)primary();
	must(read(from, &handle, sizeof(handle)) == sizeof(handle), "pipe");
	OK(cuIpcOpenMemHandle_v2(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	return p;
}

/* --- an open that is refused, or whose answer is lost --- */

/* The first block stays open, and with it the connection, whose end would close all. */
static void opens_one_of_two(int from, int to, bool has_files)
{
	CUipcMemHandle handles[2];
	struct rlimit none;
	CUdeviceptr p;

	OK(cuInit(0));
	(void)primary();
	must(read(from, handles, sizeof(handles)) == sizeof(handles), "pipe");
	OK(cuIpcOpenMemHandle_v2(&p, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	must(write(to, &p, 1) == 1 && read(from, &p, 1) == 1, "pipe");
	none = files_none();
	must(has_files || setrlimit(RLIMIT_NOFILE, &none) == 0, "no limit");
	must(
	    cuIpcOpenMemHandle_v2(&p, handles[1], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
		CUDA_ERROR_OPERATING_SYSTEM,
	    "it is open, or the exporter is said to have ended");
	must(write(to, &p, 1) == 1 && read(from, &p, 1) == 0, "pipe");
	_exit(wrong);
}

static void open_that_fails(bool refused)
{
	int down[2], up[2];
	CUipcMemHandle both[2];
	CUdeviceptr p;
	pid_t child;

	must(pipe(down) == 0 && pipe(up) == 0, "pipe");
	child = fork();
	if (child == 0) {
		close(down[1]);
		opens_one_of_two(down[0], up[1], refused);
	}
	OK(cuInit(0));
	(void)primary();
	both[0] = exported(allocated(2 * MIB));
	p = allocated(600 * MIB);
	both[1] = exported(p);
	must(write(down[1], both, sizeof(both)) == sizeof(both), "pipe");
	must(read(up[0], both, 1) == 1, "pipe");
	must(!refused || gcpsim_fail("cuMemExportToShareableHandle:1:304") == 0,
	     "no such failure");
	must(write(down[1], both, 1) == 1 && read(up[0], both, 1) == 1, "pipe");
	OK(cuMemFree_v2(p));
	must(cuMemAlloc_v2(&p, 600 * MIB) == CUDA_SUCCESS, "it counts as open");
	close(down[1]);
	ends_well(child);
}

SCENARIO_BEFORE_CUDA(memory_whose_open_was_refused_is_used_again, "GCPSIM_MEMORY=1G")
{
	open_that_fails(true);
}

SCENARIO_BEFORE_CUDA(memory_whose_importer_had_no_file_is_used_again,
		     "GCPSIM_MEMORY=1G")
{
	open_that_fails(false);
}

static void *opens_for_two_devices(void *unused)
{
	CUdeviceptr p, q;
	CUcontext other;

	(void)primary();
	OK(opened_by(played_handle(1), &p));
	OK(cuDevicePrimaryCtxRetain(&other, 1));
	OK(cuCtxSetCurrent(other));
	must(opened_by(played_handle(1), &q) != CUDA_SUCCESS, "it is open");
	return unused;
}

/* 2 MiB of this process, as a file descriptor. */
static int memory_new(void)
{
	CUmemAllocationProp properties = {
	    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
	};
	CUmemGenericAllocationHandle memory;
	int fd;

	OK(cuMemCreate(&memory, 2 * MIB, &properties, 0));
	OK(cuMemExportToShareableHandle(&fd, memory,
					CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	return fd;
}

static void answer_with(int fd, int memory)
{
	struct gcp_ipc_answer answer = {.reply = played.reply,
					.count = 1,
					.bytes = 2 * MIB,
					.span = 2 * MIB,
					.parts = {2 * MIB}};

	must(asked(fd).op == GCP_IPC_OPEN, "it does not ask");
	must(gcp_ipc_send(fd, &answer, sizeof(answer), &memory, 1, GCP_IPC_NO_WAIT),
	     "not sent");
}

/* The answer to the second open says nothing: it may have been a refusal. */
SCENARIO(memory_open_for_another_device_stays_open, "GCPSIM_DEVICES=2")
{
	struct gcp_ipc_request request;
	pthread_t thread;
	int memory, fd;

	(void)primary();
	memory = memory_new();
	play_exporter();
	pthread_create(&thread, NULL, opens_for_two_devices, NULL);
	fd = connection_of_door(5000);
	answer_with(fd, memory);
	request = asked(fd);
	must(request.op == GCP_IPC_OPEN, "it does not ask again");
	must(gcp_ipc_send(fd, &played.reply, sizeof(played.reply), NULL, 0,
			  GCP_IPC_NO_WAIT),
	     "not sent");
	pthread_join(thread, NULL);
	must(asked(fd).open == request.open, "another one is closed");
	must(asked(fd).op == 0, "what is open is closed");
}

/* --- an importer that gives up --- */

SCENARIO(memory_whose_importer_gave_up_is_used_again, "GCPSIM_MEMORY=1G")
{
	struct gcp_ipc_request request;
	struct gcp_ipc_handle handle;
	struct pollfd ended = {.events = 0};
	CUdeviceptr p;

	(void)primary();
	p = allocated(600 * MIB);
	handle = handle_of(p);
	ended.fd = connected(&handle);
	must(ended.fd >= 0, "no connection");
	request = open_request(&handle);
	shutdown(ended.fd, SHUT_RD); /* as one that was closed, and is told of */
	must(
	    gcp_ipc_send(ended.fd, &request, sizeof(request), NULL, 0, GCP_IPC_NO_WAIT),
	    "not sent");
	poll(&ended, 1, 5000);
	OK(cuMemFree_v2(p));
	must(cuMemAlloc_v2(&p, 600 * MIB) == CUDA_SUCCESS, "it counts as open");
}

/* --- an importer whose connection ends --- */

/* The process is in another PID namespace than this one. */
static atomic_bool sees_no_process;

/* The library calls this. */
__attribute__((visibility("default"))) int getsockopt(int fd, int level, int option,
						      void *ret, socklen_t *size)
{
	int result = (int)syscall(SYS_getsockopt, fd, level, option, ret, size);

	if (result == 0 && option == SO_PEERCRED && sees_no_process)
		((struct ucred *)ret)->pid = 0;
	return result;
}

static void opens_and_ends(int from, int to)
{
	CUdeviceptr p = open_from(from);

	must(write(to, &p, 1) == 1, "pipe");
	/* The connection, too. */
	for (int fd = 3; fd < 1024; fd++)
		if (fd != from && fd != to)
			close(fd);
	must(write(to, &p, 1) == 1 && read(from, &p, 1) == 0, "pipe");
	_exit(wrong);
}

static void memory_comes_back(void)
{
	CUdeviceptr p;
	int tries = 0;

	while (cuMemAlloc_v2(&p, 600 * MIB) != CUDA_SUCCESS && tries++ < 100)
		usleep(20 * 1000);
	must(tries < 100, "it counts as open");
}

static void importer_closes_its_files(bool seen)
{
	int down[2], up[2];
	CUipcMemHandle handle;
	CUdeviceptr p;
	pid_t child;

	must(pipe(down) == 0 && pipe(up) == 0, "pipe");
	child = fork();
	if (child == 0) {
		close(down[1]);
		opens_and_ends(down[0], up[1]);
	}
	OK(cuInit(0));
	(void)primary();
	sees_no_process = !seen;
	p = allocated(600 * MIB);
	handle = exported(p);
	must(write(down[1], &handle, sizeof(handle)) == sizeof(handle), "pipe");
	must(read(up[0], &handle, 1) == 1 && read(up[0], &handle, 1) == 1, "pipe");
	OK(cuMemFree_v2(p));
	usleep(200 * 1000); /* until the end of the connection is known */
	must(cuMemAlloc_v2(&p, 600 * MIB) != CUDA_SUCCESS, "what is open is given out");
	close(down[1]);
	ends_well(child);
	if (seen)
		memory_comes_back();
	else
		must(cuMemAlloc_v2(&p, 600 * MIB) != CUDA_SUCCESS,
		     "what may be open is given out");
}

/* It lives on, and so does its work. */
SCENARIO_BEFORE_CUDA(memory_of_a_process_that_closed_its_files_is_kept,
		     "GCPSIM_MEMORY=1G")
{
	importer_closes_its_files(true);
}

SCENARIO_BEFORE_CUDA(memory_of_a_process_that_is_not_seen_is_kept, "GCPSIM_MEMORY=1G")
{
	importer_closes_its_files(false);
}

/* --- a graph pool that is set back --- */

#define OF_THE_LIBRARY(name) ((__typeof__(name) *)dlsym(RTLD_DEFAULT, #name))

/* --- an exporter that is stopped --- */

/* Of two processes: whether the question was answered while the exporter stood still.
 */
struct question {
	atomic_bool asked, answered, late;
};
