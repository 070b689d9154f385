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
#include "../../pool/pool_types.h"
#include "capture_fake.h"

#include <sched.h>
#include <stdlib.h>

enum { GRAPHS = 8, LAUNCHES = 256, PAGES = 128, PAGE = 2 << 20 };

/* --- a driver with launches --- */

struct graph {
	void *graph, *exec;
	gcp_addr scratch, kept; /* 0: none */
	uint64_t bytes;
};

static struct graph graphs[GRAPHS];

static struct {
	const struct graph *graph;
	uint64_t work;
	uint64_t after[LAUNCHES / 64]; /* launches that it comes behind */
	uint64_t pages[PAGES];         /* physical memory of its scratch */
} launches[LAUNCHES];
static int launch_count;

static uint64_t behind[STREAMS][LAUNCHES / 64]; /* what a stream's next work follows */
static uint64_t ids[STREAMS], last_id;
static void *context_of_streams;
static int queries, orders;

static int stream_id(void *stream, uint64_t *ret_id)
{
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

static int stream_order(void *ctx, void *stream, void *first)
{
	assert_ptr_equal(ctx, FAKE_CTX);
	assert_int_equal(fake.capturing, 0);
	orders++;
	merge(behind[stream_number(stream)], behind[stream_number(first)]);
	return 0;
}

/* An event that was recorded in a stream: what it stands behind. */
struct event {
	uint64_t after[LAUNCHES / 64];
};
static int events, waits;

static int event_create(void *ctx, void **ret_event)
{
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

static void stream_replace(int i)
{
	gcp_tracker_stream_ending(tracker, FAKE_CTX, stream_handle(i));
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

static int share_setup(void **state)
{
	struct gcp_capture_driver driver = {
	    .capture_state = state_of,
	    .contexts_hold = contexts_hold,
	    .contexts_release = contexts_release,
	    .thread_mode = thread_mode,
	    .graph_attach = attach,
	    .stream_id = stream_id,
	    .stream_context = stream_context,
	    .stream_query = stream_query,
	    .stream_order = stream_order,
	    .event_create = event_create,
	    .event_destroy = event_destroy,
	    .event_record = event_record_there,
	    .event_query = event_query,
	    .event_wait = event_wait,
	};
	struct gcp_config config;

	(void)state;
	fake_reset();
	memset(&cuda, 0, sizeof(cuda));
	memset(graphs, 0, sizeof(graphs));
	memset(launches, 0, sizeof(launches));
	memset(behind, 0, sizeof(behind));
	launch_count = queries = orders = events = waits = 0;
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
		if (graphs[i].graph || graphs[i].exec)
			graph_destroy((void *)((uintptr_t)graphs[i].exec & 0xffff));
	}
	gcp_tracker_collect(tracker);
	assert_int_equal(must_stats(pools).lane_bytes.current, 0);
	assert_false(gcp_tracker_shares(tracker));
	assert_int_equal(events, 0);
	assert_int_equal(unmapped_under_work, 0);
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

static void instantiate(struct graph *graph)
{
	graph->exec = (void *)((uintptr_t)graph->graph | 0x10000);
	gcp_share_instantiated(tracker, graph->graph, graph->exec, true);
}

/* The executable keeps the memory. */
static void drop(struct graph *graph)
{
	uint64_t share = gcp_share_graph_ending(tracker, graph->graph);

	gcp_share_graph_ended(tracker, share, true);
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

static void exec_destroy(struct graph *graph)
{
	uint64_t share = gcp_share_exec_ending(tracker, graph->exec);
	void *object = (void *)((uintptr_t)graph->exec & 0xffff);

	gcp_share_exec_ended(tracker, share, true);
	graph_destroy(object);
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
		if (launches[i].graph != graph && !is_done(i) &&
		    meet(launches[i].pages, launches[launch].pages))
			assert_true(has(launches[launch].after, i));
	merge(behind[stream], launches[launch].after);
	behind[stream][launch / 64] |= UINT64_C(1) << launch % 64;
}

static void launch_begin(const struct graph *graph, int stream,
			 struct gcp_launch *launch)
{
	assert_int_equal(
	    gcp_launch_begin(tracker, graph->exec, stream_handle(stream), launch), 0);
}

static void launch(const struct graph *graph, int stream)
{
	struct gcp_launch launch;

	launch_begin(graph, stream, &launch);
	launch_real(graph, stream);
	gcp_launch_end(tracker, graph->exec, &launch, 0);
}

static void device_catches_up(void)
{
	fake.done = fake.submitted;
}

/* --- which graphs share --- */

static void graphs_in_one_stream_hold_the_largest(void **state)
{
	static const uint64_t sizes[] = {16, 64, 8, 40};

	(void)state;
	for (int i = 0; i < 4; i++)
		make(i, sizes[i] * MIB);
	assert_int_equal(fake.memory_used, 64 * MIB);
	assert_int_equal(must_stats(pools).lane_bytes.current, 64 * MIB);
	for (int i = 0; i < 40; i++)
		launch(&graphs[i % 4], 0);
	assert_int_equal(fake.memory_used, 64 * MIB);
	assert_int_equal(must_stats(pools).graph_moves, 0);
	assert_int_equal(must_stats(pools).graph_waits, 0);
	must_be_sound(pools);
}

static void what_the_program_holds_is_never_shared(void **state)
{
	uint64_t before[PAGES] = {0}, pages[PAGES] = {0};
	struct graph *a = capture_with(0, 32 * MIB, 4 * MIB), kept = *a;

	(void)state;
	kept.scratch = a->kept;
	kept.bytes = 4 * MIB;
	pages_read(&kept, before);
	instantiate(a);
	drop(a);
	make(1, 32 * MIB);
	assert_true(share_memory(a, &graphs[1]));
	pages_read(&kept, pages);
	assert_memory_equal(before, pages, sizeof(pages));
	assert_false(share_memory(&kept, &graphs[1]));
}

static void a_graph_that_is_kept_shares_nothing(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = capture_with(1, 16 * MIB, 0);

	(void)state;
	instantiate(b);
	launch(b, 0);
	device_catches_up();
	launch(b, 0);
	assert_false(share_memory(a, b));
	device_catches_up();
	drop(b);
	assert_true(share_memory(a, b));
}

static void a_graph_that_others_have_seen_shares_nothing(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = capture_with(1, 16 * MIB, 0);
	struct graph *c = capture_with(2, 16 * MIB, 0);
	struct graph *d = capture_with(3, 16 * MIB, 0);

	(void)state;
	gcp_share_graph_taken(tracker, b->graph); /* a clone, a child */
	instantiate(b);
	drop(b);
	gcp_share_instantiated(tracker, c->graph, (void *)0x30000, true);
	instantiate(c); /* for the second time */
	drop(c);
	d->exec = (void *)((uintptr_t)d->graph | 0x10000);
	gcp_share_instantiated(tracker, d->graph, d->exec, false); /* device launch */
	drop(d);
	for (int i = 1; i < 4; i++)
		assert_false(share_memory(a, &graphs[i]));
}

static void a_node_that_was_read_may_be_of_any_graph(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = capture_with(1, 16 * MIB, 0);

	(void)state;
	gcp_share_graph_taken(tracker, NULL);
	instantiate(b);
	drop(b);
	assert_false(share_memory(a, b));
	assert_true(share_memory(a, make(2, 16 * MIB)));
}

static void a_graph_that_the_capture_gave_away_shares_nothing(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = &graphs[1];

	(void)state;
	b->graph = begin(0);
	b->scratch = capture_alloc(16 * MIB);
	b->bytes = 16 * MIB;
	must_free(pools, b->scratch);
	gcp_tracker_graph_taken(tracker);
	end(0);
	gcp_share_captured(tracker, b->graph);
	instantiate(b);
	drop(b);
	assert_false(share_memory(a, b));
}

static void a_destroy_that_has_failed_changes_nothing(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = capture_with(1, 16 * MIB, 0);
	uint64_t share = gcp_share_graph_ending(tracker, b->graph);

	(void)state;
	gcp_share_graph_ended(tracker, share, false);
	device_catches_up();
	instantiate(b);
	assert_false(share_memory(a, b));
	drop(b);
	assert_true(share_memory(a, b));
}

static void a_handle_that_the_end_did_not_give_is_no_graph(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = &graphs[1];

	(void)state;
	b->graph = begin(0);
	b->scratch = capture_alloc(16 * MIB);
	b->bytes = 16 * MIB;
	must_free(pools, b->scratch);
	end(0);
	gcp_share_captured(tracker, (void *)0x77);
	instantiate(b);
	drop(b);
	assert_false(share_memory(a, b));
}

static void nothing_shares_where_it_is_switched_off(void **state)
{
	(void)state;
	gcp_tracker_share_graphs(tracker, false);
	make(0, 16 * MIB);
	make(1, 16 * MIB);
	launch(&graphs[0], 0);
	launch(&graphs[1], 1);
	assert_false(gcp_tracker_shares(tracker));
	assert_int_equal(fake.memory_used, 32 * MIB);
}

/* Work beside the capture, on memory that the capture has freed. */
static void work_beside_the_capture_is_completed_first(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = &graphs[1];

	(void)state;
	b->graph = begin(0);
	b->scratch = capture_alloc(16 * MIB);
	b->bytes = 16 * MIB;
	(void)submit_eagerly();
	must_free(pools, b->scratch);
	end(0);
	gcp_share_captured(tracker, b->graph);
	instantiate(b);
	drop(b);
	assert_false(share_memory(a, b));
	launch(b, 0);
	assert_false(share_memory(a, b));
	device_catches_up();
	launch(b, 0);
	assert_true(share_memory(a, b));
}

static void a_graph_in_flight_is_not_bound(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = capture_with(1, 16 * MIB, 0);

	(void)state;
	instantiate(b);
	launch(b, 0);
	drop(b);
	assert_false(share_memory(a, b)); /* judged: nothing was unmapped */
	launch(b, 0);
	assert_false(share_memory(a, b));
	device_catches_up();
	launch(b, 0);
	assert_true(share_memory(a, b));
}

/* --- launches --- */

static void graphs_side_by_side_have_a_lane_each(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);

	(void)state;
	assert_true(share_memory(a, b));
	for (int i = 0; i < 20; i++) {
		launch(a, 0);
		launch(b, 1);
	}
	assert_false(share_memory(a, b));
	assert_int_equal(must_stats(pools).graph_moves, 1);
	assert_int_equal(orders, 0);
	assert_int_equal(fake.memory_used, 32 * MIB);
}

/* Two streams need two lanes, however many graphs are launched there. */
static void a_graph_moves_to_the_lane_of_its_stream(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct graph *c = make(2, 16 * MIB);

	(void)state;
	for (int i = 0; i < 20; i++) {
		launch(a, 0);
		launch(b, 1);
		launch(c, 1);
	}
	assert_true(share_memory(b, c));
	assert_false(share_memory(a, c));
	assert_int_equal(must_stats(pools).graph_moves, 2);
	assert_int_equal(fake.memory_used, 32 * MIB);
}

static void a_lane_that_is_idle_serves_any_stream(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);

	(void)state;
	for (int i = 0; i < 20; i++) {
		launch(a, i % 3);
		device_catches_up();
		launch(b, i % 5);
		device_catches_up();
	}
	assert_int_equal(must_stats(pools).graph_moves, 0);
	assert_int_equal(fake.memory_used, 16 * MIB);
}

static void an_executable_follows_itself(void **state)
{
	struct graph *a = make(0, 16 * MIB);

	(void)state;
	make(1, 16 * MIB);
	for (int i = 0; i < 20; i++)
		launch(a, i % 4);
	assert_int_equal(must_stats(pools).graph_moves, 0);
	assert_int_equal(orders, 0);
}

static void one_in_flight_that_changes_its_stream_waits(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);

	(void)state;
	launch(b, 0);
	launch(a, 0);
	launch(b, 1);                /* beside a, were it not for the memory */
	assert_int_equal(orders, 1); /* so far there was one stream */
	launch(a, 2);
	assert_int_equal(waits, 1);
	assert_true(share_memory(a, b));
}

/* What has gone since, and what another thread's stream is, says an event. */
static void events_outlive_their_streams(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);

	(void)state;
	launch(a, 0);
	device_catches_up();
	launch(b, 1);
	launch(a, 1);
	launch(b, 1);
	stream_replace(1);
	launch(a, 1);
	assert_int_equal(waits, 1);
	assert_int_equal(orders, 0);
	assert_int_equal(fake.barrier, 0);
	assert_true(share_memory(a, b));
	device_catches_up();
	launch(b, 2);
	assert_int_equal(waits, 1);
}

