/* SPDX-License-Identifier: MIT */
/*
 * test_share.c - graphs that share memory: which may, what their addresses are mapped
 * to, and that no two launches meet in one place.
 *
 * Each launch is judged as it is made: all of its memory is mapped, and every launch of
 * another graph that has memory in common with it is done, or comes before it: in its
 * stream, by its executable, behind a barrier, or by what those come after. And nothing
 * is unmapped under a launch.
 */
#include "capture_fake.h"

enum { GRAPHS = 8, LAUNCHES = 256, PAGES = 512, PAGE = 2 << 20 };

/* --- a driver with launches --- */

struct graph {
	void *graph, *exec;
	gcp_addr scratch; /* 0: none */
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

static int stream_id(void *stream, uint64_t *ret_id)
{
	*ret_id = ids[stream_number(stream)];
	return 0;
}

static void *stream_context(void *stream)
{
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
	for (int i = 0; i < launch_count; i++)
		if (has(behind[number], i) && !is_done(i))
			return GCP_CUDA_NOT_READY;
	return 0;
}

/* An event that was recorded in a stream: what it stands behind. */
struct event {
	uint64_t after[LAUNCHES / 64];
};
static int events, waits_of_all, waits_refused;

static int event_create(void *ctx, void **ret_event)
{
	assert_ptr_equal(ctx, FAKE_CTX);
	assert_int_equal(gcp_ranks_held, 0); /* it may wait for room in the queue */
	*ret_event = calloc(1, sizeof(struct event));
	events++;
	return 0;
}

static void event_destroy(void *event)
{
	free(event);
	events--;
}

static int event_record_there(void *all, void *stream, void *event)
{
	memset(event, 0, sizeof(struct event));
	for (int i = 0; i < STREAMS; i++)
		if (all || stream_handle(i) == stream)
			merge(((struct event *)event)->after, behind[i]);
	return 0;
}

static int event_query(void *event)
{
	for (int i = 0; i < launch_count; i++)
		if (has(((struct event *)event)->after, i) && !is_done(i))
			return GCP_CUDA_NOT_READY;
	return 0;
}

static int event_wait(void *all, void *stream, void *event)
{
	waits_refused += all && fake.capturing; /* judged in the end: locks are held */
	waits_of_all += all != NULL;
	for (int i = 0; i < STREAMS; i++)
		if (all || stream_handle(i) == stream)
			merge(behind[i], ((struct event *)event)->after);
	return 0;
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

static int share_setup(void **state)
{
	struct gcp_capture_driver driver = {
	    .launches_done = launches_done,
	    .capture_state = state_of,
	    .contexts_hold = contexts_hold,
	    .contexts_release = contexts_release,
	    .thread_mode = thread_mode,
	    .stream_id = stream_id,
	    .stream_context = stream_context,
	    .stream_query = stream_query,
	    .event_create = event_create,
	    .event_destroy = event_destroy,
	    .event_record = event_record_there,
	    .event_query = event_query,
	    .event_wait = event_wait,
	};
	struct gcp_config config;

	fake_setup(state);
	memset(&cuda, 0, sizeof(cuda));
	memset(graphs, 0, sizeof(graphs));
	memset(launches, 0, sizeof(launches));
	memset(behind, 0, sizeof(behind));
	launch_count = events = waits_of_all = waits_refused = unmapped_under_work = 0;
	for (int i = 0; i < STREAMS; i++)
		ids[i] = ++last_id;
	context_of_streams = FAKE_CTX;
	gcp_config_default(&config);
	config.backend = GCP_BACKEND_MAPPED;
	config.thread_cache_bytes = 0;
	config.epoch_blocks = 1;
	fake_open(&config);
	OK(gcp_tracker_create(pools, &driver, true, &tracker));
	fake.unmapping = nothing_runs_there;
	return 0;
}

static int share_teardown(void **state)
{
	fake.done = fake.submitted;
	for (int i = 0; i < GRAPHS; i++) {
		graph_destroy(graphs[i].graph);
		holder_destroy(graphs[i].exec, true);
	}
	gcp_tracker_collect(tracker);
	assert_int_equal(must_stats().lane_bytes.current, 0);
	assert_false(gcp_tracker_shares(tracker));
	assert_int_equal(events, 0);
	assert_int_equal(unmapped_under_work, 0);
	assert_int_equal(waits_refused, 0);
	return teardown(state);
}

/* --- graphs --- */

/* A graph with so much scratch, maybe with work beside its capture. */
static struct graph *captured(int number, uint64_t bytes, bool work)
{
	struct graph *graph = &graphs[number];

	graph->graph = begin(0);
	graph->scratch = capture_alloc(bytes);
	graph->bytes = bytes;
	if (work)
		(void)submit_eagerly();
	must_free(graph->scratch);
	end(0);
	return graph;
}

/* As the hook does. */
static void instantiate(struct graph *graph)
{
	struct gcp_holder *holding;

	OK(gcp_holding_begin(tracker, graph->graph, false, GCP_MAKING_EXEC, &holding));
	graph->exec = graph;
	gcp_holding_new(tracker, holding, graph->exec, true);
}

/* The executable keeps the memory. */
static void drop(struct graph *graph)
{
	graph_destroy(graph->graph);
	graph->graph = NULL;
}

static struct graph *make(int number, uint64_t bytes)
{
	struct graph *graph = captured(number, bytes, false);

	fake.done = fake.submitted;
	instantiate(graph);
	drop(graph);
	must_be_sound();
	return graph;
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

/* As the hook does. */
static void launch_begin(const struct graph *graph, int stream,
			 struct gcp_launch *launch)
{
	OK(gcp_launch_begin(tracker, graph->exec, stream_handle(stream), launch));
}

static void launch(const struct graph *graph, int stream)
{
	struct gcp_launch launch;

	launch_begin(graph, stream, &launch);
	launch_real(graph, stream);
	gcp_launch_end(tracker, &launch, 0);
}

#undef TEST
#define TEST(name) CASE(name, share_setup, share_teardown)

/* --- which graphs share --- */

TEST(a_graph_in_flight_is_not_bound)
{
	struct graph *a = make(0, 16 * MIB), *b = captured(1, 16 * MIB, true);
	uint64_t beside = fake.submitted;

	instantiate(b);
	launch(b, 0); /* work beside its capture is on memory that it has freed */
	assert_false(share_memory(a, b));
	fake.done = beside;
	drop(b);
	assert_false(share_memory(a, b)); /* judged: nothing was unmapped */
	launch(b, 0);
	assert_false(share_memory(a, b));
	fake.done = fake.submitted;
	launch(b, 0);
	assert_true(share_memory(a, b));
}

static bool capture_ends(void)
{
	pools->driver.graphs_look = NULL;
	end(0);
	return false;
}

/* It was on its way to that capture's memory. */
TEST(an_allocation_that_a_capture_s_end_meets_gets_nothing_that_eager_work_is_on)
{
	gcp_addr addr;

	graphs[0].graph = begin(0);
	cuda.thread_mode = GCP_CAPTURE_RELAXED;
	addr = capture_alloc(MIB);
	(void)capture_alloc(MIB - 4096); /* keeps their handle out of the lane */
	(void)submit_eagerly();
	must_free(addr);
	pools->driver.graphs_look = capture_ends;
	assert_int_not_equal(capture_alloc(MIB), addr);
}

/* --- launches --- */

/* While it runs its launches elsewhere are crossings: CUDA orders those of one
 * executable.
 */
TEST(a_crossing_follows_the_lane_and_the_lane_follows_it)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);

	launch(b, 0);
	for (int i = 0; i < 20; i++)
		launch(a, i % 4);
	assert_int_equal(waits_of_all, 0);
	launch(b, 0);
	assert_int_equal(waits_of_all, 1);
	assert_true(share_memory(a, b));
	fake.done = fake.submitted;
	launch(a, 2);
	assert_false(share_memory(a, b));
}

/* Launches that are only counted have no event: the one before says nothing of them. */
TEST(an_event_stands_behind_one_launch)
{
	struct graph *a, *b, *leaving = make(0, 16 * MIB);

	launch(leaving, 0);
	launch(make(2, 16 * MIB), 1);
	a = make(1, 16 * MIB);
	launch(a, 0);
	fake.done = fake.submitted;
	launch(leaving, 2);
	fake.stuck = true;
	launch(a, 0);
	launch(a, 2);
	b = make(3, 16 * MIB);
	launch(b, 0);
	assert_true(share_memory(a, b));
}

/* An event that is recorded there later would order all streams by each other. */
TEST(what_follows_the_legacy_stream_follows_all_streams)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);

	launch(a, LEGACY);
	launch(b, LEGACY);
	launch(a, 1);
	assert_int_equal(waits_of_all, 1);
	assert_true(share_memory(a, b));
}

