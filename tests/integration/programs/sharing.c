/* SPDX-License-Identifier: MIT */
/*
 * sharing.c - captures that share a graph pool through gcpool.h, with checkpoint
 * and restore, judged by what the graphs compute.
 *
 * Captures g1 and g2 into one pool; replays g1 alone; restores what was live after
 * g1; captures g3 into the same pool: it must keep off g1's output. Then the
 * handle loses its last reference and is used again. Wrong uses must be refused
 * and change nothing. Needs the library: without it there is nothing to find.
 *
 *   --words N  size of a buffer    --rounds N
 *
 * Styles: static shared linked dlsym ptsz
 * Run: both: trial.py @ --words 2000 --rounds 6 GCPSIM_SEED=1
 * Run: both: trial.py @ --words 2000 --rounds 6 GCPSIM_SEED=2
 * Run: both: trial.py @ --words 2000 --rounds 6 GCPSIM_SPEED=never
 * Run: both: trial.py @ --words 2000 --rounds 6 GCPSIM_SPEED=idle
 * Run: both: trial.py @ --words 2000 --rounds 6 GCPSIM_SPEED=2000
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>

#include "../../../interpose/gcpool.h"
#include "api.h"
#include "driver.h"
#include "kernels.h"
#include "graph_forms.h"
#include "pool.h"
#include "util.h"

enum { DELTA = 7, JUNK = 0xdead };

static struct {
	__typeof__(gcpool_graph_pool_create) *create;
	__typeof__(gcpool_graph_pool_use) *use;
	__typeof__(gcpool_graph_pool_release) *release;
	__typeof__(gcpool_graph_pools) *list;
	__typeof__(gcpool_graph_pool_checkpoint) *checkpoint;
	__typeof__(gcpool_graph_pool_restore) *restore;
	__typeof__(gcpool_graph_pool_checkpoint_free) *checkpoint_free;
} pool;

struct scene {
	size_t words;
	CUstream stream;
	struct gcpt_kernels kernels;
	void *input;
	unsigned long long *counter;
};

static int refused; /* demands that were not met */

static void demand(int code, int wanted, const char *what)
{
	if (code == wanted)
		return;
	printf("sharing: %s: %d, not %d\n", what, code, wanted);
	refused++;
}

static bool pool_find(void)
{
	*(void **)&pool.create = dlsym(RTLD_DEFAULT, "gcpool_graph_pool_create");
	*(void **)&pool.use = dlsym(RTLD_DEFAULT, "gcpool_graph_pool_use");
	*(void **)&pool.release = dlsym(RTLD_DEFAULT, "gcpool_graph_pool_release");
	*(void **)&pool.list = dlsym(RTLD_DEFAULT, "gcpool_graph_pools");
	*(void **)&pool.checkpoint =
	    dlsym(RTLD_DEFAULT, "gcpool_graph_pool_checkpoint");
	*(void **)&pool.restore = dlsym(RTLD_DEFAULT, "gcpool_graph_pool_restore");
	*(void **)&pool.checkpoint_free =
	    dlsym(RTLD_DEFAULT, "gcpool_graph_pool_checkpoint_free");
	return pool.create && pool.use && pool.release && pool.list &&
	       pool.checkpoint && pool.restore && pool.checkpoint_free;
}

static CUgraphExec finish(struct scene *s)
{
	CUgraphExec exec;
	CUgraph graph;

	GCPT_OK(gcpt_capture_end(s->stream, &graph));
	GCPT_OK(gcpt_instantiate(&exec, graph));
	GCPT_OK((int)cu.cuGraphDestroy(graph));
	return exec;
}

