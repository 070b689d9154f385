/* SPDX-License-Identifier: MIT */
/*
 * debug.c - programs with mistakes in their use of memory, and without, for
 * GCPOOL_DEBUG: debug.py says what has to be found in each.
 *
 *   debug SCENARIO    plays one; what it says is "block ADDRESS NAME", and with WRONG:
 *                     what the library must not do
 */
#include "../preload/scenarios.h"

enum { PATTERN = 0xfff5dea5 };

static CUstream stream;

static void begin(void)
{
	primary();
	stream = stream_new();
	OK(cuMemFree(allocated(512))); /* from here on callers are known */
}

BEGIN_WITH(begin)

/* __attribute__: frames of their own, which call stacks show. */
static __attribute__((noinline)) CUdeviceptr block_make(const char *name, size_t bytes)
{
	CUdeviceptr p = allocated(bytes);

	printf("block 0x%llx %s\n", (unsigned long long)p, name);
	return p;
}

static CUdeviceptr block_make_async(const char *name, size_t bytes)
{
	CUdeviceptr p;

	OK(cuMemAllocAsync(&p, bytes, stream));
	printf("block 0x%llx %s 0x%llx\n", (unsigned long long)p, name,
	       (unsigned long long)(uintptr_t)stream);
	return p;
}

static void used(CUdeviceptr p, size_t bytes)
{
	OK(cuMemsetD8Async(p, 1, bytes, stream));
}

/* Allocates till the address comes again. */
static void again(CUdeviceptr p, size_t bytes)
{
	for (int i = 0; i < 1000; i++) {
		CUdeviceptr q = allocated(bytes);

		if (q == p)
			return;
		used(q, bytes);
	}
	must(false, "the block does not come again");
}

/* --- mistakes ----------------------------------------------------------------- */

SCENARIO(overrun)
{
	CUdeviceptr p = block_make("over", 1000);

	used(p, 1003);
	OK(cuMemFree(p));
}

SCENARIO(overrun_of_a_size_class)
{
	CUdeviceptr p = block_make("over", 65536);

	used(p, 65537);
	OK(cuMemFree(p));
}

SCENARIO(overrun_in_a_stream)
{
	CUdeviceptr p = block_make_async("over", 5000);

	used(p, 5001);
	OK(cuMemFreeAsync(p, stream), cuStreamSynchronize(stream));
}

SCENARIO(use_after_free)
{
	CUdeviceptr p = block_make("gone", 100000);

	used(p, 100000);
	OK(cuMemFree(p));
	used(p + 4097, 3);
	OK(cuStreamSynchronize(stream));
	again(p, 100000);
}

SCENARIO(use_after_free_in_a_stream)
{
	CUdeviceptr p, q;

	p = block_make_async("gone", 100000);
	used(p, 100000);
	OK(cuMemFreeAsync(p, stream));
	used(p + 5, 1);
	OK(cuMemAllocAsync(&q, 100000, stream));
	must(p == q, "the block does not come again");
	OK(cuStreamSynchronize(stream));
}

/* The freed block is a part of what is given out then. */
SCENARIO(use_after_free_of_a_part)
{
	CUdeviceptr parts[4], p = 0;

	allocated(100 * MIB); /* of a larger pool blocks share larger segments */
	allocated(MIB);       /* beside the smallest blocks */
	for (int i = 0; i < 4; i++)
		parts[i] = allocated(MIB);
	printf("block 0x%llx gone\n", (unsigned long long)parts[1]);
	for (int i = 0; i < 3; i++)
		OK(cuMemFree(parts[i]));
	used(parts[1] + 70000, 4);
	OK(cuStreamSynchronize(stream));
	for (int i = 0; i < 100 && p != parts[0]; i++)
		p = allocated(2 * MIB);
	must(p == parts[0], "the blocks do not come again");
}

/* What is left of it when a part was given out. */
SCENARIO(use_after_free_of_the_rest)
{
	CUdeviceptr p, q = 0;

	allocated(256 * MIB);
	p = allocated(5 * MIB); /* with guards three chunks */
	allocated(512 * 1024);
	printf("block 0x%llx gone\n", (unsigned long long)p);
	OK(cuMemFree(p));
	used(p + 3 * MIB, 4);
	OK(cuStreamSynchronize(stream));
	for (int i = 0; i < 200 && (q <= p || q >= p + 4 * MIB); i++)
		q = allocated(2 * MIB - 512);
	must(q > p && q < p + 4 * MIB, "the rest does not come again");
}