static struct gcp_launch first_of_two;

static void the_first_ends(void)
{
	gcp_launch_end(tracker, graphs[0].exec, &first_of_two, 0);
}

/* The first one's record moves the event that stood behind the second one. */
static void an_event_of_two_launches_at_once_says_nothing(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct gcp_launch second;

	(void)state;
	fake.stuck = true;
	launch(a, 0);
	launch(a, 1);
	launch_begin(a, 1, &first_of_two);
	launch_begin(a, 1, &second);
	launch_real(a, 1);
	device_catches_up();
	first_of_two.stream = stream_handle(2); /* where all is done */
	launch_real(a, 1);
	once_recorded = the_first_ends;
	gcp_launch_end(tracker, a->exec, &second, 0);
	launch(b, 3); /* judged */
	assert_false(share_memory(a, b));
}

/* Counted in one order, their calls come in the other: what follows must follow both.
 */
static void the_last_of_two_calls_at_once_is_not_known(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct gcp_launch first, second;

	(void)state;
	fake.stuck = true;
	launch_begin(a, 1, &first);
	launch_begin(b, 1, &second);
	launch_real(b, 1);
	gcp_launch_end(tracker, b->exec, &second, 0);
	launch_real(a, 1);
	gcp_launch_end(tracker, a->exec, &first, 0);
	launch(b, 2); /* judged */
	assert_int_equal(orders, 1);
}