/* output = input + DELTA, through a temporary that goes back. */
static CUgraphExec capture_sum(struct scene *s, void **ret_output)
{
	void *scratch;

	GCPT_OK(gcpt_capture_begin(s->stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	GCPT_OK(gcpt_malloc(&scratch, s->words * 4));
	GCPT_OK(gcpt_malloc(ret_output, s->words * 4));
	GCPT_OK(gcpt_launch_copy(&s->kernels, s->stream, scratch, s->input, s->words));
	GCPT_OK(gcpt_launch_add(&s->kernels, s->stream, scratch, s->words, DELTA));
	GCPT_OK(
	    gcpt_launch_copy(&s->kernels, s->stream, *ret_output, scratch, s->words));
	GCPT_OK(gcpt_free(scratch));
	return finish(s);
}

/* Writes junk wherever it is given memory; takes back `drop` first. */
static CUgraphExec capture_junk(struct scene *s, void *drop, bool misuse, uint64_t id)
{
	struct gcpool_checkpoint *checkpoint = NULL;
	void *p;

	GCPT_OK(gcpt_capture_begin(s->stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	if (drop)
		GCPT_OK(gcpt_free(drop));
	for (int i = 0; i < 6; i++) {
		GCPT_OK(gcpt_malloc(&p, s->words * 4));
		GCPT_OK(gcpt_launch_fill(&s->kernels, s->stream, p, s->words, JUNK));
		if (i % 2)
			GCPT_OK(gcpt_free(p));
	}
	if (misuse)
		demand(pool.checkpoint(id, &checkpoint), -EBUSY,
		       "checkpoint in a capture");
	return finish(s);
}

static void launch(struct scene *s, CUgraphExec exec)
{
	GCPT_OK(gcpt_graph_launch(exec, s->stream));
}

static void check(struct scene *s, void *output, uint32_t value)
{
	GCPT_OK(gcpt_launch_check(&s->kernels, s->stream, output, s->words,
				  value + DELTA, s->counter));
}

static struct gcpool_graph_pool info_of(uint64_t id)
{
	struct gcpool_graph_pool infos[64], none = {0};
	size_t count = pool.list(infos, 64);

	for (size_t i = 0; i < count && i < 64; i++)
		if (infos[i].id == id)
			return infos[i];
	return none;
}

static void round_of(struct scene *s, uint64_t id, uint32_t value)
{
	struct gcpool_checkpoint *after_g1 = NULL;
	CUgraphExec g1, g2, g3;
	void *output;

	GCPT_OK(gcpt_launch_fill(&s->kernels, s->stream, s->input, s->words, value));
	g1 = capture_sum(s, &output);
	demand(pool.checkpoint(id, &after_g1), 0, "checkpoint");
	g2 = capture_junk(s, output, true, id);
	demand(info_of(id).graphs == 2, 1, "two graphs hold the pool");
	launch(s, g1);
	check(s, output, value);

	demand(pool.restore(id + 1000, after_g1), -ENOENT, "restore of no pool");
	demand(pool.restore(id, after_g1), 0, "restore");
	g3 = capture_junk(s, NULL, false, id);
	launch(s, g1);
	launch(s, g3);
	check(s, output, value); /* g3 kept off it */
	GCPT_OK(gcpt_free(output));
	demand(gcpt_free(output) != 0, 1, "a second free is refused");
	gcpt_last_error();
	GCPT_OK(gcpt_stream_sync(s->stream));
	gcpt_exec_destroy(g1);
	gcpt_exec_destroy(g2);
	gcpt_exec_destroy(g3);
	GCPT_OK(gcpt_sync());
	/* Only the handle's reference is left; dropped, the pool is empty. */
	demand(pool.release(id), 0, "release");
	demand(gcpt_private_wait(0), 1, "private memory is back");
	demand(pool.restore(id, after_g1), -ESTALE, "restore of a past life");
	demand(pool.release(id), -ENOENT, "release without a reference");
	pool.checkpoint_free(after_g1);
}

static void prepare(struct scene *s)
{
	unsigned long long zero = 0;

	GCPT_OK(gcpt_use(0));
	GCPT_OK(gcpt_kernels_load(&s->kernels));
	GCPT_OK(gcpt_stream_create(&s->stream));
	GCPT_OK(gcpt_malloc(&s->input, s->words * 4));
	GCPT_OK(gcpt_malloc((void **)&s->counter, sizeof(zero)));
	GCPT_OK(gcpt_copy(s->counter, &zero, sizeof(zero)));
}

int main(int argc, char **argv)
{
	struct scene s = {.words = gcpt_arg(argc, argv, "--words", 65536)};
	unsigned rounds = (unsigned)gcpt_arg(argc, argv, "--rounds", 20);
	unsigned long long wrong;
	uint64_t id;

	if (!pool_find()) {
		printf(
		    "sharing: no gcpool_graph_pool_create: the library is not there\n");
		return 2;
	}
	prepare(&s);
	for (unsigned i = 0; i < rounds; i++) {
		demand(pool.create(&id), 0, "create");
		demand(pool.use(id + 1000), -ENOENT, "use of no pool");
		demand(pool.use(id), 0, "use");
		round_of(&s, id, 1000 + i);
	}
	demand(pool.use(0), 0, "use of none");
	GCPT_OK(gcpt_sync());
	GCPT_OK(gcpt_copy(&wrong, s.counter, sizeof(wrong)));
	printf("sharing: %u rounds, wrong words: %llu, refused: %d\n", rounds, wrong,
	       refused);
	return wrong || refused;
}
