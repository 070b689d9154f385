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

/* --- several streams ------------------------------------------------------ */

static void forks(void)
{
	CUevent fork = new_event(), join = new_event();

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
}

static void crossings(void)
{
	CUevent fork = new_event(), out = new_event();

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
	TELL(cuEventRecord(fork, s));
	TELL(cuStreamWaitEvent(u, fork, 0));
	TELL(conform_fill(p, 4, 1, u));
	TELL(cuStreamDestroy(u));
	TELL(status_of(s));
	TELL(end(s));
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
