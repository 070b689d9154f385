/* SPDX-License-Identifier: MIT */
/*
 * hooks_launch.c - the hooks by which work is submitted: kernels, fills, memory
 * operations, host functions. Called while captures are under way (exports.c,
 * submissions.c), and for a kernel that fails for want of memory, which is launched
 * again, as in hooks_memory.c.
 */

#include "hooks.h"
#include "hooks_memory.h"
#include "../cuda/streams.h"

static CUresult launch_on(CUstream stream, bool per_thread)
{
	gcp_stream_seen(stream, per_thread);
	return gcp_stream_submits(stream, per_thread);
}

/* --- kernels that do not stand in one line ------------------------------------- */

/* A launch may let its kernel start before the work in front of it has ended
 * (programmatic stream serialization). If the kernel's memory is what a capture has
 * given out again, its user may still run. CUDA need not make use of the permission,
 * so it is taken back where a capture has memory that it gives out again. The kernel
 * after such a one starts behind both of them, as always.
 *
 * Where a kernel sets an event before it has ended, the graph does not say in its nodes
 * what is behind the event. */

enum { ATTRIBUTES_MAX = 64 };

struct launch_in_line {
	struct CUlaunchConfig_st config;
	CUlaunchAttribute attributes[ATTRIBUTES_MAX];
};

static bool launch_starts_early(const CUlaunchAttribute *attribute)
{
	return attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
	       attribute->value.programmaticStreamSerializationAllowed;
}

static bool launch_sets_event_early(const CUlaunchAttribute *attribute)
{
	return attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT ||
	       attribute->id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
}

static const struct CUlaunchConfig_st *
launch_put_in_line(const struct CUlaunchConfig_st *config, struct launch_in_line *line)
{
	if (config->numAttrs > ATTRIBUTES_MAX) {
		gcp_tracker_order_unknown(gcp_process.tracker, false);
		return config;
	}
	line->config = *config;
	line->config.attrs = line->attributes;
	for (unsigned int i = 0; i < config->numAttrs; i++) {
		line->attributes[i] = config->attrs[i];
		if (launch_starts_early(&config->attrs[i]))
			line->attributes[i]
			    .value.programmaticStreamSerializationAllowed = 0;
	}
	return &line->config;
}

/* The configuration to launch with: the caller's, or what is put into `line`. */
static const struct CUlaunchConfig_st *
launch_orders(const struct CUlaunchConfig_st *config, bool per_thread,
	      struct launch_in_line *line)
{
	CUstream named = gcp_stream_named(config->hStream, per_thread);
	bool early = false;

	if (!gcp_process_capturing() || !config->attrs)
		return config;
	for (unsigned int i = 0; i < config->numAttrs; i++) {
		early |= launch_starts_early(&config->attrs[i]);
		if (launch_sets_event_early(&config->attrs[i]))
			gcp_tracker_order_unknown(gcp_process.tracker, false);
	}
	if (!early || !gcp_stream_capturable(named) ||
	    !gcp_tracker_gives_again(gcp_process.tracker, named))
		return config;
	return launch_put_in_line(config, line);
}

static CUresult launch_by_config(const struct CUlaunchConfig_st **config,
				 bool per_thread, struct launch_in_line *line)
{
	CUresult result;

	if (!*config)
		return CUDA_SUCCESS;
	result = launch_on((*config)->hStream, per_thread);
	if (result == CUDA_SUCCESS)
		*config = launch_orders(*config, per_thread, line);
	return result;
}

/* A kernel's local memory is taken at its launch, which fails if the pools have all of
 * it: then they give theirs back. Not beside a capture, and not for errors that stay.
 */
#define LAUNCHES_HOOK(name, base, version, twin, need)                                 \
	GCP_HOOK_CALLS(name, struct gcp_tries tries = {.launch = true},                \
		       launch_on(stream, twin), GCP_CALLED(name),                      \
		       gcp_again(&tries, result))
GCP_HOOKS_LAUNCHES(LAUNCHES_HOOK)

#define LAUNCHES_BY_CONFIG_HOOK(name, base, version, twin, need)                       \
	GCP_HOOK_CALLS(name, struct gcp_tries tries = {.launch = true};                \
		       struct launch_in_line line,                                     \
		       launch_by_config(&config, twin, &line), GCP_CALLED(name),       \
		       gcp_again(&tries, result))
GCP_HOOKS_LAUNCHES_BY_CONFIG(LAUNCHES_BY_CONFIG_HOOK)

/* --- everything else ----------------------------------------------------------- */

/* Launches of graphs are in hooks_graph.c, copies in hooks_copy.c. */
#define SUBMISSIONS_HOOK(name, base, version, twin, need)                              \
	GCP_HOOK_CALLS(name, , gcp_stream_submits(stream, twin), GCP_CALLED(name),     \
		       false)
GCP_HOOKS_SUBMISSIONS(SUBMISSIONS_HOOK)

#define SUBMISSIONS_SYNC_HOOK(name, base, version, twin, need)                         \
	GCP_HOOK_CALLS(name, , (gcp_stream_submits_eagerly(NULL), CUDA_SUCCESS),       \
		       GCP_CALLED(name), false)
GCP_HOOKS_SUBMISSIONS_SYNC(SUBMISSIONS_SYNC_HOOK)

#define WAITS_HOOK(name, base, version, twin, need)                                    \
	GCP_HOOK_CALLS(name, , CUDA_SUCCESS, GCP_CALLED(name), false)
GCP_HOOKS_WAITS(WAITS_HOOK)
