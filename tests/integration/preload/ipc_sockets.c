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
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "ipc_played.h"

static void ends_well(pid_t importer)
{
	int status = 1;

	waitpid(importer, &status, 0);
	must(status == 0, "the importer has failed");
}

/* This process exports a block to one that starts before it uses CUDA. */
static void exports_to(void (*importer)(int from), size_t bytes)
{
	int down[2];
	CUipcMemHandle handle;
	pid_t child;

	must(pipe(down) == 0, "pipe");
	child = fork();
	if (child == 0) {
		importer(down[0]);
		fflush(stdout);
		_exit(wrong);
	}
	OK(cuInit(0));
	(void)primary();
	handle = exported(allocated(bytes));
	must(write(down[1], &handle, sizeof(handle)) == sizeof(handle), "pipe");
	ends_well(child);
}

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

/* It may have been without files for a moment. */
SCENARIO(a_process_that_hangs_up_is_asked_for_a_second)
{
	time_t begin = time(NULL);
	CUdeviceptr p;
	pthread_t thread;
	int opens = 0;

	(void)primary();
	play_exporter();
	pthread_create(&thread, NULL, hangs_up, NULL);
	do { /* a thread may sleep through that second */
		must(opened_by(played_handle(1), &p) == CUDA_ERROR_OPERATING_SYSTEM,
		     "another error");
	} while (atomic_load(&connections) <= ++opens && opens < 5);
	must(atomic_load(&connections) > opens, "it was not asked again");
	must(time(NULL) < begin + 25, "it is asked on and on");
}

/* --- an exporter whose thread does not start --- */

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

SCENARIO_PRIMARY(a_thread_that_did_not_start_is_started_later)
{
	CUipcMemHandle handle;
	int free_after;
	CUdeviceptr p = allocated(4096);
	int free_before = dup(0);

	threads_get((size_t)1 << 56); /* more than there are addresses */
	must(cuIpcGetMemHandle(&handle, p) == CUDA_ERROR_OPERATING_SYSTEM,
	     "there is a thread");
	threads_get(0);
	free_after = dup(0);
	must(free_after == free_before + 1, "its files are open still");
	must(cuIpcGetMemHandle(&handle, p) == CUDA_SUCCESS, "there is never a thread");
}

/* --- a process without files --- */

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

/* One that no file is left for is tried again, which costs little. */
SCENARIO_BEFORE_CUDA(a_connection_waits_for_a_file)
{
	struct rlimit files, none;
	int down[2];
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
	none = (struct rlimit){.rlim_max = files.rlim_max}; /* poll refuses, too */
	must(setrlimit(RLIMIT_NOFILE, &none) == 0, "no limit");
	before = seconds_used();
	must(write(down[1], &handle, sizeof(handle)) == sizeof(handle), "pipe");
	usleep(500 * 1000);
	must(seconds_used() - before < 0.2, "the thread does not rest");
	must(setrlimit(RLIMIT_NOFILE, &files) == 0, "no limit");
	ends_well(child);
}

static void opens_without_files(int from)
{
	CUipcMemHandle handle;
	struct rlimit none;
	CUdeviceptr p;

	OK(cuInit(0));
	(void)primary();
	must(read(from, &handle, sizeof(handle)) == sizeof(handle), "pipe");
	none = files_none();
	must(setrlimit(RLIMIT_NOFILE, &none) == 0, "no limit");
	must(opened_by(handle, &p) == CUDA_ERROR_OPERATING_SYSTEM, "another error");
}

/* The exporter lives. */
SCENARIO_BEFORE_CUDA(an_importer_without_files_does_not_say_that_the_process_has_ended)
{
	exports_to(opens_without_files, 4096);
}

/* --- a thread that is cancelled --- */

static bool asked_for_peers;

static void is_asked_for_peers(void)
{
	asked_for_peers = true;
	pthread_testcancel();
}

static void *is_cancelled_in_a_call(void *unused)
{
	CUcontext ctx;

	when_called("cuDeviceCanAccessPeer", is_asked_for_peers);
	pthread_cancel(pthread_self());
	OK(cuCtxCreate_v4(&ctx, NULL, 0, 0));
	pthread_testcancel();
	return unused;
}

/* A new context makes the library ask which devices can reach the import. */
static void is_cancelled_beside_an_import(int from)
{
	CUdeviceptr p = open_from(from);
	void *ended = play_elsewhere(is_cancelled_in_a_call, NULL);

	must(asked_for_peers && ended == PTHREAD_CANCELED,
	     "it was not cancelled there");
	OK(cuMemsetD8_v2(p, 1, MIB), cuIpcCloseMemHandle(p));
	must(gcpsim_faults() == 0, gcpsim_last_report());
}

SCENARIO_BEFORE_CUDA(a_thread_is_cancelled_beside_an_import, "GCPSIM_DEVICES=2")
{
	exports_to(is_cancelled_beside_an_import, MIB);
}

