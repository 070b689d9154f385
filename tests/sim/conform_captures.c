/* SPDX-License-Identifier: MIT */
/*
 * conform_captures.c - captures that begin, fork, join, cross and end in ways
 * which are not quite right: the transcript.
 */
#include "conform_tell.h"

#include <pthread.h>

static CUstream legacy = CU_STREAM_LEGACY;

/* --- ending --------------------------------------------------------------- */

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
	TELL(end(s), end(legacy));
	begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	TELL(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL), status_of(s));
	TELL(cuStreamBeginCapture(t, CU_STREAM_CAPTURE_MODE_GLOBAL), end(t));
	TELL(end_in_thread(), status_of(s), end(s), graph == NULL, end(s));
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	TELL(end_in_thread());
	begin(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	TELL(end_in_thread(), end(s));
	TELL(cuStreamBeginCapture(legacy, CU_STREAM_CAPTURE_MODE_RELAXED));
	TELL(
	    cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
	TELL(end(CU_STREAM_PER_THREAD));
	TELL(cuStreamBeginCapture(s, (CUstreamCaptureMode)7), status_of(legacy));
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	TELL(cuMemcpyDtoH(&graph, p, 4), cuStreamSynchronize(s), status_of(s));
	TELL(conform_fill(p, 4, 1, s), cuStreamSynchronize(s), cuStreamQuery(s));
	TELL(end(s), graph == NULL, status_of(s));
}

/* --- several streams ------------------------------------------------------ */

static void forks(void)
{
	CUevent fork = new_event(), join = new_event();

	section("forks and joins");
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	MUST(conform_fill(p, 4, 1, s));
	TELL(cuEventRecord(fork, s), cuStreamWaitEvent(t, fork, 0), status_of(t));
	TELL(conform_fill(p, 4, 1, t), end(t), status_of(t), end(s), graph == NULL);
	TELL(status_of(t), end(s));
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	TELL(cuEventRecord(fork, s), cuStreamWaitEvent(t, fork, 0), status_of(t));
	TELL(end(s), status_of(t));
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	MUST(conform_fill(p, 4, 1, s));
	TELL(cuEventRecord(fork, s), cuStreamWaitEvent(t, fork, 0), end(s));
	TELL(status_of(t));
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	TELL(cuEventRecord(fork, s), cuStreamWaitEvent(t, fork, 0));
	TELL(conform_fill(p, 4, 1, t), cuEventRecord(join, t));
	TELL(cuStreamWaitEvent(s, join, 0), end(s), graph == NULL, status_of(t));
	TELL(cuEventQuery(fork), cuEventSynchronize(fork));
	TELL(cuStreamWaitEvent(t, fork, 0), status_of(t), cuEventRecord(fork, t));
	TELL(cuEventQuery(new_event()));
}

static void crossings(void)
{
	CUevent fork = new_event(), out = new_event();

	section("crossing captures");
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	begin(t, CU_STREAM_CAPTURE_MODE_RELAXED);
	TELL(cuEventRecord(fork, s), cuStreamWaitEvent(t, fork, 0), status_of(s));
	TELL(status_of(t), end(s), end(t));
	MUST(cuEventRecord(out, t));
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	TELL(cuStreamWaitEvent(s, out, 0), status_of(s), end(s));
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	TELL(cuStreamWaitEvent(s, new_event(), 0), status_of(s), end(s));
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	TELL(cuEventRecord(fork, s), cuEventQuery(fork), status_of(s));
	TELL(cuEventSynchronize(fork), status_of(s));
	TELL(cuStreamWaitEvent(legacy, fork, 0), status_of(s), end(s));
}

static void destroyed_streams(void)
{
	CUevent fork = new_event();
	CUstream u;

	section("destroying what captures");
	u = new_stream(CU_STREAM_NON_BLOCKING);
	begin(u, CU_STREAM_CAPTURE_MODE_RELAXED);
	MUST(conform_fill(p, 4, 1, u));
	TELL(cuStreamDestroy(u));
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	u = new_stream(CU_STREAM_NON_BLOCKING);
	TELL(cuEventRecord(fork, s), cuStreamWaitEvent(u, fork, 0));
	TELL(conform_fill(p, 4, 1, u), cuStreamDestroy(u), status_of(s), end(s));
}

/* --- asking --------------------------------------------------------------- */

static void capture_info(void)
{
	CUstreamCaptureStatus status;
	const CUgraphNode *deps;
	cuuint64_t id, first;
	size_t count;
	CUgraph g;

	section("capture info");
	TELL(cuStreamGetCaptureInfo(s, &status, &id, &g, &deps, NULL, &count), status);
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	TELL(cuStreamGetCaptureInfo(s, &status, &first, &g, &deps, NULL, &count));
	TELL(status, count, g != NULL);
	MUST(conform_fill(p, 4, 1, s));
	TELL(cuStreamGetCaptureInfo(s, &status, &id, &g, &deps, NULL, &count), count);
	TELL(id == first);
	TELL(cuStreamUpdateCaptureDependencies(s, NULL, NULL, 0,
					       CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	MUST(conform_fill(p, 4, 1, s));
	TELL(cuGraphGetRootNodes(g, NULL, &count), count, end(s), graph == g);
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	TELL(cuStreamGetCaptureInfo(s, &status, &id, NULL, NULL, NULL, NULL));
	TELL(id != first, cuStreamSynchronize(s));
	TELL(cuStreamGetCaptureInfo(s, &status, &id, &g, &deps, NULL, &count), status);
	TELL(end(s), cuStreamUpdateCaptureDependencies(s, NULL, NULL, 0, 0));
}

static void capture_into_a_graph(void)
{
	CUgraph own;
	CUgraphExec exec;

	section("capture into a graph");
	MUST(cuGraphCreate(&own, 0));
	TELL(cuStreamBeginCaptureToGraph(s, own, NULL, NULL, 0,
					 CU_STREAM_CAPTURE_MODE_RELAXED));
	MUST(conform_fill(p, 4, 1, s));
	TELL(cuGraphInstantiate(&exec, own, 0), status_of(s), end(s), graph == own);
	TELL(cuGraphInstantiate(&exec, own, 0), cuGraphExecDestroy(exec));
	TELL(cuGraphDestroy(own));
	MUST(cuGraphCreate(&own, 0));
	MUST(cuStreamBeginCaptureToGraph(s, own, NULL, NULL, 0,
					 CU_STREAM_CAPTURE_MODE_RELAXED));
	TELL(cuStreamSynchronize(s), end(s), graph == NULL);
	TELL(cuGraphInstantiate(&exec, own, 0));
}

int main(int argc, char **argv)
{
	tell_start(argc, argv);
	capture_ends();
	forks();
	crossings();
	destroyed_streams();
	capture_info();
	capture_into_a_graph();
	return 0;
}
