/* SPDX-License-Identifier: MIT */
/*
 * conform_sharing.c - memory handles for other processes, what one can ask about
 * addresses of every sort, and looking up functions: the transcript.
 */
#include "conform_apart.h"

#include <sys/socket.h>

enum { CHUNK = 2 << 20 };

static CUipcMemHandle handle;

/* --- memory of every sort ------------------------------------------------- */

struct sort {
	const char *name;
	CUdeviceptr at;
	bool of_host;
};

static CUdeviceptr mapped(bool open)
{
	static const CUmemAllocationProp prop = {
	    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
	};
	static const CUmemAccessDesc access = {
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
	    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
	CUmemGenericAllocationHandle h;
	CUdeviceptr va;

	MUST(cuMemAddressReserve(&va, 2 * CHUNK, 0, 0, 0));
	if (!open)
		return va;
	MUST(cuMemCreate(&h, CHUNK, &prop, 0), cuMemMap(va, CHUNK, 0, h, 0));
	MUST(cuMemSetAccess(va, CHUNK, &access, 1));
	return va;
}

static char pageable[8192] __attribute__((aligned(4096)));

static int every_sort(struct sort *sorts)
{
	CUdeviceptr small, big, pitched, managed, pooled, freed, hand = mapped(true);
	void *pinned, *tied;
	size_t pitch;

	MUST(cuMemAlloc(&small, 1000), cuMemAlloc(&big, CHUNK + 5));
	MUST(cuMemAllocPitch(&pitched, &pitch, 1000, 3, 4));
	MUST(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
	MUST(cuMemHostAlloc(&pinned, 4096, 0));
	MUST(cuMemHostAlloc(&tied, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	MUST(cuMemHostRegister(pageable, 4096, 0), cuMemAllocAsync(&pooled, 4096, s));
	MUST(cuStreamSynchronize(s), cuMemAlloc(&freed, 3 * CHUNK), cuMemFree(freed));
	const struct sort list[] = {
	    {"small", small, false},
	    {"inside a small one", small + 100, false},
	    {"the last byte of a small one", small + 999, false},
	    {"big", big, false},
	    {"the last byte of a big one", big + CHUNK + 4, false},
	    {"pitched", pitched + pitch, false},
	    {"managed", managed + 8, false},
	    {"pinned", (CUdeviceptr)(uintptr_t)pinned + 8, true},
	    {"pinned and mapped", (CUdeviceptr)(uintptr_t)tied, true},
	    {"registered", (CUdeviceptr)(uintptr_t)pageable + 8, true},
	    {"not registered", (CUdeviceptr)(uintptr_t)pageable + 4096, true},
	    {"of a pool", pooled + 8, false},
	    {"mapped by hand", hand + 8, false},
	    {"reserved behind it", hand + CHUNK, false},
	    {"reserved", mapped(false), false},
	    {"freed", freed, false},
	    {"none", 0, false},
	};

	memcpy(sorts, list, sizeof(list));
	return (int)(sizeof(list) / sizeof(list[0]));
}

static struct sort sorts[32];

/* --- asking --------------------------------------------------------------- */

static void ask(const char *name, CUpointer_attribute which, CUdeviceptr at)
{
	int number = 77;

	tell(name, (long long)cuPointerGetAttribute(&number, which, at));
	tell("...", number);
}

#define ASK(which) ask(#which, CU_POINTER_ATTRIBUTE_##which, at)

/* For attributes of eight bytes of which only a relation is the same everywhere. */
static void ask_long(const char *name, CUpointer_attribute which, CUdeviceptr at,
		     uint64_t same)
{
	uint64_t number = 77;

	tell(name, (long long)cuPointerGetAttribute(&number, which, at));
	tell("...is it", number == same);
	tell("...is it none", number == 0);
}

#define ASK_LONG(which, same) ask_long(#which, CU_POINTER_ATTRIBUTE_##which, at, same)

static void attributes(void)
{
	int count = every_sort(sorts);

	for (int i = 0; i < count; i++) {
		CUdeviceptr at = sorts[i].at, base = 0;
		size_t size = 0;

		printf("%s\n", sorts[i].name);
		TELL(cuMemGetAddressRange(&base, &size, at), base ? at - base : 0);
		TELL(size);
		ASK(MEMORY_TYPE);
		ASK(IS_MANAGED);
		ASK(DEVICE_ORDINAL);
		ASK(IS_LEGACY_CUDA_IPC_CAPABLE);
		ASK(MAPPED);
		ASK(SYNC_MEMOPS);
		ASK(IS_GPU_DIRECT_RDMA_CAPABLE);
		ASK_LONG(ACCESS_FLAGS, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
		ASK_LONG(ALLOWED_HANDLE_TYPES, 1);
		ASK_LONG(CONTEXT, (uintptr_t)conform_ctx);
		ASK_LONG(DEVICE_POINTER, at);
		ASK_LONG(HOST_POINTER, at);
		ASK_LONG(RANGE_START_ADDR, base);
		ASK_LONG(RANGE_SIZE, size);
		ASK_LONG(MEMPOOL_HANDLE, 1);
		ASK_LONG(BUFFER_ID, 0);
	}
}

/* The same for several attributes in one call. */
static void attributes_at_once(void)
{
	CUpointer_attribute which[] = {
	    CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_IS_MANAGED,
	    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_MAPPED,
	    CU_POINTER_ATTRIBUTE_HOST_POINTER,   CU_POINTER_ATTRIBUTE_RANGE_SIZE,
	};
	int count = every_sort(sorts);

	for (int i = 0; i < count; i++) {
		unsigned type = 77, managed = 77, in = 77, ordinal = 77;
		uint64_t host = 77, size = 77;
		void *data[] = {&type, &managed, &ordinal, &in, &host, &size};

		printf("%s\n", sorts[i].name);
		TELL(cuPointerGetAttributes(6, which, data, sorts[i].at), type);
		TELL(managed, (int)ordinal, in, host == sorts[i].at, host == 0, size);
	}
}

static void asked_wrongly(void)
{
	CUpointer_attribute which = (CUpointer_attribute)999;
	CUdeviceptr base = 7, q;
	size_t size = 7;
	unsigned number = 77, on = 1;
	void *data = &number, *none = NULL;

	TELL(cuPointerGetAttribute(&number, which, p));
	TELL(cuPointerGetAttributes(1, &which, &data, p));
	which = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
	TELL(cuPointerGetAttributes(0, &which, &data, p));
	TELL(cuPointerGetAttributes(1, &which, &none, p));
	TELL(cuPointerGetAttribute(NULL, which, p));
	TELL(cuMemGetAddressRange(&base, NULL, p + 8), base == p);
	TELL(cuMemGetAddressRange(NULL, &size, p + 8), size);
	TELL(cuMemGetAddressRange(&base, &size, p + 4096));
	MUST(cuMemAlloc(&q, 4096));
	TELL(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, q));
	TELL(cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, q));
	TELL(number);
	TELL(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, q + 8));
	TELL(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, q));
	TELL(cuMemFree(q));
	MUST(cuMemAlloc(&q, 4096));
	TELL(cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, q));
	TELL(number);
}