/* No fence can be set then, and no stream be asked. */
static void beside_a_capture_events_say_what_is_done(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	void *other;

	(void)state;
	launch(a, 0);
	device_catches_up();
	launch(a, 1);
	other = begin(3);
	device_catches_up();
	launch(b, 2);
	launch(a, 2);
	launch(b, 1);
	assert_int_equal(waits, 1);
	assert_int_equal(must_stats(pools).graph_moves, 0);
	assert_true(share_memory(a, b));
	end(3);
	graph_destroy(other);
}

static void a_stream_that_has_gone_is_not_the_same(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);

	(void)state;
	launch(a, 0);
	stream_replace(0); /* another stream with the same handle */
	launch(b, 0);
	assert_false(share_memory(a, b));
}

/* Its handle means another stream by now: it is neither asked nor waited for. */
static void a_stream_that_has_gone_is_not_asked(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);

	(void)state;
	launch(b, 0);
	launch(a, 0);
	stream_replace(0);
	queries = 0;
	launch(b, 1);
	assert_int_equal(queries, 0);
	assert_int_equal(orders, 0);
	assert_int_equal(must_stats(pools).graph_waits, 1);
	assert_true(fake.barrier > 0);
}

static void nothing_follows_a_launch_that_has_failed(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct gcp_launch failed;

	(void)state;
	launch(a, 0);
	launch_begin(a, 1, &failed);
	gcp_launch_end(tracker, a->exec, &failed, 1);
	launch(b, 1);
	assert_false(share_memory(a, b));
}