TEST(launched_into_a_capture_it_has_memory_of_its_own)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct gcp_launch none;
	void *parent;

	launch(b, 1);
	launch(a, 1);
	fake.done = fake.submitted;
	parent = begin(2);
	launch_begin(a, 2, &none);
	assert_null(none.graph);
	assert_false(share_memory(a, b));
	end(2);
	/* Launches of the other graph are not seen: its memory stays where it is. */
	gcp_share_trim(tracker, -1, 0);
	assert_int_not_equal(fake_physical(a->scratch), 0);
	graph_destroy(parent);
	make(2, 32 * MIB);
	launch(&graphs[2], 0);
	launch(b, 3);
	assert_false(share_memory(a, &graphs[2]));
	assert_false(share_memory(a, b));
}

/* Of a capture that began in an unknown way the device tells. Nothing moves before, and
 * what was noted of a launch counts no more. */
TEST(launched_into_an_unseen_capture_it_has_memory_of_its_own)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct gcp_launch now;

	for (int i = 0; i < 2; i++) {
		launch(b, 1);
		launch(a, 1);
	}
	gcp_share_captures_unseen(tracker);
	assert_true(share_memory(a, b));
	fake.done = fake.submitted;
	cuda.streams[1] = (struct gcp_capture_state){.active = true, .id = 77};
	launch_begin(a, 1, &now);
	assert_null(now.graph);
	assert_false(share_memory(a, b));
	cuda.streams[1] = (struct gcp_capture_state){.active = false};
	launch(b, 1);
}

