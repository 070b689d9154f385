/* SPDX-License-Identifier: MIT */
/*
 * auto_free.c - graphs that allocate memory of their own (cudaMallocAsync in a capture)
 * and leave it to the program: what each launch and each free of it gives, for
 * executables that free it at their next launch and for others.
 *
 * Tried: everywhere
 * Run: transcript.py @
 */
#include <stdio.h>

#include "api.h"
#include "pool.h"
#include "util.h"

enum { BYTES = 1 << 20, AUTO_FREE = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH };

static CUstream stream;

#define TELL(call) tell(#call, call)

static void tell(const char *what, int code)
{
	printf("  %s: %d\n", what, code);
	gcpt_last_error();
}

/* Allocates, writes, and frees if `frees`. */
static CUgraphExec captured(unsigned long long flags, bool frees, void **ret_p)
{
	CUgraphExec exec;
	CUgraph graph;

	GCPT_OK(gcpt_capture_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	GCPT_OK(gcpt_malloc_async(ret_p, BYTES, stream));
	GCPT_OK(gcpt_set_async(*ret_p, 7, BYTES, stream));
	if (frees)
		GCPT_OK(gcpt_free_async(*ret_p, stream));
	GCPT_OK(gcpt_capture_end(stream, &graph));
	GCPT_OK(gcpt_instantiate_flags(&exec, graph, flags));
	GCPT_OK(cu.cuGraphDestroy(graph));
	return exec;
}

static int last_byte(const void *p)
{
	unsigned char byte = 0;

	GCPT_OK(gcpt_stream_sync(stream));
	GCPT_OK(gcpt_copy(&byte, (const char *)p + BYTES - 1, 1));
	return byte;
}

static void launches(unsigned long long flags, bool frees)
{
	void *p;
	CUgraphExec exec = captured(flags, frees, &p);

	printf("flags %llu, memory %s:\n", flags,
	       frees ? "freed in the graph" : "left to the program");
	TELL(gcpt_graph_launch(exec, stream));
	TELL(gcpt_graph_launch(exec, stream));
	TELL(gcpt_stream_sync(stream));
	TELL(gcpt_graph_launch(exec, stream));
	if (!frees) {
		TELL(last_byte(p));
		TELL(gcpt_free_async(p, stream));
		TELL(gcpt_graph_launch(exec, stream));
		TELL(last_byte(p));
		TELL(gcpt_free(p));
		TELL(gcpt_graph_launch(exec, stream));
		TELL(gcpt_free_async(p, stream));
	}
	TELL(gcpt_stream_sync(stream));
	TELL(cu.cuGraphExecDestroy(exec));
}

/* It is the program's to free then. */
static void outlives_its_graph(void)
{
	void *p;
	CUgraphExec exec = captured(AUTO_FREE, false, &p);

	printf("the executable destroyed:\n");
	TELL(gcpt_graph_launch(exec, stream));
	TELL(gcpt_stream_sync(stream));
	TELL(cu.cuGraphExecDestroy(exec));
	TELL(last_byte(p));
	TELL(gcpt_free_async(p, stream));
	TELL(gcpt_stream_sync(stream));
}

int main(void)
{
	void *eager;

	GCPT_OK(gcpt_use(0));
	GCPT_OK(gcpt_stream_create(&stream));
	GCPT_OK(gcpt_malloc_async(&eager, BYTES, stream));
	for (int frees = 0; frees <= 1; frees++) {
		launches(0, frees);
		launches(AUTO_FREE, frees);
	}
	outlives_its_graph();
	GCPT_OK(gcpt_free_async(eager, stream));
	GCPT_OK(gcpt_sync());
	return 0;
}
