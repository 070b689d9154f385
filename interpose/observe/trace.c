/* SPDX-License-Identifier: MIT */
/*
 * trace.c - the events of a recording: see trace.h.
 */
#include <string.h>
#include <sys/prctl.h>

#include "instrument.h"
#include "trace.h"

enum { SAMPLE_NS = 1000 * 1000 };

static bool records, with_stacks; /* constant after start */

/* Threads are numbered as they come; those beyond 16 bits share the last number. */
static __thread uint16_t thread_number;
static _Atomic uint32_t last_thread;

bool gcp_trace_start(const struct gcp_options *options)
{
	if (!options->trace_file[0] ||
	    !gcp_trace_file_create(options->trace_file, options->trace_bytes,
				   options->trace_frames))
		return false;
	with_stacks =
	    options->trace_frames > 0 && gcp_stacks_start(options->trace_frames);
	return records = true;
}

/* --- one event --------------------------------------------------------------- */

static __attribute__((noinline)) void thread_enter(void)
{
	uint64_t name[2] = {0, 0};
	uint32_t number = atomic_fetch_add(&last_thread, 1) + 1;

	thread_number = number < UINT16_MAX ? (uint16_t)number : UINT16_MAX;
	prctl(PR_GET_NAME, name);
	gcp_trace_add(GCP_TRACE_thread, -1, (uint64_t)syscall(SYS_gettid), name[0],
		      name[1], 0, false);
}

/* Returns true for events without which others say nothing: they are never overwritten.
 */
static bool is_rare(enum gcp_trace_kind kind)
{
	return kind == GCP_TRACE_thread || kind == GCP_TRACE_device ||
	       kind == GCP_TRACE_device_name || kind == GCP_TRACE_context ||
	       kind == GCP_TRACE_free_wrong ||
	       (kind >= GCP_TRACE_segment_alloc && kind <= GCP_TRACE_driver_trim) ||
	       kind == GCP_TRACE_host_segment_alloc ||
	       kind == GCP_TRACE_host_segment_free;
}

void gcp_trace_add(enum gcp_trace_kind kind, int device, uint64_t addr, uint64_t bytes,
		   uint64_t arg, uint32_t more, bool stack)
{
	uint32_t stamp, number = with_stacks && stack ? gcp_stacks_number() : 0;
	struct gcp_trace_event *event;

	assert(kind != GCP_TRACE_NOTHING && device >= -1 && device < UINT8_MAX);
	if (!records)
		return;
	if (__builtin_expect(!thread_number, 0))
		thread_enter();
	event =
	    gcp_trace_slot(is_rare(kind) ? GCP_TRACE_RARE : GCP_TRACE_EVENTS, &stamp);
	if (!event)
		return;
	event->time_ns = gcp_clock_ns();
	event->addr = addr;
	event->bytes = bytes;
	event->arg = arg;
	event->more = more;
	event->stack = number;
	event->thread = thread_number;
	event->kind = (uint8_t)kind;
	event->device = device < 0 ? UINT8_MAX : (uint8_t)device;
	atomic_store_explicit(&event->stamp, stamp, memory_order_release);
}

uint32_t gcp_trace_took(uint64_t start_ns)
{
	uint64_t ns = gcp_clock_ns() - start_ns;

	return ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
}

/* --- samples ----------------------------------------------------------------- */

static void sample_add(int device, const struct gcp_stats *stats)
{
	uint64_t pages = stats->private_bytes.current / 4096;

	gcp_trace_add(GCP_TRACE_sample, device, stats->allocated_bytes.current,
		      stats->active_bytes.current, stats->reserved_bytes.current,
		      pages < UINT32_MAX ? (uint32_t)pages : UINT32_MAX, false);
}

void gcp_trace_sample(struct gcp_pools *pools, bool now)
{
	static _Atomic uint64_t last_ns;
	uint64_t time_ns = gcp_clock_ns(), last = atomic_load(&last_ns);
	struct gcp_stats stats;

	if (!records ||
	    (!now && (time_ns - last < SAMPLE_NS ||
		      !atomic_compare_exchange_strong(&last_ns, &last, time_ns))))
		return;
	for (int device = 0; device <= gcp.pools_device_max(pools); device++)
		if (gcp.pools_stats(pools, device, &stats) == 0)
			sample_add(device, &stats);
}

void gcp_trace_device(int device, const struct gcp_gpu *gpu)
{
	uint64_t words[5] = {0};

	memcpy(words, gpu->name, strnlen(gpu->name, sizeof(words)));
	gcp_trace_add(GCP_TRACE_device, device, words[0], gpu->bytes, words[1], 0,
		      false);
	if (words[2])
		gcp_trace_add(GCP_TRACE_device_name, device, words[2], words[3],
			      words[4], 0, false);
}