/* --- exporting ------------------------------------------------------------ */

static void exports(void)
{
	int count = every_sort(sorts);
	CUipcMemHandle again;
	CUdeviceptr q;

	for (int i = 0; i < count; i++) {
		printf("%s\n", sorts[i].name);
		TELL(cuIpcGetMemHandle(&handle, sorts[i].at));
	}
	MUST(cuIpcGetMemHandle(&handle, p), cuIpcGetMemHandle(&again, p));
	TELL(memcmp(&handle, &again, sizeof(handle)) == 0);
	MUST(cuIpcGetMemHandle(&again, p + 100));
	TELL(memcmp(&handle, &again, sizeof(handle)) == 0);
	MUST(cuMemAlloc(&q, 4096), cuIpcGetMemHandle(&again, q));
	TELL(memcmp(&handle, &again, sizeof(handle)) == 0, cuIpcGetMemHandle(NULL, p));
	TELL(cuIpcCloseMemHandle(p), cuIpcCloseMemHandle(12345));
	MUST(cuCtxSetCurrent(NULL));
	TELL(cuIpcGetMemHandle(&handle, p));
}

static void opened_at_home(void)
{
	CUdeviceptr q = 7;

	MUST(cuIpcGetMemHandle(&handle, p));
	for (unsigned flags = 0; flags < 3; flags++)
		TELL(cuIpcOpenMemHandle(&q, handle, flags));
	TELL(q == p, cuIpcCloseMemHandle(p));
}

