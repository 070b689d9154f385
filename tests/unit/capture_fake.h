/* SPDX-License-Identifier: MIT */
/*
 * capture_fake.h - a driver with streams and graphs, made of counters, for the tests of
 * the tracker and its graph pools. Included once by each of those programs.
 */
#ifndef GCP_TESTS_CAPTURE_FAKE_H
#define GCP_TESTS_CAPTURE_FAKE_H

#include "tracker_end.h"
#include "fake.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include "cases.h"

#define MIB (1ull << 20)

/* --- a driver with streams and graphs ----------------------------------------- */

#ifndef CAPTURE_FAKE_NODES
#define CAPTURE_FAKE_NODES 8192 /* what all captures of a test have at most */
#endif
enum {
	STREAMS = 80,
	NODES = CAPTURE_FAKE_NODES,
	WIDE = 100,
	PER_THREAD = STREAMS - 1,
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
	int state_result, follow_result;
	int followed;       /* times that dependencies were added */
	int destroyed;      /* a stream; 0: none */
	int asked_too_late; /* about one of these */
	int contexts_ending, contexts_held;
	pthread_t owner; /* of the per-thread stream, if there is one */
	bool has_owner;
	int asked_elsewhere;     /* about that, by another thread */
	void (*once_read)(void); /* another thread, when stream 0 was */
} cuda;

static struct gcp_pools *pools;
static struct gcp_pool *pool;
static struct gcp_tracker *tracker;

#define CU_PER_THREAD ((void *)2)

static __attribute__((unused)) void *stream_handle(int i)
{
	return i == PER_THREAD && cuda.has_owner ? CU_PER_THREAD
						 : (void *)(uintptr_t)(0x100 + i);
}

static int stream_number(void *stream)
{
	int i = stream == CU_PER_THREAD ? PER_THREAD : (int)((uintptr_t)stream - 0x100);

	cuda.asked_elsewhere += i == PER_THREAD && cuda.has_owner &&
				!pthread_equal(pthread_self(), cuda.owner);
	cuda.asked_too_late += cuda.destroyed != 0 && i == cuda.destroyed;
	return i;
}

static __attribute__((unused)) int state_of(void *ctx, void *stream,
					    struct gcp_capture_state *ret_state)
{
	(void)ctx;
	if (cuda.state_result == 0)
		*ret_state = cuda.streams[stream_number(stream)];
	return cuda.state_result;
}

static __attribute__((unused)) int nodes_copy(struct node **from, void **ret_nodes,
					      size_t *count)
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

static __attribute__((unused)) int stream_ends(void *ctx, void *stream,
					       void **ret_nodes, size_t *count)
{
	int i = stream_number(stream);
	int result = nodes_copy(cuda.ends[i], ret_nodes, count);
	void (*other)(void) = i == 0 ? cuda.once_read : NULL;

	(void)ctx;
	if (other) {
		cuda.once_read = NULL;
		gcp_rank_drop(GCP_RANK_CONTEXTS); /* by this thread, not by that one */
		other();
		gcp_rank_take(GCP_RANK_CONTEXTS);
	}
	return result;
}

/* The stream's next work depends on these too, unless it is refused. */
static __attribute__((unused)) int stream_follow(void *ctx, void *stream, void **nodes,
						 size_t count)
{
	int i = stream_number(stream);
	size_t at = 0;

	(void)ctx;
	if (cuda.follow_result != 0)
		return cuda.follow_result;
	cuda.followed++;
	while (cuda.ends[i][at])
		at++;
	for (size_t k = 0; k < count; k++)
		cuda.ends[i][at++] = nodes[k];
	return 0;
}

static __attribute__((unused)) int node_dependencies(void *node, void **ret_nodes,
						     size_t *count)
{
	return nodes_copy(((struct node *)node)->dependencies, ret_nodes, count);
}

/* Captures a kernel on stream i. */
static __attribute__((unused)) void kernel(int i)
{
	struct node *node = &cuda.nodes[cuda.node_count++];

	memcpy(node->dependencies, cuda.ends[i], sizeof(node->dependencies));
	memset(cuda.ends[i], 0, sizeof(cuda.ends[i]));
	cuda.ends[i][0] = node;
}

static __attribute__((unused)) bool contexts_hold(void)
{
	if (cuda.contexts_ending > 0)
		return false;
	gcp_rank_take(GCP_RANK_CONTEXTS);
	cuda.contexts_held++;
	return true;
}

static __attribute__((unused)) void contexts_release(void)
{
	cuda.contexts_held--;
	gcp_rank_drop(GCP_RANK_CONTEXTS);
}

/* As the hooks do. */
static __attribute__((unused)) void context_ended(void *ctx, bool gone)
{
	if (gone)
		gcp_tracker_context_gone(tracker, ctx);
	cuda.contexts_ending--;
}

static __attribute__((unused)) int thread_mode(void)
{
	return cuda.thread_mode;
}

static __attribute__((unused)) void holder_destroy(const void *handle, bool is_exec)
{
	gcp_holder_ended(tracker, gcp_holder_ending(tracker, handle, is_exec), true);
}

