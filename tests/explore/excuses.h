/* SPDX-License-Identifier: MIT */
/*
 * excuses.h - where the library may differ from plain CUDA: the one table. Whatever
 * is not here is a failure (plain.c). Each use is counted (excuses.c) and printed by a
 * run, with the rows that were not used.
 *
 * X(NAME, "name", "reason"): NAME in the code, the other two for people.
 */
#ifndef EXPLORE_EXCUSES_H
#define EXPLORE_EXCUSES_H

/* clang-format off */
#define EXPLORE_EXCUSES(X) \
	X(ROUNDED, "rounded", \
	  "near a limit: sizes are rounded up, and blocks in use keep the rest of their " \
	  "segment, or of their handle of mapped memory, from going back") \
	X(GRAPHS, "graphs", \
	  "what a capture has taken, and what a thread takes beside a capture, stays with " \
	  "its graph until the last one is gone, pinned memory for as long as streams are " \
	  "captured after that; an executable whose update failed is one of both graphs") \
	X(CONCURRENT, "concurrent", \
	  "of several threads that are short of memory at the same time all may be refused; " \
	  "not where all that they ask for fits, each block in a piece of 2 MiB") \
	X(PINNED_BUSY, "pinned busy", \
	  "pinned memory is out, or at `GCPOOL_HOST_QUOTA`, while what is unused lies in " \
	  "another context that was given work after its latest free of such memory, or, " \
	  "beside a capture, may have been: for that the driver's free would wait, and " \
	  "the allocation is refused") \
	X(WAIT_FULL, "wait full", \
	  "an allocation on a full device, or at `GCPOOL_QUOTA`, looks whether work is done " \
	  "that was submitted after the latest free: where it lacks what was freed before " \
	  "memory was that scarce, on a stream, or beside a capture, or where graphs have " \
	  "memory or had it since; beside a capture it waits, and for a barrier that an " \
	  "ordinary segment would go back behind; looks for a launch that one follows, too") \
	X(WAIT_PINNED, "wait pinned", \
	  "pinned memory is out, or at `GCPOOL_HOST_QUOTA`: where that is all that is " \
	  "missing, and what is unused in idle contexts is less, an allocation gives back " \
	  "what is unused in its own context, and the driver's free waits for all work there") \
	X(WAIT_CAPTURE, "wait capture", \
	  "the end of a capture that was given memory in use before, and the end of its " \
	  "graph, hold later work back behind all that was submitted") \
	X(WAIT_LANE, "wait lane", \
	  "a graph that is launched again while, for all the library knows, it runs (or " \
	  "its stream does, while there was one), waits, with all streams of its " \
	  "context, for a graph that shares its memory and was launched in between, or " \
	  "before by another executable (it is another one once it was updated); so does " \
	  "any, where memory for another lane is out. The host waits for a graph that " \
	  "runs, as another one of its lane does, and has to have memory of its own: " \
	  "captures.md says when") \
	X(LAUNCH_FULL, "launch full", \
	  "memory that graphs share was given back, for an allocation on a full device or " \
	  "by `gcpool_trim`, and a launch, an instantiation of a graph with copies, or an " \
	  "executable of graphs that shared it, finds none; or the graph of an update that " \
	  "failed has to have its own") \
	X(WAIT_EXPORT, "wait export", \
	  "an export waits until all work is done that may still use the memory") \
	X(WAIT_DEVICES, "wait devices", \
	  "with `GCPOOL_BLOCKING_FREE=1`, or `GCPOOL_CACHE_LIMIT=0`, a free waits for what " \
	  "other devices do for its own (their copies, and all graphs once one copies " \
	  "between devices), and for streams of other contexts in whose order memory of its " \
	  "own was freed. Otherwise memory of that context is not reused before: more may be " \
	  "held meanwhile") \
	X(LEFT, "left", \
	  "memory is not given back at the end of the program: a capture into a graph of the " \
	  "program was lost, or a free beside other threads returned an error") \
	X(PINNED_LIMIT, "pinned limit", \
	  "`GCPOOL_HOST_CACHE_LIMIT`, or the bound of pinned memory, is exceeded by what " \
	  "graphs have left: in another context, until the next free there") \
	X(FAULT, "fault", \
	  "a call of the driver, or of malloc, has failed as the test planned it " \
	  "(`--faults`): the program may get the failure's code, memory may be lost, and " \
	  "what has met the failure, or is without books for it, is plain CUDA's")
/* clang-format on */

enum excuse {
#define X(name, text, reason) EXCUSE_##name,
	EXPLORE_EXCUSES(X)
#undef X
	    EXCUSES
};
_Static_assert(EXCUSES <= 64, "a bit for each");
#define EXCUSE_BIT(excuse) (1ull << (excuse))

#endif
