/* SPDX-License-Identifier: MIT */
/*
 * share_fake.h - a driver with executables and launches, for the tests of graphs that
 * share memory. Included once by such a program.
 *
 * Each launch is judged as it is made: all of its memory is mapped, and every launch of
 * another graph that has memory in common with it is done, or comes before it: in its
 * stream, by its executable, behind a barrier, or by what those come after. And nothing
 * is unmapped under a launch.
 */
#ifndef GCP_TESTS_SHARE_FAKE_H
#define GCP_TESTS_SHARE_FAKE_H

#include "../../pool/pool_types.h"
#include "capture_fake.h"

#include <sched.h>
#include <stdlib.h>

enum { GRAPHS = 8, LAUNCHES = 256, PAGES = 512, PAGE = 2 << 20 };

/* --- a driver with launches --- */

struct graph {
	void *graph, *exec;
	gcp_addr scratch, kept; /* 0: none */
	uint64_t bytes;
};

static struct graph graphs[GRAPHS];

static struct {
	const struct graph *graph;
	gcp_addr scratch;
	uint64_t work;
	uint64_t after[LAUNCHES / 64]; /* launches that it comes behind */
	uint64_t pages[PAGES];         /* physical memory of its scratch */
} launches[LAUNCHES];
static int launch_count;

static uint64_t behind[STREAMS][LAUNCHES / 64]; /* what a stream's next work follows */
static uint64_t ids[STREAMS], last_id;
static void *context_of_streams;
static int queries, ids_asked;

static int stream_id(void *stream, uint64_t *ret_id)
{
	ids_asked++;
	*ret_id = ids[stream_number(stream)];
	return 0;
}

static void *stream_context(void *stream)
{
	(void)stream;
	return context_of_streams;
}

static void merge(uint64_t *to, const uint64_t *from)
{
	for (int i = 0; i < LAUNCHES / 64; i++)
		to[i] |= from[i];
}

static bool has(const uint64_t *set, int launch)
{
	return set[launch / 64] >> launch % 64 & 1;
}

static bool is_done(int launch)
{
	return launches[launch].work <= fake.done;
}

static int stream_query(void *ctx, void *stream)
{
	int number = stream_number(stream);

	assert_ptr_equal(ctx, FAKE_CTX);
	assert_int_equal(fake.capturing, 0); /* it would be lost */
	queries++;
	for (int i = 0; i < launch_count; i++)
		if (has(behind[number], i) && !is_done(i))
			return GCP_CUDA_NOT_READY;
	return 0;
}

/* An event that was recorded in a stream: what it stands behind. */
struct event {
	uint64_t after[LAUNCHES / 64];
};
static int events, waits, waits_of_all, waits_refused;

static void (*once_created)(void); /* another thread, while an event is made */

static int event_create(void *ctx, void **ret_event)
{
	void (*other)(void) = once_created;

	once_created = NULL;
	if (other)
		other();
	assert_ptr_equal(ctx, FAKE_CTX);
	*ret_event = calloc(1, sizeof(struct event));
	events++;
	return 0;
}

static void event_destroy(void *event)
{
	free(event);
	events--;
}

static void (*once_recorded)(void); /* another thread */

static int event_record_there(void *event, void *stream)
{
	void (*other)(void) = once_recorded;

	memcpy(event, behind[stream_number(stream)], sizeof(struct event));
	once_recorded = NULL;
	if (other)
		other();
	return 0;
}

static int event_query(void *event)
{
	for (int i = 0; i < launch_count; i++)
		if (has(((struct event *)event)->after, i) && !is_done(i))
			return GCP_CUDA_NOT_READY;
	return 0;
}

static int event_wait(void *stream, void *event)
{
	waits++;
	merge(behind[stream_number(stream)], ((struct event *)event)->after);
	return 0;
}

static int event_wait_all(void *ctx, void *event)
{
	assert_ptr_equal(ctx, FAKE_CTX);
	waits_refused += fake.capturing > 0; /* judged in the end: locks are held */
	waits_of_all++;
	for (int i = 0; i < STREAMS; i++)
		merge(behind[i], ((struct event *)event)->after);
	return 0;
}

