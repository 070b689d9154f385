/*
 * test_capture.c - the tracker and its graph pools over a driver of counters.
 */
#include "fake.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define MIB (1ull << 20)

/* --- a driver with streams and graphs ------------------------------------------------ */

enum { STREAMS = 8, OBJECTS = 64 };

struct object {
	void (*destroy)(void *arg);
	void *arg;
	void *graph;
};

/* A node and what it depends on; NULL ends the list. */
struct node {
	struct node *dependencies[4];
};

static struct {
	struct gcp_capture_state streams[STREAMS];
	struct node *ends[STREAMS][4]; /* what a stream's next work depends on */
	struct node nodes[64];
	int node_count;
	struct object objects[OBJECTS];
	int object_count;
	enum gcp_capture_mode thread_mode;
	uint64_t last_id;
	int attach_result;
} cuda;

static struct gcp_pools *pools;
static struct gcp_pool *pool;
static struct gcp_tracker *tracker;

static void *stream_handle(int i)
{
	return (void *)(uintptr_t)(0x100 + i);
}

static int state_of(void *ctx, void *stream, struct gcp_capture_state *ret_state)
{
	(void)ctx;
	*ret_state = cuda.streams[(uintptr_t)stream - 0x100];
	return 0;
}

static int nodes_copy(struct node **from, void **ret_nodes, size_t *count)
{
	size_t n = 0;

	for (; n < 4 && from[n]; n++) {
		if (n == *count)
			return -ERANGE;
		ret_nodes[n] = from[n];
	}
	*count = n;
	return 0;
}

static int stream_ends(void *ctx, void *stream, void **ret_nodes, size_t *count)
{
	(void)ctx;
	return nodes_copy(cuda.ends[(uintptr_t)stream - 0x100], ret_nodes, count);
}

static int node_dependencies(void *node, void **ret_nodes, size_t *count)
{
	return nodes_copy(((struct node *)node)->dependencies, ret_nodes, count);
}

/* Captures a kernel on stream i. */
static void kernel(int i)
{
	struct node *node = &cuda.nodes[cuda.node_count++];

	memcpy(node->dependencies, cuda.ends[i], sizeof(node->dependencies));
	memset(cuda.ends[i], 0, sizeof(cuda.ends[i]));
	cuda.ends[i][0] = node;
}

static int thread_mode(void)
{
	return cuda.thread_mode;
}

static int attach(void *graph, void (*destroy)(void *arg), void *arg)
{
	if (cuda.attach_result != 0)
		return cuda.attach_result;
	cuda.objects[cuda.object_count++] = (struct object){ destroy, arg, graph };
	return 0;
}

static void graph_destroy(void *graph)
{
	for (int i = 0; i < cuda.object_count; i++) {
		if (cuda.objects[i].graph != graph)
			continue;
		cuda.objects[i].graph = NULL;
		cuda.objects[i].destroy(cuda.objects[i].arg);
	}
}

static void *begin_with(int i, enum gcp_capture_mode mode)
{
	uint64_t id = ++cuda.last_id;
	void *graph = (void *)(uintptr_t)(0x9000 + id);

	gcp_tracker_begin_prepare(tracker);
	fake.capturing++;
	cuda.streams[i] = (struct gcp_capture_state){ true, false, id, graph };
	gcp_tracker_begin_done(tracker, FAKE_CTX, stream_handle(i), mode, 0);
	return graph;
}

static void *begin(int i)
{
	return begin_with(i, GCP_CAPTURE_GLOBAL);
}

static void end(int i)
{
	memset(&cuda.streams[i], 0, sizeof(cuda.streams[i]));
	fake.capturing--;
	gcp_tracker_end_done(tracker, FAKE_CTX, stream_handle(i));
}

static gcp_addr capture_alloc_on(void *stream, uint64_t bytes)
{
	gcp_addr addr = 0;

	assert_int_equal(gcp_tracker_alloc(tracker, pool, FAKE_CTX, stream, bytes, &addr), 0);
	return addr;
}