static __attribute__((unused)) void graph_destroy(void *graph)
{
	holder_destroy(graph, false);
}

static __attribute__((unused)) void *begin_with(int i, enum gcp_capture_mode mode)
{
	uint64_t id = ++cuda.last_id;
	void *graph = (void *)(uintptr_t)(0x9000 + id);
	struct gcp_capture *capture;

	assert_int_equal(gcp_tracker_begin_prepare(tracker, &capture), 0);
	fake.capturing++;
	cuda.streams[i] = (struct gcp_capture_state){true, false, id, graph};
	gcp_tracker_begin_done(tracker, capture, FAKE_CTX, stream_handle(i), mode, 0);
	return graph;
}

static __attribute__((unused)) void *begin(int i)
{
	return begin_with(i, GCP_CAPTURE_GLOBAL);
}

static __attribute__((unused)) void end(int i)
{
	uint64_t number;
	struct gcp_holder *graph =
	    gcp_tracker_end_prepare(tracker, FAKE_CTX, stream_handle(i), &number);

	memset(&cuda.streams[i], 0, sizeof(cuda.streams[i]));
	fake.capturing--;
	gcp_holder_ended(tracker, graph, false);
	gcp_tracker_end_done(tracker, FAKE_CTX, stream_handle(i), number, GCP_END_LOST);
}

/* The first stream's capture, and its graph. */
static __attribute__((unused)) void end_and_destroy(void *graph)
{
	end(0);
	graph_destroy(graph);
}

/* A thread that has given work to the stream by now. */
static __attribute__((unused)) struct gcp_stream_hint hint_of(void *stream)
{
	return (struct gcp_stream_hint){.stream = stream,
					.gone = gcp_tracker_streams_gone(tracker),
					.begun = gcp_tracker_captures_begun(tracker)};
}

static __attribute__((unused)) gcp_addr capture_alloc_on(void *stream, uint64_t bytes)
{
	gcp_addr addr = 0;

	assert_int_equal(
	    gcp_tracker_alloc(tracker, pool, FAKE_CTX, hint_of(stream), bytes, &addr),
	    0);
	return addr;
}

static __attribute__((unused)) gcp_addr capture_alloc(uint64_t bytes)
{
	return capture_alloc_on(NULL, bytes);
}

/* From now on blocks of 5,000 bytes come from the capture's own pool (route.c). */
static __attribute__((unused)) void use_up_what_is_shared(void)
{
	for (int i = 0; i < 64; i++)
		must_free(pools, capture_alloc(5000));
}

static __attribute__((unused)) bool is_private(gcp_addr addr)
{
	struct gcp_block_info info;

	assert_int_equal(gcp_pools_find(pools, addr, &info), 0);
	return info.heap != NULL;
}

static __attribute__((unused)) uint64_t private_bytes(void)
{
	gcp_tracker_collect(tracker);
	return must_stats(pools).private_bytes.current;
}

static __attribute__((unused)) void *context_of(void *stream)
{
	(void)stream;
	return FAKE_CTX;
}

static __attribute__((unused)) int setup(void **state)
{
	struct gcp_capture_driver driver = {
	    .capture_state = state_of,
	    .stream_context = context_of,
	    .stream_ends = stream_ends,
	    .stream_follow = stream_follow,
	    .node_dependencies = node_dependencies,
	    .contexts_hold = contexts_hold,
	    .contexts_release = contexts_release,
	    .thread_mode = thread_mode,
	};

	(void)state;
	fake_reset();
	memset(&cuda, 0, sizeof(cuda));
	pools = fake_pools(NULL);
	pool = fake_pool(pools);
	assert_int_equal(gcp_tracker_create(pools, &driver, &tracker), 0);
	return 0;
}

/* Nothing is left: no reference, no private byte, no pending event. */
static __attribute__((unused)) int teardown(void **state)
{
	(void)state;
	assert_int_equal(gcp_graph_pool_use(tracker, 0), 0);
	assert_int_equal(private_bytes(), 0);
	assert_int_equal(gcp_graph_pools_list(tracker, NULL, 0), 0);
	assert_false(gcp_tracker_has_pending_events(tracker));
	assert_int_equal(fake.violations, 0);
	assert_int_equal(cuda.asked_too_late, 0);
	assert_int_equal(cuda.contexts_held, 0);
	assert_int_equal(cuda.asked_elsewhere, 0);
	gcp_tracker_destroy(tracker);
	fake_finish(pools);
	return 0;
}

static __attribute__((unused)) void event_record(int stream, void *event)
{
	gcp_tracker_event_recording(tracker, stream_handle(stream), event);
}

/* Work beside the captures. */
static __attribute__((unused)) uint64_t submit_eagerly(void)
{
	gcp_pools_eager_work(pools);
	return fake_submit();
}

static __attribute__((unused)) bool is_given_again(gcp_addr addr, uint64_t bytes)
{
	for (int i = 0; i < 8; i++)
		if (capture_alloc(bytes) == addr)
			return true;
	return false;
}

/* Makes stream `to` wait for stream `from` through an event. */
static __attribute__((unused)) void wait_for(int to, int from)
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
