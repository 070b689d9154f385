/* SPDX-License-Identifier: MIT */
/*
 * teardown.c - what ends while other threads work, and which devices write: rare
 * situations, as edge_cases.c.
 *
 *   teardown SCENARIO    plays one; 0: all is as on plain CUDA
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <sys/syscall.h>

#include "scenarios.h"

/* --- contexts whose handle is used again ----------------------------------------- */

/* A context that another thread makes when the driver is done with the end of `gone`,
 * and before that call returns. */
static struct {
	pthread_t thread;
	CUcontext gone, made;
	CUdeviceptr of_gone; /* a block */
	atomic_int maker;    /* the thread's number */
	atomic_bool is_made, gone_is_over;
} next;
static CUcontext ctx;

/* The new context has a pool, once the call that ended the other one is over. */
static void *makes_the_next(void *unused)
{
	uint64_t frees;

	next.maker = (int)syscall(SYS_gettid);
	/* It closes an epoch of the context that is gone. */
	OK(cuCtxSetCurrent(ctx));
	(void)cuMemFree(next.of_gone);
	OK(cuCtxCreate(&next.made, NULL, 0, 0));
	next.is_made = true;
	must(next.made == next.gone, "the handle is another one");
	while (!next.gone_is_over)
		sched_yield();
	frees = gcpsim_calls("cuMemFree_v2");
	for (int i = 0; i < 4; i++)
		OK(cuMemFree(allocated(MIB)));
	must(gcpsim_calls("cuMemFree_v2") == frees, "a new context has no pool");
	OK(cuCtxDestroy(next.made));
	return unused;
}

/* Returns when the context is made, or its maker sleeps on and on: it waits for this
 * call. */
static void next_is_made(void)
{
	pthread_create(&next.thread, NULL, makes_the_next, NULL);
	await_asleep(&next.maker, &next.is_made);
}

SCENARIO(context_made_while_its_handle_is_being_released, "GCPSIM_HANDLES=again")
{
	ctx = primary();
	OK(cuMemFree(allocated(MIB)), cuCtxCreate(&next.gone, NULL, 0, 0));
	next.of_gone = allocated(128 * MIB);
	OK(cuMemFree(allocated(MIB)));
	when_called("cuCtxDestroy_v2", next_is_made);
	OK(cuCtxDestroy(next.gone));
	next.gone_is_over = true;
	pthread_join(next.thread, NULL);
	OK(cuCtxSetCurrent(ctx), cuMemFree(allocated(MIB)));
	must(gcpsim_misuses() == 0, gcpsim_last_report());
}

/* --- contexts that end while other threads allocate ------------------------------- */

static _Atomic(CUcontext) latest;

/* Each call may fail. */
static void *allocates_on_and_on(void *unused)
{
	CUdeviceptr p;

	while (!next.gone_is_over)
		for (int i = (int)cuCtxSetCurrent(latest); i < 1000; i++) {
			size_t bytes = i % 2 ? 4096 : 9 * MIB;

			if ((i % 16 ? cuMemAlloc(&p, bytes)
				    : cuMemAllocAsync(&p, bytes, NULL)) == CUDA_SUCCESS)
				(void)cuMemFree(p);
		}
	return unused;
}

SCENARIO(primary_context_reset_while_another_thread_allocates)
{
	latest = primary();
	pthread_create(&next.thread, NULL, allocates_on_and_on, NULL);
	for (int i = 0; i < 40; i++) {
		usleep(2000);
		OK(cuDevicePrimaryCtxReset(0));
		latest = primary();
	}
	next.gone_is_over = true;
	pthread_join(next.thread, NULL);
	OK(cuMemFree(allocated(MIB)));
}

/* --- captures that begin while another one ends ---------------------------------- */

static CUstream first_stream, other_stream;
static atomic_bool has_joined, is_destroyed, other_begins;