static gcp_addr capture_alloc(uint64_t bytes)
{
	return capture_alloc_on(NULL, bytes);
}

static bool is_private(gcp_addr addr)
{
	struct gcp_block_info info;

	assert_int_equal(gcp_pools_find(pools, addr, &info), 0);
	return info.heap != NULL;
}

static uint64_t private_bytes(void)
{
	gcp_tracker_collect(tracker);
	return must_stats(pools).private_bytes.current;
}

static int setup(void **state)
{
	struct gcp_capture_driver driver = {
		.capture_state = state_of,
		.stream_ends = stream_ends,
		.node_dependencies = node_dependencies,
		.thread_mode = thread_mode,
		.graph_attach = attach,
	};

	(void)state;
	fake_reset();
	memset(&cuda, 0, sizeof(cuda));
	pools = fake_pools(NULL);
	pool = fake_pool(pools);
	assert_int_equal(gcp_tracker_create(pools, &driver, &tracker), 0);
	return 0;
}

/* Nothing is left: no reference, no private byte, nobody's attention. */
static int teardown(void **state)
{
	(void)state;
	gcp_graph_pool_use(tracker, 0);
	assert_int_equal(private_bytes(), 0);
	assert_int_equal(gcp_graph_pools_list(tracker, NULL, 0), 0);
	assert_false(gcp_tracker_busy(tracker));
	assert_int_equal(fake.violations, 0);
	gcp_tracker_destroy(tracker);
	fake_finish(pools);
	return 0;
}

/* Makes stream `to` wait for stream `from` through an event that is gone at
 * once, as frameworks do. */
static void wait_for(int to, int from)
{
	void *event = (void *)(uintptr_t)(0x7000 + from);
	size_t at = 0, i = 0;

	gcp_tracker_event_recorded(tracker, FAKE_CTX, stream_handle(from), event);
	gcp_tracker_forked(tracker);
	cuda.streams[to] = cuda.streams[from];
	while (cuda.ends[to][at])
		at++;
	while (cuda.ends[from][i])
		cuda.ends[to][at++] = cuda.ends[from][i++];
	gcp_tracker_joined(tracker, FAKE_CTX, stream_handle(to));
	gcp_tracker_event_gone(tracker, event);
}

/* --- lifetimes ----------------------------------------------------------------------------- */

static void without_captures_nobody_asks(void **state)
{
	(void)state;
	assert_false(gcp_tracker_busy(tracker));
	begin(0);
	assert_true(gcp_tracker_busy(tracker));
	end(0);
	assert_false(gcp_tracker_busy(tracker));
}

static void memory_stays_private_until_the_graph_is_gone(void **state)
{
	void *graph = begin(0);
	gcp_addr addr = capture_alloc(3 * MIB);

	(void)state;
	assert_true(is_private(addr));
	must_free(pools, addr);
	end(0);
	assert_true(private_bytes() > 0);
	/* Nobody else gets it while the graph lives, however long. */
	for (int i = 0; i < 100; i++) {
		gcp_addr other = must_alloc(pool, 3 * MIB);

		assert_int_not_equal(other, addr);
		fake.done = fake.submitted;
		must_free(pools, other);
	}
	graph_destroy(graph);
	assert_int_equal(private_bytes(), 0);
}

static void blocks_that_the_program_holds_outlive_the_graph(void **state)
{
	void *graph = begin(0);
	gcp_addr addr = capture_alloc(3 * MIB);

	(void)state;
	end(0);
	graph_destroy(graph);
	assert_int_equal(private_bytes(), 0);
	assert_true(gcp_pools_owns(pools, addr));
	assert_false(is_private(addr));
	must_be_sound(pools);
	must_free(pools, addr);
}

