/* SPDX-License-Identifier: MIT */
/*
 * capture_fake.h - a driver with streams and graphs, made of counters, for the tests of
 * the tracker and its graph pools. Included once by each of those programs.
 */
#ifndef GCP_TESTS_CAPTURE_FAKE_H
#define GCP_TESTS_CAPTURE_FAKE_H

#include "tracker_end.h"
#include "fake.h"

#include "cases.h"

#pragma GCC diagnostic ignored "-Wunused-function"

/* --- a driver with streams and graphs ----------------------------------------- */

#ifndef CAPTURE_FAKE_NODES
#define CAPTURE_FAKE_NODES 8192 /* what all captures of a test have at most */
#endif
enum {
	STREAMS = 80,
	NODES = CAPTURE_FAKE_NODES,
	WIDE = 100,
	PER_THREAD = STREAMS - 1,
	LEGACY = STREAMS - 2,
};

/* A node and what it depends on; NULL ends the list. */
struct node {
	struct node *dependencies[WIDE];
};

static struct {
	struct gcp_capture_state streams[STREAMS];
	struct node *ends[STREAMS][WIDE]; /* what a stream's next work depends on */
	struct node nodes[NODES];
	int node_count;
	enum gcp_capture_mode thread_mode;
	uint64_t last_id;
	int follow_result;
	int followed; /* times that dependencies were added */
	int contexts_ending, contexts_held;
	pthread_t owner; /* of the per-thread stream, if there is one */
	bool has_owner;
	int asked_elsewhere;                     /* about that, by another thread */
	uint64_t launches_latest, launches_done; /* in other contexts */
} cuda;

static struct gcp_tracker *tracker;

#define CU_LEGACY     ((void *)1)
#define CU_PER_THREAD ((void *)2)

static void *stream_handle(int i)
{
	if (i == LEGACY)
		return CU_LEGACY;
	return i == PER_THREAD && cuda.has_owner ? CU_PER_THREAD
						 : (void *)(uintptr_t)(0x100 + i);
}

static int stream_number(void *stream)
{
	int i = stream == CU_PER_THREAD ? PER_THREAD
		: stream == CU_LEGACY   ? LEGACY
					: (int)((uintptr_t)stream - 0x100);

	cuda.asked_elsewhere += i == PER_THREAD && cuda.has_owner &&
				!pthread_equal(pthread_self(), cuda.owner);
	return i;
}

static int state_of(void *ctx, void *stream, struct gcp_capture_state *ret_state)
{
	*ret_state = cuda.streams[stream_number(stream)];
	return 0;
}

static int nodes_copy(struct node **from, void **ret_nodes, size_t *count)
{
	size_t n = 0;

	for (; n < WIDE && from[n]; n++) {
		if (n == *count)
			return -ERANGE;
		ret_nodes[n] = from[n];
	}
	*count = n;
	return 0;
}

static int stream_ends(void *ctx, void *stream, void **ret_nodes, size_t *count)
{
	return nodes_copy(cuda.ends[stream_number(stream)], ret_nodes, count);
}

/* The stream's next work depends on these too, unless it is refused. */
static int stream_follow(void *ctx, void *stream, void **nodes, size_t count)
{
	int i = stream_number(stream);
	size_t at = 0;

	if (cuda.follow_result != 0)
		return cuda.follow_result;
	cuda.followed++;
	while (cuda.ends[i][at])
		at++;
	for (size_t k = 0; k < count; k++)
		cuda.ends[i][at++] = nodes[k];
	return 0;
}

static int node_dependencies(void *node, void **ret_nodes, size_t *count)
{
	return nodes_copy(((struct node *)node)->dependencies, ret_nodes, count);
}

/* Captures a kernel on stream i. */
static void kernel(int i)
{
	struct node *node = &cuda.nodes[cuda.node_count++];

	(void)gcp_tracker_work_captured(tracker, stream_handle(i));
	memcpy(node->dependencies, cuda.ends[i], sizeof(node->dependencies));
	memset(cuda.ends[i], 0, sizeof(cuda.ends[i]));
	cuda.ends[i][0] = node;
}

static bool contexts_hold(void)
{
	if (cuda.contexts_ending > 0)
		return false;
	gcp_rank_take(GCP_RANK_CONTEXTS);
	cuda.contexts_held++;
	return true;
}

static void contexts_release(void)
{
	cuda.contexts_held--;
	gcp_rank_drop(GCP_RANK_CONTEXTS);
}

static int thread_mode(void)
{
	return cuda.thread_mode;
}

static void holder_destroy(const void *handle, bool is_exec)
{
	gcp_holding_add(tracker, gcp_holder_ending(tracker, handle, is_exec), NULL,
			is_exec);
}

static void graph_destroy(void *graph)
{
	holder_destroy(graph, false);
}