static __attribute__((unused)) void stream_replace(int i)
{
	gcp_tracker_stream_ending(tracker, FAKE_CTX, stream_handle(i), &(uint64_t){0});
	memset(behind[i], 0, sizeof(behind[i]));
	ids[i] = ++last_id;
}

/* Locks are held here: judged at the next launch, and in the end. */
static int unmapped_under_work;

static void nothing_runs_there(gcp_addr addr, uint64_t bytes)
{
	for (int i = 0; i < launch_count; i++) {
		const struct graph *graph = launches[i].graph;

		if (graph && graph->scratch && !is_done(i))
			unmapped_under_work += graph->scratch < addr + bytes &&
					       addr < graph->scratch + graph->bytes;
	}
}

static int graph_nodes(void *graph, struct gcp_node_handles **ret_handles)
{
	(void)graph;
	*ret_handles = NULL;
	return 0;
}

static int share_setup(void **state)
{
	struct gcp_capture_driver driver = {
	    .capture_state = state_of,
	    .contexts_hold = contexts_hold,
	    .contexts_release = contexts_release,
	    .thread_mode = thread_mode,
	    .graph_nodes = graph_nodes,
	    .stream_id = stream_id,
	    .stream_context = stream_context,
	    .stream_query = stream_query,
	    .event_create = event_create,
	    .event_destroy = event_destroy,
	    .event_record = event_record_there,
	    .event_query = event_query,
	    .event_wait = event_wait,
	    .event_wait_all = event_wait_all,
	};
	struct gcp_config config;

	(void)state;
	fake_reset();
	memset(&cuda, 0, sizeof(cuda));
	memset(graphs, 0, sizeof(graphs));
	memset(launches, 0, sizeof(launches));
	memset(behind, 0, sizeof(behind));
	launch_count = queries = events = waits = waits_of_all = waits_refused = 0;
	unmapped_under_work = 0;
	for (int i = 0; i < STREAMS; i++)
		ids[i] = ++last_id;
	context_of_streams = FAKE_CTX;
	gcp_config_default_mapped(&config);
	config.thread_cache_bytes = 0;
	config.epoch_blocks = 1;
	pools = fake_pools(&config);
	pool = fake_pool(pools);
	assert_int_equal(gcp_tracker_create(pools, &driver, &tracker), 0);
	gcp_tracker_share_graphs(tracker, true);
	fake.unmapping = nothing_runs_there;
	return 0;
}

static int share_teardown(void **state)
{
	fake.done = fake.submitted;
	for (int i = 0; i < GRAPHS; i++) {
		if (graphs[i].kept)
			must_free(pools, graphs[i].kept);
		graph_destroy(graphs[i].graph);
		holder_destroy(graphs[i].exec, true);
	}
	gcp_tracker_collect(tracker);
	assert_int_equal(must_stats(pools).lane_bytes.current, 0);
	assert_false(gcp_tracker_shares(tracker));
	assert_int_equal(events, 0);
	assert_int_equal(unmapped_under_work, 0);
	assert_int_equal(waits_refused, 0);
	return teardown(state);
}

/* --- graphs --- */

/* A graph with so much scratch, and `kept` bytes that the program holds. */
static struct graph *capture_with(int number, uint64_t bytes, uint64_t kept)
{
	struct graph *graph = &graphs[number];

	graph->graph = begin(0);
	if (kept)
		graph->kept = capture_alloc(kept);
	graph->scratch = capture_alloc(bytes);
	graph->bytes = bytes;
	must_free(pools, graph->scratch);
	end(0);
	gcp_share_captured(tracker, graph->graph);
	return graph;
}