static void *ends_a_capture(void *unused)
{
	OK(cuCtxSetCurrent(ctx));
	if (other_begins)
		OK(cuStreamBeginCapture(first_stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	(void)capture_end(first_stream);
	return unused;
}

static void ends_meanwhile(void)
{
	(void)play_elsewhere(ends_a_capture, NULL);
}

/* Another thread ends a capture before that call of this one returns. */
static void captured_beside(const char *call, bool begins)
{
	uint64_t fences;

	ctx = primary();
	other_begins = begins;
	first_stream = stream_new();
	when_called(call, ends_meanwhile);
	OK(cuStreamBeginCapture(first_stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	if (begins)
		(void)capture_end(first_stream);
	fences = gcpsim_calls("cuCtxRecordEvent");
	for (int i = 0; i < 100; i++)
		OK(cuMemFree(allocated(8 * MIB)));
	must(gcpsim_calls("cuCtxRecordEvent") > fences, "no fence is set any more");
}

SCENARIO(captures_of_two_threads_on_one_stream_end)
{
	captured_beside("cuStreamEndCapture", true);
}

SCENARIO(capture_that_ends_before_it_is_noted)
{
	captured_beside("cuStreamBeginCapture_v2", false);
}

/* On a stream with the handle of one that the other thread's capture had. */
static void *frees_beside_a_stream(void *unused)
{
	CUdeviceptr first, second, other;
	CUstream main_stream, side = NULL;
	CUevent event;

	OK(cuCtxSetCurrent(ctx));
	for (int i = 0; i < 64 && side != other_stream; i++)
		side = stream_new();
	must(side == other_stream, "the handle is another one");
	main_stream = stream_new();
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	OK(cuStreamBeginCapture(main_stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	first = allocated(3 * MIB);
	other = allocated(MIB);
	OK(cuEventRecord(event, main_stream), cuStreamWaitEvent(side, event, 0));
	has_joined = true;
	while (!is_destroyed)
		sched_yield();
	OK(cuMemsetD8Async(first, 1, MIB, side));
	OK(cuMemsetD8Async(other, 1, MIB, main_stream)); /* so it does not rest */
	OK(cuMemFree(first));
	second = allocated(3 * MIB);
	must(first != second, "memory is given out that another stream uses");
	OK(cuEventRecord(event, side), cuStreamWaitEvent(main_stream, event, 0));
	(void)capture_end(main_stream);
	return unused;
}

static void joins_meanwhile(void)
{
	pthread_create(&next.thread, NULL, frees_beside_a_stream, NULL);
	while (!has_joined)
		sched_yield();
}

SCENARIO(stream_made_while_its_handle_is_in_another_capture, "GCPSIM_HANDLES=again")
{
	CUcontext another;
	CUevent event;

	ctx = primary();
	first_stream = stream_new();
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	OK(cuCtxCreate(&another, NULL, 0, 0));
	OK(cuStreamCreate(&other_stream, CU_STREAM_NON_BLOCKING), cuCtxSetCurrent(ctx));
	OK(cuStreamBeginCapture(first_stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuEventRecord(event, first_stream));
	OK(cuStreamWaitEvent(other_stream, event, 0));
	when_called("cuCtxDestroy_v2", joins_meanwhile);
	OK(cuCtxDestroy(another));
	is_destroyed = true;
	pthread_join(next.thread, NULL);
}

/* --- devices that write by themselves ----------------------------------------- */

static bool storage_has_driver;

/* The library asks this one. */
__attribute__((visibility("default"))) int access(const char *path, int mode)
{
	if (!strstr(path, "/nvidia-fs"))
		return faccessat(AT_FDCWD, path, mode, 0);
	errno = ENOENT;
	return storage_has_driver ? 0 : -1;
}

static void load_beside(const char *library)
{
	char path[4096];
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);

	path[length > 0 ? length : 0] = 0;
	strcpy(strrchr(path, '/') + 1, library);
	must(dlopen(path, RTLD_NOW) != NULL, "the library is there");
}

/* A device that is in no stream's order writes into memory as soon as it has it. */
static void work_with(bool writes)
{
	CUstream stream = stream_new();

	for (int i = 0; i < 300; i++) {
		CUdeviceptr p = allocated(4 * MIB);

		if (writes)
			gcpsim_touch(p, 4 * MIB, 1);
		OK(cuMemsetD8Async(p, 1, 4 * MIB, stream), cuMemFree(p));
	}
	must(gcpsim_hazards() == 0, "it writes into memory that work still uses");
}

static void work_beside(const char *library, bool writes)
{
	load_beside(library);
	primary();
	work_with(writes);
}

/* What it is given from then on is no memory that was mapped for the program. */
SCENARIO_PRIMARY(network_card_loaded_later, "BY=backends.py")
{
	CUdeviceptr kept = allocated(4 * MIB);

	work_beside("libibverbs-1de1263b.so", true);
	OK(cuMemFree(kept));
}

/* As Python packages rename what they bring along. */
SCENARIO(network_card_of_a_bundled_library)
{
	work_beside("libibverbs-1de1263b.so", true);
}

/* Another device has access to the default pool: to mapped memory, which the library
 * can open, and to CUDA's. */
SCENARIO_PRIMARY(stream_ordered_memory_beside_a_network_card,
		 "GCPSIM_DEVICES=2 GCPOOL_BACKEND=auto")
{
	CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1},
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUstream stream = stream_new();
	CUmemoryPool pool;
	CUdeviceptr p;

	OK(cuDeviceGetDefaultMemPool(&pool, 0), cuMemPoolSetAccess(pool, &access, 1));
	OK(cuMemAllocAsync(&p, MIB, stream));
	must(gcpsim_calls("cuMemAllocAsync") == 0, "it is not served");
	load_beside("libibverbs-1de1263b.so");
	OK(cuMemAllocAsync(&p, 64 * MIB, stream));
	must(gcpsim_calls("cuMemAllocAsync") == 1,
	     "memory out of the other one's reach");
}

SCENARIO(storage_that_writes_by_itself)
{
	storage_has_driver = true;
	work_beside("libcufile.so", true);
}

/* PyTorch loads the library everywhere: that alone must not cost the barriers. */
SCENARIO(storage_that_is_read_through_the_host)
{
	work_beside("libcufile.so", false);
	must(gcpsim_calls("cuCtxWaitEvent") > 0, "memory is reused behind barriers");
}

/* A card whose driver no known library speaks to: video, or one of the program's own.
 * It is told of a block, and the next ones it may find by itself. */
SCENARIO_PRIMARY(card_is_told_of_synchronous_memory)
{
	int set = 1;

	OK(cuPointerSetAttribute(&set, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
				 allocated(MIB)));
	work_with(true);
}

SCENARIO_PRIMARY(card_is_told_of_a_handle)
{
	int fd;

	OK(cuMemGetHandleForAddressRange(&fd, allocated(2 * MIB), 2 * MIB,
					 CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
	close(fd);
	work_with(true);
}

SCENARIO_PRIMARY(card_is_told_of_tokens_among_others)
{
	CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_P2P_TOKENS;
	CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens;
	void *value = &tokens;

	(void)cuPointerGetAttributes(1, &attribute, &value, allocated(MIB));
	work_with(true);
}