static void one_that_is_just_being_launched_runs(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct gcp_launch now;

	(void)state;
	launch_begin(a, 0, &now);
	launch(b, 1);
	assert_false(share_memory(a, b));
	launch_real(a, 0);
	gcp_launch_end(tracker, a->exec, &now, 0);
}

/* It is in the stream of the other one only once it is there. */
static void one_that_changes_its_stream_just_now_is_not_followed(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct gcp_launch now;

	(void)state;
	launch(a, 0);
	launch_begin(a, 1, &now);
	launch(b, 1); /* before a is there */
	assert_false(share_memory(a, b));
	launch_real(a, 1);
	gcp_launch_end(tracker, a->exec, &now, 0);
}

static atomic_bool launched;

static void *launches_from_elsewhere(void *arg)
{
	launch(arg, 1);
	atomic_store(&launched, true);
	return NULL;
}

/* One in flight has to follow what another thread is just launching. */
static void a_launch_waits_for_the_call_of_another_thread(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct gcp_launch now;
	pthread_t thread;

	(void)state;
	atomic_store(&launched, false);
	fake.stuck = true;
	launch(b, 0);
	launch_begin(a, 0, &now);
	assert_int_equal(pthread_create(&thread, NULL, launches_from_elsewhere, b), 0);
	for (int i = 0; i < 200; i++)
		sched_yield();
	assert_false(atomic_load(&launched));
	launch_real(a, 0);
	gcp_launch_end(tracker, a->exec, &now, 0);
	pthread_join(thread, NULL);
	assert_true(atomic_load(&launched));
	assert_int_equal(orders, 1);
}