/* Once the library's thread knows that it is closed. */
static void memory_comes_back(void)
{
	CUresult result;
	CUdeviceptr p;

	AWAIT((result = cuMemAlloc_v2(&p, 600 * MIB)) == CUDA_SUCCESS);
	must(result == CUDA_SUCCESS, "it counts as open");
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

/* Refused, or without a file that is left. */
SCENARIO_BEFORE_CUDA(memory_whose_open_failed_is_used_again,
		     "GCPSIM_MEMORY=1G GCPT_REFUSED=1",
		     "GCPSIM_MEMORY=1G GCPT_REFUSED=0")
{
	bool refused = atoi(getenv("GCPT_REFUSED"));
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
	memory_comes_back();
	close(down[1]);
	ends_well(child);
}

static void *opens_for_two_devices(void *unused)
{
	CUdeviceptr p, q;
	CUcontext other;

	(void)primary();
	OK(opened_by(played_handle(1), &p), cuDevicePrimaryCtxRetain(&other, 1));
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
SCENARIO_PRIMARY(memory_open_for_another_device_stays_open, "GCPSIM_DEVICES=2")
{
	struct gcp_ipc_request request;
	pthread_t thread;
	int fd;
	int memory = memory_new();

	play_exporter();
	pthread_create(&thread, NULL, opens_for_two_devices, NULL);
	fd = connection_of_door(20 * 1000);
	answer_with(fd, memory);
	request = asked(fd);
	must(request.op == GCP_IPC_OPEN, "it does not ask again");
	must(gcp_ipc_send(fd, &played.reply, sizeof(played.reply), NULL, 0,
			  GCP_IPC_NO_WAIT),
	     "not sent");
	pthread_join(thread, NULL);
	must(asked(fd).open == request.open, "another one is closed");
	must(poll(&(struct pollfd){fd, POLLIN, 0}, 1, 1000) == 0, "it is closed");
}

/* --- an importer that gives up --- */

SCENARIO_PRIMARY(memory_whose_importer_gave_up_is_used_again, "GCPSIM_MEMORY=1G")
{
	struct gcp_ipc_request request;
	struct gcp_ipc_handle handle;
	struct pollfd ended = {.events = 0};
	CUdeviceptr p = allocated(600 * MIB);

	handle = handle_of(p);
	ended.fd = connected(&handle);
	must(ended.fd >= 0, "no connection");
	request = open_request(&handle);
	shutdown(ended.fd, SHUT_RD); /* as one that was closed, and is told of */
	must(
	    gcp_ipc_send(ended.fd, &request, sizeof(request), NULL, 0, GCP_IPC_NO_WAIT),
	    "not sent");
	poll(&ended, 1, 20 * 1000);
	OK(cuMemFree_v2(p));
	memory_comes_back();
}

/* --- an importer whose connection ends --- */

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

/* It lives on, and so does its work. In another PID namespace, where the system lets
 * this process make one. */
SCENARIO_BEFORE_CUDA(memory_of_a_process_that_closed_its_files_is_kept,
		     "GCPSIM_MEMORY=1G")
{
	int down[2], up[2];
	CUipcMemHandle handle;
	CUdeviceptr p;
	pid_t child;

	must(pipe(down) == 0 && pipe(up) == 0, "pipe");
	child = (pid_t)syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
	if (child < 0)
		child = fork();
	if (child == 0) {
		close(down[1]);
		opens_and_ends(down[0], up[1]);
	}
	OK(cuInit(0));
	(void)primary();
	p = allocated(600 * MIB);
	handle = exported(p);
	must(write(down[1], &handle, sizeof(handle)) == sizeof(handle), "pipe");
	must(read(up[0], &handle, 1) == 1 && read(up[0], &handle, 1) == 1, "pipe");
	OK(cuMemFree_v2(p));
	usleep(200 * 1000); /* until the end of the connection is known */
	must(cuMemAlloc_v2(&p, 600 * MIB) != CUDA_SUCCESS, "what is open is given out");
	close(down[1]);
	ends_well(child);
	memory_comes_back();
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

/* Of two processes: whether the question was answered while the exporter stood still.
 */
struct question {
	atomic_bool asked, answered, late;
};

static void wakes_after(pid_t exporter, struct question *question)
{
	AWAIT(atomic_load(&question->asked));
	AWAIT(atomic_load(&question->answered));
	atomic_store(&question->late, !atomic_load(&question->answered));
	kill(exporter, SIGCONT);
	_exit(0);
}

/* Stops a process: its threads notice one after the other. */
static void stop(pid_t process)
{
	kill(process, SIGSTOP);
	for (pid_t thread = process; thread < process + 99; thread++)
		AWAIT(!state_of(process, thread) || state_of(process, thread) == 'T');
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
	stop(exporter);
	pthread_create(&thread, NULL, opens_the_second, ctx);
	await_asleep(&second, &question->asked);
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
	int down[2];
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
	ends_well(child);
}
