/* SPDX-License-Identifier: MIT */
/*
 * staging_graph.c - a capture that stages through pinned memory, replayed many times
 * beside eager staging of the same sizes, and checked each time.
 *
 * Inside the capture pinned blocks are allocated, filled, copied from and freed again,
 * as a library does that stages its arguments. The copies run at every replay and must
 * find what the host wrote when they were captured: no other allocation, inside or
 * outside of the capture, may get these blocks while the graph can run. One block
 * stays the program's, which writes a new value before each replay. At the end the
 * graph is destroyed, and eager staging may have its memory.
 *
 * Plain CUDA refuses such a capture (exit code 2).
 *
 *   --replays N  --words N  --blocks N (staged inside the capture)
 *   --mode 0|1|2  global, thread-local, relaxed
 *
 * Run: staging_graph.py @
 */
#include <stdio.h>
#include <stdlib.h>

#include "api.h"
#include "kernels.h"
#include "graph_forms.h"
#include "touch.h"
#include "util.h"

enum { BLOCKS_MAX = 64 };

struct scene {
	struct gcpt_kernels kernels;
	CUstream stream, other;
	size_t words;
	unsigned blocks;
	void *device[BLOCKS_MAX]; /* where the staged blocks arrive */
	void *landing;            /* where the live block arrives */
	void *eager;              /* where eager staging arrives */
	uint32_t *live;           /* pinned, allocated in the capture, kept */
	void *counter;            /* device: wrong words */
	unsigned long long wrong; /* none at the start */
};

static void fill(uint32_t *p, size_t words, uint32_t value)
{
	gcpt_host_writes(p, words * 4);
	for (size_t i = 0; i < words; i++)
		p[i] = value;
}

static uint32_t value_of(unsigned block)
{
	return 0x1000 + block;
}

/* Captured: allocate, fill, copy, free. */
static void stage(struct scene *s, unsigned block)
{
	void *p;

	GCPT_OK(gcpt_malloc_host(&p, s->words * 4));
	fill(p, s->words, value_of(block));
	GCPT_OK(gcpt_copy_async(s->device[block], p, s->words * 4, s->stream));
	GCPT_OK(gcpt_free_host(p));
	GCPT_OK(gcpt_launch_check(&s->kernels, s->stream, s->device[block], s->words,
				  value_of(block), s->counter));
}

/* `before` is a pinned block from outside, freed while the capture is under way. */
static CUgraphExec capture(struct scene *s, CUstreamCaptureMode mode, void *before)
{
	CUgraphExec exec;
	CUgraph graph;

	GCPT_OK(gcpt_capture_begin(s->stream, mode));
	for (unsigned i = 0; i < s->blocks; i++)
		stage(s, i);
	GCPT_OK(gcpt_free_host(before));
	GCPT_OK(gcpt_malloc_host((void **)&s->live, s->words * 4));
	GCPT_OK(gcpt_copy_async(s->landing, s->live, s->words * 4, s->stream));
	GCPT_OK(gcpt_capture_end(s->stream, &graph));
	exec = gcpt_life(graph);
	gcpt_graph_destroy(graph);
	return exec;
}

/* What other code does with pinned memory meanwhile. */
static void eager_once(struct scene *s, uint32_t value)
{
	void *p;

	GCPT_OK(gcpt_malloc_host(&p, s->words * 4));
	fill(p, s->words, value);
	GCPT_OK(gcpt_copy_async(s->eager, p, s->words * 4, s->other));
	GCPT_OK(gcpt_free_host(p));
	GCPT_OK(gcpt_launch_check(&s->kernels, s->other, s->eager, s->words, value,
				  s->counter));
}

static void replay(struct scene *s, CUgraphExec exec, uint32_t turn)
{
	for (unsigned i = 0; i < s->blocks; i++)
		GCPT_OK(gcpt_launch_fill(&s->kernels, s->stream, s->device[i], s->words,
					 0xbad));
	fill(s->live, s->words, turn);
	GCPT_OK(gcpt_graph_launch(exec, s->stream));
	for (unsigned i = 0; i < 3; i++)
		eager_once(s, ~turn + i);
	GCPT_OK(gcpt_launch_check(&s->kernels, s->stream, s->landing, s->words, turn,
				  s->counter));
	/* The next turn writes into the live block. */
	GCPT_OK(gcpt_stream_sync(s->stream));
}

static void scene_open(struct scene *s)
{
	GCPT_OK(gcpt_use(0));
	GCPT_OK(gcpt_kernels_load(&s->kernels));
	GCPT_OK(gcpt_stream_create(&s->stream));
	GCPT_OK(gcpt_stream_create(&s->other));
	for (unsigned i = 0; i < s->blocks; i++)
		GCPT_OK(gcpt_malloc(&s->device[i], s->words * 4));
	GCPT_OK(gcpt_malloc(&s->landing, s->words * 4));
	GCPT_OK(gcpt_malloc(&s->eager, s->words * 4));
	GCPT_OK(gcpt_malloc(&s->counter, sizeof(s->wrong)));
	GCPT_OK(gcpt_copy(s->counter, &s->wrong, sizeof(s->wrong)));
}

int main(int argc, char **argv)
{
	struct scene s = {
	    .words = gcpt_arg(argc, argv, "--words", 16384),
	    .blocks = (unsigned)gcpt_arg(argc, argv, "--blocks", 6),
	};
	uint64_t replays = gcpt_arg(argc, argv, "--replays", 1000);
	CUstreamCaptureMode mode =
	    (CUstreamCaptureMode)gcpt_arg(argc, argv, "--mode", 0);
	unsigned long long wrong;
	CUgraphExec exec;
	void *before;

	if (s.blocks > BLOCKS_MAX || !s.words)
		return 2;
	scene_open(&s);
	GCPT_OK(gcpt_malloc_host(&before, s.words * 4));
	exec = capture(&s, mode, before);
	for (uint64_t i = 0; i < replays; i++)
		replay(&s, exec, (uint32_t)i);
	GCPT_OK(gcpt_stream_sync(s.other));
	gcpt_exec_destroy(exec);
	GCPT_OK(gcpt_free_host(s.live));
	for (unsigned i = 0; i < 3 * s.blocks; i++)
		eager_once(&s, i);
	GCPT_OK(gcpt_sync());
	GCPT_OK(gcpt_copy(&wrong, s.counter, sizeof(wrong)));
	printf("staging_graph: %llu replays of %u blocks: wrong words: %llu\n",
	       (unsigned long long)replays, s.blocks, wrong);
	return wrong ? 1 : 0;
}