static void surrendered_memory_waits_for_a_fence(void **state)
{
	void *graph = begin(0);
	gcp_addr addr = capture_alloc(300 * MIB);

	(void)state;
	end(0);
	uint64_t work = fake_submit(); /* the program's own, on the block */
	must_free(pools, addr);
	graph_destroy(graph);
	gcp_tracker_collect(tracker);
	for (int i = 0; i < 8; i++) {
		gcp_addr other = must_alloc(pool, 300 * MIB);
		if (other == addr)
			assert_true(fake_is_ordered(work));
		must_free(pools, other);
	}
}

static void graphs_that_come_and_go_take_no_more_memory(void **state)
{
	uint64_t used = 0;

	(void)state;
	for (int round = 0; round < OBJECTS; round++) {
		void *graph = begin(0);

		for (int i = 0; i < 4; i++) {
			must_free(pools, capture_alloc(8 << 10));
			must_free(pools, capture_alloc(300 << 10));
			must_free(pools, capture_alloc(3 * MIB));
		}
		end(0);
		graph_destroy(graph);
		if (round == 1)
			used = fake.memory_used;
	}
	assert_int_equal(fake.memory_used, used);
}

static void a_graph_that_refuses_the_object_keeps_its_memory(void **state)
{
	(void)state;
	cuda.attach_result = 1;
	void *graph = begin(0);
	gcp_addr addr = capture_alloc(3 * MIB);
	end(0);
	graph_destroy(graph);
	must_free(pools, addr);
	assert_true(private_bytes() > 0); /* for good: nobody can tell us */
	struct gcp_graph_pool_info info;
	assert_int_equal(gcp_graph_pools_list(tracker, &info, 1), 1);
	assert_int_equal(info.graphs, 1);
	gcp_tracker_destroy(tracker);
	fake_finish(pools);
	setup(NULL);
}

static void a_begin_that_fails_leaves_nothing(void **state)
{
	(void)state;
	gcp_tracker_begin_prepare(tracker);
	assert_true(gcp_tracker_capturing(tracker));
	gcp_tracker_begin_done(tracker, FAKE_CTX, stream_handle(0), GCP_CAPTURE_GLOBAL, 900);
	assert_false(gcp_tracker_capturing(tracker));
}

static void an_end_that_is_refused_ends_nothing(void **state)
{
	void *graph = begin(0);

	(void)state;
	/* The wrong thread tried: CUDA goes on capturing. */
	gcp_tracker_end_done(tracker, FAKE_CTX, stream_handle(0));
	assert_true(gcp_tracker_capturing(tracker));
	end(0);
	assert_false(gcp_tracker_capturing(tracker));
	graph_destroy(graph);
}

static void an_invalidated_capture_goes_with_its_end(void **state)
{
	void *graph = begin(0);

	(void)state;
	capture_alloc(3 * MIB);
	cuda.streams[0].active = false;
	cuda.streams[0].invalidated = true;
	graph_destroy(graph); /* CUDA does, at the end of an invalidated capture */
	end(0);
	assert_false(gcp_tracker_capturing(tracker));
}

static void destroying_the_stream_abandons_the_capture(void **state)
{
	void *graph = begin(0);

	(void)state;
	capture_alloc(3 * MIB);
	graph_destroy(graph);
	fake.capturing--;
	gcp_tracker_stream_gone(tracker, FAKE_CTX, stream_handle(0));
	assert_false(gcp_tracker_capturing(tracker));
}

static void destroying_the_context_abandons_its_captures(void **state)
{
	void *graph = begin(0);

	(void)state;
	begin(1);
	capture_alloc(3 * MIB);
	fake.capturing -= 2;
	gcp_tracker_context_gone(tracker, FAKE_CTX);
	gcp_pool_drop(pools, FAKE_CTX);
	graph_destroy(graph);
	graph_destroy((char *)graph + 1);
	assert_false(gcp_tracker_capturing(tracker));
	fake.memory_used = 0; /* it went with the context */
}