static void nothing_opened(void)
{
	CUdeviceptr q;

	memset(&handle, 0, sizeof(handle));
	TELL(cuIpcOpenMemHandle(&q, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}

/* --- importing ------------------------------------------------------------ */

/* Two processes take turns: `give` lets the other one go on, `take` waits for it. A
 * handle goes along each time. */
static int line; /* to the other process */

static void give(void)
{
	fflush(stdout);
	if (write(line, &handle, sizeof(handle)) != sizeof(handle))
		exit(3);
}

static void take(void)
{
	if (read(line, &handle, sizeof(handle)) != sizeof(handle))
		exit(4);
}

static void with_another(const char *title, void (*exporter)(void),
			 void (*importer)(void))
{
	void (*const plays[])(void) = {exporter, importer};
	int lines[2], status;
	pid_t children[2];

	section(title);
	fflush(stdout);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, lines) != 0)
		exit(2);
	for (int i = 0; i < 2; i++) {
		children[i] = fork();
		if (children[i] != 0)
			continue;
		close(lines[!i]);
		line = lines[i];
		alarm(APART_SECONDS);
		tell_start(apart_argc, apart_argv);
		plays[i]();
		fflush(stdout);
		_exit(0);
	}
	close(lines[0]);
	close(lines[1]);
	for (int i = 0; i < 2; i++) {
		status = 0;
		waitpid(children[i], &status, 0);
		apart_ended(status);
	}
}

static void export_a_block(void)
{
	CUdeviceptr q, r;

	MUST(cuMemAlloc(&q, 10000), conform_fill(q, 2500, 70, s));
	MUST(cuStreamSynchronize(s), cuIpcGetMemHandle(&handle, q + 512));
	give(); /* 1: opens it, reads, writes */
	take();
	TELL(word_at(q), word_at(q + 9996));
	give(); /* 2: closes it */
	take();
	TELL(cuMemFree(q));
	MUST(cuMemAlloc(&q, 64 << 20), cuMemAlloc(&r, 64 << 20));
	MUST(cuIpcGetMemHandle(&handle, q));
	give(); /* 3: opens it and keeps it */
	take();
	TELL(cuMemFree(q));
	MUST(cuIpcGetMemHandle(&handle, r));
	TELL(cuMemFree(r));
	give(); /* 4: opens one that has been freed */
	take();
}

