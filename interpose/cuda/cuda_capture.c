/* SPDX-License-Identifier: MIT */
/*
 * cuda_capture.c - what capture/ asks the driver: the state of captures, the
 * order of captured nodes, streams and events. Called with its lock held; takes none
 * but that of contexts.c, never waits for the device, and runs in the relaxed capture
 * mode.
 */
#include <stdlib.h>

#include "contexts.h"
#include "ctx_scope.h"
#include "foreign_work.h"
#include "streams.h"

/* --- captures ---------------------------------------------------------------- */

static int driver_capture_state(void *ctx, void *stream,
				struct gcp_capture_state *ret_state)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	struct gcp_ctx_scope scope;
	CUgraph graph = NULL;
	cuuint64_t id = 0;
	CUresult result = gcp_ctx_scope_enter(&scope, ctx); /* legal in every mode */

	if (result == CUDA_SUCCESS) {
		result = gcp_real.cuStreamGetCaptureInfo_v3(stream, &status, &id,
							    &graph, NULL, NULL, NULL);
		gcp_ctx_scope_end(&scope);
	}
	if (result != CUDA_SUCCESS)
		return result;
	*ret_state = (struct gcp_capture_state){
	    .active = status == CU_STREAM_CAPTURE_STATUS_ACTIVE,
	    .invalidated = status == CU_STREAM_CAPTURE_STATUS_INVALIDATED,
	    .id = id,
	    .graph = graph,
	};
	return 0;
}

static int driver_stream_follow(void *ctx, void *stream, void **nodes, size_t count)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	assert(count > 0); /* none would be followed by nothing */
	return GCP_WITHIN(ctx, gcp_real.cuStreamUpdateCaptureDependencies_v2(
				   stream, (CUgraphNode *)nodes, NULL, count,
				   CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
}

static int driver_node_follows(void *graph, void *node, void **nodes, size_t count)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	for (size_t i = 0; i < count; i++) {
		const CUgraphNode from = nodes[i], to = node;
		CUresult result =
		    gcp_real.cuGraphAddDependencies_v2(graph, &from, &to, NULL, 1);

		/* It depends on that one already, for all the driver says. */
		if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE)
			return result;
	}
	return 0;
}

/* Whether they are what stands there already, and all of them nodes. */
static bool ends_copy(const CUgraphNode *nodes, size_t count, void **ret_nodes)
{
	bool same = true;

	for (size_t i = 0; i < count; i++) {
		void *node = __atomic_load_n(&nodes[i], __ATOMIC_RELAXED);

		same &= node && node == ret_nodes[i];
		ret_nodes[i] = node;
	}
	return same;
}

/* Another thread may capture on the stream meanwhile, and change the array: of a
 * million nodes that were read beside it (driver 580.159.04) two were NULL. So it is
 * read until two answers agree. */
enum { ENDS_READS = 16 };

static int ends_read(CUstream stream, void **ret_nodes, size_t *count)
{
	size_t room = *count, before = SIZE_MAX;

	for (int i = 0; i < ENDS_READS; i++) {
		CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
		const struct CUgraphEdgeData_st *edges = NULL;
		const CUgraphNode *nodes = NULL; /* the driver's own */
		CUresult result;

		*count = 0;
		result = gcp_real.cuStreamGetCaptureInfo_v3(stream, &status, NULL, NULL,
							    &nodes, &edges, count);
		if (result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
			result = CUDA_ERROR_ILLEGAL_STATE; /* no end of any capture */
		if (result != CUDA_SUCCESS)
			return result;
		if (*count > room)
			return -ERANGE;
		if (ends_copy(nodes, *count, ret_nodes) && *count == before)
			return 0;
		before = *count;
	}
	return -EAGAIN;
}

static int driver_stream_ends(void *ctx, void *stream, void **ret_nodes, size_t *count)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	gcp_assert_held(GCP_RANK_CONTEXTS); /* K4 */
	struct gcp_ctx_scope scope;
	int result = gcp_ctx_scope_enter(&scope, ctx);

	if (result != 0)
		return result;
	result = ends_read(stream, ret_nodes, count);
	gcp_ctx_scope_end(&scope);
	return result;
}