static void a_graph_holds_the_pool_for_all_made_from_it(void **state)
{
	/* CUDA moves the user object along; we see one destruction only. */
	void *graph = begin(0);
	gcp_addr addr = capture_alloc(3 * MIB);
	struct gcp_graph_pool_info info;

	(void)state;
	end(0);
	must_free(pools, addr);
	assert_int_equal(gcp_graph_pools_list(tracker, &info, 1), 1);
	assert_int_equal(info.references, 1);
	assert_int_equal(info.graphs, 1);
	assert_int_equal(info.captures, 0);
	graph_destroy(graph);
	assert_int_equal(gcp_graph_pools_list(tracker, &info, 1), 0);
}

/* --- routing ------------------------------------------------------------------------------------ */

static void *alloc_in_thread(void *arg)
{
	*(gcp_addr *)arg = capture_alloc(3 * MIB);
	return NULL;
}

static gcp_addr alloc_from_other_thread(void)
{
	pthread_t thread;
	gcp_addr addr;

	pthread_create(&thread, NULL, alloc_in_thread, &addr);
	pthread_join(thread, NULL);
	return addr;
}

static void other_threads_join_a_global_capture(void **state)
{
	void *graph = begin_with(0, GCP_CAPTURE_GLOBAL);

	(void)state;
	assert_true(is_private(alloc_from_other_thread()));
	cuda.thread_mode = GCP_CAPTURE_RELAXED;
	assert_false(is_private(alloc_from_other_thread()));
	end(0);
	graph_destroy(graph);
}

static void other_threads_are_free_of_local_captures(void **state)
{
	void *graph = begin_with(0, GCP_CAPTURE_THREAD_LOCAL);

	(void)state;
	assert_false(is_private(alloc_from_other_thread()));
	assert_true(is_private(capture_alloc(4096)));
	end(0);
	graph_destroy(graph);
}

static void *alloc_on_captured_stream(void *arg)
{
	*(gcp_addr *)arg = capture_alloc_on(stream_handle(3), 3 * MIB);
	return NULL;
}

static void a_thread_that_works_on_a_captured_stream_belongs_to_it(void **state)
{
	void *graph = begin_with(0, GCP_CAPTURE_RELAXED);
	pthread_t thread;
	gcp_addr addr;

	(void)state;
	cuda.streams[3] = cuda.streams[0]; /* joined by an event */
	pthread_create(&thread, NULL, alloc_on_captured_stream, &addr);
	pthread_join(thread, NULL);
	assert_true(is_private(addr));
	end(0);
	graph_destroy(graph);
}

static void several_captures_hold_a_block_together(void **state)
{
	void *first = begin(0), *second = begin(1);
	gcp_addr addr = capture_alloc(3 * MIB);

	(void)state;
	end(0);
	end(1);
	must_free(pools, addr);
	graph_destroy(first);
	assert_true(private_bytes() > 0); /* the second graph may address it */
	graph_destroy(second);
	assert_int_equal(private_bytes(), 0);
}

/* --- reuse inside a capture ------------------------------------------------------------------------ */

static void a_capture_of_one_line_reuses_at_once(void **state)
{
	void *graph = begin(0);
	gcp_addr addr = capture_alloc(3 * MIB);

	(void)state;
	for (int i = 0; i < 100; i++) {
		must_free(pools, addr);
		assert_int_equal(capture_alloc(3 * MIB), addr);
	}
	gcp_addr small = capture_alloc(700);
	must_free(pools, small);
	assert_int_equal(capture_alloc(700), small);
	end(0);
	graph_destroy(graph);
}

static void a_capture_that_forked_does_not_reuse(void **state)
{
	void *graph = begin(0);
	gcp_addr before = capture_alloc(3 * MIB), after = capture_alloc(3 * MIB);
	gcp_addr small = capture_alloc(700);

	(void)state;
	must_free(pools, before); /* the fork may start before this free */
	must_free(pools, small);
	kernel(0);
	gcp_tracker_forked(tracker);
	cuda.streams[1] = cuda.streams[0]; /* from the capture's beginning */
	gcp_tracker_joined(tracker, FAKE_CTX, stream_handle(1));
	must_free(pools, after);
	for (int i = 0; i < 20; i++) {
		gcp_addr other = capture_alloc(3 * MIB);

		assert_int_not_equal(other, before);
		assert_int_not_equal(other, after);
		assert_int_not_equal(capture_alloc(700), small);
	}
	must_be_sound(pools);
	end(0);
	graph_destroy(graph);
}

