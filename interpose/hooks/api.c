/* SPDX-License-Identifier: MIT */
/*
 * api.c - the public functions of gcpool.h, for programs that ask. They answer
 * from the pools; before the first allocation and in forked children there is nothing
 * to answer.
 */
#define GCPOOL_API __attribute__((visibility("default")))
#include "../gcpool.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "../base/process.h"
#include "../ipc/ipc_exports.h"
#include "../cuda/unknown_calls.h"
#include "../statistics/report.h"
#include "../process/calling_thread.h"
#include "../process/process_life.h"

/* --- the public struct holds exactly what pool.h counts ------------------------- */

#define GCP_X(name, meaning)                                                           \
	static_assert(sizeof(((struct gcpool_stats *)0)->name) ==                      \
			  sizeof(struct gcpool_gauge),                                 \
		      #name " is a gauge in gcpool.h as well");
GCP_GAUGES(GCP_X)
#undef GCP_X
#define GCP_X(name, meaning)                                                           \
	static_assert(sizeof(((struct gcpool_stats *)0)->name) == sizeof(uint64_t),    \
		      #name " is a counter in gcpool.h as well");
GCP_COUNTERS(GCP_X)
#undef GCP_X
#define GCP_X(name)                                                                    \
	static_assert(sizeof(((struct gcpool_stats *)0)->name) ==                      \
			  sizeof(struct gcpool_calls),                                 \
		      #name " is a driver call in gcpool.h as well");
GCP_DRIVER_CALLS(GCP_X)
#undef GCP_X
static_assert(sizeof(struct gcpool_stats) == sizeof(struct gcp_stats),
	      "gcpool.h has no field that pool.h lacks");

/* -------------------------------------------------------------------------------- */

static int stats_get(int device, struct gcp_stats *ret_stats)
{
	switch (gcp_process_run_mode()) {
	case GCP_RUN_POOL:
		/* Memory of graphs that are gone is not theirs any more. */
		gcp_tracker_collect(gcp_process.tracker);
		return gcp_pools_stats(gcp_process.pools, device, ret_stats);
	case GCP_RUN_FRESH:
	case GCP_RUN_PASSIVE:
		break;
	}
	return -ENOENT;
}

static void gauge_copy(struct gcpool_gauge *to, const struct gcp_gauge *from)
{
	*to = (struct gcpool_gauge){
	    .current = from->current,
	    .peak = from->peak,
	    .allocated = from->allocated,
	    .freed = from->freed,
	};
}

static void stats_copy(struct gcpool_stats *to, const struct gcp_stats *from)
{
#define GCP_X(name, meaning) gauge_copy(&to->name, &from->name);
	GCP_GAUGES(GCP_X)
#undef GCP_X
#define GCP_X(name, meaning) to->name = from->name;
	GCP_COUNTERS(GCP_X)
#undef GCP_X
#define GCP_X(name) to->name = (struct gcpool_calls){from->name.count, from->name.ns};
	GCP_DRIVER_CALLS(GCP_X)
#undef GCP_X
	to->largest_free_bytes = from->largest_free_bytes;
	to->reserved_at_peak_bytes = from->reserved_at_peak_bytes;
	to->mapped_bytes = from->mapped_bytes;
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

int gcpool_get_stats(int device, struct gcpool_stats *stats, size_t size)
{
	struct gcpool_stats full = {0};
	struct gcp_stats inner;
	int result;

	if (!stats || size == 0)
		return -EINVAL;
	result = stats_get(device, &inner);
	if (result != 0)
		return result;
	stats_copy(&full, &inner);
	memset(stats, 0, size);
	memcpy(stats, &full, size < sizeof(full) ? size : sizeof(full));
	return 0;
}

static bool host_is_pooled(void)
{
	struct gcp_pinned_stats stats;

	return gcp_process_pooling() &&
	       gcp_pinned_stats(gcp_process.pools, &stats) == 0;
}

int gcpool_reset_peaks(int device)
{
	struct gcp_stats stats;
	bool host = device == GCPOOL_HOST;

	if (host ? !host_is_pooled() : stats_get(device, &stats) != 0)
		return -ENOENT;
	if (host)
		gcp_pinned_reset_peaks(gcp_process.pools);
	else
		gcp_pools_reset_peaks(gcp_process.pools, device);
	return 0;
}

uint64_t gcpool_trim(int device, uint64_t keep_bytes)
{
	if (device < GCPOOL_HOST || !gcp_process_pooling())
		return 0;
	gcp_tracker_fetch(gcp_process.tracker);
	if (device == GCPOOL_HOST)
		return gcp_pinned_trim(gcp_process.pools, keep_bytes);
	return gcp_pools_trim(gcp_process.pools, device, keep_bytes) +
	       gcp_share_trim(gcp_process.tracker, device, keep_bytes);
}

/* --- the table of options ----------------------------------------------------- */

/* The public function of gcpool.h that prints the table of options:
 * for `gcpool --options`, and for programs that ask. Before the first allocation it
 * reads the environment for itself and leaves the process as it is. */

static void complaint_say(void *arg, const char *sentence, const char *instead)
{
	(void)arg;
	gcp_log(GCP_LOG_WARNING, "%s, %s", sentence, instead);
}

/* As gcp_options_read, but no option has an effect. */
static int options_find(struct gcp_options *ret_options)
{
	char *const *environment = getauxval(AT_SECURE) ? NULL : environ;

	if (gcp_process_run_mode() == GCP_RUN_FRESH)
		return gcp_options_parse(ret_options, environment, complaint_say, NULL);
	*ret_options = gcp_process.options;
	return 0;
}

int gcpool_print_options(int fd)
{
	struct gcp_options options;
	char bytes[16384];
	struct gcp_text text;
	int kept = errno;
	int wrong = options_find(&options);

	gcp_text_init(&text, bytes, sizeof(bytes));
	gcp_options_show(&options, &text);
	gcp_text_write(&text, fd);
	errno = kept;
	return wrong;
}

/* --- graph pools -------------------------------------------------------------- */

/* The public functions of gcpool.h, section 4: graph pools that
 * captures share. They hand on to capture/; in forked children, in the other
 * modes and before the first allocation there is nothing to hand on to. */

/* The public struct is the one of capture.h under a public name. */
static_assert(sizeof(struct gcpool_graph_pool) == sizeof(struct gcp_graph_pool_info),
	      "gcpool.h and capture.h list the same of a graph pool");
static_assert(offsetof(struct gcpool_graph_pool, launches) ==
		  offsetof(struct gcp_graph_pool_info, launches),
	      "gcpool.h and capture.h list it in the same order");

int gcpool_graph_pool_create(uint64_t *id)
{
	if (!id)
		return -EINVAL;
	return gcp_process_pooling() ? gcp_graph_pool_create(gcp_process.tracker, id)
				     : -ENOENT;
}

int gcpool_graph_pool_use(uint64_t id)
{
	return gcp_process_pooling() ? gcp_graph_pool_use(gcp_process.tracker, id)
				     : -ENOENT;
}

int gcpool_graph_pool_release(uint64_t id)
{
	return gcp_process_pooling() ? gcp_graph_pool_release(gcp_process.tracker, id)
				     : -ENOENT;
}

size_t gcpool_graph_pools(struct gcpool_graph_pool *pools, size_t count)
{
	if (!gcp_process_pooling())
		return 0;
	return gcp_graph_pools_list(gcp_process.tracker,
				    (struct gcp_graph_pool_info *)pools,
				    pools ? count : 0);
}

int gcpool_graph_pool_checkpoint(uint64_t id, struct gcpool_checkpoint **checkpoint)
{
	if (!checkpoint)
		return -EINVAL;
	if (!gcp_process_pooling())
		return -ENOENT;
	return gcp_graph_pool_checkpoint(gcp_process.tracker, id,
					 (struct gcp_graph_checkpoint **)checkpoint);
}

int gcpool_graph_pool_restore(uint64_t id, const struct gcpool_checkpoint *checkpoint)
{
	int result;

	if (!gcp_process_pooling())
		return -ENOENT;
	if (!checkpoint)
		return -ESTALE;
	result = gcp_graph_pool_restore(
	    gcp_process.tracker, id, (const struct gcp_graph_checkpoint *)checkpoint);
	if (result == 0)
		gcp_exports_take_back();
	return result;
}

void gcpool_graph_pool_checkpoint_free(struct gcpool_checkpoint *checkpoint)
{
	gcp_graph_checkpoint_destroy((struct gcp_graph_checkpoint *)checkpoint);
}

/* --- pinned memory ------------------------------------------------------------ */

/* The public struct is pool.h's, field by field. */
#define GCP_X(name, ...)                                                               \
	static_assert(offsetof(struct gcpool_host_stats, name) ==                      \
			      offsetof(struct gcp_pinned_stats, name) &&               \
			  sizeof(((struct gcpool_host_stats *)0)->name) ==             \
			      sizeof(((struct gcp_pinned_stats *)0)->name),            \
		      #name " is the same in gcpool.h");
GCP_PINNED_GAUGES(GCP_X)
GCP_PINNED_COUNTERS(GCP_X)
GCP_PINNED_CALLS(GCP_X)
GCP_X(bucket_allocation)
GCP_X(bucket_active)
#undef GCP_X
static_assert(sizeof(struct gcpool_host_stats) == sizeof(struct gcp_pinned_stats),
	      "gcpool.h has no field that pool.h lacks");

int gcpool_get_host_stats(struct gcpool_host_stats *stats, size_t size)
{
	struct gcp_pinned_stats full;

	if (!stats || size == 0)
		return -EINVAL;
	if (!gcp_process_pooling())
		return -ENOENT;
	gcp_tracker_collect(gcp_process.tracker);
	if (gcp_pinned_stats(gcp_process.pools, &full) != 0)
		return -ENOENT;
	memset(stats, 0, size);
	memcpy(stats, &full, size < sizeof(full) ? size : sizeof(full));
	return 0;
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
	int saved = errno;
	int result =
	    work && question <= GCPOOL_WORK_READY ? work_ask(work, question) : -EINVAL;

	errno = saved;
	return result;
}
