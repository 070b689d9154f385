/* SPDX-License-Identifier: MIT */
/*
 * trace.c - the events of a recording: see trace.h.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../base/clock.h"
#include "call_stats.h"
#include "report.h"
#include "trace.h"
#include "trace_file.h"

enum { SAMPLE_NS = 1000 * 1000 };

bool gcp_tracing;
static bool with_stacks;

/* Threads are numbered as they come; those beyond 16 bits share the last number. */
static __thread uint16_t thread_number __attribute__((tls_model("initial-exec")));
static _Atomic uint32_t last_thread;

bool gcp_trace_start(const struct gcp_options *options)
{
	if (!options->trace_file[0])
		return false;
	if (!gcp_trace_file_create(options->trace_file, options->trace_bytes,
				   options->trace_frames))
		return false;
	with_stacks = options->trace_frames > 0 &&
		      gcp_stacks_start(options->trace_frames,
				       (enum gcp_trace_unwind)options->trace_unwind);
	gcp_tracing = true;
	return true;
}

void gcp_trace_end(struct gcp_pools *pools)
{
	if (pools)
		gcp_trace_sample(pools, true);
	if (with_stacks)
		gcp_stacks_modules();
	gcp_trace_file_end();
}

void gcp_trace_after_fork(void)
{
	gcp_trace_file_leave();
}

/* --- one event --------------------------------------------------------------- */

static void event_write(struct gcp_trace_event *event, uint32_t stamp,
			const struct gcp_trace_facts *facts, uint32_t stack)
{
	event->time_ns = gcp_clock_ns();
	event->addr = facts->addr;
	event->bytes = facts->bytes;
	event->arg = facts->arg;
	event->more = facts->more;
	event->stack = stack;
	event->thread = thread_number;
	event->kind = (uint8_t)facts->kind;
	event->device = facts->device < 0 ? UINT8_MAX : (uint8_t)facts->device;
	atomic_store_explicit(&event->stamp, stamp, memory_order_release);
}

static __attribute__((noinline)) void thread_enter(void)
{
	uint64_t name[2] = {0, 0};
	uint32_t number = atomic_fetch_add(&last_thread, 1) + 1, stamp;
	struct gcp_trace_event *event = gcp_trace_slot_rare(&stamp);
	int saved = errno;

	thread_number = number < UINT16_MAX ? (uint16_t)number : UINT16_MAX;
	prctl(PR_GET_NAME, name);
	if (event)
		event_write(
		    event, stamp,
		    &(struct gcp_trace_facts){.kind = GCP_TRACE_thread,
					      .device = -1,
					      .addr = (uint64_t)syscall(SYS_gettid),
					      .bytes = name[0],
					      .arg = name[1]},
		    0);
	errno = saved;
}

static uint32_t stack_of(const struct gcp_trace_facts *facts)
{
	return with_stacks && facts->caller ? gcp_stacks_number(facts->caller) : 0;
}

void gcp_trace_add(const struct gcp_trace_facts *facts)
{
	uint32_t stamp, stack = stack_of(facts);
	struct gcp_trace_event *event;

	if (__builtin_expect(!thread_number, 0))
		thread_enter();
	event = gcp_trace_slot(&stamp);
	if (event)
		event_write(event, stamp, facts, stack);
}

void gcp_trace_add_rare(const struct gcp_trace_facts *facts)
{
	uint32_t stamp, stack = stack_of(facts);
	struct gcp_trace_event *event;

	if (!thread_number)
		thread_enter();
	event = gcp_trace_slot_rare(&stamp);
	if (event)
		event_write(event, stamp, facts, stack);
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

	gcp_trace_add(&(struct gcp_trace_facts){
	    .kind = GCP_TRACE_sample,
	    .device = device,
	    .addr = stats->allocated_bytes.current,
	    .bytes = stats->active_bytes.current,
	    .arg = stats->reserved_bytes.current,
	    .more = pages < UINT32_MAX ? (uint32_t)pages : UINT32_MAX});
}

void gcp_trace_sample(struct gcp_pools *pools, bool now)
{
	static _Atomic uint64_t last_ns;
	uint64_t time_ns = gcp_clock_ns(), last = atomic_load(&last_ns);
	struct gcp_stats stats;

	if (!now && (time_ns - last < SAMPLE_NS ||
		     !atomic_compare_exchange_strong(&last_ns, &last, time_ns)))
		return;
	for (int device = 0; device <= gcp_pools_device_max(pools); device++)
		if (gcp_pools_stats(pools, device, &stats) == 0)
			sample_add(device, &stats);
}

void gcp_trace_device(int device, const char *name, uint64_t bytes)
{
	uint64_t words[5] = {0};

	memcpy(words, name, strnlen(name, sizeof(words)));
	gcp_trace_add_rare(&(struct gcp_trace_facts){.kind = GCP_TRACE_device,
						     .device = device,
						     .addr = words[0],
						     .bytes = bytes,
						     .arg = words[1]});
	if (words[2])
		gcp_trace_add_rare(
		    &(struct gcp_trace_facts){.kind = GCP_TRACE_device_name,
					      .device = device,
					      .addr = words[2],
					      .bytes = words[3],
					      .arg = words[4]});
}