static void import_a_block(void)
{
	CUdeviceptr q = 7, again = 8, base;
	CUipcMemHandle of_it;
	size_t size;

	take();
	for (unsigned flags = 0; flags < 4; flags += 2)
		TELL(cuIpcOpenMemHandle(&q, handle, flags));
	TELL(cuIpcOpenMemHandle(&q, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	TELL(cuIpcOpenMemHandle(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	TELL(q == again, cuMemGetAddressRange(&base, &size, q + 100), base == q, size);
	TELL(word_at(q));
	CUdeviceptr at = q;
	ASK(MEMORY_TYPE);
	ASK(DEVICE_ORDINAL);
	ASK(IS_LEGACY_CUDA_IPC_CAPABLE);
	ASK(MAPPED);
	ASK_LONG(CONTEXT, (uintptr_t)conform_ctx);
	ASK_LONG(RANGE_SIZE, size);
	TELL(cuIpcGetMemHandle(&of_it, q), conform_fill(q, 2500, 71, s));
	TELL(cuStreamSynchronize(s));
	give();
	take();
	TELL(cuIpcCloseMemHandle(q + 512), cuIpcCloseMemHandle(q));
	TELL(cuMemGetAddressRange(&base, &size, q), cuIpcCloseMemHandle(q));
	TELL(cuMemGetAddressRange(&base, &size, q), cuIpcCloseMemHandle(q));
	give();
	take();
	TELL(cuIpcOpenMemHandle(&q, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	give();
	take();
	TELL(cuMemGetAddressRange(&base, &size, q), cuIpcCloseMemHandle(q));
	TELL(cuIpcOpenMemHandle(&q, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	give();
}

static void export_one(void)
{
	MUST(cuIpcGetMemHandle(&handle, p));
	give();
	take();
}

/* The importer frees what is not its own: the last thing it does. */
static void import_and_free(void)
{
	CUdeviceptr q = 0;

	take();
	MUST(cuIpcOpenMemHandle(&q, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	TELL(cuMemFreeAsync(q, s), cuMemFree(q), cuIpcCloseMemHandle(q));
	give();
}

static void export_two(void)
{
	CUdeviceptr other;

	MUST(cuMemAlloc(&other, 64 << 20), cuIpcGetMemHandle(&handle, p));
	give();
	MUST(cuIpcGetMemHandle(&handle, other));
	give();
	take();
}

#define OPEN(q) cuIpcOpenMemHandle(q, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)

/* Two contexts of one device, and the exporter's two allocations. */
static void import_in_two_contexts(void)
{
	CUdeviceptr q = 0, second = 0;
	CUipcMemHandle first;
	CUcontext other;

	take();
	TELL(OPEN(&q));
	MUST(cuCtxCreate(&other, NULL, 0, 0));
	TELL(OPEN(&second));
	first = handle;
	take();
	TELL(OPEN(&second), cuIpcCloseMemHandle(q), cuIpcCloseMemHandle(q));
	handle = first;
	TELL(OPEN(&q));
	MUST(cuCtxSetCurrent(conform_ctx));
	TELL(OPEN(&second), cuCtxDestroy(other), cuIpcCloseMemHandle(q), OPEN(&q));
	TELL(cuIpcCloseMemHandle(q));
	give();
}

/* Opening and closing while a capture is under way. */
static void import_in_captures(void)
{
	CUdeviceptr q = 0;

	take();
	for (int mode = 0; mode < 3; mode++) {
		tell("mode", mode);
		begin(s, (CUstreamCaptureMode)mode);
		TELL(
		    cuIpcOpenMemHandle(&q, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
		TELL(status_of(s));
		end(s);
		q = 0;
		MUST(
		    cuIpcOpenMemHandle(&q, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
		begin(s, (CUstreamCaptureMode)mode);
		TELL(cuIpcCloseMemHandle(q), status_of(s));
		end(s);
	}
	give();
}

/* --- looking up ----------------------------------------------------------- */

static void look(const char *name, int version, cuuint64_t flags)
{
	CUdriverProcAddressQueryResult found = (CUdriverProcAddressQueryResult)7;
	void *pfn = &found;
	char line_of_it[80];

	snprintf(line_of_it, sizeof(line_of_it), "%s %d %d", name, version, (int)flags);
	tell(line_of_it,
	     (long long)cuGetProcAddress(name, &pfn, version, flags, &found));
	tell("...is there", pfn != NULL && pfn != (void *)&found);
	tell("...untouched", pfn == (void *)&found);
	tell("...found", found);
}

static void lookups(void)
{
	static const int versions[] = {0, 1, 3020, 11020, 12000, 12050, 13000};
	static const char *const names[] = {"cuMemAlloc",
					    "cuMemAllocAsync",
					    "cuGetProcAddress",
					    "cuCtxCreate",
					    "cuGraphLaunch",
					    "cuStreamGetCaptureInfo",
					    "cumemalloc",
					    "cuMemAlloc_v2",
					    "cuMemAllocAsync_ptsz",
					    " cuMemAlloc",
					    "cuGraphInstantiateWithFlags"};
	void *legacy = NULL, *own = NULL;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		for (size_t j = 0; j < sizeof(versions) / sizeof(versions[0]); j++)
			look(names[i], versions[j], 0);
	for (cuuint64_t flags = 0; flags < 5; flags++)
		look("cuMemAllocAsync", 12000, flags);
	TELL(cuGetProcAddress("cuMemAlloc", &legacy, 12000, 0, NULL));
	TELL(cuGetProcAddress("cuNoSuch", &legacy, 12000, 0, NULL), legacy == NULL);
	MUST(cuGetProcAddress("cuMemAllocAsync", &legacy, 12000, 1, NULL));
	MUST(cuGetProcAddress("cuMemAllocAsync", &own, 12000, 2, NULL));
	TELL(legacy == own);
	MUST(cuGetProcAddress("cuMemAlloc", &legacy, 12000, 1, NULL));
	MUST(cuGetProcAddress("cuMemAlloc", &own, 12000, 2, NULL));
	TELL(legacy == own);
}

int main(int argc, char **argv)
{
	apart_init(argc, argv);
	APART(attributes);
	APART(attributes_at_once);
	APART(asked_wrongly);
	APART(exports);
	APART(opened_at_home);
	APART(nothing_opened);
	with_another("a block in two processes", export_a_block, import_a_block);
	with_another("imports in captures", export_one, import_in_captures);
	with_another("imports in two contexts", export_two, import_in_two_contexts);
	with_another("an import that is freed", export_one, import_and_free);
	APART(lookups);
	return 0;
}