static bool is_given_again(gcp_addr addr, uint64_t bytes)
{
	for (int i = 0; i < 8; i++)
		if (capture_alloc(bytes) == addr)
			return true;
	return false;
}

static void a_fork_from_an_earlier_event_sees_no_reuse(void **state)
{
	void *graph = begin(0), *event = (void *)0x7777;
	gcp_addr addr = capture_alloc(3 * MIB);

	(void)state;
	kernel(0);
	gcp_tracker_event_recorded(tracker, FAKE_CTX, stream_handle(0), event);
	kernel(0); /* uses the block */
	must_free(pools, addr);
	/* Somebody may still wait for the event and start before that kernel. */
	assert_false(is_given_again(addr, 3 * MIB));
	gcp_tracker_event_gone(tracker, event);
	assert_true(is_given_again(addr, 3 * MIB));
	end(0);
	graph_destroy(graph);
}

static void a_block_freed_before_a_fork_is_used_again_after_it(void **state)
{
	void *graph = begin(0);
	gcp_addr addr = capture_alloc(3 * MIB);

	(void)state;
	kernel(0);
	must_free(pools, addr);
	wait_for(1, 0); /* both streams follow the kernel */
	assert_true(is_given_again(addr, 3 * MIB));
	end(0);
	graph_destroy(graph);
}

static void a_side_stream_that_lags_forbids_reuse_until_it_catches_up(void **state)
{
	void *graph = begin(0);
	gcp_addr addr = capture_alloc(3 * MIB);

	(void)state;
	kernel(0);
	wait_for(1, 0);
	kernel(1);
	kernel(0); /* uses the block */
	must_free(pools, addr);
	assert_false(is_given_again(addr, 3 * MIB)); /* side does not follow */
	wait_for(0, 1);
	kernel(0);
	assert_false(is_given_again(addr, 3 * MIB)); /* side still does not */
	wait_for(1, 0);
	assert_true(is_given_again(addr, 3 * MIB));
	end(0);
	graph_destroy(graph);
}

static void a_capture_changed_by_hand_proves_nothing(void **state)
{
	void *graph = begin(0);
	gcp_addr addr = capture_alloc(3 * MIB);

	(void)state;
	kernel(0);
	gcp_tracker_by_hand(tracker);
	must_free(pools, addr);
	wait_for(1, 0);
	assert_false(is_given_again(addr, 3 * MIB));
	end(0);
	graph_destroy(graph);
}

static void launches_wait_for_work_on_recycled_blocks(void **state)
{
	void *graph = begin_with(0, GCP_CAPTURE_RELAXED);
	gcp_addr addr = capture_alloc(3 * MIB);
	uint64_t eager = fake_submit(); /* the program's, on a stream of its own */

	(void)state;
	must_free(pools, addr);
	assert_int_equal(capture_alloc(3 * MIB), addr);
	end(0);
	assert_true(fake_is_ordered(eager)); /* before the graph can be launched */
	graph_destroy(graph);
}

static void common_blocks_freed_in_a_capture_wait_for_its_end(void **state)
{
	gcp_addr addr = must_alloc(pool, 3 * MIB);
	void *graph = begin(0);

	(void)state;
	must_free(pools, addr);
	for (int i = 0; i < 20; i++)
		assert_int_not_equal(capture_alloc(3 * MIB), addr);
	end(0);
	graph_destroy(graph);
}

/* --- sharing ------------------------------------------------------------------------------------------ */