/* One handle, but a stream for each thread. */
static void *launches_into_its_default_stream(void *arg)
{
	struct gcp_launch now;

	cuda.owner = pthread_self();
	launch_begin(arg, PER_THREAD, &now);
	launch_real(arg, 3);
	gcp_launch_end(tracker, ((struct graph *)arg)->exec, &now, 0);
	return NULL;
}

static void default_streams_of_two_threads_are_two_streams(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	pthread_t thread;

	(void)state;
	cuda.has_owner = true;
	cuda.owner = pthread_self();
	launch(a, PER_THREAD);
	assert_int_equal(
	    pthread_create(&thread, NULL, launches_into_its_default_stream, b), 0);
	pthread_join(thread, NULL);
	assert_false(share_memory(a, b));
	device_catches_up();
	cuda.has_owner = false;
}

/* --- what takes a graph out --- */

static void launched_into_a_capture_it_has_memory_of_its_own(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct gcp_launch none;
	void *parent;

	(void)state;
	launch(b, 1);
	launch(a, 1);
	device_catches_up();
	parent = begin(2);
	launch_begin(a, 2, &none);
	assert_int_equal(none.share, 0);
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

static void in_a_stream_of_another_context_it_has_memory_of_its_own(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct gcp_launch none;

	(void)state;
	context_of_streams = FAKE_OTHER_CTX;
	launch_begin(a, 3, &none);
	assert_int_equal(none.share, 0);
	assert_false(share_memory(a, b));
}

static void an_unknown_call_gives_each_memory_of_its_own(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);

	(void)state;
	gcp_share_all_taken(tracker);
	assert_false(share_memory(a, b));
	launch(a, 0);
	launch(b, 1);
	assert_int_equal(must_stats(pools).graph_moves, 0);
}

static void its_launch_is_waited_for(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	uint64_t work;

	(void)state;
	fake.stuck = true;
	launch(a, 0);
	work = fake.submitted;
	gcp_share_all_taken(tracker);
	assert_true(fake.done >= work);
	assert_false(share_memory(a, b));
}

