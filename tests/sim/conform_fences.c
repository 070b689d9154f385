/* SPDX-License-Identifier: MIT */
/*
 * conform_fences.c - events with flags, events of whole contexts and when they may be
 * recorded, and green contexts: the transcript.
 */
#include "conform_sections.h"

enum { SPIN_NS = 100000000 };

static CUcontext own;
static CUstream u; /* of `own` */

/* Makes `own`, and leaves the primary context current. */
static void new_own(void)
{
	MUST(cuCtxCreate(&own, NULL, 0, conform_device));
	u = new_stream(CU_STREAM_NON_BLOCKING);
	MUST(cuCtxSetCurrent(conform_ctx));
}

static CUevent event_of(CUcontext ctx)
{
	CUcontext ignored;
	CUevent event;

	MUST(cuCtxPushCurrent(ctx));
	event = new_event();
	MUST(cuCtxPopCurrent(&ignored));
	return event;
}

/* --- flags ------------------------------------------------------------------------ */

SECTION(flags_of_events)
{
	CUevent event = NULL, made = new_event();

	for (unsigned flags = 0; flags < 9; flags++) {
		tell("flags", flags);
		TELL(cuEventCreate(&event, flags));
		TELL(cuEventRecordWithFlags(made, s, flags));
		TELL(cuStreamWaitEvent(t, made, flags));
	}
	TELL(cuEventCreate(NULL, 0), cuEventRecord(NULL, s));
	TELL(cuStreamWaitEvent(s, NULL, 0));
}

SECTION(external_events)
{
	CUevent outside = new_event(), timed;
	CUgraphNodeType type;
	CUgraphNode nodes[4];
	size_t count = 4;

	MUST(cuEventCreate(&timed, CU_EVENT_DEFAULT));
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	TELL(cuEventRecordWithFlags(outside, s, CU_EVENT_RECORD_EXTERNAL));
	TELL(cuEventQuery(outside));
	TELL(cuStreamWaitEvent(s, outside, CU_EVENT_WAIT_EXTERNAL));
	TELL(cuEventRecordWithFlags(timed, s, CU_EVENT_RECORD_EXTERNAL), status_of(s));
	TELL(end(s), cuGraphGetNodes(graph, nodes, &count), count);
	for (size_t i = 0; i < count; i++) {
		MUST(cuGraphNodeGetType(nodes[i], &type));
		TELL(type);
	}
}

/* --- events of contexts --------------------------------------------------- */

SECTION(fences)
{
	CUevent event, others, timed, waiting;

	new_own();
	event = new_event();
	others = event_of(own);
	MUST(cuEventCreate(&timed, CU_EVENT_DEFAULT));
	MUST(cuEventCreate(&waiting, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING));
	TELL(cuCtxRecordEvent(conform_ctx, event));
	TELL(cuCtxRecordEvent(conform_ctx, others), cuCtxRecordEvent(own, event));
	TELL(cuCtxRecordEvent(own, others), cuCtxRecordEvent(conform_ctx, timed));
	TELL(cuCtxRecordEvent(conform_ctx, waiting));
	TELL(cuCtxRecordEvent(conform_ctx, NULL), cuCtxWaitEvent(conform_ctx, event));
	TELL(cuCtxWaitEvent(conform_ctx, others), cuCtxWaitEvent(own, event));
	TELL(cuCtxWaitEvent(conform_ctx, new_event()));
	TELL(cuCtxWaitEvent(conform_ctx, NULL), cuEventRecord(others, s));
	TELL(cuEventRecord(event, u), cuStreamWaitEvent(s, others, 0));
	TELL(cuStreamWaitEvent(u, event, 0), cuEventSynchronize(event));
	TELL(cuEventSynchronize(others));
	MUST(conform_spin(SPIN_NS, s));
	TELL(cuCtxRecordEvent(conform_ctx, event), cuCtxRecordEvent(own, others));
	TELL(cuEventQuery(event), cuEventSynchronize(others));
	TELL(cuEventSynchronize(event), cuEventQuery(event), cuEventDestroy(event));
	MUST(cuCtxSetCurrent(NULL));
	TELL(cuCtxRecordEvent(own, others), cuCtxWaitEvent(conform_ctx, others));
}

/* Tells them while `stream` captures. */
#define CAPTURED(stream, mode, ...)                                                    \
	do {                                                                           \
		const char *list_ = #__VA_ARGS__;                                      \
		begin(stream, mode);                                                   \
		SEVERAL(TELL_ONE, __VA_ARGS__);                                        \
		end(stream);                                                           \
	} while (0)

