/* SPDX-License-Identifier: MIT */
/*
 * conform_tell.h - more of what the conformance programs share: a line per call
 * with its result, streams to play with, and captures.
 */
#ifndef CONFORM_TELL_H
#define CONFORM_TELL_H

#include "conform.h"

static CUstream s, t; /* non-blocking */
static CUdeviceptr p; /* 4 KiB */
static CUgraph graph; /* of the last capture that ended */

static inline void tell(const char *what, long long value)
{
	printf("%-66s %lld\n", what, value);
}

/* The next of the expressions in `*list`, and its value. */
static inline void tell_next(const char **list, long long value)
{
	const char *at = *list;
	char what[400];
	int depth = 0;

	for (; *at && (depth > 0 || *at != ','); at++)
		depth += (*at == '(') - (*at == ')');
	snprintf(what, sizeof(what), "%.*s", (int)(at - *list), *list);
	*list = at + strspn(at, ", ");
	tell(what, value);
}

/* Tells each of up to six expressions, one after another. */
#define TELL(...)                                                                      \
	do {                                                                           \
		const char *list_ = #__VA_ARGS__;                                      \
		SEVERAL(TELL_ONE, __VA_ARGS__);                                        \
	} while (0)
#define TELL_ONE(a) tell_next(&list_, (long long)(a))

static inline int status_of(CUstream stream)
{
	CUstreamCaptureStatus status = (CUstreamCaptureStatus)9;
	CUresult result = cuStreamIsCapturing(stream, &status);

	return result ? 1000 + (int)result : (int)status;
}

static inline CUstream new_stream(unsigned flags)
{
	CUstream stream;

	MUST(cuStreamCreate(&stream, flags));
	return stream;
}

static inline CUevent new_event(void)
{
	CUevent event;

	MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	return event;
}

static inline void section(const char *title)
{
	printf("\n%s\n", title);
}

static inline void begin(CUstream stream, CUstreamCaptureMode mode)
{
	MUST(cuStreamBeginCapture(stream, mode));
}

static inline CUresult end(CUstream stream)
{
	graph = (CUgraph)1;
	return cuStreamEndCapture(stream, &graph);
}

static inline void tell_start(int argc, char **argv)
{
	conform_start(argc, argv);
	s = new_stream(CU_STREAM_NON_BLOCKING);
	t = new_stream(CU_STREAM_NON_BLOCKING);
	MUST(cuMemAlloc(&p, 4096), conform_fill(p, 4, 1, s), conform_spin(1000, s));
	MUST(cuCtxSynchronize());
}

#endif