SCENARIO(leaks)
{
	void *host;

	OK(cuMemFree(allocated(3000)));
	block_make("left", 3000);
	block_make_async("left", 70000);
	OK(cuMemHostAlloc(&host, 5000, 0));
	printf("block 0x%llx left\n", (unsigned long long)(uintptr_t)host);
}

SCENARIO(double_free)
{
	CUdeviceptr p = block_make("twice", 3000);

	OK(cuMemFree(p));
	must(cuMemFree(p) == CUDA_ERROR_INVALID_VALUE, "the code of a double free");
}

SCENARIO(double_free_in_a_stream)
{
	CUdeviceptr p = block_make_async("twice", 3000);

	OK(cuMemFreeAsync(p, stream));
	must(cuMemFreeAsync(p, stream) == CUDA_ERROR_INVALID_VALUE, "the code");
}

SCENARIO(foreign_free)
{
	CUdeviceptr p = block_make("inside", 3000);

	must(cuMemFree(p + 512) == CUDA_ERROR_INVALID_VALUE, "the code");
	OK(cuMemFree(p));
}

/* --- none --------------------------------------------------------------------- */

static void words_are(CUdeviceptr p, size_t bytes, uint32_t wanted)
{
	uint32_t *words = malloc(bytes);

	OK(cuMemcpyDtoH(words, p, bytes));
	for (size_t i = 0; i < bytes / 4; i++)
		if (words[i] != wanted)
			wrong = true;
	must(!wrong, "memory is not as it should be");
	free(words);
}

SCENARIO(new_memory_has_a_pattern)
{
	CUdeviceptr p, q;

	p = allocated(MIB);
	words_are(p, MIB, PATTERN);
	used(p, MIB);
	OK(cuMemFree(p));
	words_are(p, MIB, PATTERN); /* a mistake, which only reads */
	again(p, MIB);
	words_are(p, MIB, PATTERN);
	OK(cuMemAllocAsync(&q, MIB, stream), cuStreamSynchronize(stream));
	words_are(q, MIB, PATTERN);
	must(gcpsim_hazards() == 0, "a pattern races with the program");
}

/* A block has the bytes that were asked for, and the statistics say so. */
SCENARIO(sizes_are_those_of_the_program)
{
	CUdeviceptr base, p;
	size_t bytes;

	p = allocated(65536);
	OK(cuMemGetAddressRange(&base, &bytes, p));
	must(base == p && bytes == 65536, "a margin is shown");
	used(p, 65536);
	OK(cuMemFree(p));
}

SCENARIO(plain_free_of_streamed_memory)
{
	CUdeviceptr p;

	OK(cuMemAllocAsync(&p, MIB, stream), cuStreamSynchronize(stream));
	gcpsim_set_speed(GCPSIM_NEVER);
	used(p, MIB);
	OK(cuMemFree(p));
	must(gcpsim_pending() > 0, "cudaFree of stream-ordered memory waits");
}

