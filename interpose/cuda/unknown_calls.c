/* SPDX-License-Identifier: MIT */
/*
 * unknown_calls.c - see unknown_calls.h. Called by the look-up hooks, maybe before
 * cuInit, and by the stubs of unknown_calls_stubs.S. Makes no CUDA call.
 *
 * Rules of work that is seen, and of stepping aside:
 *  A1 work on a stream that does not capture is counted before the real call
 *  A2 while a capture is under way every submission goes through its hook
 *  A3 so does each variant of a call, for default streams of threads as well
 *  A4 a call that is not known may submit work
 *  A5 a call that is not known may have copied any graph
 *  A6 once a capture began in an unknown way nothing is recorded and nothing is served
 *  A7 CUDA never gets an address of the library's that the program has freed
 *  A8 a function that the driver lacks is not replaced by an older form
 */
#include <string.h>

#include "contexts.h"
#include "gate.h"
#include "streams.h"
#include "unknown_calls.h"

enum {
	STUBS = 256,     /* as many as unknown_calls_stubs.S has */
	STUB_BYTES = 16, /* from one to the next, there as well */
};

extern char gcp_unknown_call_stubs[] __attribute__((visibility("hidden")));

static struct gcp_mutex stubs_lock = GCP_MUTEX(GCP_RANK_STUBS);
static struct gcp_mutex aside_lock = GCP_MUTEX(GCP_RANK_ASIDE);
static void
    *_Atomic stubs[STUBS];    /* the real functions; written once, under stubs_lock */
static char names[STUBS][64]; /* theirs */
static uint32_t stub_count;   /* stubs_lock */
static atomic_bool seen, graphs_seen;

/* The names, and a newline before each and at the end. One string: nothing has to be
 * relocated at load. */
static const char known_calls[] = GCP_KNOWN_CALLS;

/* Returns true if the name of a function says that it begins a capture. */
static bool begins_capture(const char *name)
{
	return strstr(name, "BeginCapture") || strstr(name, "Recapture");
}

bool gcp_known_call(const char *name)
{
	size_t length = strlen(name);
	const char *at = known_calls;

	assert(*at == '\n'); /* before each name */
	if (length > 5 && (strcmp(name + length - 5, "_ptsz") == 0 ||
			   strcmp(name + length - 5, "_ptds") == 0))
		length -= 5;
	while ((at = strchr(at, '\n')))
		if (strncmp(++at, name, length) == 0 && at[length] == '\n')
			return true;
	return false;
}

bool gcp_unknown_call_is(const char *name)
{
	return name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z' &&
	       (begins_capture(name) || !gcp_known_call(name));
}

bool gcp_unknown_capture_seen(void)
{
	return atomic_load_explicit(&seen, memory_order_relaxed);
}

/* It may have put any graph into another one, empty ones too. What is captured into
 * such a graph later, its parent can run. */
static void graphs_unknown(void)
{
	if (gcp_process_pooling())
		gcp_graphs_keep(gcp_process.tracker, true);
}

static void graphs_called(const char *name)
{
	bool first = !atomic_exchange(&graphs_seen, true);

	graphs_unknown();
	if (first)
		gcp_log(GCP_LOG_WARNING,
			"%s works on graphs in a way that this version does not know: "
			"the memory of captured graphs is never given back",
			name);
}

/* The hold is never released: no fence is recorded any more. */
void gcp_unknown_capture_hold(void)
{
	if (gcp_unknown_capture_seen() && gcp_process_pooling()) {
		gcp_share_captures_unseen(gcp_process.tracker);
		gcp_pools_fences_hold(gcp_process.pools);
		gcp_graphs_keep(gcp_process.tracker, true);
	}
	if (atomic_load(&graphs_seen))
		graphs_unknown();
}

/* Returns when no fence can be recorded any more, also where another thread steps aside
 * just now. */
static void capture_begins(const char *name)
{
	if (gcp_process_passive())
		return;
	GCP_LOCKED(&aside_lock);
	if (!atomic_exchange(&seen, true)) {
		gcp_unknown_capture_hold();
		atomic_fetch_add(&gcp_contexts_generation, 1); /* threads look again */
		gcp_log(GCP_LOG_WARNING,
			"%s may begin a capture that this version does not see: "
			"from now on every allocation goes to CUDA",
			name);
	}
}

void *gcp_unknown_call_called(uint32_t stub)
{
	GCP_KEEP_ERRNO;
	void *real = atomic_load_explicit(&stubs[stub], memory_order_acquire);

	gcp_gate_unknown(names[stub]);
	if (begins_capture(names[stub]))
		capture_begins(names[stub]);
	else
		gcp_stream_submits_unknown();
	if (strstr(names[stub], "Graph"))
		graphs_called(names[stub]);
	return real;
}

/* The stub of `real`, made when needed; STUBS: none is left. stubs_lock is held. */
static uint32_t stub_find(const char *name, void *real)
{
	gcp_assert_held(GCP_RANK_STUBS);
	uint32_t i = 0;

	while (i < stub_count && atomic_load(&stubs[i]) != real)
		i++;
	if (i == stub_count && stub_count < STUBS) {
		strncpy(names[i], name, sizeof(names[i]) - 1);
		assert(!atomic_load(&stubs[i])); /* none is used twice */
		atomic_store_explicit(&stubs[i], real, memory_order_release);
		stub_count++;
	}
	return i;
}

void *gcp_unknown_call_wrap(const char *name, void *real, bool newer)
{
	uint32_t stub;

	if (!real || !(newer || gcp_unknown_call_is(name)))
		return real;
	gcp_mutex_lock(&stubs_lock);
	stub = stub_find(name, real);
	gcp_mutex_unlock(&stubs_lock);
	if (stub == STUBS) { /* its calls are not seen, whatever they do */
		gcp_gate_unknown("a function");
		capture_begins(name);
		if (gcp_process_pooling())
			(void)gcp_share_read(gcp_process.tracker, true);
		return real;
	}
	return gcp_unknown_call_stubs + stub * STUB_BYTES;
}

void gcp_unknown_calls_after_fork(void)
{
	gcp_mutex_init(&stubs_lock, GCP_RANK_STUBS);
	gcp_mutex_init(&aside_lock, GCP_RANK_ASIDE);
}