static void an_executable_that_was_updated_is_not_guarded(void **state)
{
	struct graph *a = make(0, 16 * MIB);
	struct gcp_launch none;
	uint64_t share;

	(void)state;
	make(1, 16 * MIB);
	launch(a, 0);
	share = gcp_share_exec_ending(tracker, a->exec);
	gcp_share_exec_ended(tracker, share, true);
	launch_begin(a, 1, &none);
	assert_int_equal(none.share, 0);
	launch(&graphs[1], 1); /* the launch before the update still runs */
	assert_false(share_memory(a, &graphs[1]));
}

static void an_update_that_has_failed_changes_nothing(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	uint64_t share = gcp_share_exec_ending(tracker, a->exec);

	(void)state;
	gcp_share_exec_ended(tracker, share, false);
	launch(b, 0);
	launch(a, 1);
	assert_false(share_memory(a, b));
}

/* --- ends --- */

static void the_last_graph_takes_the_lane_along(void **state)
{
	(void)state;
	make(0, 16 * MIB);
	make(1, 32 * MIB);
	launch(&graphs[0], 0);
	device_catches_up();
	exec_destroy(&graphs[1]);
	assert_int_equal(must_stats(pools).lane_bytes.current, 32 * MIB);
	launch(&graphs[0], 0);
	device_catches_up();
	exec_destroy(&graphs[0]);
	assert_int_equal(must_stats(pools).lane_bytes.current, 0);
	assert_int_equal(fake.memory_used, 0);
	must_be_sound(pools);
}

static void idle_lanes_give_back_and_are_filled_again(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 32 * MIB);

	(void)state;
	launch(a, 0);
	assert_int_equal(gcp_share_trim(tracker, 0, 0), 0); /* it runs */
	device_catches_up();
	assert_int_equal(gcp_share_trim(tracker, 0, 32 * MIB), 0); /* it is kept */
	assert_int_equal(gcp_share_trim(tracker, 1, 0), 0);
	assert_int_equal(gcp_share_trim(tracker, 0, 0), 32 * MIB);
	assert_int_equal(fake.memory_used, 0);
	must_be_sound(pools);
	launch(b, 0);
	assert_int_equal(fake.memory_used, 32 * MIB);
	launch(a, 0);
	assert_int_equal(fake.memory_used, 32 * MIB);
	must_be_sound(pools);
}

static void without_memory_a_launch_fails_and_may_be_tried_again(void **state)
{
	struct graph *a = make(0, 16 * MIB);
	struct gcp_launch now;

	(void)state;
	launch(a, 0);
	device_catches_up();
	assert_true(gcp_share_trim(tracker, -1, 0) > 0);
	fake.memory_limit = 8 * MIB;
	assert_int_equal(gcp_launch_begin(tracker, a->exec, stream_handle(0), &now),
			 GCP_CUDA_OUT_OF_MEMORY);
	must_be_sound(pools);
	fake.memory_limit = UINT64_MAX;
	launch(a, 0);
}

static void without_memory_for_a_lane_a_launch_waits(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);

	(void)state;
	launch(a, 0);
	fake.memory_limit = fake.memory_used;
	launch(b, 1);
	assert_int_equal(orders, 1);
	assert_true(share_memory(a, b));
	fake.memory_limit = UINT64_MAX;
}

static void a_context_that_ends_takes_its_lanes_along(void **state)
{
	struct graph *a = make(0, 16 * MIB);
	struct gcp_launch now;

	(void)state;
	make(1, 32 * MIB);
	launch(a, 0);
	fake.unmapping = NULL; /* its work is gone with it */
	gcp_tracker_context_gone(tracker, FAKE_CTX);
	gcp_pool_reset(pools, FAKE_CTX);
	launch_begin(a, 0, &now);
	gcp_launch_end(tracker, a->exec, &now, 1);
	exec_destroy(&graphs[0]);
	exec_destroy(&graphs[1]);
	assert_int_equal(fake.memory_used, 0);
}

