/* SPDX-License-Identifier: MIT */
/*
 * grows.c - programs that use little memory for as long as they like, in situations in
 * which what they have freed becomes ready by another way than a fence.
 *
 *   grows SCENARIO    plays one; 0: it takes no more than it should
 *
 * Ways: GCPOOL_BACKEND=segments, GCPOOL_BACKEND=vmm
 */
#include <dlfcn.h>
#include <link.h>

#include "scenarios.h"

/* --- pinned memory ---------------------------------------------------------------- */

static atomic_bool stop;

static void work_that_goes_on(void *arg)
{
	(void)arg;
	while (!atomic_load(&stop))
		usleep(1000);
}

static void *ends_a_context(void *arg)
{
	OK(cuCtxDestroy(arg));
	return NULL;
}

/* Another thread destroys a context whose work does not end. */
SCENARIO(pinned_memory_beside_a_context_that_ends,
	 "GCPSIM_DEVICES=2 GCPOOL_BACKEND=segments")
{
	const size_t bytes = 16 * MIB;
	CUcontext ctx = primary(), other;
	CUstream stream;
	CUdeviceptr d;
	pthread_t thread;
	void *p;

	OK(cuCtxCreate(&other, NULL, 0, 1));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuLaunchHostFunc(stream, work_that_goes_on, NULL));
	OK(cuCtxSetCurrent(ctx));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	d = allocated(bytes);
	pthread_create(&thread, NULL, ends_a_context, other);
	while (gcpsim_calls("cuCtxDestroy_v2") + gcpsim_calls("cuCtxDestroy") == 0)
		sched_yield();
	for (int i = 0; i < 200; i++) {
		OK(cuMemHostAlloc(&p, bytes, 0));
		OK(cuMemcpyHtoDAsync(d, p, bytes, stream));
		OK(cuMemFreeHost(p));
	}
	must(gcpsim_calls("cuMemHostAlloc") < 60, "pinned memory grows");
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
}

/* --- stream-ordered memory, where no fence covers a context ----------------------- */

enum { TURNS = 60 };

static CUstream stream_new(unsigned int flags)
{
	CUstream stream;

	OK(cuStreamCreate(&stream, flags));
	return stream;
}

static void set_in(CUstream stream, CUdeviceptr p)
{
	OK(cuMemsetD8Async(p, 1, 4096, stream));
}

/* `to` is behind what `from` was given. */
static void follows(CUstream to, CUstream from)
{
	CUevent event;

	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	OK(cuEventRecord(event, from));
	OK(cuStreamWaitEvent(to, event, 0));
	OK(cuEventDestroy(event));
}

static size_t used(void)
{
	return gcpsim_memory_used(0);
}

/* But for what was freed before the library has learnt that fences fail. */
static void must_go_back(void)
{
	CUmemoryPool pool;

	OK(cuCtxSynchronize());
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemPoolTrimTo(pool, 0));
	must(used() <= 128 * MIB, "a trim gives nothing back");
}

/* Allocated in a stream, and freed in another one, or by cuMemFree. */
SCENARIO(memory_of_streams,
	 "GCPSIM_DRIVER_VERSION=12040 GCPSIM_HIDE=cuCtxRecordEvent,cuCtxWaitEvent",
	 "GCPSIM_DRIVER_VERSION=12040", "GCPSIM_FAIL=cuCtxRecordEvent:1+:801")
{
	CUstream stream = (primary(), stream_new(CU_STREAM_NON_BLOCKING));
	CUstream other = stream_new(CU_STREAM_NON_BLOCKING);

	for (int i = 0; i < 2 * TURNS; i++) {
		CUdeviceptr p;

		OK(cuMemAllocAsync(&p, 64 * MIB, stream));
		set_in(stream, p);
		if (i % 2) {
			follows(other, stream);
			OK(cuMemFreeAsync(p, other));
			OK(cuStreamSynchronize(other));
		} else {
			OK(cuStreamSynchronize(stream));
			OK(cuMemFree(p));
		}
		must(used() <= 256 * MIB, "memory of streams grows");
	}
	must_go_back();
}

