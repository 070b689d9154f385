/* SPDX-License-Identifier: MIT */
/*
 * test_process.c - the simulated driver as a part of a process: lookups and
 * versions, planned failures, the environment, fork, exit, other processes.
 *
 * What must happen at the start of a process runs in a child: this program
 * started anew with the name of a scene.
 */
#include "scene.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

static char program[4096];

/* --- scenes: processes of their own --------------------------------------- */

static void start(void)
{
	void *unused = NULL;

	scene_open(&unused);
}

static int scene_old_driver(void)
{
	CUdriverProcAddressQueryResult found;
	CUevent e;
	void *pfn;

	start();
	e = event_new();
	OK(cuGetProcAddress("cuCtxRecordEvent", &pfn, 12000, 0, &found));
	assert_int_equal(found, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	assert_int_equal(cuCtxRecordEvent(scene_ctx, e),
			 CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER);
	return 0;
}

/* One function less, and a driver's version that has others not yet. */
static int scene_hidden(void)
{
	CUdriverProcAddressQueryResult found;
	CUresult (*wait)(CUcontext, CUevent);
	void *pfn;

	start();
	*(void **)&wait = dlsym(RTLD_DEFAULT, "cuCtxWaitEvent");
	assert_non_null(wait);
	assert_int_equal(gcpsim_hide("cuCtxWaitEvent,cuMemFreeAsync"), 0);
	assert_null(dlsym(RTLD_DEFAULT, "cuCtxWaitEvent"));
	assert_null(dlsym(RTLD_DEFAULT, "cuMemFreeAsync"));
	assert_null(dlsym(RTLD_DEFAULT, "cuMemFreeAsync_ptsz"));
	assert_non_null(dlsym(RTLD_DEFAULT, "cuCtxRecordEvent"));
	assert_non_null(dlsym(RTLD_DEFAULT, "cuMemFree_v2"));
	OK(cuGetProcAddress("cuCtxWaitEvent", &pfn, 13000, 0, &found));
	assert_int_equal(found, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	assert_int_equal(gcpsim_misuses(), 0);
	wait(scene_ctx, event_new());
	assert_int_equal(gcpsim_misuses(), 1);
	return 0;
}

static int scene_hidden_by_version(void)
{
	start();
	assert_null(dlsym(RTLD_DEFAULT, "cuCtxRecordEvent"));
	assert_non_null(dlsym(RTLD_DEFAULT, "cuGreenCtxCreate"));
	return 0;
}

static int scene_hazard(void)
{
	start();
	fill(p, 1, s);
	fill(p, 2, t);
	return 0;
}

static int scene_failing(void)
{
	CUdeviceptr q;

	assert_int_equal(cuInit(0), CUDA_ERROR_NO_DEVICE);
	OK(cuInit(0));
	start();
	assert_int_equal(cuMemAlloc(&q, 4), CUDA_ERROR_OUT_OF_MEMORY);
	return 0;
}

static int scene_devices(void)
{
	CUcontext second;
	CUdeviceptr q;
	int count;

	start();
	OK(cuDeviceGetCount(&count));
	assert_int_equal(count, 2);
	OK(cuDevicePrimaryCtxRetain(&second, 1));
	OK(cuCtxSetCurrent(second));
	OK(cuMemAlloc(&q, BYTES));
	assert_int_equal(cuMemAlloc(&q, 64 << 20), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuCtxSetCurrent(scene_ctx));
	OK(cuMemcpyPeer(q, second, p, scene_ctx, BYTES));
	OK(cuCtxSynchronize());
	OK(cuCtxEnablePeerAccess(second, 0));
	fill(q, 1, s);
	OK(cuCtxSynchronize());
	OK(cuCtxDisablePeerAccess(second));
	fill(q, 1, s);
	assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	return 0;
}

/* What a fence of each context says of a copy that is not done. */
static void fences_are(CUcontext second, CUresult first_says, CUresult second_says)
{
	CUcontext contexts[] = {scene_ctx, second};
	CUresult says[] = {first_says, second_says};
	CUevent event;

	for (int i = 0; i < 2; i++) {
		OK(cuCtxSetCurrent(contexts[i]));
		OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
		OK(cuCtxRecordEvent(contexts[i], event));
		assert_int_equal(cuEventQuery(event), says[i]);
		OK(cuEventDestroy(event));
	}
	for (int i = 0; i < 2; i++) {
		OK(cuCtxSetCurrent(contexts[i]));
		OK(cuCtxSynchronize());
	}
	OK(cuCtxSetCurrent(scene_ctx));
}

/* As tests/gpu/results/mapped-memory.md has it. */
static int scene_copies(void)
{
	const CUresult done = CUDA_SUCCESS, pending = CUDA_ERROR_NOT_READY;
	CUcontext second;
	CUdeviceptr q;

	start();
	OK(cuDevicePrimaryCtxRetain(&second, 1));
	OK(cuCtxSetCurrent(second));
	OK(cuMemAlloc(&q, BYTES));
	OK(cuCtxSetCurrent(scene_ctx));
	OK(cuMemcpyAsync(q, p, BYTES, s));
	fences_are(second, pending, pending);
	OK(cuCtxEnablePeerAccess(second, 0));
	OK(cuMemcpyAsync(q, p, BYTES, s));
	fences_are(second, pending, done);
	OK(cuMemcpyAsync(p, q, BYTES, s));
	fences_are(second, pending, done);
	OK(cuCtxSetCurrent(second));
	OK(cuCtxEnablePeerAccess(scene_ctx, 0));
	OK(cuCtxSetCurrent(scene_ctx));
	OK(cuMemcpyAsync(q, p, BYTES, s));
	fences_are(second, pending, done);
	OK(cuMemcpyAsync(p, q, BYTES, s));
	fences_are(second, done, pending);
	OK(cuCtxDisablePeerAccess(second));
	OK(cuMemcpyAsync(q, p, BYTES, s));
	fences_are(second, done, pending);
	return 0;
}

static void bytes_from_hex(void *data, size_t size, const char *hex)
{
	for (size_t i = 0; i < size; i++)
		sscanf(hex + 2 * i, "%2hhx", (unsigned char *)data + i);
}

/* argument: a memory handle in hex; checks that BYTES of 7 are there. */
static int scene_import(const char *hex)
{
	CUipcMemHandle handle;
	CUdeviceptr q, again;

	start();
	bytes_from_hex(&handle, sizeof(handle), hex);
	handle.reserved[20] ^= 1;
	assert_int_equal(
	    cuIpcOpenMemHandle(&q, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
	    CUDA_ERROR_INVALID_VALUE);
	handle.reserved[20] ^= 1;
	OK(cuIpcOpenMemHandle(&q, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	OK(cuIpcOpenMemHandle(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	assert_int_equal(q, again);
	check(q, 7, s);
	OK(cuStreamSynchronize(s));
	assert_int_equal(wrong_words(), 0);
	fill(q, 8, s);
	OK(cuStreamSynchronize(s));
	OK(cuIpcCloseMemHandle(q));
	OK(cuIpcCloseMemHandle(q));
	assert_int_equal(cuIpcCloseMemHandle(q), CUDA_ERROR_INVALID_VALUE);
	return 0;
}

static int scene_run(int argc, char **argv)
{
	if (!strcmp(argv[1], "hidden"))
		return scene_hidden();
	if (!strcmp(argv[1], "hidden_by_version"))
		return scene_hidden_by_version();
	if (!strcmp(argv[1], "old_driver"))
		return scene_old_driver();
	if (!strcmp(argv[1], "hazard"))
		return scene_hazard();
	if (!strcmp(argv[1], "failing"))
		return scene_failing();
	if (!strcmp(argv[1], "devices"))
		return scene_devices();
	if (!strcmp(argv[1], "copies"))
		return scene_copies();
	if (!strcmp(argv[1], "import") && argc > 2)
		return scene_import(argv[2]);
	return 2;
}

/* Starts a scene with a variable set; gives its exit status. */
static int scene_status(const char *name, const char *argument, const char *variable,
			const char *value)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		if (variable)
			setenv(variable, value, 1);
		execl(program, program, name, argument, NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* --- tests ---------------------------------------------------------------- */

TEST(an_old_driver_lacks_what_came_later)
{
	assert_int_equal(
	    scene_status("old_driver", NULL, "GCPSIM_DRIVER_VERSION", "12000"), 0);
}

TEST(an_older_driver_has_no_such_function)
{
	assert_int_equal(scene_status("hidden", NULL, NULL, NULL), 0);
	setenv("GCPSIM_DRIVER_VERSION", "12040", 1);
	assert_int_equal(scene_status("hidden_by_version", NULL, "GCPSIM_HIDE", ""), 0);
	unsetenv("GCPSIM_DRIVER_VERSION");
}

TEST(a_hazard_can_fail_the_process)
{
	assert_int_equal(scene_status("hazard", NULL, NULL, NULL), 0);
	assert_int_equal(scene_status("hazard", NULL, "GCPSIM_HAZARD_EXIT", "1"), 99);
}

TEST(a_report_is_written_at_exit)
{
	char path[] = "/tmp/gcpsim-report-XXXXXX", line[4096];
	int fd = mkstemp(path);
	FILE *file;

	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(scene_status("hazard", NULL, "GCPSIM_REPORT", path), 0);
	file = fopen(path, "r");
	assert_non_null(file);
	assert_non_null(fgets(line, sizeof(line), file));
	fclose(file);
	unlink(path);
	assert_non_null(strstr(line, "hazards=1 disorders=0 faults=0 misuses=0"));
	assert_non_null(strstr(line, " live_bytes=4104"));
	assert_non_null(strstr(line, " cuMemAlloc_v2=2"));
}

TEST(the_environment_plans_failures)
{
	assert_int_equal(
	    scene_status("failing", NULL, "GCPSIM_FAIL", "cuInit:1:100,cuMemAlloc:3+"),
	    0);
}

TEST(devices_have_memory_of_their_own)
{
	setenv("GCPSIM_MEMORY", "64M", 1);
	assert_int_equal(scene_status("devices", NULL, "GCPSIM_DEVICES", "2"), 0);
	unsetenv("GCPSIM_MEMORY");
}

TEST(one_of_two_devices_does_a_copy)
{
	setenv("GCPSIM_SPEED", "never", 1);
	assert_int_equal(scene_status("copies", NULL, "GCPSIM_DEVICES", "2"), 0);
	unsetenv("GCPSIM_SPEED");
}

TEST(another_process_opens_the_whole_allocation)
{
	char hex[2 * sizeof(CUipcMemHandle) + 1];
	CUipcMemHandle handle, inner;
	CUdeviceptr q;

	OK(cuMemAlloc(&q, BYTES)); /* not at a page of its own */
	fill(q, 7, s);
	OK(cuStreamSynchronize(s));
	OK(cuIpcGetMemHandle(&handle, q));
	OK(cuIpcGetMemHandle(&inner, q + 512));
	assert_memory_equal(&handle, &inner, sizeof(handle));
	for (size_t i = 0; i < sizeof(handle); i++)
		sprintf(hex + 2 * i, "%02x", ((unsigned char *)&handle)[i]);
	assert_int_equal(scene_status("import", hex, NULL, NULL), 0);
	check(q, 8, s);
	OK(cuStreamSynchronize(s));
	assert_int_equal(wrong_words(), 0);
}

TEST(cuda_does_not_survive_a_fork)
{
	CUdeviceptr q;
	int status;
	pid_t child = fork();

	if (child == 0)
		_exit(cuMemAlloc(&q, 4) == CUDA_ERROR_NOT_INITIALIZED &&
			      cuInit(0) == CUDA_ERROR_NOT_INITIALIZED
			  ? 0
			  : 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

TEST(a_planned_failure_comes_while_memory_is_out)
{
	uint64_t used = gcpsim_memory_used(0);
	CUdeviceptr q;
	CUevent event;
	size_t total;

	OK(cuDeviceTotalMem(&total, 0));
	gcpsim_set_memory(0, used + (8 << 20));
	assert_int_equal(gcpsim_fail("cuEventCreate:<8M"), 0);
	OK(cuEventCreate(&event, 0));
	OK(cuMemAlloc(&q, 4 << 20));
	assert_int_equal(cuEventCreate(&event, 0), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemFree(q));
	OK(cuEventCreate(&event, 0));
	assert_int_equal(gcpsim_fail(NULL), 0);
	gcpsim_set_memory(0, total);
}

TEST(a_planned_failure_comes_when_planned)
{
	CUdeviceptr q;

	assert_int_equal(gcpsim_fail("cuMemAlloc:2"), 0);
	OK(cuMemAlloc(&q, 4));
	assert_int_equal(cuMemAlloc(&q, 4), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemAlloc(&q, 4));
	assert_int_equal(gcpsim_fail("cuCtxSynchronize:1+:999"), 0);
	assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_UNKNOWN);
	assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_UNKNOWN);
	assert_int_equal(gcpsim_fail("cuNoSuch:1"), -1);
	assert_int_equal(gcpsim_fail("cuMemAlloc:<0"), -1);
	assert_int_equal(gcpsim_fail("cuMemAlloc:<1M@99"), -1);
	assert_int_equal(gcpsim_fail(NULL), 0);
	OK(cuCtxSynchronize());
}

TEST(calls_are_counted)
{
	uint64_t before = gcpsim_calls("cuStreamQuery"), all = gcpsim_calls(NULL);

	cuStreamQuery(s);
	cuStreamQuery(t);
	assert_int_equal(gcpsim_calls("cuStreamQuery") - before, 2);
	assert_int_equal(gcpsim_calls(NULL) - all, 2);
	assert_true(gcpsim_calls("cuNoSuch") == UINT64_MAX);
}

TEST(lookups_know_versions)
{
	CUdriverProcAddressQueryResult found;
	void *pfn, *own = dlsym(RTLD_DEFAULT, "cuStreamBeginCapture_v2_ptsz");

	OK(cuGetProcAddress("cuStreamBeginCapture", &pfn, 10000, 0, &found));
	assert_ptr_equal(pfn, dlsym(RTLD_DEFAULT, "cuStreamBeginCapture"));
	OK(cuGetProcAddress("cuStreamBeginCapture", &pfn, 12000, 0, NULL));
	assert_ptr_equal(pfn, dlsym(RTLD_DEFAULT, "cuStreamBeginCapture_v2"));
	OK(cuGetProcAddress("cuStreamBeginCapture", &pfn, 12000, 2, &found));
	assert_non_null(own);
	assert_ptr_equal(pfn, own);
	OK(cuGetProcAddress("cuMemAlloc", &pfn, 12000, 2, &found));
	assert_ptr_equal(pfn, dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
	OK(cuGetProcAddress("cuGetProcAddress", &pfn, 11030, 0, &found));
	assert_ptr_equal(pfn, dlsym(RTLD_DEFAULT, "cuGetProcAddress"));
	OK(cuGetProcAddress("cuGetProcAddress", &pfn, 12000, 0, &found));
	assert_ptr_equal(pfn, dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2"));
	OK(cuGetProcAddress("cuCtxRecordEvent", &pfn, 12040, 0, &found));
	assert_null(pfn);
	assert_int_equal(found, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
}

TEST(the_per_thread_stream_is_the_threads_own)
{
	typedef CUresult (*query)(CUstream stream);
	query per_thread;
	void *pfn;

	OK(cuGetProcAddress("cuStreamQuery", &pfn, 7000, 2, NULL));
	memcpy(&per_thread, &pfn, sizeof(pfn));
	spin(1000, CU_STREAM_PER_THREAD);
	assert_int_equal(per_thread(NULL), CUDA_ERROR_NOT_READY);
	OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
	OK(per_thread(NULL));
}

/* A scene that a test has started, in place of the tests. */
__attribute__((constructor)) static void scene_is_run(int argc, char **argv)
{
	if (argc > 1)
		exit(scene_run(argc, argv));
	if (readlink("/proc/self/exe", program, sizeof(program) - 1) < 0)
		exit(2);
}
