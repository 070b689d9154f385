/* SPDX-License-Identifier: MIT */
/*
 * hooks_launch.c - the hooks by which work is submitted: kernels, fills, memory
 * operations, host functions. Called while captures are under way (exports.c,
 * submissions.c), and for a kernel that fails for want of memory, which is launched
 * again, as in hooks_memory.c.
 */

#include <string.h>

#include "dlsym.h"
#include "hooks.h"
#include "hooks_memory.h"
#include "../cuda/streams.h"

static CUresult launch_on(CUstream stream)
{
	gcp_stream_seen(stream);
	return gcp_stream_submits(stream);
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

/* The configuration to launch with: the caller's, or what is put into `line`. */
static const struct CUlaunchConfig_st *
launch_orders(const struct CUlaunchConfig_st *config, CUstream stream,
	      struct launch_in_line *line)
{
	bool early = false, unknown = config->numAttrs > ATTRIBUTES_MAX;
	bool captures = false;

	if (!gcp_process_capturing() || !config->attrs)
		return config;
	line->config = *config;
	line->config.attrs = line->attributes;
	for (unsigned int i = 0; i < config->numAttrs && i < ATTRIBUTES_MAX; i++) {
		CUlaunchAttribute *attribute = &line->attributes[i];
		int *allowed = &attribute->value.programmaticStreamSerializationAllowed;

		*attribute = config->attrs[i];
		unknown |= attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT ||
			   attribute->id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
		if (attribute->id !=
		    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
			continue;
		early |= *allowed != 0;
		*allowed = 0;
	}
	if (unknown)
		gcp_tracker_order_unknown(gcp_process.tracker, false);
	return early && config->numAttrs <= ATTRIBUTES_MAX &&
		       gcp_stream_capturable(stream) &&
		       (gcp_stream_capture_ask(stream, &captures) || captures) &&
		       gcp_tracker_gives_again(gcp_process.tracker)
		   ? &line->config
		   : config;
}

/* Its first parameter is the configuration. */
static CUresult launch_by_config(const struct gcp_call_words *words)
{
	const struct CUlaunchConfig_st *config = (void *)(uintptr_t)words->at[0];
	CUstream stream = config && config->hStream ? config->hStream : words->stream;
	CUresult result = CUDA_SUCCESS;
	struct launch_in_line line;

	if (config)
		result = launch_on(stream);
	if (config && result == CUDA_SUCCESS)
		words->at[0] = (uintptr_t)launch_orders(config, stream, &line);
	return result ?: GCP_AGAIN(gcp_words_call(words), .launch = true);
}

/* --- hooks by words ------------------------------------------------------------- */

/* A kernel's local memory is taken at its launch, which fails if the pools have all of
 * it: then they give theirs back. Not beside a capture, and not for errors that stay.
 */
static CUresult words_run(const struct gcp_call_words *words)
{
	uint32_t table = words->table;
	bool launches = table == GCP_TABLE_LAUNCHES;
	bool copies = table == GCP_TABLE_COPIES || table == GCP_TABLE_COPIES_BATCH ||
		      table == GCP_TABLE_COPIES_SYNC;
	bool sync =
	    table == GCP_TABLE_SUBMISSIONS_SYNC || table == GCP_TABLE_COPIES_SYNC;
	CUresult result = CUDA_SUCCESS;

	if (launches)
		result = launch_on(words->stream);
	else if (sync)
		gcp_stream_submits_eagerly(NULL);
	else if (table == GCP_TABLE_SUBMISSIONS || copies)
		result = gcp_stream_submits(words->stream);
	else if (table == GCP_TABLE_LAUNCHES_BY_CONFIG)
		return launch_by_config(words);
	else if (table == GCP_TABLE_EVENTS)
		return gcp_event_call(words);
	else if (table == GCP_TABLE_BEGINS)
		return gcp_begin_call(words);
	else if (table == GCP_TABLE_GRAPHS)
		return gcp_graph_call(words);
	else if (table == GCP_TABLE_DESTROYERS)
		gcp_passed_drop(strcmp(words->base, "cuMemRelease") == 0
				    ? GCP_PASSED_HANDLE
				    : GCP_PASSED_ARRAY,
				words->at[0], 1);
	if (result != CUDA_SUCCESS)
		return result;
	if (launches || table == GCP_TABLE_MAKERS)
		return GCP_AGAIN(gcp_words_call(words), .launch = launches,
				 .maker = launches ? NULL : words->base);
	result = copies ? gcp_copy_call(words) : gcp_words_call(words);
	return sync ? gcp_sync_memops_wait(result, words) : result;
}

/* what: the row (16 bits), the table (6), which word is the stream (11: none). */
struct gcp_route gcp_words_hook(uint32_t what, const struct gcp_kept *kept)
{
	uint64_t at[GCP_WORDS_MOST];
	const struct gcp_row *row = &gcp_rows[what & 0xffff];
	struct gcp_call_words words = {.at = at,
				       .table = what >> 16 & 63,
				       .in_stream = what >> 22 < GCP_WORDS_MOST,
				       .name = gcp_row_name(row),
				       .base = gcp_row_base(row)};
	void **real = gcp_row_slot(what & 0xffff);
	uint64_t call = gcp_call_begin_slow(real, words.table == GCP_TABLE_WAITS, 0);
	CUresult result = (CUresult)(call >> 32);

	assert(row->entry && row < gcp_rows + GCP_ROWS_DRIVER);
	memcpy(at, kept->words, sizeof(kept->words));
	memcpy((char *)at + sizeof(kept->words), kept->stack,
	       sizeof(at) - sizeof(kept->words));
	words.real = *real;
	if (words.in_stream)
		words.stream = (CUstream)(uintptr_t)at[what >> 22];
	words.stream = gcp_stream_named(words.stream, row->flags != 0);
	if ((uint32_t)call <= GCP_HOOK_GATED)
		result = words_run(&words);
	else if ((uint32_t)call == GCP_HOOK_NONE)
		result = gcp_words_call(&words);
	result = gcp_call_end_slow(call, result);
	return (struct gcp_route){NULL, (void *)(uintptr_t)result};
}