/* Edges with data are refused to callers that give no room for it (LOSSY_QUERY), so
 * there is room for them, though only the nodes count here. */
static int driver_node_dependencies(void *node, void **ret_nodes, size_t *count)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	CUgraphEdgeData *edges = NULL;
	CUgraphNode *nodes = (CUgraphNode *)ret_nodes;
	size_t room = *count, found = 0;
	struct gcp_ctx_scope scope;
	int result;

	gcp_ctx_scope_begin(&scope, NULL);
	result = (int)gcp_real.cuGraphNodeGetDependencies_v2(node, NULL, NULL, &found);
	*count = found;
	if (found <= room)
		edges = malloc(found * sizeof(*edges));
	if (result == 0 && found > room)
		result = -ERANGE;
	else if (result == 0 && found > 0 && !edges)
		result = GCP_CUDA_OUT_OF_MEMORY;
	else if (result == 0 && found > 0)
		result = (int)gcp_real.cuGraphNodeGetDependencies_v2(node, nodes, edges,
								     &found);
	assert(result != 0 || (*count <= room && *count == found)); /* G5 */
	free(edges);
	gcp_ctx_scope_end(&scope);
	return result;
}

/* --- nodes of a graph -------------------------------------------------------- */

static int driver_thread_mode(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	int result = GCP_CAPTURE_GLOBAL;

	if (gcp_real.cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS) {
		result = (int)mode;
		gcp_real.cuThreadExchangeStreamCaptureMode(&mode);
	}
	return result;
}

/* --- streams ----------------------------------------------------------------- */

static int driver_stream_id(void *stream, uint64_t *ret_id)
{
	unsigned long long id = 0;
	CUresult result = gcp_real.cuStreamGetId(stream, &id);

	*ret_id = id;
	return (int)result;
}

static void *driver_stream_context(void *stream)
{
	return gcp_stream_context(stream);
}

static int driver_stream_query(void *ctx, void *stream)
{
	gcp_assert_held(GCP_RANK_CONTEXTS); /* K4 */
	return GCP_WITHIN(ctx, gcp_real.cuStreamQuery(stream));
}

static int driver_event_create(void *ctx, void **ret_event)
{
	return gcp_event_create(ctx, (CUevent *)ret_event);
}

static void driver_event_destroy(void *event)
{
	(void)GCP_WITHIN(NULL, gcp_real.cuEventDestroy_v2(event));
}

/* In the caller's context: a default stream is that of the current one. An event behind
 * all streams does not stand behind what other devices do for the context. */
static int driver_event_record(void *all, void *stream, void *event)
{
	assert(event);
	if (all && gcp_foreign_work_is_pending(gcp_foreign_work_latest()))
		return GCP_CUDA_NOT_READY;
	return GCP_WITHIN(NULL, all ? gcp_real.cuCtxRecordEvent(all, event)
				    : gcp_real.cuEventRecord(event, stream));
}

static int driver_event_query(void *event)
{
	return GCP_WITHIN(NULL, gcp_real.cuEventQuery(event));
}

static int driver_event_wait(void *all, void *stream, void *event)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	assert(event);
	return GCP_WITHIN(NULL, all ? gcp_real.cuCtxWaitEvent(all, event)
				    : gcp_real.cuStreamWaitEvent(stream, event, 0));
}

void gcp_driver_fill_capture(struct gcp_capture_driver *ret_driver)
{
	*ret_driver = (struct gcp_capture_driver){
	    .capture_state = driver_capture_state,
	    .thread_mode = driver_thread_mode,
	    .contexts_hold = gcp_contexts_hold,
	    .contexts_release = gcp_contexts_unlock,
	    .launches_latest = gcp_foreign_work_latest,
	    .launches_done = gcp_foreign_work_done,
	    .stream_id = driver_stream_id,
	    .stream_context = driver_stream_context,
	    .stream_query = driver_stream_query,
	    .stream_ends = driver_stream_ends,
	    .stream_follow = driver_stream_follow,
	    .node_follows = driver_node_follows,
	    .node_dependencies = driver_node_dependencies,
	    .event_create = driver_event_create,
	    .event_destroy = driver_event_destroy,
	    .event_record = driver_event_record,
	    .event_query = driver_event_query,
	    .event_wait = driver_event_wait,
	};
}
