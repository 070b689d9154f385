/* SPDX-License-Identifier: MIT */
/*
 * ipc_sockets.c - what becomes of memory that processes share where one of them is
 * slow, or gone: played with sockets as the library has them (ipc_wire.h).
 *
 *   ipc_sockets SCENARIO    plays one; 0: all is as it was promised
 *
 * Needs: interpose/ipc/ipc_wire.c interpose/base/process_identity.c
 * Environment: GCPOOL_BACKEND=vmm
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "ipc_played.h"

#include "../../../interpose/gcpool.h"

enum { BLOCKS = 490, CLOSED = BLOCKS - 1 }; /* nearly all memory */

/* --- an exporter that does not answer --- */

static atomic_int connections;

static void *hangs_up(void *unused)
{
	int fd;

	for (;;) {
		fd = connection_of_door(-1);
		if (fd < 0)
			continue;
		atomic_fetch_add(&connections, 1);
		close(fd);
	}
	return unused;
}

/* Each try may wait for as long as an answer may take. */
SCENARIO(a_process_that_does_not_answer_is_asked_once)
{
	CUipcMemHandle handle;
	CUdeviceptr p;
	pthread_t thread;

	(void)primary();
	play_exporter();
	pthread_create(&thread, NULL, hangs_up, NULL);
	gcp_ipc_handle_make(&played, -1, 1, &handle);
	must(cuIpcOpenMemHandle_v2(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
		 CUDA_ERROR_OPERATING_SYSTEM,
	     "another error");
	usleep(50 * 1000);
	must(atomic_load(&connections) == 1, "it was asked again");
}

/* --- an exporter whose thread does not start, or ends --- */

/* 0: threads get the stack that they got before. */
static void threads_get(size_t stack)
{
	static size_t before;
	pthread_attr_t attributes;

	must(pthread_getattr_default_np(&attributes) == 0, "no default");
	if (before == 0)
		pthread_attr_getstacksize(&attributes, &before);
	pthread_attr_setstacksize(&attributes, stack ? stack : before);
	must(pthread_setattr_default_np(&attributes) == 0, "no such stack");
}

SCENARIO(a_thread_that_did_not_start_is_started_later)
{
	CUipcMemHandle handle;
	CUdeviceptr p;
	int free_before, free_after;

	(void)primary();
	p = allocated(4096);
	free_before = dup(0);
	threads_get((size_t)1 << 56); /* more than there are addresses */
	must(cuIpcGetMemHandle(&handle, p) == CUDA_ERROR_OPERATING_SYSTEM,
	     "there is a thread");
	threads_get(0);
	free_after = dup(0);
	must(free_after == free_before + 1, "its sockets are open still");
	must(cuIpcGetMemHandle(&handle, p) == CUDA_SUCCESS, "there is never a thread");
}

static int files_open(void)
{
	int count = 0;

	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

/* The program takes the place of one of the library's files and leaves the others: the
 * thread ends when it notices, and another one takes its place. */
SCENARIO(a_program_that_closes_one_file_can_export)
{
	CUipcMemHandle exported_one;
	struct gcp_ipc_handle handle;
	struct pollfd ended = {.events = POLLIN};
	CUresult result;
	CUdeviceptr p;
	int before;

	(void)primary();
	p = allocated(4096);
	exported_one = exported(p);
	must(gcp_ipc_handle_read(&exported_one, &handle), "memory is not mapped");
	before = files_open() + 2; /* the program's */
	must(dup2(open("/dev/null", O_RDONLY), door_end()) >= 0, "no such file");
	ended.fd = gcp_ipc_connect(&handle, gcp_ipc_deadline(), &result);
	if (ended.fd >= 0) {
		poll(&ended, 1, 5000);
		close(ended.fd);
	}
	for (int i = 0; i < 10; i++, usleep(20 * 1000))
		result = cuIpcGetMemHandle(&exported_one, p);
	must(result == CUDA_SUCCESS, "nothing can be exported any more");
	must(files_open() == before, "another file is open still");
	ended.fd = gcp_ipc_connect(&handle, gcp_ipc_deadline(), &result);
	must(ended.fd >= 0, "nothing can be opened any more");
}

/* --- an exporter without files --- */

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

static void opens_one(int from)
{
	OK(cuIpcCloseMemHandle(open_from(from)));
	_exit(wrong);
}

static double seconds_used(void)
{
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

/* A connection that no file is left for is taken later, and costs little until then. */
SCENARIO_BEFORE_CUDA(a_connection_waits_for_a_file)
{
	struct rlimit files, none;
	int down[2], status = 1;
	CUipcMemHandle handle;
	double before;
	pid_t child;

	must(pipe(down) == 0, "pipe");
	child = fork();
	if (child == 0)
		opens_one(down[0]);
	OK(cuInit(0));
	(void)primary();
	handle = exported(allocated(4096));
	getrlimit(RLIMIT_NOFILE, &files);
	none = files_none();
	must(setrlimit(RLIMIT_NOFILE, &none) == 0, "no limit");
	before = seconds_used();
	must(write(down[1], &handle, sizeof(handle)) == sizeof(handle), "pipe");
	usleep(1500 * 1000);
	must(seconds_used() - before < 0.2, "the thread does not rest");
	must(setrlimit(RLIMIT_NOFILE, &files) == 0, "no limit");
	waitpid(child, &status, 0);
	must(status == 0, "the importer has failed");
}

/* The exporter lives. */
SCENARIO_BEFORE_CUDA(an_importer_without_files_does_not_say_that_the_process_has_ended)
{
	int down[2], status = 1;
	CUipcMemHandle handle;
	struct rlimit none;
	CUdeviceptr p;
	CUresult result;
	pid_t child;

	must(pipe(down) == 0, "pipe");
	child = fork();
	if (child == 0) {
		OK(cuInit(0));
		(void)primary();
		must(read(down[0], &handle, sizeof(handle)) == sizeof(handle), "pipe");
		none = files_none();
		must(setrlimit(RLIMIT_NOFILE, &none) == 0, "no limit");
		result = cuIpcOpenMemHandle_v2(&p, handle,
					       CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
		printf("result %d\n", result);
		must(result == CUDA_ERROR_OPERATING_SYSTEM, "another error");
		fflush(stdout);
		_exit(wrong);
	}
	OK(cuInit(0));
	(void)primary();
	handle = exported(allocated(4096));
	must(write(down[1], &handle, sizeof(handle)) == sizeof(handle), "pipe");
	waitpid(child, &status, 0);
	must(status == 0, "the importer has failed");
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
	int down[2], up[2], status = 1;
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
	waitpid(child, &status, 0);
	must(status == 0, "the importer has failed");
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

static CUipcMemHandle made_up;

static void *opens_for_two_devices(void *unused)
{
	CUdeviceptr p, q;
	CUcontext other;

	(void)primary();
	OK(cuIpcOpenMemHandle_v2(&p, made_up, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	OK(cuDevicePrimaryCtxRetain(&other, 1));
	OK(cuCtxSetCurrent(other));
	must(cuIpcOpenMemHandle_v2(&q, made_up, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) !=
		 CUDA_SUCCESS,
	     "it is open");
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

/* The answer to the second open says nothing: it may have been a refusal. */
SCENARIO(memory_open_for_another_device_stays_open, "GCPSIM_DEVICES=2")
{
	struct gcp_ipc_answer answer = {.count = 1,
					.addr = 2 * MIB,
					.bytes = 2 * MIB,
					.parts = {{2 * MIB, 2 * MIB}}};
	pthread_t thread;
	int memory, first, second;

	(void)primary();
	memory = memory_new();
	play_exporter();
	gcp_ipc_handle_make(&played, -1, 1, &made_up);
	pthread_create(&thread, NULL, opens_for_two_devices, NULL);
	first = connection_of_door(5000);
	must(asked(first) == GCP_IPC_OPEN, "it does not ask");
	must(gcp_ipc_send(first, &answer, sizeof(answer), &memory, 1), "not sent");
	must(asked(first) == GCP_IPC_OPEN, "it does not ask again");
	must(gcp_ipc_send(first, &answer, 1, NULL, 0), "not sent");
	second = connection_of_door(5000);
	close(second);
	pthread_join(thread, NULL);
	must(asked(first) == 0, "what is open is closed");
}

/* --- an importer that gives up --- */

SCENARIO(memory_whose_importer_gave_up_is_used_again, "GCPSIM_MEMORY=1G")
{
	struct gcp_ipc_request request = {.op = GCP_IPC_OPEN};
	CUipcMemHandle exported_one;
	struct gcp_ipc_handle handle;
	struct pollfd ended;
	CUdeviceptr p;
	CUresult result;

	(void)primary();
	p = allocated(600 * MIB);
	exported_one = exported(p);
	must(gcp_ipc_handle_read(&exported_one, &handle), "memory is not mapped");
	ended.fd = gcp_ipc_connect(&handle, gcp_ipc_deadline(), &result);
	must(ended.fd >= 0, "no connection");
	memcpy(request.cookie, handle.cookie, sizeof(request.cookie));
	request.id = handle.id;
	shutdown(ended.fd, SHUT_RD); /* as one that was closed, and is told of */
	must(gcp_ipc_send(ended.fd, &request, sizeof(request), NULL, 0), "not sent");
	ended.events = 0;
	poll(&ended, 1, 5000);
	OK(cuMemFree_v2(p));
	must(cuMemAlloc_v2(&p, 600 * MIB) == CUDA_SUCCESS, "it counts as open");
}

/* --- an importer that the exporter does not see --- */

/* The processes are in other PID namespaces than this one. */
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

static void keeps_all(void)
{
}

/* Nor gets one by closing another. */
static void loses_files(void)
{
	struct rlimit few;

	must(getrlimit(RLIMIT_NOFILE, &few) == 0, "no limit");
	few.rlim_cur = 1;
	must(setrlimit(RLIMIT_NOFILE, &few) == 0, "no limit");
}

/* To a place without /proc. */
static void loses_processes(void)
{
	if (chroot("/dev") != 0) {
		printf("the root cannot be changed here\n");
		exit(77);
	}
}

/* loses: what the exporter looks with, while the memory is open. */
static void importer_ends(bool seen, void (*before)(void), void (*loses)(void))
{
	struct rlimit files;
	int down[2], up[2], status = 1, tries = 0;
	CUipcMemHandle handle;
	CUdeviceptr p;
	pid_t child;

	must(pipe(down) == 0 && pipe(up) == 0, "pipe");
	child = fork();
	if (child == 0) {
		close(down[1]);
		before();
		opens_and_ends(down[0], up[1]);
	}
	OK(cuInit(0));
	(void)primary();
	sees_no_process = !seen;
	p = allocated(600 * MIB);
	handle = exported(p);
	must(write(down[1], &handle, sizeof(handle)) == sizeof(handle), "pipe");
	getrlimit(RLIMIT_NOFILE, &files);
	must(read(up[0], &handle, 1) == 1, "pipe");
	loses();
	must(read(up[0], &handle, 1) == 1, "pipe");
	OK(cuMemFree_v2(p));
	usleep(200 * 1000); /* until the end of the connection is known */
	must(setrlimit(RLIMIT_NOFILE, &files) == 0, "no limit");
	must(cuMemAlloc_v2(&p, 600 * MIB) != CUDA_SUCCESS, "what is open is given out");
	close(down[1]);
	waitpid(child, &status, 0);
	must(status == 0, "the importer has failed");
	while (cuMemAlloc_v2(&p, 600 * MIB) != CUDA_SUCCESS && tries++ < 100)
		usleep(20 * 1000);
	must(tries < 100, "it counts as open");
}

static void needs_process_files(void)
{
	if (gcp_ipc_process_self() >= 0)
		return;
	printf("the system does not tell of the end of a process\n");
	exit(77);
}

/* What tells of its end is what it has sent: not its number, nor the end of the
 * connection. */
SCENARIO_BEFORE_CUDA(memory_of_a_process_that_is_not_seen_comes_back,
		     "GCPSIM_MEMORY=1G")
{
	needs_process_files();
	importer_ends(false, needs_process_files, keeps_all);
}

static void process_files_are_unknown(void)
{
	struct sock_filter filter[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 434 /* pidfd_open */, 0, 1),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {4, filter};

	/* Where that is not allowed either, the other scenario is played again. */
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0)
		must(gcp_ipc_process_self() < 0, "the filter does not work");
}

/* An older system: then the number does it. */
SCENARIO_BEFORE_CUDA(memory_of_a_process_that_tells_nothing_comes_back,
		     "GCPSIM_MEMORY=1G")
{
	importer_ends(true, process_files_are_unknown, keeps_all);
}

/* This process cannot look for the other one. */
SCENARIO_BEFORE_CUDA(memory_is_kept_by_a_process_that_has_no_files, "GCPSIM_MEMORY=1G")
{
	importer_ends(true, process_files_are_unknown, loses_files);
}

SCENARIO_BEFORE_CUDA(memory_is_kept_by_a_process_that_sees_no_others,
		     "GCPSIM_MEMORY=1G")
{
	importer_ends(true, process_files_are_unknown, loses_processes);
}

/* On an older system the thread looks for that process now and then. */
SCENARIO_BEFORE_CUDA(a_process_that_closed_its_sockets_costs_little)
{
	int down[2], up[2], status = 1;
	CUipcMemHandle handle;
	double before;
	pid_t child;

	must(pipe(down) == 0 && pipe(up) == 0, "pipe");
	child = fork();
	process_files_are_unknown();
	if (child == 0) {
		close(down[1]);
		opens_and_ends(down[0], up[1]);
	}
	OK(cuInit(0));
	(void)primary();
	handle = exported(allocated(4096));
	must(write(down[1], &handle, sizeof(handle)) == sizeof(handle), "pipe");
	must(read(up[0], &handle, 1) == 1 && read(up[0], &handle, 1) == 1, "pipe");
	before = seconds_used();
	usleep(1500 * 1000);
	printf("used %.3f s\n", seconds_used() - before);
	must(seconds_used() - before < 0.2, "the thread does not rest");
	close(down[1]);
	waitpid(child, &status, 0);
	must(status == 0, "the importer has failed");
}

/* The system waits for no more files than a process may have. */
SCENARIO_BEFORE_CUDA(a_process_that_may_have_fewer_files_costs_little)
{
	int down[2], up[2], status = 1;
	struct rlimit files;
	CUipcMemHandle handle;
	CUdeviceptr p;
	double before;
	pid_t child;

	must(pipe(down) == 0 && pipe(up) == 0, "pipe");
	child = fork();
	if (child == 0) {
		(void)open_from(down[0]);
		p = open_from(down[0]);
		must(write(up[1], &p, 1) == 1 && read(down[0], &handle, 1) == 1,
		     "pipe");
		OK(cuIpcCloseMemHandle(p)); /* wakes the exporter's thread */
		(void)open_from(down[0]);
		_exit(wrong);
	}
	OK(cuInit(0));
	(void)primary();
	for (int i = 0; i < 2; i++) {
		handle = exported(allocated(4096));
		must(write(down[1], &handle, sizeof(handle)) == sizeof(handle), "pipe");
	}
	must(read(up[0], &handle, 1) == 1, "pipe");
	getrlimit(RLIMIT_NOFILE, &files);
	loses_files();
	before = seconds_used();
	must(write(down[1], &handle, 1) == 1, "pipe");
	usleep(1500 * 1000);
	printf("used %.3f s\n", seconds_used() - before);
	must(seconds_used() - before < 0.2, "the thread does not rest");
	must(setrlimit(RLIMIT_NOFILE, &files) == 0, "no limit");
	handle = exported(allocated(8192));
	must(write(down[1], &handle, sizeof(handle)) == sizeof(handle), "pipe");
	waitpid(child, &status, 0);
	must(status == 0, "the importer has failed");
}

/* A child that no handler of pthread_atfork has seen has the connection, too. What
 * tells of the end of its parent is the file that came. */
SCENARIO_BEFORE_CUDA(memory_of_a_process_with_an_unseen_child_comes_back,
		     "GCPSIM_MEMORY=1G")
{
	int down[2], up[2], status = 1, tries = 0;
	CUipcMemHandle handle;
	CUdeviceptr p;
	pid_t child;

	needs_process_files();
	must(pipe(down) == 0 && pipe(up) == 0, "pipe");
	child = fork();
	if (child == 0) {
		p = open_from(down[0]);
		if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) == 0) {
			close(down[1]);
			(void)!read(down[0], &handle, 1);
			_exit(0);
		}
		must(write(up[1], &p, 1) == 1, "pipe");
		usleep(300 * 1000); /* until the exporter's thread waits again */
		_exit(wrong);
	}
	OK(cuInit(0));
	(void)primary();
	p = allocated(600 * MIB);
	handle = exported(p);
	must(write(down[1], &handle, sizeof(handle)) == sizeof(handle), "pipe");
	must(read(up[0], &handle, 1) == 1, "pipe");
	waitpid(child, &status, 0);
	must(status == 0, "the importer has failed");
	OK(cuMemFree_v2(p));
	while (cuMemAlloc_v2(&p, 600 * MIB) != CUDA_SUCCESS && tries++ < 100)
		usleep(20 * 1000);
	must(tries < 100, "it counts as open");
}

/* --- a graph pool that is set back --- */

#define OF_THE_LIBRARY(name) ((__typeof__(name) *)dlsym(RTLD_DEFAULT, #name))

static CUdeviceptr captured(CUstream stream, size_t bytes)
{
	CUgraph graph;
	CUdeviceptr p;

	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	p = allocated(bytes);
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphDestroy(graph));
	return p;
}

/* It is live again, freed, and not given to the next capture; what was exported, and is
 * neither live nor open, is. */
SCENARIO_BEFORE_CUDA(memory_that_is_open_outlasts_a_restore)
{
	int down[2], up[2];
	struct gcpool_checkpoint *checkpoint;
	CUdeviceptr open, other;
	CUipcMemHandle handle;
	CUstream stream;
	uint64_t id;

	must(pipe(down) == 0 && pipe(up) == 0, "pipe");
	if (fork() == 0 && close(down[1]) == 0)
		opens_and_ends(down[0], up[1]);
	OK(cuInit(0));
	(void)primary();
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemFree_v2(allocated(4096)));
	must(OF_THE_LIBRARY(gcpool_graph_pool_create)(&id) == 0, "no graph pool");
	must(OF_THE_LIBRARY(gcpool_graph_pool_use)(id) == 0, "no graph pool");
	open = captured(stream, 64 * MIB);
	must(OF_THE_LIBRARY(gcpool_graph_pool_checkpoint)(id, &checkpoint) == 0,
	     "no checkpoint");
	other = captured(stream, 64 * MIB);
	(void)exported(other);
	handle = exported(open);
	must(write(down[1], &handle, sizeof(handle)) == sizeof(handle), "pipe");
	must(read(up[0], &handle, 1) == 1, "pipe");
	must(OF_THE_LIBRARY(gcpool_graph_pool_restore)(id, checkpoint) == 0, "restore");
	OK(cuMemFree_v2(open));
	must(cuMemFree_v2(open) == CUDA_ERROR_INVALID_VALUE, "it is freed twice");
	must(captured(stream, 64 * MIB) == other, "what nothing has open is kept");
	must(captured(stream, 64 * MIB) != open, "what is open is given out");
}

/* Its number would be of no use, and it may be ready to be read at any time. */
SCENARIO(a_file_that_is_no_process_is_refused)
{
	struct gcp_ipc_request request = {.op = GCP_IPC_PROCESS};
	struct pollfd ended = {.events = POLLIN};
	CUipcMemHandle exported_one;
	struct gcp_ipc_handle handle;
	CUresult result;
	int none[2];

	(void)primary();
	exported_one = exported(allocated(4096));
	must(gcp_ipc_handle_read(&exported_one, &handle), "memory is not mapped");
	must(pipe(none) == 0, "pipe");
	memcpy(request.cookie, handle.cookie, sizeof(request.cookie));
	ended.fd = gcp_ipc_connect(&handle, gcp_ipc_deadline(), &result);
	must(gcp_ipc_send(ended.fd, &request, sizeof(request), none, 1), "not sent");
	must(poll(&ended, 1, 5000) == 1, "a pipe is taken");
}

/* --- an exporter that is slow --- */

/* Wakes the exporter when all is closed, or no close has returned for a while: then one
 * waits for room. */
static void wakes(pid_t exporter, const atomic_int *closed)
{
	int before = -1, now;

	while ((now = atomic_load(closed)) < CLOSED && (now == 0 || now != before)) {
		before = now;
		usleep(300 * 1000);
	}
	kill(exporter, SIGCONT);
	_exit(0);
}

static void imports_and_closes(int from, int to, pid_t exporter)
{
	CUdeviceptr blocks[BLOCKS];
	CUipcMemHandle handle;
	atomic_int *closed = mmap(NULL, sizeof(*closed), PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t waker;

	must(closed != MAP_FAILED, "no memory to share");

	OK(cuInit(0));
	(void)primary();
	for (int i = 0; i < BLOCKS; i++) {
		must(read(from, &handle, sizeof(handle)) == sizeof(handle), "pipe");
		OK(cuIpcOpenMemHandle_v2(&blocks[i], handle,
					 CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	}
	kill(exporter, SIGSTOP);
	usleep(200 * 1000); /* until its threads have noticed */
	waker = fork();
	if (waker == 0)
		wakes(exporter, closed);
	for (int i = 0; i < CLOSED; i++) {
		OK(cuIpcCloseMemHandle(blocks[i]));
		atomic_fetch_add(closed, 1);
	}
	waitpid(waker, NULL, 0);
	must(write(to, &handle, 1) == 1, "pipe");
	must(read(from, &handle, 1) == 0, "pipe");
	_exit(wrong);
}

/* More than the socket has room for. One stays open, and with it the connection, whose
 * end would close all. */
SCENARIO_BEFORE_CUDA(each_close_arrives, "GCPSIM_MEMORY=1G")
{
	int down[2], up[2], had = 0, status = 1;
	CUdeviceptr blocks[BLOCKS], p;
	CUipcMemHandle handle;
	pid_t child, exporter = getpid();

	must(pipe(down) == 0 && pipe(up) == 0, "pipe");
	child = fork();
	if (child == 0) {
		close(down[1]);
		imports_and_closes(down[0], up[1], exporter);
	}
	OK(cuInit(0));
	(void)primary();
	for (int i = 0; i < BLOCKS; i++) {
		blocks[i] = allocated(2 * MIB);
		handle = exported(blocks[i]);
		must(write(down[1], &handle, sizeof(handle)) == sizeof(handle), "pipe");
	}
	must(read(up[0], &handle, 1) == 1, "pipe");
	for (int i = 0; i < BLOCKS; i++)
		OK(cuMemFree_v2(blocks[i]));
	while (had < CLOSED && cuMemAlloc_v2(&p, 2 * MIB) == CUDA_SUCCESS)
		had++;
	must(had == CLOSED, "what was closed counts as open");
	close(down[1]);
	waitpid(child, &status, 0);
	must(status == 0, "the importer has failed");
}

/* --- an exporter that is stopped --- */

static CUipcMemHandle handles[2];
static CUdeviceptr opened[2];
static atomic_int second; /* the thread that opens the second one */

static void *opens_the_second(void *ctx)
{
	OK(cuCtxSetCurrent(ctx));
	atomic_store(&second, gettid());
	OK(cuIpcOpenMemHandle_v2(&opened[1], handles[1],
				 CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	return NULL;
}

static bool sleeps(int thread)
{
	char path[64], state = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
	file = fopen(path, "r");
	must(file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1, "no state");
	if (file)
		fclose(file);
	return state == 'S';
}

/* It sleeps on and on: it waits for the other process. */
static void wait_until_it_asks(void)
{
	for (int looks = 0; looks < 10 && !wrong;) {
		usleep(20 * 1000);
		looks = atomic_load(&second) && sleeps(atomic_load(&second)) ? looks + 1
									     : 0;
	}
}

/* Of two processes: whether the question was answered while the exporter stood still.
 */
struct question {
	atomic_bool asked, answered, late;
};

static void wakes_after(pid_t exporter, struct question *question)
{
	for (int i = 0; i < 1000 && !atomic_load(&question->asked); i++)
		usleep(10 * 1000);
	for (int i = 0; i < 1000 && !atomic_load(&question->answered); i++)
		usleep(10 * 1000);
	atomic_store(&question->late, !atomic_load(&question->answered));
	kill(exporter, SIGCONT);
	_exit(0);
}

/* What is open can be asked about while another thread waits for the exporter. */
static void finds_meanwhile(int from, pid_t exporter)
{
	struct question *question =
	    mmap(NULL, sizeof(*question), PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_t thread;
	CUcontext ctx;
	pid_t waker;
	int device = -1;

	must(question != MAP_FAILED, "no memory to share");

	OK(cuInit(0));
	ctx = primary();
	must(read(from, handles, sizeof(handles)) == sizeof(handles), "pipe");
	OK(cuIpcOpenMemHandle_v2(&opened[0], handles[0],
				 CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	waker = fork();
	if (waker == 0)
		wakes_after(exporter, question);
	kill(exporter, SIGSTOP);
	usleep(200 * 1000); /* until its threads have noticed */
	pthread_create(&thread, NULL, opens_the_second, ctx);
	wait_until_it_asks();
	atomic_store(&question->asked, true);
	OK(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
				 opened[0] + 1));
	atomic_store(&question->answered, true);
	must(device == 0, "another device");
	waitpid(waker, NULL, 0);
	must(!atomic_load(&question->late),
	     "a question has waited for another process");
	pthread_join(thread, NULL);
	for (int i = 0; i < 2; i++)
		OK(cuIpcCloseMemHandle(opened[i]));
	_exit(wrong);
}

SCENARIO_BEFORE_CUDA(memory_is_found_while_another_process_is_asked)
{
	int down[2], status = 1;
	pid_t child, exporter = getpid();

	must(pipe(down) == 0, "pipe");
	child = fork();
	if (child == 0)
		finds_meanwhile(down[0], exporter);
	OK(cuInit(0));
	(void)primary();
	for (int i = 0; i < 2; i++)
		handles[i] = exported(allocated(2 * MIB));
	must(write(down[1], handles, sizeof(handles)) == sizeof(handles), "pipe");
	waitpid(child, &status, 0);
	must(status == 0, "the importer has failed");
}

static void *answers_the_first(void *memory)
{
	struct gcp_ipc_answer answer = {.count = 1,
					.addr = 2 * MIB,
					.bytes = 2 * MIB,
					.parts = {{2 * MIB, 2 * MIB}}};
	int fd = connection_of_door(5000);

	must(asked(fd) == GCP_IPC_OPEN, "it does not ask");
	must(gcp_ipc_send(fd, &answer, sizeof(answer), memory, 1), "not sent");
	return NULL;
}

/* An answer that does not come is waited for once, also where one has come before. */
SCENARIO(a_silent_process_is_waited_for_once)
{
	CUipcMemHandle handle;
	pthread_t thread;
	CUdeviceptr p;
	int memory;

	alarm(45);
	(void)primary();
	memory = memory_new();
	play_exporter();
	pthread_create(&thread, NULL, answers_the_first, &memory);
	gcp_ipc_handle_make(&played, -1, 1, &handle);
	OK(cuIpcOpenMemHandle_v2(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	pthread_join(thread, NULL);
	gcp_ipc_handle_make(&played, -1, 2, &handle);
	must(cuIpcOpenMemHandle_v2(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
		 CUDA_ERROR_OPERATING_SYSTEM,
	     "another error");
	must(connection_of_door(0) < 0, "it is asked again");
}