static void captures_share_a_pool_that_the_program_names(void **state)
{
	struct gcp_graph_pool_info info;
	uint64_t id;

	(void)state;
	assert_int_equal(gcp_graph_pool_create(tracker, &id), 0);
	assert_int_equal(gcp_graph_pool_use(tracker, id), 0);
	void *first = begin(0);
	gcp_addr addr = capture_alloc(3 * MIB);
	must_free(pools, addr);
	end(0);
	void *second = begin(0);
	assert_int_equal(capture_alloc(3 * MIB), addr);
	end(0);
	assert_int_equal(gcp_graph_pools_list(tracker, &info, 1), 1);
	assert_int_equal(info.id, id);
	assert_int_equal(info.references, 3);
	graph_destroy(first);
	assert_int_equal(gcp_graph_pool_release(tracker, id), 0);
	assert_true(private_bytes() > 0);
	graph_destroy(second);
	assert_int_equal(private_bytes(), 0);
}

static void a_pool_that_reached_zero_can_be_used_again(void **state)
{
	uint64_t id;

	(void)state;
	assert_int_equal(gcp_graph_pool_create(tracker, &id), 0);
	assert_int_equal(gcp_graph_pool_release(tracker, id), 0);
	assert_int_equal(gcp_graph_pool_release(tracker, id), -ENOENT);
	assert_int_equal(gcp_graph_pool_use(tracker, id), 0);
	for (int round = 0; round < 3; round++) {
		void *graph = begin(0);
		must_free(pools, capture_alloc(3 * MIB));
		end(0);
		assert_true(private_bytes() > 0);
		graph_destroy(graph);
		assert_int_equal(private_bytes(), 0);
	}
	assert_int_equal(gcp_graph_pool_retain(tracker, id), 0);
	assert_int_equal(gcp_graph_pool_release(tracker, id), 0);
	assert_int_equal(gcp_graph_pool_retain(tracker, id + 100), -ENOENT);
	assert_int_equal(gcp_graph_pool_use(tracker, id + 100), -ENOENT);
}

/* --- checkpoint and restore ---------------------------------------------------------------------------- */

static void a_restored_pool_keeps_off_what_was_live(void **state)
{
	struct gcp_graph_pool_state *after_first;
	uint64_t id;

	(void)state;
	assert_int_equal(gcp_graph_pool_create(tracker, &id), 0);
	assert_int_equal(gcp_graph_pool_use(tracker, id), 0);
	void *first = begin(0);
	gcp_addr scratch = capture_alloc(3 * MIB);
	gcp_addr out1 = capture_alloc(5 * MIB), small1 = capture_alloc(700);
	must_free(pools, scratch);
	end(0);
	assert_int_equal(gcp_graph_pool_checkpoint(tracker, id, &after_first), 0);

	/* The second capture follows the first and frees its outputs. */
	void *second = begin(0);
	must_free(pools, out1);
	must_free(pools, small1);
	gcp_addr out2 = capture_alloc(5 * MIB);
	assert_true(out2 < out1 + 5 * MIB && out1 < out2 + 5 * MIB);
	assert_int_equal(capture_alloc(700), small1);
	end(0);

	/* Only the first is replayed: its outputs are live again. */
	assert_int_equal(gcp_graph_pool_restore(tracker, id, after_first), 0);
	must_be_sound(pools);
	void *third = begin(0);
	for (int i = 0; i < 10; i++) {
		gcp_addr out3 = capture_alloc(5 * MIB);

		assert_false(out3 < out1 + 5 * MIB && out1 < out3 + 5 * MIB);
		assert_int_not_equal(capture_alloc(700), small1);
	}
	end(0);
	must_free(pools, out1);
	must_free(pools, small1);
	must_be_sound(pools);
	gcp_graph_pool_state_destroy(after_first);
	graph_destroy(first);
	graph_destroy(second);
	graph_destroy(third);
	assert_int_equal(gcp_graph_pool_release(tracker, id), 0);
}