static void *begin(int i)
{
	uint64_t id = ++cuda.last_id;
	void *graph = (void *)(uintptr_t)(0x9000 + id);
	struct gcp_capture *capture;

	OK(gcp_tracker_begin_prepare(tracker, false, &capture));
	fake.capturing++;
	cuda.streams[i] = (struct gcp_capture_state){true, false, id, graph};
	gcp_tracker_begin_done(tracker, capture, FAKE_CTX, stream_handle(i),
			       GCP_CAPTURE_GLOBAL, 0);
	return graph;
}

static void end(int i)
{
	uint64_t number = gcp_tracker_end_prepare(tracker, FAKE_CTX, stream_handle(i));

	memset(&cuda.streams[i], 0, sizeof(cuda.streams[i]));
	fake.capturing--;
	gcp_tracker_end_done(tracker, FAKE_CTX, stream_handle(i), number, GCP_END_SURE);
}

/* The first stream's capture, and its graph. */
static void end_and_destroy(void *graph)
{
	end(0);
	graph_destroy(graph);
}

/* A thread that has given work to the stream by now. */
static struct gcp_stream_hint hint_of(void *stream)
{
	return (struct gcp_stream_hint){.stream = stream,
					.gone = gcp_tracker_streams_gone(tracker),
					.begun = gcp_tracker_captures_begun(tracker)};
}

static gcp_addr capture_alloc_on(void *stream, uint64_t bytes)
{
	gcp_addr addr = 0;

	OK(gcp_tracker_alloc(tracker, pool, FAKE_CTX, hint_of(stream), bytes, &addr));
	return addr;
}

static gcp_addr capture_alloc(uint64_t bytes)
{
	return capture_alloc_on(NULL, bytes);
}

/* From now on blocks of 5,000 bytes come from the capture's own pool (route.c). */
static void use_up_what_is_shared(void)
{
	for (int i = 0; i < 64; i++)
		must_free(capture_alloc(5000));
}

static bool is_private(gcp_addr addr)
{
	struct gcp_block_info info;

	OK(gcp_pools_find(pools, addr, &info));
	return info.heap != NULL;
}

static uint64_t private_bytes(void)
{
	gcp_tracker_collect(tracker);
	return must_stats().private_bytes.current;
}

static void *context_of(void *stream)
{
	return FAKE_CTX;
}

static uint64_t launches_latest(void)
{
	return cuda.launches_latest;
}

static uint64_t launches_done(void)
{
	return cuda.launches_done;
}

static int setup(void **state)
{
	struct gcp_capture_driver driver = {
	    .launches_latest = launches_latest,
	    .launches_done = launches_done,
	    .capture_state = state_of,
	    .stream_context = context_of,
	    .stream_ends = stream_ends,
	    .stream_follow = stream_follow,
	    .node_dependencies = node_dependencies,
	    .contexts_hold = contexts_hold,
	    .contexts_release = contexts_release,
	    .thread_mode = thread_mode,
	};

	fake_setup_open(state);
	memset(&cuda, 0, sizeof(cuda));
	OK(gcp_tracker_create(pools, &driver, false, &tracker));
	return 0;
}

/* Nothing is left: no reference, no private byte, no capture. */
static int teardown(void **state)
{
	OK(gcp_graph_pool_use(tracker, 0));
	assert_int_equal(private_bytes(), 0);
	assert_int_equal(gcp_graph_pools_list(tracker, NULL, 0), 0);
	assert_int_equal(tracker->counts.capturing, 0);
	assert_int_equal(cuda.contexts_held, 0);
	assert_int_equal(cuda.asked_elsewhere, 0);
	gcp_tracker_destroy(tracker);
	return fake_close(state);
}

static void event_record(int stream, void *event)
{
	gcp_tracker_event_recording(tracker, stream_handle(stream), event);
}

/* Work beside the captures. */
static uint64_t submit_eagerly(void)
{
	gcp_pools_eager_work(pools);
	return fake_submit();
}

static bool is_given_again(gcp_addr addr, uint64_t bytes)
{
	for (int i = 0; i < 8; i++)
		if (capture_alloc(bytes) == addr)
			return true;
	return false;
}

/* Makes stream `to` wait for stream `from` through an event. */
static void wait_for(int to, int from)
{
	void *event = (void *)(uintptr_t)(0x7000 + from);
	size_t at = 0, i = 0;

	event_record(from, event);
	cuda.streams[to] = cuda.streams[from];
	while (cuda.ends[to][at])
		at++;
	while (cuda.ends[from][i])
		cuda.ends[to][at++] = cuda.ends[from][i++];
	gcp_tracker_joined(tracker, stream_handle(to), event);
}

#define TEST(name) CASE(name, setup, teardown)

#endif
