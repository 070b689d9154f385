/*
 * state.c - checkpoint and restore of a graph pool that the program named: the
 * states of all its heaps together.
 */
#include "types.h"

struct heap_entry {
	struct gcp_heap *heap;
	struct gcp_heap_state *state;
};

struct gcp_graph_pool_state {
	uint64_t id, lives;
	size_t count;
	struct heap_entry heaps[];
};

void gcp_graph_pool_state_destroy(struct gcp_graph_pool_state *state)
{
	if (!state)
		return;
	for (size_t i = 0; i < state->count; i++)
		gcp_heap_state_destroy(state->heaps[i].state);
	free(state);
}

static size_t heap_count(const struct gcp_graph_pool *graph_pool)
{
	struct gcp_graph_heap *entry;
	size_t count = 0;

	SLIST_FOREACH (entry, &graph_pool->heaps, link)
		count++;
	return count;
}

static int checkpoint(struct gcp_graph_pool *graph_pool,
		      struct gcp_graph_pool_state **ret_state)
{
	struct gcp_graph_pool_state *state;
	struct gcp_graph_heap *entry;
	int saved = errno;

	state = calloc(1, sizeof(*state) +
			      heap_count(graph_pool) * sizeof(state->heaps[0]));
	errno = saved;
	if (!state)
		return -ENOMEM;
	state->id = graph_pool->id;
	state->lives = graph_pool->lives;
	SLIST_FOREACH (entry, &graph_pool->heaps, link) {
		struct heap_entry *slot = &state->heaps[state->count];
		int result = gcp_heap_checkpoint(entry->heap, &slot->state);

		if (result != 0) {
			gcp_graph_pool_state_destroy(state);
			return result;
		}
		slot->heap = entry->heap;
		state->count++;
	}
	*ret_state = state;
	return 0;
}

int gcp_graph_pool_checkpoint(struct gcp_tracker *tracker, uint64_t id,
			      struct gcp_graph_pool_state **ret_state)
{
	struct gcp_graph_pool *graph_pool;
	int result;

	pthread_mutex_lock(&tracker->lock);
	graph_pool = gcp_graph_pool_named(tracker, id);
	if (!graph_pool)
		result = -ENOENT;
	else if (graph_pool->captures > 0)
		result = -EBUSY;
	else
		result = checkpoint(graph_pool, ret_state);
	pthread_mutex_unlock(&tracker->lock);
	return result;
}

/* The state of `heap`; NULL: it was made after the checkpoint, all of it is
 * free then. */
static const struct gcp_heap_state *state_of(const struct gcp_graph_pool_state *state,
					     const struct gcp_heap *heap)
{
	for (size_t i = 0; i < state->count; i++)
		if (state->heaps[i].heap == heap)
			return state->heaps[i].state;
	return NULL;
}

/* Whether every heap of the checkpoint is still there: with the last reference
 * they all went, and an address may stand for another one now. */
static bool is_current(const struct gcp_graph_pool *graph_pool,
		       const struct gcp_graph_pool_state *state)
{
	struct gcp_graph_heap *entry;
	size_t found = 0;

	if (state->id != graph_pool->id || state->lives != graph_pool->lives)
		return false;
	SLIST_FOREACH (entry, &graph_pool->heaps, link) {
		const struct gcp_heap_state *heap_state = state_of(state, entry->heap);

		if (heap_state && gcp_heap_state_fits(entry->heap, heap_state))
			found++;
	}
	return found == state->count;
}

int gcp_graph_pool_restore(struct gcp_tracker *tracker, uint64_t id,
			   const struct gcp_graph_pool_state *state)
{
	struct gcp_graph_pool *graph_pool;
	struct gcp_graph_heap *entry;
	int result = 0;

	pthread_mutex_lock(&tracker->lock);
	graph_pool = gcp_graph_pool_named(tracker, id);
	if (!graph_pool)
		result = -ENOENT;
	else if (graph_pool->captures > 0)
		result = -EBUSY;
	else if (!is_current(graph_pool, state))
		result = -ESTALE;
	else
		SLIST_FOREACH (entry, &graph_pool->heaps, link)
			gcp_heap_restore(entry->heap, state_of(state, entry->heap));
	pthread_mutex_unlock(&tracker->lock);
	return result;
}