SCENARIO(allocations_wait_for_no_work)
{
	CUstream blocking;

	OK(cuMemFree(allocated(MIB)), cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	OK(cuMemcpyDtoH(&(uint32_t){0}, allocated(512), 4));
	gcpsim_set_speed(GCPSIM_NEVER);
	for (CUdeviceptr p = allocated(MIB), i = 0; i < 3; i++) {
		OK(cuMemsetD8Async(p, 1, MIB, i ? blocking : CU_STREAM_LEGACY));
		allocated(MIB << i);
		must(gcpsim_pending() > 0, "an allocation waits for the program");
	}
}

/* A free in one stream, work in others that comes before it only by the wait of plain
 * cudaFree; and reuse. */
SCENARIO(free_comes_after_all_work)
{
	CUstream streams[4];

	gcpsim_set_speed(GCPSIM_RANDOM);
	for (int i = 0; i < 4; i++)
		OK(cuStreamCreate(&streams[i],
				  i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
	for (int i = 0; i < 400; i++) {
		size_t bytes = (size_t)1000 << i % 9;
		CUdeviceptr p = allocated(bytes), q;

		OK(cuMemsetD8Async(p, 1, bytes, streams[i % 4]));
		OK(cuMemAllocAsync(&q, bytes, streams[i % 3]));
		OK(cuMemsetD8Async(q, 1, bytes, streams[i % 3]));
		OK(cuMemFreeAsync(q, streams[i % 3]), cuMemFree(p));
	}
	OK(cuCtxSynchronize());
	must(gcpsim_hazards() + gcpsim_disorders() == 0,
	     "a pattern races with the program");
}

/* A block that is freed in a stream of another context, where no epoch covers what
 * would be written. */
SCENARIO(free_in_a_stream_of_another_context)
{
	CUcontext other;
	CUstream away;
	CUdeviceptr p;

	p = allocated(MIB);
	OK(cuCtxCreate(&other, NULL, 0, 0));
	away = stream_new();
	gcpsim_set_speed(GCPSIM_NEVER);
	OK(cuMemsetD8Async(p, 1, MIB, away), cuMemFreeAsync(p, away));
	primary();
	for (int i = 0; i < 40; i++)
		used(allocated(MIB), MIB);
	must(gcpsim_hazards() == 0, "a pattern races with the program");
}

static uint64_t additions(void)
{
	return gcpsim_calls("cuMemsetD8Async") + gcpsim_calls("cuMemsetD32Async") +
	       gcpsim_calls("cuMemcpyDtoHAsync_v2") +
	       gcpsim_calls("cuStreamSynchronize") + gcpsim_calls("cuEventRecord") +
	       gcpsim_calls("cuEventQuery");
}

SCENARIO(captures_are_left_alone)
{
	CUdeviceptr before, inside, eager, later, streamed;
	CUgraphExec exec;
	CUstream apart;
	CUgraph graph;
	uint64_t count;

	apart = stream_new();
	before = allocated(MIB);
	capture_begin(stream);
	count = additions();
	inside = allocated(MIB);
	eager = allocated(MIB);
	OK(cuMemFree(eager), cuMemFree(before), cuMemAllocAsync(&streamed, MIB, apart));
	OK(cuMemFreeAsync(streamed, apart));
	must(additions() == count, "a capture has work of the library");
	used(inside, MIB);
	OK(cuMemFree(inside));
	later = allocated(MIB);
	used(later, MIB);
	graph = capture_end(stream);
	exec = instantiated(graph);
	OK(cuGraphLaunch(exec, stream), cuStreamSynchronize(stream));
	OK(cuMemFree(later)); /* and the graph goes on to use it */
	words_are(later, MIB, 0x01010101);
	for (int i = 0; i < 3; i++)
		OK(cuGraphLaunch(exec, stream));
	for (int i = 0; i < 50; i++)
		used(allocated(MIB), MIB);
	OK(cuStreamSynchronize(stream), cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	must(gcpsim_invalidated() == 0, "a capture was invalidated");
	must(gcpsim_hazards() == 0, "a pattern races with the program");
}

/* A context that goes takes its stream with it; addresses come again. */
SCENARIO(contexts_that_come_and_go)
{
	for (int i = 0; i < 3; i++) {
		if (i > 0)
			begin();
		OK(cuMemFree(allocated(MIB)), cuDevicePrimaryCtxReset(0));
	}
	for (int i = 0; i < 5; i++) {
		CUdeviceptr p;
		CUcontext ctx;
		CUstream in;

		OK(cuCtxCreate(&ctx, NULL, 0, 0));
		in = stream_new();
		p = allocated(MIB);
		OK(cuMemsetD8Async(p, 1, MIB, in));
		if (i % 2)
			OK(cuMemFree(p));
		OK(cuCtxDestroy(ctx));
	}
	must(gcpsim_misuses() + gcpsim_faults() == 0, "what is gone is used");
}

/* What is given back to the driver and comes again has no pattern of before. */
SCENARIO(memory_that_was_given_back)
{
	CUdeviceptr p[4];

	for (int round = 0; round < 4; round++) {
		size_t bytes = (size_t)(round % 2 ? 10 : 17) * MIB;

		for (int i = 0; i < 4; i++) {
			p[i] = allocated(bytes);
			used(p[i], bytes);
		}
		for (int i = 0; i < 4; i++)
			OK(cuMemFree(p[i]));
	}
	must(gcpsim_misuses() + gcpsim_faults() == 0, "what is gone is used");
}