/* Of cuMemAlloc, in streams of all kinds. */
SCENARIO(memory_freed_in_streams,
	 "GCPSIM_DRIVER_VERSION=12040 GCPSIM_HIDE=cuCtxRecordEvent,cuCtxWaitEvent",
	 "GCPSIM_DRIVER_VERSION=12040", "GCPSIM_FAIL=cuCtxRecordEvent:1+:801")
{
	CUcontext ctx = primary();
	CUstream streams[] = {
	    stream_new(CU_STREAM_NON_BLOCKING),
	    stream_new(CU_STREAM_DEFAULT),
	    CU_STREAM_LEGACY,
	    CU_STREAM_PER_THREAD,
	};

	int version = 0;

	(void)ctx;
	for (int i = 0; i < 4 * TURNS; i++) {
		CUstream stream = streams[i % 4];
		CUdeviceptr p = allocated(64 * MIB);

		set_in(stream, p);
		OK(cuMemFreeAsync(p, stream));
		OK(cuStreamSynchronize(stream));
		must(used() <= 256 * MIB, "memory freed in streams grows");
	}
	must(gcpsim_calls("cuCtxSynchronize") == 0, "a free waits");
	OK(cuDriverGetVersion(&version));
	must(version >= 12050 || gcpsim_calls("cuCtxRecordEvent") == 0,
	     "a driver that has no fences of contexts is asked for one");
	must_go_back();
}

/* What uses the block may be in the legacy stream, which blocking ones follow. */
SCENARIO(frees_in_streams_that_are_busy,
	 "GCPSIM_DRIVER_VERSION=12040 GCPSIM_HIDE=cuCtxRecordEvent,cuCtxWaitEvent",
	 "GCPSIM_DRIVER_VERSION=12040", "GCPSIM_FAIL=cuCtxRecordEvent:1+:801")
{
	CUstream apart = (primary(), stream_new(CU_STREAM_NON_BLOCKING));
	CUstream other = stream_new(CU_STREAM_NON_BLOCKING);
	CUstream joined = stream_new(CU_STREAM_DEFAULT);
	CUstream idle = stream_new(CU_STREAM_NON_BLOCKING);
	const struct {
		CUstream uses, frees;
	} cases[] = {
	    {apart, apart},
	    {CU_STREAM_LEGACY, CU_STREAM_LEGACY},
	    {joined, CU_STREAM_LEGACY},
	    {CU_STREAM_LEGACY, joined},
	    {CU_STREAM_LEGACY, CU_STREAM_PER_THREAD},
	};

	gcpsim_set_speed(GCPSIM_NEVER);
	for (int i = 0; i < 5; i++) {
		CUdeviceptr p = allocated(4 * MIB), q = allocated(4 * MIB);

		set_in(cases[i].uses, p);
		OK(cuMemFreeAsync(p, cases[i].frees));
		OK(cuMemFreeAsync(q, idle));
		must(cuStreamQuery(cases[i].uses) == CUDA_ERROR_NOT_READY,
		     "a free waits");
		for (int j = 0; j < 4; j++) {
			q = allocated(4 * MIB);
			set_in(other, q);
		}
		must(gcpsim_hazards() == 0, "the block is used again too early");
		OK(cuCtxSynchronize());
		must(cuMemFreeAsync(p, other) == CUDA_ERROR_INVALID_VALUE, "twice");
	}
}

/* By the library's own functions for frameworks. */
SCENARIO(memory_of_frameworks,
	 "GCPSIM_DRIVER_VERSION=12040 GCPSIM_HIDE=cuCtxRecordEvent,cuCtxWaitEvent",
	 "GCPSIM_DRIVER_VERSION=12040", "GCPSIM_FAIL=cuCtxRecordEvent:1+:801")
{
	int (*take)(void **, size_t, int, void *);
	int (*give)(void *, void *);
	CUstream stream = (primary(), stream_new(CU_STREAM_NON_BLOCKING));
	CUstream other = stream_new(CU_STREAM_NON_BLOCKING);
	void *p, *first = NULL;

	*(void **)&take = dlsym(RTLD_DEFAULT, "gcpool_malloc");
	*(void **)&give = dlsym(RTLD_DEFAULT, "gcpool_free");
	for (int i = 0; i < TURNS; i++) {
		must(take(&p, 64 * MIB, 0, stream) == 0, "gcpool_malloc");
		set_in(stream, (CUdeviceptr)(uintptr_t)p);
		follows(other, stream);
		must(give(p, other) == 0, "gcpool_free");
		OK(cuStreamSynchronize(other));
		must(used() <= 256 * MIB, "memory of frameworks grows");
	}
	gcpsim_set_speed(GCPSIM_NEVER);
	for (int i = 0; i < TURNS; i++) { /* at once in the same stream */
		must(take(&p, 8 * MIB, 0, stream) == 0, "gcpool_malloc");
		first = first ? first : p;
		must(p == first, "a stream's own block is not used again");
		set_in(stream, (CUdeviceptr)(uintptr_t)p);
		must(give(p, stream) == 0, "gcpool_free");
	}
	must(take(&p, 8 * MIB, 0, other) == 0, "gcpool_malloc");
	set_in(other, (CUdeviceptr)(uintptr_t)p);
	must(gcpsim_hazards() == 0, "the block is used again too early");
}