/* --- any
 * -----------------------------------------------------------------------------------
 */

static void any_order_is_right(void **state)
{
	uint64_t random = 1;

	(void)state;
	for (int i = 0; i < 5; i++)
		make(i, (4 + 6 * (uint64_t)i) * MIB);
	for (int i = 0; i < LAUNCHES; i++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		launch(&graphs[random >> 40 & 3], (int)(random >> 50 & 3));
		if ((random >> 60) == 0)
			device_catches_up();
		if ((random >> 55 & 31) == 0)
			(void)gcp_share_trim(tracker, -1, 0);
		must_be_sound(pools);
	}
}

#define SHARE_TEST(name)                                                               \
	cmocka_unit_test_setup_teardown(name, share_setup, share_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    SHARE_TEST(graphs_in_one_stream_hold_the_largest),
	    SHARE_TEST(what_the_program_holds_is_never_shared),
	    SHARE_TEST(a_graph_that_is_kept_shares_nothing),
	    SHARE_TEST(a_graph_that_others_have_seen_shares_nothing),
	    SHARE_TEST(a_node_that_was_read_may_be_of_any_graph),
	    SHARE_TEST(a_graph_that_the_capture_gave_away_shares_nothing),
	    SHARE_TEST(a_destroy_that_has_failed_changes_nothing),
	    SHARE_TEST(a_handle_that_the_end_did_not_give_is_no_graph),
	    SHARE_TEST(nothing_shares_where_it_is_switched_off),
	    SHARE_TEST(work_beside_the_capture_is_completed_first),
	    SHARE_TEST(a_graph_in_flight_is_not_bound),
	    SHARE_TEST(graphs_side_by_side_have_a_lane_each),
	    SHARE_TEST(a_graph_moves_to_the_lane_of_its_stream),
	    SHARE_TEST(a_lane_that_is_idle_serves_any_stream),
	    SHARE_TEST(an_executable_follows_itself),
	    SHARE_TEST(one_in_flight_that_changes_its_stream_waits),
	    SHARE_TEST(events_outlive_their_streams),
	    SHARE_TEST(an_event_of_two_launches_at_once_says_nothing),
	    SHARE_TEST(the_last_of_two_calls_at_once_is_not_known),
	    SHARE_TEST(beside_a_capture_events_say_what_is_done),
	    SHARE_TEST(a_stream_that_has_gone_is_not_the_same),
	    SHARE_TEST(a_stream_that_has_gone_is_not_asked),
	    SHARE_TEST(nothing_follows_a_launch_that_has_failed),
	    SHARE_TEST(one_that_is_just_being_launched_runs),
	    SHARE_TEST(one_that_changes_its_stream_just_now_is_not_followed),
	    SHARE_TEST(a_launch_waits_for_the_call_of_another_thread),
	    SHARE_TEST(default_streams_of_two_threads_are_two_streams),
	    SHARE_TEST(launched_into_a_capture_it_has_memory_of_its_own),
	    SHARE_TEST(in_a_stream_of_another_context_it_has_memory_of_its_own),
	    SHARE_TEST(an_unknown_call_gives_each_memory_of_its_own),
	    SHARE_TEST(its_launch_is_waited_for),
	    SHARE_TEST(an_executable_that_was_updated_is_not_guarded),
	    SHARE_TEST(an_update_that_has_failed_changes_nothing),
	    SHARE_TEST(the_last_graph_takes_the_lane_along),
	    SHARE_TEST(idle_lanes_give_back_and_are_filled_again),
	    SHARE_TEST(without_memory_a_launch_fails_and_may_be_tried_again),
	    SHARE_TEST(without_memory_for_a_lane_a_launch_waits),
	    SHARE_TEST(a_context_that_ends_takes_its_lanes_along),
	    SHARE_TEST(any_order_is_right),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
