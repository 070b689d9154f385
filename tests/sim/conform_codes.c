/*
 * conform_codes.c - result codes of captures, graphs, memory and handles that
 * are used in ways which are not quite right: the transcript.
 */
#include "conform.h"

#include <pthread.h>

static CUstream s, t, legacy = CU_STREAM_LEGACY;
static CUdeviceptr p;

static void tell(const char *what, long long value)
{
	printf("%-66s %lld\n", what, value);
}

#define TELL(call) tell(#call, (long long)(call))

static int status_of(CUstream stream)
{
	CUstreamCaptureStatus status = (CUstreamCaptureStatus)9;
	CUresult result = cuStreamIsCapturing(stream, &status);

	return result ? 1000 + (int)result : (int)status;
}

static CUstream new_stream(unsigned flags)
{
	CUstream stream;

	MUST(cuStreamCreate(&stream, flags));
	return stream;
}

static CUevent new_event(void)
{
	CUevent event;

	MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	return event;
}

static void section(const char *title)
{
	printf("\n%s\n", title);
}

static void begin(CUstream stream, CUstreamCaptureMode mode)
{
	MUST(cuStreamBeginCapture(stream, mode));
}

/* --- captures ----------------------------------------------------------------------
 */

static CUgraph graph;

static CUresult end(CUstream stream)
{
	graph = (CUgraph)1;
	return cuStreamEndCapture(stream, &graph);
}

static void *end_elsewhere(void *result)
{
	MUST(cuCtxSetCurrent(conform_ctx));
	*(CUresult *)result = end(s);
	return NULL;
}

static CUresult end_in_thread(void)
{
	CUresult result;
	pthread_t thread;

	pthread_create(&thread, NULL, end_elsewhere, &result);
	pthread_join(thread, NULL);
	return result;
}

