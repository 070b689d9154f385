/* SPDX-License-Identifier: MIT */
/*
 * api.c - the public functions of gcpool.h, for programs that ask. They answer
 * from the pools; before the first allocation and in forked children there is nothing
 * to answer.
 */
#define GCPOOL_API __attribute__((visibility("default")))
#include "../gcpool.h"

#include <stdlib.h>
#include <string.h>

#include "../cuda/gate.h"
#include "../cuda/unknown_calls.h"
#include "../process/calling_thread.h"
#include "../process/process_life.h"

/* --- statistics ---------------------------------------------------------------- */

/* The public structs are pool.h's and capture.h's, field by field. */
#define SAME(type, inner, name)                                                        \
	static_assert(offsetof(struct type, name) == offsetof(struct inner, name) &&   \
			  sizeof(((struct type *)0)->name) ==                          \
			      sizeof(((struct inner *)0)->name),                       \
		      #name " is the same in gcpool.h");
#define SAME_AS_PINNED(name, ...) SAME(gcpool_host_stats, gcp_pinned_stats, name)
GCP_PINNED_GAUGES(SAME_AS_PINNED)
GCP_PINNED_COUNTERS(SAME_AS_PINNED)
GCP_PINNED_CALLS(SAME_AS_PINNED)
SAME(gcpool_graph_pool, gcp_graph_pool_info, launches)
static_assert(offsetof(struct gcpool_stats, spilled_bytes) ==
		      sizeof(struct gcp_stats) &&
		  sizeof(struct gcpool_host_stats) == sizeof(struct gcp_pinned_stats) &&
		  sizeof(struct gcpool_graph_pool) ==
		      sizeof(struct gcp_graph_pool_info),
	      "gcpool.h has no field that the rooms lack");

/* Memory of graphs that are gone is not theirs any more. */
static void graphs_collect(void)
{
	if (!gcp_gate_try())
		return;
	gcp_tracker_collect(gcp_process.tracker);
	gcp_gate_leave();
}

/* -ENOENT: there is nothing to answer from. */
static int stats_get(int device, struct gcp_stats *ret_stats)
{
	if (!gcp_process_pooling())
		return -ENOENT;
	graphs_collect();
	return gcp_pools_stats(gcp_process.pools, device, ret_stats);
}

static int host_stats_get(struct gcp_pinned_stats *ret_stats)
{
	if (!gcp_process_pooling())
		return -ENOENT;
	graphs_collect();
	return gcp_pinned_stats(gcp_process.pools, ret_stats) == 0 ? 0 : -ENOENT;
}

/* As much of it as the caller knows; 0 beyond. */
static void stats_give(void *to, size_t size, const void *from, size_t known)
{
	memset(to, 0, size);
	memcpy(to, from, size < known ? size : known);
}

int gcpool_version(void)
{
	return GCPOOL_VERSION;
}

const char *gcpool_commit(void)
{
	return gcp_commit;
}

int gcpool_active(void)
{
	return gcp_process_pooling();
}

/* gcpool.h has new fields at its end. */
static void stats_copy(struct gcpool_stats *to, const struct gcp_stats *from)
{
#define FIELD_COPY(name, ...)                                                          \
	static_assert(sizeof(to->name) == sizeof(from->name), #name);                  \
	memcpy(&to->name, &from->name, sizeof(to->name));
	GCP_GAUGES(FIELD_COPY)
	GCP_COUNTERS(FIELD_COPY)
	GCP_DRIVER_CALLS(FIELD_COPY)
	FIELD_COPY(largest_free_bytes)
	FIELD_COPY(reserved_at_peak_bytes)
	FIELD_COPY(mapped_bytes)
}

int gcpool_get_stats(int device, struct gcpool_stats *stats, size_t size)
{
	struct gcpool_stats full;
	struct gcp_stats inner;
	int result = stats && size ? stats_get(device, &inner) : -EINVAL;

	if (result != 0)
		return result;
	stats_copy(&full, &inner);
	gcp_spilled_get(
	    device,
	    (uint64_t *)((char *)&full + offsetof(struct gcpool_stats, spilled_bytes)));
	stats_give(stats, size, &full, sizeof(full));
	return 0;
}

int gcpool_get_host_stats(struct gcpool_host_stats *stats, size_t size)
{
	struct gcp_pinned_stats inner;
	int result = stats && size ? host_stats_get(&inner) : -EINVAL;

	if (result == 0)
		stats_give(stats, size, &inner, sizeof(inner));
	return result;
}

int gcpool_reset_peaks(int device)
{
	struct gcp_pinned_stats host_stats;
	struct gcp_stats stats;
	bool host = device == GCPOOL_HOST;
	int result = host ? host_stats_get(&host_stats) : stats_get(device, &stats);

	if (result != 0)
		return -ENOENT;
	if (host)
		gcp_pinned_reset_peaks(gcp_process.pools);
	else
		gcp_pools_reset_peaks(gcp_process.pools, device, false);
	return 0;
}

/* --- the table of options ----------------------------------------------------- */

/* The public function of gcpool.h that prints the table of options:
 * for `gcpool --options`, and for programs that ask. Before the first allocation it
 * reads the environment for itself and leaves the process as it is. */

int gcpool_print_options(int fd)
{
	struct gcp_options options = gcp_process.options;
	GCP_TEXT(text, 16384);
	GCP_KEEP_ERRNO;
	int wrong = 0;

	if (gcp_process_run_mode() == GCP_RUN_FRESH)
		wrong = gcp_options_look(&options, true);
	gcp_options_show(&options, &text);
	gcp_text_write(&text, fd);
	return wrong;
}

/* --- graph pools -------------------------------------------------------------- */

/* The public functions of gcpool.h, section 4: graph pools that
 * captures share. They hand on to capture/; in forked children, in the other
 * modes and before the first allocation there is nothing to hand on to. */

/* Returns from the caller where there is no pool, or no memory for a wake. */
#define POOLING_OR(answer, asleep)                                                     \
	if (!gcp_process_pooling())                                                    \
		return answer;                                                         \
	GCP_GATED_OR(asleep)

int gcpool_graph_pool_create(uint64_t *id)
{
	GCP_KEEP_ERRNO;

	if (!id)
		return -EINVAL;
	if (!gcp_process_pooling())
		return -ENOENT;
	return gcp_graph_pool_create(gcp_process.tracker, id);
}

int gcpool_graph_pool_use(uint64_t id)
{
	if (!gcp_process_pooling())
		return -ENOENT;
	return gcp_graph_pool_use(gcp_process.tracker, id);
}

int gcpool_graph_pool_release(uint64_t id)
{
	POOLING_OR(-ENOENT, CUDA_ERROR_OUT_OF_MEMORY);
	return gcp_graph_pool_release(gcp_process.tracker, id);
}

size_t gcpool_graph_pools(struct gcpool_graph_pool *pools, size_t count)
{
	POOLING_OR(0, 0);
	return gcp_graph_pools_list(gcp_process.tracker,
				    (struct gcp_graph_pool_info *)pools,
				    pools ? count : 0);
}

int gcpool_graph_pool_checkpoint(uint64_t id, struct gcpool_checkpoint **checkpoint)
{
	GCP_KEEP_ERRNO;

	if (!checkpoint)
		return -EINVAL;
	POOLING_OR(-ENOENT, CUDA_ERROR_OUT_OF_MEMORY);
	return gcp_graph_pool_checkpoint(gcp_process.tracker, id,
					 (struct gcp_graph_checkpoint **)checkpoint);
}

int gcpool_graph_pool_restore(uint64_t id, const struct gcpool_checkpoint *checkpoint)
{
	GCP_KEEP_ERRNO;
	POOLING_OR(-ENOENT, CUDA_ERROR_OUT_OF_MEMORY);
	if (!checkpoint)
		return -ESTALE;
	return gcp_graph_pool_restore(gcp_process.tracker, id,
				      (const struct gcp_graph_checkpoint *)checkpoint);
}

void gcpool_graph_pool_checkpoint_free(struct gcpool_checkpoint *checkpoint)
{
	free(checkpoint);
}

/* --- work ---------------------------------------------------------------------- */

/* The pool is pinned, and the context is that of `work`. */
static int work_answer(struct gcp_pool *pool, struct gcpool_work *work,
		       enum gcpool_work_question question)
{
	if (question == GCPOOL_WORK_ENDS) {
		work->moment = gcp_pool_work_now(pool); /* behind the pin */
		return gcp_pool_work_close(pool, work->moment);
	}
	if (work->moment)
		return gcp_pool_work_ready(pool, work->moment);
	return gcp_process_capturing() ? -EBUSY : 0;
}

static int work_ask(struct gcpool_work *work, enum gcpool_work_question question)
{
	struct gcp_pool *pool;
	int result = -ESTALE;

	if (!gcp_resolve() || gcp_process_started_mode() != GCP_RUN_POOL ||
	    gcp_unknown_capture_seen())
		return -ENOENT;
	pool = question == GCPOOL_WORK_CONTEXT
		   ? gcp_thread_pool()
		   : (struct gcp_pool *)(uintptr_t)work->context;
	if (!pool)
		return question == GCPOOL_WORK_CONTEXT ? -ENOENT : -EINVAL;
	if (!gcp_pool_pin(pool)) /* it has ended, or may be ending just now */
		return question == GCPOOL_WORK_READY && gcp_pool_is_live(pool) ? -EBUSY
									       : result;
	if (question == GCPOOL_WORK_CONTEXT)
		*work = (struct gcpool_work){(uintptr_t)pool, gcp_pool_life(pool), 0};
	if (gcp_pool_life(pool) == work->life)
		result = work_answer(pool, work, question);
	gcp_pool_unpin(pool);
	return result;
}

int gcpool_work(struct gcpool_work *work, enum gcpool_work_question question)
{
	GCP_KEEP_ERRNO;
	GCP_GATED_OR(-EBUSY);

	return work && question <= GCPOOL_WORK_READY ? work_ask(work, question)
						     : -EINVAL;
}