/* Events of one that is gone are not asked for. */
SCENARIO(contexts_that_end_beside_frees,
	 "GCPSIM_DRIVER_VERSION=12040 GCPSIM_HIDE=cuCtxRecordEvent,cuCtxWaitEvent",
	 "GCPSIM_DRIVER_VERSION=12040", "GCPSIM_FAIL=cuCtxRecordEvent:1+:801")
{
	for (int i = 0; i < 8; i++) {
		CUstream stream = (primary(), stream_new(CU_STREAM_NON_BLOCKING));
		CUdeviceptr p = allocated(4 * MIB);

		set_in(stream, p);
		OK(cuMemFreeAsync(p, stream));
		(void)allocated(4 * MIB);
		OK(cuDevicePrimaryCtxReset(0));
	}
	must(used() <= 64 * MIB, "memory of gone contexts stays");
}

static CUstreamCaptureMode mode_of_the_look;
static bool looked;

static void notes_the_mode(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	OK(cuThreadExchangeStreamCaptureMode(&mode));
	mode_of_the_look = mode;
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	looked = true;
}

/* Another thread's capture may begin just before an event is asked for: only in the
 * relaxed mode that leaves the capture alone. */
SCENARIO(a_capture_begins_beside_a_look,
	 "GCPSIM_DRIVER_VERSION=12040 GCPSIM_HIDE=cuCtxRecordEvent,cuCtxWaitEvent",
	 "GCPSIM_DRIVER_VERSION=12040", "GCPSIM_FAIL=cuCtxRecordEvent:1+:801")
{
	CUstream stream = (primary(), stream_new(CU_STREAM_NON_BLOCKING));

	gcpsim_set_speed(GCPSIM_NEVER);
	for (int i = 0; i < 3; i++) { /* the first may find out that fences fail */
		CUdeviceptr p = allocated(64 * MIB);

		set_in(stream, p);
		OK(cuMemFreeAsync(p, stream));
	}
	must(gcpsim_when_called("cuEventQuery", notes_the_mode) == 0, "no such call");
	(void)allocated(96 * MIB);
	must(looked, "no event is asked for");
	must(mode_of_the_look == CU_STREAM_CAPTURE_MODE_RELAXED,
	     "an event is asked for in a mode that harms captures");
}

/* A function of the driver, as a caller finds it that looks past the library. */
static void *of_the_driver(const char *name)
{
	const ElfW(Sym) *symbols = NULL;
	const char *names = NULL;
	struct link_map *map;
	Dl_info info;

	must(dladdr1(dlsym(RTLD_DEFAULT, "gcpsim_hazards"), &info, (void **)&map,
		     RTLD_DL_LINKMAP) != 0,
	     "no driver");
	for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
		if (entry->d_tag == DT_SYMTAB)
			symbols = (const void *)entry->d_un.d_ptr;
		if (entry->d_tag == DT_STRTAB)
			names = (const char *)entry->d_un.d_ptr;
	}
	/* The names follow the symbols. */
	for (; (const char *)symbols < names; symbols++)
		if (symbols->st_value && !strcmp(names + symbols->st_name, name))
			return (void *)(map->l_addr + symbols->st_value);
	must(false, "no such function");
	return NULL;
}

/* What its work uses waits, though the stream that has its handle is idle. */
SCENARIO(a_stream_is_destroyed_unseen,
	 "GCPSIM_DRIVER_VERSION=12040 GCPSIM_HIDE=cuCtxRecordEvent,cuCtxWaitEvent",
	 "GCPSIM_DRIVER_VERSION=12040", "GCPSIM_FAIL=cuCtxRecordEvent:1+:801")
{
	CUstream other = (primary(), stream_new(CU_STREAM_NON_BLOCKING));
	CUstream stream = stream_new(CU_STREAM_NON_BLOCKING), next;
	CUdeviceptr p, next_freed = allocated(MIB);
	CUresult (*destroy)(CUstream);

	*(void **)&destroy = of_the_driver("cuStreamDestroy_v2");
	gcpsim_set_speed(GCPSIM_NEVER);
	/* The first may find out that fences fail. */
	OK(cuMemFreeAsync(allocated(64 * MIB), stream));
	OK(cuMemFreeAsync(allocated(64 * MIB), stream));
	p = allocated(MIB);
	set_in(stream, p);
	OK(cuMemFreeAsync(p, stream));
	OK(destroy(stream));
	while ((next = stream_new(CU_STREAM_NON_BLOCKING)) != stream)
		OK(destroy(next));
	OK(cuMemFreeAsync(next_freed, next));
	for (int i = 0; i < 4; i++)
		set_in(other, allocated(MIB));
	must(gcpsim_hazards() == 0, "the block is used again too early");
}

/* --- the table -------------------------------------------------------------------- */