/* A capture in `stream`, and fences in the other context and in its own. */
static void fenced_capture(CUstream stream, CUstreamCaptureMode mode)
{
	CUevent event = new_event(), others = event_of(own), fork = NULL;

	tell("mode", mode);
	MUST(cuEventRecord(event, s), cuCtxRecordEvent(own, others));
	CAPTURED(stream, mode, cuCtxWaitEvent(own, others),
		 cuCtxRecordEvent(own, others), status_of(stream));
	CAPTURED(stream, mode, cuCtxRecordEvent(conform_ctx, event), status_of(stream));
	CAPTURED(stream, mode, cuCtxWaitEvent(conform_ctx, event), status_of(stream));
	fork = stream == s ? new_event() : event_of(own);
	begin(stream, mode);
	MUST(cuEventRecord(fork, stream));
	TELL(cuCtxWaitEvent(stream == s ? own : conform_ctx, fork), status_of(stream));
	end(stream);
}

SECTION(fences_beside_captures)
{
	new_own();
	for (int mode = 0; mode < 3; mode++) {
		puts("a capture in the primary context");
		fenced_capture(s, (CUstreamCaptureMode)mode);
		puts("a capture in a context of one's own");
		fenced_capture(u, (CUstreamCaptureMode)mode);
	}
}

/* What waits for a whole context, with a capture in another one. */
SECTION(waits_beside_captures)
{
	CUdeviceptr q;

	new_own();
	for (int mode = 0; mode < 3; mode++) {
		tell("mode", mode);
		CAPTURED(u, mode, cuCtxSynchronize(), status_of(u));
		CAPTURED(u, mode, cuMemAlloc(&q, 4096), status_of(u));
		CAPTURED(u, mode, cuStreamSynchronize(s),
			 cuStreamSynchronize(CU_STREAM_LEGACY), status_of(u));
	}
}

/* --- green contexts ------------------------------------------------------- */

static CUgreenCtx green;
static CUcontext as_ctx; /* the same as an ordinary context */
static CUdevResource all, some;
static CUdevResourceDesc description;

static void describe(void)
{
	unsigned groups = 1;

	MUST(cuDeviceGetDevResource(conform_device, &all, CU_DEV_RESOURCE_TYPE_SM));
	MUST(cuDevSmResourceSplitByCount(&some, &groups, &all, NULL, 0, 8));
	MUST(cuDevResourceGenerateDesc(&description, &some, 1));
}

static void new_green(void)
{
	describe();
	MUST(cuGreenCtxCreate(&green, description, conform_device,
			      CU_GREEN_CTX_DEFAULT_STREAM));
	MUST(cuCtxFromGreenCtx(&as_ctx, green));
	MUST(cuGreenCtxStreamCreate(&u, green, CU_STREAM_NON_BLOCKING, 0));
}

SECTION(resources)
{
	CUdevResource left;
	unsigned groups = 0;

	for (int type = 0; type < 4; type++) {
		tell("type", type);
		TELL(cuDeviceGetDevResource(conform_device, &all,
					    (CUdevResourceType)type));
	}
	TELL(cuDeviceGetDevResource(99, &all, CU_DEV_RESOURCE_TYPE_SM));
	TELL(cuDeviceGetDevResource(conform_device, NULL, CU_DEV_RESOURCE_TYPE_SM));
	MUST(cuDeviceGetDevResource(conform_device, &all, CU_DEV_RESOURCE_TYPE_SM));
	TELL(all.type, all.sm.smCount > 16);
	TELL(cuDevSmResourceSplitByCount(NULL, &groups, &all, NULL, 0, 8), groups > 1);
	groups = 1;
	TELL(cuDevSmResourceSplitByCount(&some, &groups, &all, &left, 0, 8), groups);
	TELL(some.sm.smCount, some.sm.smCount + left.sm.smCount == all.sm.smCount);
	TELL(cuDevSmResourceSplitByCount(&some, &groups, &all, &left, 0, 4096));
	TELL(cuDevSmResourceSplitByCount(&some, NULL, &all, &left, 0, 8));
	groups = 1;
	TELL(cuDevSmResourceSplitByCount(&some, &groups, &all, NULL, 0, 8));
	TELL(cuDevResourceGenerateDesc(&description, &some, 1));
	TELL(cuDevResourceGenerateDesc(NULL, &some, 1));
	TELL(cuDevResourceGenerateDesc(&description, NULL, 1));
}