static void capture_ends(void)
{
	section("ending a capture");
	TELL(end(s));
	TELL(end(legacy));
	begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	TELL(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	TELL(status_of(s));
	TELL(cuStreamBeginCapture(t, CU_STREAM_CAPTURE_MODE_GLOBAL));
	TELL(end(t));
	TELL(end_in_thread());
	TELL(status_of(s));
	TELL(end(s));
	TELL(graph == NULL);
	TELL(end(s));
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	TELL(end_in_thread());
	begin(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	TELL(end_in_thread());
	TELL(end(s));
	TELL(cuStreamBeginCapture(legacy, CU_STREAM_CAPTURE_MODE_RELAXED));
	TELL(
	    cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
	TELL(end(CU_STREAM_PER_THREAD));
	TELL(cuStreamBeginCapture(s, (CUstreamCaptureMode)7));
	TELL(status_of(legacy));
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	TELL(cuMemcpyDtoH(&graph, p, 4));
	TELL(cuStreamSynchronize(s));
	TELL(status_of(s));
	TELL(conform_fill(p, 4, 1, s));
	TELL(cuStreamSynchronize(s));
	TELL(cuStreamQuery(s));
	TELL(end(s));
	TELL(graph == NULL);
	TELL(status_of(s));
}

static void capture_forks(void)
{
	CUevent fork = new_event(), join = new_event(), out = new_event();

	section("forks and joins");
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	MUST(conform_fill(p, 4, 1, s));
	TELL(cuEventRecord(fork, s));
	TELL(cuStreamWaitEvent(t, fork, 0));
	TELL(status_of(t));
	TELL(conform_fill(p, 4, 1, t));
	TELL(end(t));
	TELL(status_of(t));
	TELL(end(s));
	TELL(graph == NULL);
	TELL(status_of(t));
	TELL(end(s));
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	TELL(cuEventRecord(fork, s));
	TELL(cuStreamWaitEvent(t, fork, 0));
	TELL(status_of(t));
	TELL(end(s));
	TELL(status_of(t));
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	MUST(conform_fill(p, 4, 1, s));
	TELL(cuEventRecord(fork, s));
	TELL(cuStreamWaitEvent(t, fork, 0));
	TELL(end(s));
	TELL(status_of(t));
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	TELL(cuEventRecord(fork, s));
	TELL(cuStreamWaitEvent(t, fork, 0));
	TELL(conform_fill(p, 4, 1, t));
	TELL(cuEventRecord(join, t));
	TELL(cuStreamWaitEvent(s, join, 0));
	TELL(end(s));
	TELL(graph == NULL);
	TELL(status_of(t));
	TELL(cuEventQuery(fork));
	TELL(cuEventSynchronize(fork));
	TELL(cuStreamWaitEvent(t, fork, 0));
	TELL(status_of(t));
	TELL(cuEventRecord(fork, t));
	TELL(cuEventQuery(new_event()));
	section("crossing captures");
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	begin(t, CU_STREAM_CAPTURE_MODE_RELAXED);
	TELL(cuEventRecord(fork, s));
	TELL(cuStreamWaitEvent(t, fork, 0));
	TELL(status_of(s));
	TELL(status_of(t));
	TELL(end(s));
	TELL(end(t));
	MUST(cuEventRecord(out, t));
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	TELL(cuStreamWaitEvent(s, out, 0));
	TELL(status_of(s));
	TELL(end(s));
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	TELL(cuStreamWaitEvent(s, new_event(), 0));
	TELL(status_of(s));
	TELL(end(s));
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	TELL(cuEventRecord(fork, s));
	TELL(cuEventQuery(fork));
	TELL(status_of(s));
	TELL(cuEventSynchronize(fork));
	TELL(status_of(s));
	TELL(cuStreamWaitEvent(legacy, fork, 0));
	TELL(status_of(s));
	TELL(end(s));
	section("destroying what captures");
	CUstream u = new_stream(CU_STREAM_NON_BLOCKING);
	begin(u, CU_STREAM_CAPTURE_MODE_RELAXED);
	MUST(conform_fill(p, 4, 1, u));
	TELL(cuStreamDestroy(u));
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	u = new_stream(CU_STREAM_NON_BLOCKING);
	TELL(cuEventRecord(fork, s));
	TELL(cuStreamWaitEvent(u, fork, 0));
	TELL(conform_fill(p, 4, 1, u));
	TELL(cuStreamDestroy(u));
	TELL(status_of(s));
	TELL(end(s));
}

static void capture_info(void)
{
	CUstreamCaptureStatus status;
	const CUgraphNode *deps;
	cuuint64_t id, first;
	size_t count;
	CUgraph g;

	section("capture info");
	TELL(cuStreamGetCaptureInfo(s, &status, &id, &g, &deps, NULL, &count));
	TELL(status);
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	TELL(cuStreamGetCaptureInfo(s, &status, &first, &g, &deps, NULL, &count));
	TELL(status);
	TELL(count);
	TELL(g != NULL);
	MUST(conform_fill(p, 4, 1, s));
	TELL(cuStreamGetCaptureInfo(s, &status, &id, &g, &deps, NULL, &count));
	TELL(count);
	TELL(id == first);
	TELL(cuStreamUpdateCaptureDependencies(s, NULL, NULL, 0,
					       CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	MUST(conform_fill(p, 4, 1, s));
	TELL(cuGraphGetRootNodes(g, NULL, &count));
	TELL(count);
	TELL(end(s));
	TELL(graph == g);
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	TELL(cuStreamGetCaptureInfo(s, &status, &id, NULL, NULL, NULL, NULL));
	TELL(id != first);
	TELL(cuStreamSynchronize(s));
	TELL(cuStreamGetCaptureInfo(s, &status, &id, &g, &deps, NULL, &count));
	TELL(status);
	TELL(end(s));
	TELL(cuStreamUpdateCaptureDependencies(s, NULL, NULL, 0, 0));
	section("capture into a graph");
	CUgraph own;
	CUgraphExec exec;
	MUST(cuGraphCreate(&own, 0));
	TELL(cuStreamBeginCaptureToGraph(s, own, NULL, NULL, 0,
					 CU_STREAM_CAPTURE_MODE_RELAXED));
	MUST(conform_fill(p, 4, 1, s));
	TELL(cuGraphInstantiate(&exec, own, 0));
	TELL(status_of(s));
	TELL(end(s));
	TELL(graph == own);
	TELL(cuGraphInstantiate(&exec, own, 0));
	TELL(cuGraphExecDestroy(exec));
	TELL(cuGraphDestroy(own));
	MUST(cuGraphCreate(&own, 0));
	MUST(cuStreamBeginCaptureToGraph(s, own, NULL, NULL, 0,
					 CU_STREAM_CAPTURE_MODE_RELAXED));
	TELL(cuStreamSynchronize(s));
	TELL(end(s));
	TELL(graph == NULL);
	TELL(cuGraphInstantiate(&exec, own, 0));
}

static void graph_memory(void)
{
	CUdeviceptr q;
	CUgraphExec exec, other;
	CUgraph g, h;
	CUgraphNode node;
	CUgraphExecUpdateResultInfo info;
	CUgraphNodeType type;
	size_t count;

	section("memory nodes");
	begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	TELL(cuMemAllocAsync(&q, 1 << 20, s));
	TELL(conform_fill(q, 4, 1, s));
	TELL(cuMemFreeAsync(q, s));
	TELL(cuMemFreeAsync(p, s));
	TELL(status_of(s));
	end(s);
	TELL(graph != NULL);
	g = graph;
	count = 0;
	TELL(g ? cuGraphGetNodes(g, NULL, &count) : 0);
	TELL(count);
	TELL(g ? cuGraphInstantiate(&exec, g, 0) : 0);
	TELL(g ? cuGraphLaunch(exec, s) : 0);
	TELL(cuStreamSynchronize(s));
	TELL(g ? cuGraphExecDestroy(exec) : 0);
	section("graphs by hand");
	MUST(cuGraphCreate(&g, 0));
	MUST(cuGraphCreate(&h, 0));
	TELL(cuGraphAddEmptyNode(&node, g, NULL, 0));
	TELL(cuGraphNodeGetType(node, &type));
	TELL(type);
	TELL(cuGraphAddEmptyNode(&node, g, &node, 1));
	TELL(cuGraphGetEdges(g, NULL, NULL, NULL, &count));
	TELL(count);
	TELL(cuGraphGetRootNodes(g, NULL, &count));
	TELL(count);
	TELL(cuGraphInstantiate(&exec, g, 0));
	TELL(cuGraphExecUpdate(exec, h, &info));
	TELL(info.result);
	TELL(cuGraphInstantiate(&other, h, 0));
	TELL(cuGraphLaunch(other, s));
	TELL(cuGraphAddEmptyNode(&node, h, &node, 1));
	TELL(cuStreamSynchronize(s));
}

/* --- user objects --------------------------------------------------------------------
 */

static volatile int destroyed;

static void CUDA_CB destroy(void *data)
{
	(void)data;
	__atomic_fetch_add(&destroyed, 1, __ATOMIC_SEQ_CST);
}

/* Gives the driver's thread time; then says how many are gone. */
static int gone(void)
{
	struct timespec pause = {0, 50000000};

	nanosleep(&pause, NULL);
	return __atomic_exchange_n(&destroyed, 0, __ATOMIC_SEQ_CST);
}

static void attach(CUgraph g)
{
	CUuserObject user;

	MUST(cuUserObjectCreate(&user, NULL, destroy, 1,
				CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	MUST(cuGraphRetainUserObject(g, user, 1, CU_GRAPH_USER_OBJECT_MOVE));
}

static CUgraph graph_with_object(void)
{
	CUgraph g;

	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	MUST(cuStreamGetCaptureInfo(s, &(CUstreamCaptureStatus){0}, NULL, &g, NULL,
				    NULL, NULL));
	attach(g);
	MUST(conform_fill(p, 4, 1, s));
	MUST(end(s));
	return graph;
}

static void user_objects(void)
{
	CUgraphExecUpdateResultInfo info;
	CUgraph g, h, parent;
	CUgraphExec exec;
	CUgraphNode node;
	CUuserObject user;

	section("user objects");
	TELL(cuUserObjectCreate(&user, NULL, destroy, 0,
				CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	TELL(cuUserObjectCreate(&user, NULL, destroy, 1, 0));
	TELL(cuUserObjectCreate(&user, NULL, NULL, 1,
				CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	MUST(cuUserObjectCreate(&user, NULL, destroy, 2,
				CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	TELL(cuUserObjectRelease(user, 1));
	TELL(gone());
	TELL(cuUserObjectRelease(user, 1));
	TELL(gone());
	g = graph_with_object();
	TELL(cuGraphInstantiate(&exec, g, 0));
	TELL(cuGraphDestroy(g));
	TELL(gone());
	MUST(conform_spin(200000000, s));
	TELL(cuGraphLaunch(exec, s));
	TELL(cuGraphExecDestroy(exec));
	TELL(gone());
	TELL(cuStreamSynchronize(s));
	TELL(gone());
	g = graph_with_object();
	TELL(cuGraphClone(&h, g));
	TELL(cuGraphDestroy(g));
	TELL(gone());
	TELL(cuGraphDestroy(h));
	TELL(gone());
	g = graph_with_object();
	MUST(cuGraphCreate(&parent, 0));
	TELL(cuGraphAddChildGraphNode(&node, parent, NULL, 0, g));
	TELL(cuGraphDestroy(g));
	TELL(gone());
	TELL(cuGraphInstantiate(&exec, parent, 0));
	TELL(cuGraphDestroy(parent));
	TELL(gone());
	TELL(cuGraphExecDestroy(exec));
	TELL(gone());
	g = graph_with_object();
	h = graph_with_object();
	TELL(cuGraphInstantiate(&exec, g, 0));
	TELL(cuGraphDestroy(g));
	TELL(gone());
	TELL(cuGraphExecUpdate(exec, h, &info));
	TELL(gone());
	TELL(cuGraphDestroy(h));
	TELL(gone());
	TELL(cuGraphExecDestroy(exec));
	TELL(gone());
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	MUST(cuStreamGetCaptureInfo(s, &(CUstreamCaptureStatus){0}, NULL, &g, NULL,
				    NULL, NULL));
	attach(g);
	TELL(cuStreamSynchronize(s));
	TELL(gone());
	TELL(end(s));
	TELL(gone());
	CUstream u = new_stream(CU_STREAM_NON_BLOCKING);
	begin(u, CU_STREAM_CAPTURE_MODE_RELAXED);
	MUST(cuStreamGetCaptureInfo(u, &(CUstreamCaptureStatus){0}, NULL, &g, NULL,
				    NULL, NULL));
	attach(g);
	TELL(cuStreamDestroy(u));
	TELL(gone());
}

/* --- memory and handles
 * ---------------------------------------------------------------- */

static void memory(void)
{
	CUdeviceptr q, base;
	CUipcMemHandle handle;
	size_t size, pitch;
	CUcontext ctx;
	unsigned type = 77;
	int host;
	void *pfn;
	CUdriverProcAddressQueryResult found;

	section("memory");
	TELL(cuMemAlloc(&q, 0));
	TELL(cuMemFree(0));
	TELL(cuMemFree(12345));
	MUST(cuMemAlloc(&q, 1000));
	TELL(q % 512);
	TELL(cuMemFree(q + 4));
	TELL(cuMemGetAddressRange(&base, &size, q + 4));
	TELL(base == q);
	TELL(size);
	TELL(cuMemFree(q));
	TELL(cuMemFree(q));
	TELL(cuMemGetAddressRange(&base, &size, q));
	TELL(cuMemGetAddressRange(&base, &size, 12345));
	TELL(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 12345));
	TELL(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				   (CUdeviceptr)(uintptr_t)&host));
	TELL(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, p));
	TELL(cuMemAlloc(&q, (size_t)1 << 50));
	TELL(cuMemAlloc(&q, (2 << 20) + 5));
	TELL(q % (2 << 20));
	MUST(cuMemGetAddressRange(&base, &size, q + 100));
	TELL(size);
	TELL(cuMemFree(q));
	TELL(cuMemAllocPitch(&q, &pitch, 1000, 3, 4));
	TELL(pitch);
	TELL(cuMemAllocPitch(&q, &pitch, 1000, 3, 3));
	TELL(cuMemcpyDtoH(&host, 12345, 4));
	TELL(cuMemsetD8(12345, 0, 4));
	TELL(cuMemsetD32(p + 1, 0, 4));
	TELL(cuMemcpyDtoH(&host, p, 0));
	TELL(cuMemAlloc(NULL, 4));
	TELL(cuMemGetInfo(NULL, NULL));
	TELL(cuMemGetAddressRange(NULL, NULL, p));
	TELL(cuMemFreeHost(NULL));
	TELL(cuMemFreeHost(&host));
	TELL(cuMemHostGetDevicePointer(&q, &host, 0));
	MUST(cuMemAllocAsync(&q, 4096, s));
	TELL(cuMemFree(q));
	MUST(cuMemAllocAsync(&q, 4096, s));
	TELL(cuMemFreeAsync(q + 512, s));
	TELL(cuMemFreeAsync(q, s));
	MUST(cuStreamSynchronize(s));
	TELL(cuMemFreeAsync(q, s));
	MUST(cuMemAlloc(&q, 4096));
	TELL(cuMemFreeAsync(q, s));
	MUST(cuStreamSynchronize(s));
	section("ipc");
	MUST(cuMemAlloc(&q, 4096));
	TELL(cuIpcGetMemHandle(&handle, q + 512));
	TELL(cuIpcOpenMemHandle(&base, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	handle.reserved[5] ^= 1;
	TELL(cuIpcCloseMemHandle(q));
	TELL(cuMemFree(q));
	section("no context");
	MUST(cuCtxSetCurrent(NULL));
	TELL(cuCtxGetCurrent(&ctx));
	TELL(ctx == NULL);
	TELL(cuMemAlloc(&q, 4));
	TELL(cuMemFree(p));
	MUST(cuCtxSetCurrent(conform_ctx));
	MUST(cuMemAlloc(&p, 4096));
	MUST(cuCtxSetCurrent(NULL));
	TELL(cuMemFree(0));
	TELL(cuMemGetInfo(&size, &size));
	TELL(cuMemGetAddressRange(&base, &size, p));
	TELL(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
	TELL(cuCtxSynchronize());
	TELL(cuStreamSynchronize(s));
	TELL(cuStreamQuery(s));
	TELL(cuCtxPopCurrent(&ctx));
	MUST(cuCtxSetCurrent(conform_ctx));
	section("lookup");
	pfn = &pfn;
	TELL(cuGetProcAddress("", &pfn, 0, 0, &found));
	TELL(pfn == NULL);
	TELL(found);
	TELL(cuGetProcAddress("cuNoSuch", &pfn, 12000, 0, &found));
	TELL(found);
	TELL(cuGetProcAddress("cuMemAlloc", &pfn, 3020, 0, &found));
	TELL(pfn == (void *)cuMemAlloc);
	TELL(cuGetProcAddress("cuMemAlloc", &pfn, 13000, 2, &found));
	TELL(pfn == (void *)cuMemAlloc);
	TELL(cuGetProcAddress("cuMemAlloc_v2", &pfn, 13000, 0, &found));
	TELL(found);
	TELL(cuGetProcAddress("cuMemAlloc", &pfn, 99000, 0, &found));
	TELL(cuGetProcAddress("cuMemAlloc", &pfn, 12000, 8, &found));
	TELL(cuGetProcAddress("cuCtxRecordEvent", &pfn, 12040, 0, &found));
	TELL(found);
	TELL(cuGetProcAddress("cuCtxRecordEvent", &pfn, 12050, 0, &found));
}

static void contexts(void)
{
	CUcontext ctx, other;
	unsigned flags;
	int active;
	CUdeviceptr q;

	section("contexts");
	MUST(cuCtxCreate(&other, NULL, 0, conform_device));
	MUST(cuMemAlloc(&q, 4096));
	TELL(cuCtxDestroy(other));
	TELL(cuCtxGetCurrent(&ctx));
	TELL(ctx == NULL);
	MUST(cuCtxSetCurrent(conform_ctx));
	TELL(cuMemFree(q));
	TELL(cuCtxDestroy(conform_ctx));
	TELL(cuDevicePrimaryCtxGetState(conform_device, &flags, &active));
	TELL(active);
	TELL(cuDevicePrimaryCtxReset(conform_device));
	TELL(cuDevicePrimaryCtxGetState(conform_device, &flags, &active));
	TELL(active);
	TELL(cuCtxGetCurrent(&ctx));
	TELL(ctx == conform_ctx);
	TELL(cuMemAlloc(&q, 4096));
	TELL(cuMemFree(p));
	TELL(cuCtxSynchronize());
	TELL(cuDevicePrimaryCtxRetain(&ctx, conform_device));
	TELL(ctx == conform_ctx);
	MUST(cuCtxSetCurrent(ctx));
	TELL(cuMemAlloc(&q, 4096));
	TELL(cuDevicePrimaryCtxRelease(conform_device));
	TELL(cuDevicePrimaryCtxGetState(conform_device, &flags, &active));
	TELL(active);
	TELL(cuMemAlloc(&q, 4096));
	TELL(cuDevicePrimaryCtxRelease(conform_device));
	TELL(cuDevicePrimaryCtxGetState(conform_device, &flags, &active));
	TELL(active);
	TELL(cuMemAlloc(&q, 4096));
	TELL(cuDevicePrimaryCtxRelease(conform_device));
}

static void trap(void)
{
	CUdeviceptr q;
	CUevent event;

	section("a sticky error");
	MUST(cuDevicePrimaryCtxRetain(&conform_ctx, conform_device));
	MUST(cuCtxSetCurrent(conform_ctx));
	s = new_stream(CU_STREAM_NON_BLOCKING);
	MUST(cuMemAlloc(&p, 4096));
	event = new_event();
	FILE *file = fopen(getenv("CONFORM_PTX"), "r");
	static char image[1 << 20];
	if (!file || fread(image, 1, sizeof(image) - 1, file) == 0)
		exit(2);
	MUST(cuModuleLoadData(&conform_module, image));
	CUfunction f = conform_function("gcpt_trap");
	TELL(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL));
	TELL(cuStreamSynchronize(s) != 0);
	TELL(cuStreamQuery(s) != 0);
	TELL(cuMemAlloc(&q, 4096) != 0);
	TELL(cuMemFree(p) != 0);
	TELL(cuEventRecord(event, s) != 0);
	TELL(cuEventQuery(event) != 0);
	TELL(cuCtxSynchronize() != 0);
	TELL(cuCtxRecordEvent(conform_ctx, event) != 0);
	TELL(cuMemGetInfo(&(size_t){0}, &(size_t){0}) != 0);
	TELL(cuCtxGetDevice(&(int){0}) != 0);
	TELL(cuCtxSetCurrent(conform_ctx));
	printf("code %d\n", (int)cuCtxSynchronize());
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	setenv("CONFORM_PTX", argv[1], 1);
	s = new_stream(CU_STREAM_NON_BLOCKING);
	t = new_stream(CU_STREAM_NON_BLOCKING);
	MUST(cuMemAlloc(&p, 4096));
	MUST(conform_fill(p, 4, 1, s));
	MUST(conform_spin(1000, s));
	MUST(cuCtxSynchronize());
	capture_ends();
	capture_forks();
	capture_info();
	graph_memory();
	user_objects();
	memory();
	contexts();
	trap();
	return 0;
}
