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
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "scenarios.h"

/* --- streams ---------------------------------------------------------------------- */

/* Captures of this thread go into a pool that the program has named. False: there is
 * no library. */
static bool pool_named(void)
{
	int (*create)(uint64_t *), (*use)(uint64_t);
	uint64_t id;

	*(void **)&create = dlsym(RTLD_DEFAULT, "gcpool_graph_pool_create");
	*(void **)&use = dlsym(RTLD_DEFAULT, "gcpool_graph_pool_use");
	if (!create || !use)
		return false;
	must(create(&id) == 0 && use(id) == 0, "a pool is named");
	return true;
}

/* --- contexts ----------------------------------------------------------------------
 * One ends while it captures into a pool that the program has named. */
SCENARIO(context_with_memory_of_a_named_pool_ends)
{
	CUcontext ctx = primary(), other;
	CUstream inner, outer;
	CUgraph graph;

	OK(cuStreamCreate(&outer, CU_STREAM_NON_BLOCKING));
	OK(cuCtxCreate(&other, NULL, 0, 0));
	OK(cuStreamCreate(&inner, CU_STREAM_NON_BLOCKING));
	OK(cuMemFree(allocated(MIB)));
	if (pool_named()) {
		OK(cuStreamBeginCapture(inner, CU_STREAM_CAPTURE_MODE_RELAXED));
		OK(cuMemFree(allocated(MIB)));
		allocated(MIB); /* the same, which the capture's end has to order */
	}
	OK(cuCtxDestroy(other));
	OK(cuCtxSetCurrent(ctx));
	OK(cuStreamBeginCapture(outer, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuStreamEndCapture(outer, &graph));
	must(gcpsim_misuses() == 0, gcpsim_last_report());
}

/* --- contexts whose handle is used again ----------------------------------------- */

/* A context that another thread makes when the driver is done with the end of `gone`,
 * and before that call returns. */
static struct {
	pthread_t thread;
	CUcontext gone, made;
	atomic_int maker; /* the thread's number */
	atomic_bool is_made, gone_is_over;
} next;

/* The new context has a pool, once the call that ended the other one is over. */
static void *makes_the_next(void *unused)
{
	uint64_t frees;

	next.maker = (int)syscall(SYS_gettid);
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

static bool maker_sleeps(void)
{
	char path[64], state = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", next.maker);
	file = fopen(path, "r");
	must(file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1, "no state");
	if (file)
		fclose(file);
	return state == 'S';
}

/* Returns when the context is made, or its maker sleeps on and on: it waits for this
 * call. */
static void next_is_made(void)
{
	pthread_create(&next.thread, NULL, makes_the_next, NULL);
	for (int looks = 0; looks < 20 && !next.is_made;) {
		usleep(1000);
		looks = next.maker && maker_sleeps() ? looks + 1 : 0;
	}
}

SCENARIO(context_made_while_its_handle_is_being_released, "GCPSIM_HANDLES=again")
{
	CUcontext ctx = primary();

	OK(cuMemFree(allocated(MIB)));
	OK(cuCtxCreate(&next.gone, NULL, 0, 0));
	OK(cuMemFree(allocated(MIB)));
	must(gcpsim_when_called("cuCtxDestroy_v2", next_is_made) == 0, "no call");
	OK(cuCtxDestroy(next.gone));
	next.gone_is_over = true;
	pthread_join(next.thread, NULL);
	OK(cuCtxSetCurrent(ctx));
	OK(cuMemFree(allocated(MIB)));
	must(gcpsim_misuses() == 0, gcpsim_last_report());
}

/* --- graphs ------------------------------------------------------------------------
 * Two captures make two branches of one, and the first has freed its memory. */
SCENARIO(branches_of_a_graph_with_a_named_pool)
{
	CUgraphExec exec;
	CUstream stream;
	CUgraph graph;

	primary();
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemFree(allocated(MIB)));
	if (!pool_named())
		return;
	OK(cuGraphCreate(&graph, 0));
	for (unsigned char branch = 0; branch < 2; branch++) {
		CUdeviceptr p;

		OK(cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0,
					       CU_STREAM_CAPTURE_MODE_GLOBAL));
		p = allocated(MIB);
		OK(cuMemsetD8Async(p, branch, MIB, stream));
		OK(cuMemFree(p));
		OK(cuStreamEndCapture(stream, &graph));
	}
	OK(cuGraphInstantiate(&exec, graph, 0));
	OK(cuGraphLaunch(exec, stream));
	OK(cuStreamSynchronize(stream));
	must(gcpsim_hazards() == 0, "the branches share memory");
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
	CUstream stream;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 300; i++) {
		CUdeviceptr p = allocated(4 * MIB);

		if (writes)
			gcpsim_touch(p, 4 * MIB, 1);
		OK(cuMemsetD8Async(p, 1, 4 * MIB, stream));
		OK(cuMemFree(p));
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
SCENARIO(network_card_loaded_later, "BY=backends.py")
{
	CUdeviceptr kept;

	primary();
	kept = allocated(4 * MIB);
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
SCENARIO(stream_ordered_memory_beside_a_network_card,
	 "GCPSIM_DEVICES=2 GCPOOL_BACKEND=auto")
{
	CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1},
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemoryPool pool;
	uint64_t segments;
	CUstream stream;
	CUdeviceptr p;

	primary();
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemPoolSetAccess(pool, &access, 1));
	OK(cuMemAllocAsync(&p, MIB, stream));
	must(gcpsim_calls("cuMemAllocAsync") == 0, "it is not served");
	load_beside("libibverbs-1de1263b.so");
	OK(cuMemAllocAsync(&p, 64 * MIB, stream));
	must(gcpsim_calls("cuMemAllocAsync") == 1,
	     "memory out of the other one's reach");
	segments = gcpsim_calls("cuMemAlloc_v2");
	OK(cuMemAllocAsync(&p, 128 * MIB, stream));
	must(gcpsim_calls("cuMemAllocAsync") == 2, "memory out of its reach");
	must(gcpsim_calls("cuMemAlloc_v2") == segments, "a segment for nothing");
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
SCENARIO(card_is_told_of_synchronous_memory)
{
	int set = 1;

	primary();
	OK(cuPointerSetAttribute(&set, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
				 allocated(MIB)));
	work_with(true);
}

SCENARIO(card_is_told_of_a_handle)
{
	int fd;

	primary();
	OK(cuMemGetHandleForAddressRange(&fd, allocated(2 * MIB), 2 * MIB,
					 CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
	close(fd);
	work_with(true);
}

/* The driver here has none to give. */
SCENARIO(card_is_told_of_tokens)
{
	CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens;

	primary();
	(void)cuPointerGetAttribute(&tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS,
				    allocated(MIB));
	work_with(true);
}

/* --- launches ----------------------------------------------------------------- */

/* Fails for want of memory that the pool only keeps, as a kernel of much local memory.
 */
SCENARIO(launch_on_a_device_full_of_cache)
{
	unsigned long long ns = 1;
	void *parameters[] = {&ns};
	CUfunction function;
	CUmodule module;

	primary();
	OK(cuModuleLoadData(&module, ""));
	OK(cuModuleGetFunction(&function, module, "gcpt_spin"));
	OK(cuMemFree(allocated(64 * MIB)));
	OK(cuCtxSynchronize());
	must(gcpsim_fail("cuLaunchKernel:1") == 0, "the plan makes sense");
	OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
	must(gcpsim_memory_live(0) == 0, "the pool gave back what it could");
}

/* --- a child that the library does not know of ------------------------------------ */

static bool has_page(void)
{
	char pattern[64];
	glob_t found;
	bool there;

	snprintf(pattern, sizeof(pattern), "/dev/shm/gcpool.*/*.%d", (int)getpid());
	there = glob(pattern, 0, NULL, &found) == 0;
	if (there)
		globfree(&found);
	return there;
}

/* No handler of pthread_atfork runs, and those of exit do. */
SCENARIO(child_that_exits_leaves_the_live_page, "GCPOOL_LIVE=1")
{
	int status = 1;
	pid_t child;

	(void)primary();
	OK(cuMemFree(allocated(4096)));
	must(has_page(), "no page");
	child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (child == 0)
		exit(0);
	must(child > 0 && waitpid(child, &status, 0) == child && status == 0,
	     "no child");
	must(has_page(), "the child has taken the page away");
}