SECTION(green_made)
{
	describe();
	TELL(cuGreenCtxCreate(&green, description, conform_device, 0));
	TELL(cuGreenCtxCreate(&green, description, 99, CU_GREEN_CTX_DEFAULT_STREAM));
	TELL(cuGreenCtxCreate(NULL, description, conform_device,
			      CU_GREEN_CTX_DEFAULT_STREAM));
	TELL(cuGreenCtxCreate(&green, description, conform_device,
			      CU_GREEN_CTX_DEFAULT_STREAM));
	TELL(cuCtxFromGreenCtx(&as_ctx, green), as_ctx != conform_ctx);
	TELL(cuCtxFromGreenCtx(NULL, green), cuCtxFromGreenCtx(&as_ctx, NULL));
	TELL(cuGreenCtxStreamCreate(&u, green, 0, 0));
	TELL(cuGreenCtxStreamCreate(&u, green, CU_STREAM_NON_BLOCKING, 0));
	TELL(cuGreenCtxStreamCreate(NULL, green, CU_STREAM_NON_BLOCKING, 0));
	TELL(cuGreenCtxStreamCreate(&u, NULL, CU_STREAM_NON_BLOCKING, 0));
	TELL(cuGreenCtxDestroy(NULL), cuGreenCtxDestroy(green));
}

static void asked_of_a_stream(CUstream stream)
{
	CUgreenCtx its_green = (CUgreenCtx)1;
	CUcontext its = (CUcontext)1;

	TELL(cuStreamGetCtx(stream, &its), its == as_ctx, its == conform_ctx);
	its = (CUcontext)1;
	TELL(cuStreamGetCtx_v2(stream, &its, &its_green), its == as_ctx);
	TELL(its == conform_ctx, its == NULL, its_green == green, its_green == NULL);
}

SECTION(green_streams)
{
	CUstream plain;

	new_green();
	asked_of_a_stream(u);
	asked_of_a_stream(s);
	TELL(conform_fill(p, 4, 3, u), cuStreamSynchronize(u), word_at(p));
	TELL(cuCtxSetCurrent(as_ctx), cuStreamCreate(&plain, CU_STREAM_NON_BLOCKING));
	asked_of_a_stream(plain);
	TELL(cuStreamCreate(&plain, CU_STREAM_DEFAULT), conform_fill(p, 4, 4, plain));
	TELL(conform_fill(p, 4, 5, NULL), cuStreamSynchronize(plain));
	TELL(cuStreamSynchronize(NULL), cuCtxSynchronize(), word_at(p));
}

SECTION(green_memory)
{
	CUcontext ctx = NULL;
	CUdeviceptr q, base;
	size_t size;
	void *host;

	new_green();
	TELL(cuCtxSetCurrent(as_ctx), cuCtxGetCurrent(&ctx), ctx == as_ctx);
	TELL(cuMemAlloc(&q, 4096), cuMemGetAddressRange(&base, &size, q), size);
	TELL(cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, q));
	TELL(ctx == as_ctx, ctx == conform_ctx, cuMemHostAlloc(&host, 4096, 0));
	TELL(cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT,
				   (CUdeviceptr)(uintptr_t)host));
	TELL(ctx == as_ctx, ctx == conform_ctx);
	TELL(cuMemFree(p)); /* the primary context's */
	MUST(cuCtxSetCurrent(conform_ctx));
	TELL(cuGreenCtxDestroy(green), cuMemGetAddressRange(&base, &size, q));
	TELL(cuMemFree(q), cuMemFreeHost(host));
}

static CUevent of_primary, of_green;

static void new_green_and_events(void)
{
	new_green();
	of_primary = new_event();
	of_green = event_of(as_ctx);
}