/* As the hook does. plainly: not for launches by the device. An error: refused. */
static int instantiate_to(struct graph *graph, void *exec, bool plainly)
{
	struct gcp_holder *holding;
	int result;

	result =
	    gcp_holding_begin(tracker, graph->graph, false,
			      plainly ? GCP_MAKING_EXEC : GCP_MAKING_UNSEEN, &holding);
	if (result != 0)
		return result;
	graph->exec = exec;
	gcp_holding_new(tracker, holding, exec, true);
	return 0;
}

static void *exec_handle(const struct graph *graph, uintptr_t number)
{
	return (void *)((uintptr_t)graph->graph | 0x10000 << number);
}

static void instantiate(struct graph *graph)
{
	assert_int_equal(instantiate_to(graph, exec_handle(graph, 0), true), 0);
}

/* The executable keeps the memory. */
static void drop(struct graph *graph)
{
	graph_destroy(graph->graph);
	graph->graph = NULL;
}

static struct graph *make(int number, uint64_t bytes)
{
	struct graph *graph = capture_with(number, bytes, 0);

	fake.done = fake.submitted;
	instantiate(graph);
	drop(graph);
	must_be_sound(pools);
	return graph;
}

static __attribute__((unused)) void exec_destroy(struct graph *graph)
{
	holder_destroy(graph->exec, true);
	gcp_tracker_collect(tracker);
	*graph = (struct graph){0};
}

static void pages_read(const struct graph *graph, uint64_t *pages)
{
	for (uint64_t at = 0; at < graph->bytes; at += PAGE)
		pages[at / PAGE] = fake_physical(graph->scratch + at);
}

static bool meet(const uint64_t *a, const uint64_t *b)
{
	for (int i = 0; i < PAGES && a[i]; i++)
		for (int k = 0; k < PAGES && b[k]; k++)
			if (a[i] == b[k])
				return true;
	return false;
}

static bool share_memory(const struct graph *a, const struct graph *b)
{
	uint64_t pages[2][PAGES] = {{0}};

	pages_read(a, pages[0]);
	pages_read(b, pages[1]);
	return meet(pages[0], pages[1]);
}

/* The real launch, judged. */
static void launch_real(const struct graph *graph, int stream)
{
	int launch = launch_count++;

	assert_true(launch_count <= LAUNCHES);
	assert_int_equal(unmapped_under_work, 0);
	launches[launch].graph = graph;
	launches[launch].scratch = graph->scratch;
	launches[launch].work = fake_submit();
	pages_read(graph, launches[launch].pages);
	merge(launches[launch].after, behind[stream]);
	for (int i = 0; i < launch; i++) {
		if (launches[i].graph == graph || launches[i].work <= fake.barrier) {
			merge(launches[launch].after, launches[i].after);
			launches[launch].after[i / 64] |= UINT64_C(1) << i % 64;
		}
	}
	for (int i = 0; i < launch; i++)
		if (launches[i].scratch != graph->scratch && !is_done(i) &&
		    meet(launches[i].pages, launches[launch].pages))
			assert_true(has(launches[launch].after, i));
	merge(behind[stream], launches[launch].after);
	behind[stream][launch / 64] |= UINT64_C(1) << launch % 64;
}

static int launches_again; /* that needed nothing but to be counted */

/* As the hook does. */
static void launch_begin(const struct graph *graph, int stream,
			 struct gcp_launch *launch)
{
	void *handle = stream_handle(stream);

	*launch = (struct gcp_launch){.share = 0};
	if (gcp_launch_again(tracker, graph->exec, handle, launch)) {
		launches_again++;
		return;
	}
	assert_int_equal(gcp_launch_begin(tracker, graph->exec, handle, launch), 0);
}

static void launch(const struct graph *graph, int stream)
{
	struct gcp_launch launch;

	launch_begin(graph, stream, &launch);
	launch_real(graph, stream);
	if (!launch.at || !gcp_launch_again_ended(tracker, &launch))
		gcp_launch_end(tracker, graph->exec, &launch, 0);
}

static void device_catches_up(void)
{
	fake.done = fake.submitted;
}

#undef TEST
#define TEST(name) CASE(name, share_setup, share_teardown)

#endif