TEST(nodes_of_a_parent_tell_of_its_children)
{
	struct graph *child = captured(0, 16 * MIB, false);
	void *parent = begin(1);
	struct gcp_holder *holding;

	OK(gcp_holding_begin(tracker, child->graph, false, GCP_MAKING_COPY, &holding));
	gcp_holding_add(tracker, holding, parent, false);
	end(1);
	gcp_share_listed(tracker, begin(2));
	end(2);
	OK(gcp_share_read(tracker, false));
	assert_true(gcp_tracker_shares(tracker));
	gcp_share_listed(tracker, parent);
	OK(gcp_share_read(tracker, false));
	assert_false(gcp_tracker_shares(tracker));
	graph_destroy(parent);
}

TEST(in_a_stream_of_another_context_it_has_memory_of_its_own)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct gcp_launch none;

	context_of_streams = FAKE_OTHER_CTX;
	launch_begin(a, 3, &none);
	assert_null(none.graph);
	assert_false(share_memory(a, b));
}

TEST(an_unknown_call_gives_each_memory_of_its_own)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);

	OK(gcp_share_read(tracker, true));
	assert_false(share_memory(a, b));
	launch(a, 0);
	launch(b, 1);
	assert_int_equal(must_stats().graph_moves, 0);
}

TEST(what_a_graph_that_ended_runs_on_does_not_move)
{
	struct graph *a = make(0, 16 * MIB);

	make(1, 16 * MIB);
	launch(a, 0);
	gcp_holding_new(tracker, NULL, a->exec, true);
	gcp_tracker_collect(tracker);
	launch(&graphs[1], 1); /* judged */
	assert_false(share_memory(a, &graphs[1]));
}