SECTION(green_fences)
{
	new_green_and_events();
	TELL(cuGreenCtxRecordEvent(green, of_green));
	TELL(cuGreenCtxRecordEvent(green, of_primary));
	TELL(cuCtxRecordEvent(as_ctx, of_green), cuCtxRecordEvent(as_ctx, of_primary));
	TELL(cuCtxRecordEvent(conform_ctx, of_green));
	TELL(cuCtxRecordEvent(conform_ctx, of_primary), cuEventRecord(of_primary, u));
	TELL(cuEventRecord(of_green, s), cuGreenCtxWaitEvent(green, of_green));
	TELL(cuGreenCtxWaitEvent(green, of_primary), cuCtxWaitEvent(as_ctx, of_green));
	TELL(cuCtxWaitEvent(conform_ctx, of_green));
	MUST(cuCtxSynchronize(), conform_spin(SPIN_NS, s));
	TELL(cuGreenCtxRecordEvent(green, of_green));
	TELL(cuCtxRecordEvent(conform_ctx, of_primary), cuEventQuery(of_primary));
	TELL(cuEventSynchronize(of_green));
	TELL(cuEventQuery(of_primary)); /* the green one did not cover it */
	TELL(cuEventSynchronize(of_primary));
	MUST(conform_spin(SPIN_NS, u));
	TELL(cuGreenCtxRecordEvent(green, of_green));
	TELL(cuCtxRecordEvent(conform_ctx, of_primary), cuEventQuery(of_green));
	TELL(cuEventQuery(of_primary), cuCtxSynchronize(), cuEventQuery(of_green));
}

SECTION(green_captures)
{
	new_green_and_events();
	puts("a capture in a green stream");
	CAPTURED(u, CU_STREAM_CAPTURE_MODE_RELAXED,
		 cuGreenCtxRecordEvent(green, of_green), status_of(u));
	CAPTURED(u, CU_STREAM_CAPTURE_MODE_RELAXED,
		 cuCtxRecordEvent(conform_ctx, of_primary), status_of(u));
	CAPTURED(u, CU_STREAM_CAPTURE_MODE_RELAXED, cuCtxSynchronize(), status_of(u));
	puts("a capture in a stream of the primary context");
	CAPTURED(s, CU_STREAM_CAPTURE_MODE_RELAXED,
		 cuGreenCtxRecordEvent(green, of_green), status_of(s),
		 cuGreenCtxWaitEvent(green, of_green), status_of(s));
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	MUST(cuCtxSetCurrent(as_ctx));
	TELL(cuCtxSynchronize());
	MUST(cuCtxSetCurrent(conform_ctx));
	TELL(status_of(s));
	end(s);
}

SECTION(green_outlives)
{
	unsigned flags;
	int active = 9;

	new_green();
	TELL(cuDevicePrimaryCtxRelease(conform_device));
	TELL(cuDevicePrimaryCtxGetState(conform_device, &flags, &active), active);
	TELL(cuMemAlloc(&p, 4096), cuStreamQuery(u), cuGreenCtxDestroy(green));
	TELL(cuDevicePrimaryCtxGetState(conform_device, &flags, &active), active);
}

SECTION(green_without_the_primary)
{
	unsigned flags;
	int active = 9;

	describe();
	MUST(cuDevicePrimaryCtxRelease(conform_device));
	TELL(cuGreenCtxCreate(&green, description, conform_device,
			      CU_GREEN_CTX_DEFAULT_STREAM));
	TELL(cuDevicePrimaryCtxGetState(conform_device, &flags, &active), active);
	TELL(cuDevicePrimaryCtxRelease(conform_device));
	TELL(cuDevicePrimaryCtxGetState(conform_device, &flags, &active), active);
}

SECTION(green_destroyed_as_an_ordinary_one)
{
	new_green();
	TELL(cuCtxDestroy(as_ctx), cuStreamQuery(u));
}

SECTION(green_destroyed_with_a_capture)
{
	new_green();
	begin(u, CU_STREAM_CAPTURE_MODE_RELAXED);
	attach(captured_graph(u));
	TELL(cuGreenCtxDestroy(green), gone(), cuCtxSynchronize(), status_of(u));
	TELL(end(u), gone());
}

SECTION(green_destroyed_while_current)
{
	CUcontext ctx = NULL;

	new_green();
	MUST(cuCtxSetCurrent(as_ctx));
	TELL(cuGreenCtxDestroy(green), cuCtxGetCurrent(&ctx), ctx == as_ctx);
	TELL(cuMemAlloc(&p, 4096), cuCtxSynchronize());
	MUST(cuCtxSetCurrent(conform_ctx));
	TELL(cuStreamQuery(u));
}

SECTION(green_of_a_reset)
{
	new_green();
	TELL(cuDevicePrimaryCtxReset(conform_device));
	TELL(cuDevicePrimaryCtxRetain(&conform_ctx, conform_device));
	TELL(cuCtxSetCurrent(as_ctx), cuMemAlloc(&p, 4096), cuGreenCtxDestroy(green));
}