static void a_wrong_restore_changes_nothing(void **state)
{
	struct gcp_graph_pool_state *checkpoint;
	uint64_t id, other;

	(void)state;
	gcp_graph_pool_create(tracker, &id);
	gcp_graph_pool_create(tracker, &other);
	gcp_graph_pool_use(tracker, id);
	void *graph = begin(0);
	gcp_addr addr = capture_alloc(3 * MIB);
	assert_int_equal(gcp_graph_pool_checkpoint(tracker, id, &checkpoint), -EBUSY);
	end(0);
	assert_int_equal(gcp_graph_pool_checkpoint(tracker, id + 9, &checkpoint), -ENOENT);
	assert_int_equal(gcp_graph_pool_checkpoint(tracker, id, &checkpoint), 0);
	assert_int_equal(gcp_graph_pool_restore(tracker, other, checkpoint), -ESTALE);
	assert_int_equal(gcp_graph_pool_restore(tracker, id + 9, checkpoint), -ENOENT);
	assert_true(gcp_pools_owns(pools, addr));
	/* The pool loses its last reference: the checkpoint is of a past life. */
	graph_destroy(graph);
	gcp_tracker_collect(tracker);
	gcp_graph_pool_release(tracker, id);
	assert_int_equal(gcp_graph_pool_restore(tracker, id, checkpoint), -ESTALE);
	graph = begin(0);
	capture_alloc(3 * MIB);
	assert_int_equal(gcp_graph_pool_restore(tracker, id, checkpoint), -EBUSY);
	end(0);
	assert_int_equal(gcp_graph_pool_restore(tracker, id, checkpoint), -ESTALE);
	graph_destroy(graph);
	gcp_graph_pool_state_destroy(checkpoint);
	gcp_graph_pool_release(tracker, other);
}

/* --- out of memory ---------------------------------------------------------------------------------------- */

static void a_full_device_in_a_capture_gives_back_what_is_cached(void **state)
{
	gcp_addr addr = must_alloc(pool, 90 * MIB);

	(void)state;
	fake.memory_limit = 100 * MIB;
	must_free(pools, addr);
	void *graph = begin(0);
	addr = capture_alloc(90 * MIB);
	assert_int_equal(gcp_tracker_alloc(tracker, pool, FAKE_CTX, NULL, 90 * MIB, &addr),
			 GCP_CUDA_OUT_OF_MEMORY);
	end(0);
	graph_destroy(graph);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(without_captures_nobody_asks),
		TEST(memory_stays_private_until_the_graph_is_gone),
		TEST(blocks_that_the_program_holds_outlive_the_graph),
		TEST(surrendered_memory_waits_for_a_fence),
		TEST(graphs_that_come_and_go_take_no_more_memory),
		TEST(a_graph_that_refuses_the_object_keeps_its_memory),
		TEST(a_begin_that_fails_leaves_nothing),
		TEST(an_end_that_is_refused_ends_nothing),
		TEST(an_invalidated_capture_goes_with_its_end),
		TEST(destroying_the_stream_abandons_the_capture),
		TEST(destroying_the_context_abandons_its_captures),
		TEST(a_graph_holds_the_pool_for_all_made_from_it),
		TEST(other_threads_join_a_global_capture),
		TEST(other_threads_are_free_of_local_captures),
		TEST(a_thread_that_works_on_a_captured_stream_belongs_to_it),
		TEST(several_captures_hold_a_block_together),
		TEST(a_capture_of_one_line_reuses_at_once),
		TEST(a_capture_that_forked_does_not_reuse),
		TEST(a_fork_from_an_earlier_event_sees_no_reuse),
		TEST(a_block_freed_before_a_fork_is_used_again_after_it),
		TEST(a_side_stream_that_lags_forbids_reuse_until_it_catches_up),
		TEST(a_capture_changed_by_hand_proves_nothing),
		TEST(launches_wait_for_work_on_recycled_blocks),
		TEST(common_blocks_freed_in_a_capture_wait_for_its_end),
		TEST(captures_share_a_pool_that_the_program_names),
		TEST(a_pool_that_reached_zero_can_be_used_again),
		TEST(a_restored_pool_keeps_off_what_was_live),
		TEST(a_wrong_restore_changes_nothing),
		TEST(a_full_device_in_a_capture_gives_back_what_is_cached),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