TEST(what_a_graph_that_ended_runs_on_is_waited_for)
{
	struct graph *a = make(0, 16 * MIB);

	make(1, 16 * MIB);
	fake.stuck = true;
	launch(&graphs[1], 0);
	launch(a, 0);
	uint64_t work = fake.submitted;
	gcp_holding_new(tracker, NULL, a->exec, true);
	gcp_tracker_collect(tracker);
	OK(gcp_share_read(tracker, true));
	assert_true(fake.done >= work);
}

/* Its end is long ago: the executables of another graph need no order. */
TEST(what_a_graph_that_ended_ran_on_is_in_no_order)
{
	struct graph *a = make(0, 16 * MIB), *b = captured(1, 16 * MIB, false), twin;

	instantiate(b);
	twin = *b;
	instantiate(&twin);
	drop(b);
	fake.stuck = true;
	launch(b, 0);
	launch(a, 0);
	gcp_holding_new(tracker, NULL, a->exec, true);
	fake.done = fake.submitted;
	launch(b, 0);
	launch(&twin, 1);
	assert_int_equal(must_stats().graph_waits, 0);
	holder_destroy(twin.exec, true);
}

/* --- ends --- */

TEST(idle_lanes_give_back_and_are_filled_again)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 32 * MIB);

	launch(a, 0);
	assert_int_equal(gcp_share_trim(tracker, 0, 0), 0); /* it runs */
	fake.done = fake.submitted;
	assert_int_equal(gcp_share_trim(tracker, 0, 32 * MIB), 0); /* it is kept */
	assert_int_equal(gcp_share_trim(tracker, 1, 0), 0);
	assert_int_equal(gcp_share_trim(tracker, 0, 0), 32 * MIB);
	assert_int_equal(fake.memory_used, 0);
	must_be_sound();
	launch(b, 0);
	assert_int_equal(fake.memory_used, 32 * MIB);
	launch(a, 0);
	assert_int_equal(fake.memory_used, 32 * MIB);
	must_be_sound();
}

/* The large one has moved to where there is enough. */
TEST(what_no_graph_of_a_lane_needs_goes_back)
{
	struct graph *a = make(0, 4 * MIB), *b = make(1, 40 * MIB);
	struct graph *c = make(2, 40 * MIB);

	launch(a, 0);
	launch(c, 1);
	assert_int_equal(fake.memory_used, 80 * MIB);
	launch(b, 1);
	assert_true(share_memory(b, c));
	assert_int_equal(fake.memory_used, 44 * MIB); /* while they run */
	assert_int_equal(gcp_share_trim(tracker, 0, 0), 0);
	must_be_sound();
	for (int i = 0; i < 20; i++)
		launch(i % 2 ? b : a, i % 2);
	assert_int_equal(fake.memory_used, 44 * MIB);
}

TEST(without_memory_a_launch_fails_and_may_be_tried_again)
{
	struct graph *a = make(0, 16 * MIB);
	struct gcp_launch now = {.graph = NULL};

	launch(a, 0);
	fake.done = fake.submitted;
	assert_true(gcp_share_trim(tracker, -1, 0) > 0);
	fake.memory_limit = 8 * MIB;
	assert_int_equal(gcp_launch_begin(tracker, a->exec, stream_handle(0), &now),
			 GCP_CUDA_OUT_OF_MEMORY);
	must_be_sound();
	fake.memory_limit = UINT64_MAX;
	launch(a, 0);
}

/* It takes turns with a small one, whose handles are of another size. */
TEST(without_memory_to_leave_its_lane_a_graph_stays_as_it_is)
{
	struct graph *a = make(0, 20 * MIB), *b = make(1, 2 * MIB);
	uint64_t changes;

	launch(a, 0);
	launch(b, 0);
	fake.done = fake.submitted;
	fake.memory_limit = fake.memory_used + 8 * MIB;
	changes = fake.unmaps + fake.maps;
	for (int i = 0; i < 4; i++) {
		launch(a, 1);
		launch(b, 0);
		fake.done = fake.submitted;
		assert_int_equal(fake.unmaps + fake.maps, changes);
		must_be_sound();
	}
	fake.memory_limit = UINT64_MAX;
	launch(a, 1);
	assert_false(share_memory(a, b));
}
