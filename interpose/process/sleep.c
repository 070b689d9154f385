/* SPDX-License-Identifier: MIT */
/*
 * sleep.c - see sleep.h. Called by api.c, by poller.c for gcpool ctl, and by the first
 * call that comes to the gate of a process that is asleep.
 *
 *      gate      no call of the program is let in, and none is under way
 *      quiet     a fence in each context is done, and unused memory is given back
 *      out       what blocks hold is copied to the host, or to a file there
 *      gone      the pools' memory is the driver's; the addresses stay (vmm.c)
 *                ... asleep
 *      refill    memory is there again, or everything stays as it was
 *      in        what blocks hold is copied back, and the gate is opened
 *
 * Whatever fails before "gone" leaves the process awake, and whatever fails after it
 * leaves it asleep: the host keeps all until the last copy is done. A file has all its
 * room before the first copy, and all that was copied before "gone". Memory that is not
 * mapped, or known outside of the process, stays; a process that has such does not
 * sleep. Pinned memory and what passes through stay too.
 *
 * Rules:
 *  Z1 memory is copied and given away only when all work is done
 *  Z2 all that the program holds, and graphs may read, is copied (blocks.c)
 *  Z3 memory that is made at a wake is open to its device (vmm.c)
 *  Z4 memory of a lane, which several addresses show, is not given away (vmm.c)
 *  Z5 a call that finds the gate closed waits (gate.c)
 *  Z6 a block that is freed while asleep is freed at the wake, once
 */
#define GCPOOL_API __attribute__((visibility("default")))
#include "../gcpool.h"

#include <sys/mman.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "../base/clock.h"
#include "../cuda/gate.h"
#include "../cuda/ctx_scope.h"
#include "../cuda/foreign_work.h"
#include "../cuda/resolve.h"
#include "../cuda/third_party_dma.h"
#include "../observe/observer.h"
#include "../observe/ranges.h"
#include "calling_thread.h"
#include "help.h"
#include "sleep.h"
#include "spans.h"
#include "spill.h"

enum {
	DEVICES_MAX = 64,
	SAID_MAX = 256,
	CHUNK = 2 << 20,
	GAP_MAX = 64 << 10,
	PAUSE_NS = 100 * 1000,
	RETRY_NS = 100 * 1000 * 1000,
	UNSPILL_NS = 1000 * 1000 * 1000
};

static struct gcp_mutex sleep_lock = GCP_MUTEX(GCP_RANK_SLEEP);
/* With sleep_lock. */
static struct gcp_spans spans;      /* while asleep */
static struct gcp_treap freed;      /* blocks, while asleep */
static uint64_t lanes[DEVICES_MAX]; /* bytes that were in them */
static bool gave_up;                /* the last wake was in vain */
static char place[64];              /* of the file; empty: the host's memory */

/* --- what is copied ------------------------------------------------------------ */

struct survey {
	uint64_t ordinary, shared; /* bytes that stay */
	bool lacks_memory;
};

/* Small blocks side by side are one span; what is free between them in the same handle
 * goes along. */
static void content_add(void *arg, const struct gcp_block_view *block)
{
	struct survey *survey = arg;
	struct gcp_span *last = spans.count ? &spans.at[spans.count - 1] : NULL;
	uint64_t end = last ? last->addr + last->bytes : 0;

	if (!block->content)
		return;
	assert(block->size > 0);
	survey->ordinary += block->ctx ? 0 : block->size;
	if (gcp_pools_exporter(gcp_process.pools, block->addr))
		survey->shared += block->size;
	if (!last || (end - 1) / CHUNK != block->addr / CHUNK ||
	    block->addr - end > GAP_MAX)
		survey->lacks_memory |= !gcp_spans_add(&spans, block);
	else {
		uint64_t more = block->addr + block->size - end;

		last->bytes += more;
		spans.bytes += more;
	}
}

static void contents_find(struct survey *survey)
{
	struct gcp_pools *pools = gcp_process.pools;

	gcp_spans_close(&spans);
	for (int device = 0; device <= gcp_pools_device_max(pools); device++)
		gcp_pools_blocks(pools, device, content_add, survey);
}

/* --- sleep --------------------------------------------------------------------- */

/* Returns 0 when all that was submitted is done. */
static int quiet_wait(uint64_t until, struct gcp_text *said)
{
	uint64_t number;
	int result;

	if (gcp_process_capturing()) {
		gcp_text_add(said, "a stream is being captured");
		return -EBUSY;
	}
	result = gcp_foreign_work_everywhere(&number);
	while (result == 0 && gcp_foreign_work_done() < number) {
		if (gcp_clock_ns() >= until || atomic_load(&gcp_gate.ends)) {
			gcp_text_add(said, "work of the device was not done in time");
			return -ETIMEDOUT;
		}
		gcp_sleep(PAUSE_NS);
	}
	assert(result != 0 || !gcp_foreign_work_is_pending(number));
	if (result != 0)
		gcp_text_add(said, "the device or the driver reports error %d", result);
	return result;
}

/* Finds what keeps the process from sleeping: memory that cannot go, or a call that is
 * not known. */
static int obstacle_find(struct survey *survey, struct gcp_text *said)
{
	const char *unknown = atomic_load(&gcp_gate.unknown);

	contents_find(survey);
	if (unknown)
		gcp_text_add(said, "%s is not known to this version", unknown);
	else if (gcp_third_party_dma_possible() ||
		 gcp_process.options.pool.completed_only)
		gcp_text_add(said, "RDMA, storage or another device may use memory by "
				   "itself: its library is loaded, or was told of "
				   "some, or GCPOOL_REUSE=completed says so");
	else if (survey->shared)
		gcp_text_add(said, "%llu bytes are open to other processes",
			     (unsigned long long)survey->shared);
	else if (survey->ordinary)
		gcp_text_add(said, "%llu bytes are in ordinary segments",
			     (unsigned long long)survey->ordinary);
	else
		return 0;
	return -ENOTSUP;
}

static int host_take(struct survey *survey, struct gcp_text *said)
{
	uint64_t room = *place ? UINT64_MAX : gcp_host_room(), bytes = spans.bytes;
	int error = survey->lacks_memory || bytes > room
			? ENOMEM
			: gcp_spans_open(&spans, place);

	if (error && *place) {
		gcp_text_add_bytes(said, "there can be no file of ", bytes);
		gcp_text_add(said, ": %s", gcp_errno_words(error));
	} else if (error) {
		gcp_text_add_bytes(said, "the host has no memory for it: it may take ",
				   room);
		gcp_text_add_bytes(said, " of ", bytes);
	}
	return -error;
}

/* Bytes that the pools of a device have taken; shared: of these in lanes. */
static uint64_t bytes_taken(int device, bool shared)
{
	struct gcp_stats stats;

	if (gcp_pools_stats(gcp_process.pools, device, &stats) != 0)
		return 0;
	return shared ? stats.lane_bytes.current : stats.reserved_bytes.current;
}

/* Gives unused memory and lanes back. The next launches map lanes again, so a wake
 * needs memory for them, too. */
static CUresult unused_give_back(void)
{
	int most = gcp_pools_device_max(gcp_process.pools);

	gcp_tracker_collect(gcp_process.tracker);
	(void)gcp_pools_trim(gcp_process.pools, -1, 0, true);
	for (int device = 0; device <= most && device < DEVICES_MAX; device++) {
		lanes[device] = bytes_taken(device, true);
		(void)gcp_share_trim(gcp_process.tracker, device, 0);
		if (bytes_taken(device, true) > 0)
			return CUDA_ERROR_NOT_READY;
	}
	return CUDA_SUCCESS;
}

/* The gate is closed. */
static int fall_asleep(uint64_t until, struct gcp_text *said)
{
	struct survey survey = {0};
	int result = obstacle_find(&survey, said);

	gcp_assert_held(GCP_RANK_SLEEP);
	assert(atomic_load(&gcp_gate.closed));
	if (result == 0)
		result = quiet_wait(until, said);
	if (result != 0)
		return result;
	if ((spans.count > 0 ? GCP_WITHIN(spans.at[0].ctx, unused_give_back())
			     : unused_give_back()) != CUDA_SUCCESS) {
		gcp_text_add(said, "graphs do not give back what they share");
		return -EBUSY;
	}
	contents_find(&survey); /* graphs that are gone had some */
	result = host_take(&survey, said);
	if (result != 0)
		return result;
	result = gcp_spans_copy(&spans, true);
	if (result == 0 && *place && msync(spans.host, spans.bytes, MS_SYNC) != 0)
		result = -errno;
	assert(atomic_load(&gcp_gate.inside) == 0 && !gcp_process_capturing()); /* Z1 */
	if (result == 0)
		gcp_pools_sleep(gcp_process.pools);
	else
		gcp_text_add(said, "copying to the host gives error %d", result);
	return result;
}

/* Adds the bytes that a sleep does not give back, as far as they are known. */
static void rest_add(struct gcp_text *said)
{
	struct gcp_pools *pools = gcp_process.pools;
	struct gcp_pinned_stats pinned = {0};
	uint64_t passed = 0;

	for (int device = 0; device <= gcp_pools_device_max(pools); device++)
		passed += gcp_pools_taken(pools, device) - bytes_taken(device, false);
	(void)gcp_pinned_stats(pools, &pinned);
	gcp_text_add_bytes(said, "; what stays: from CUDA itself ", passed);
	gcp_text_add_bytes(said, ", pinned ", pinned.allocated_bytes.current);
}

static int sleep_locked(uint64_t timeout_ms, struct gcp_text *said)
{
	uint64_t until = gcp_clock_ns() + (uint32_t)timeout_ms * UINT64_C(1000000);
	struct gcp_text text;
	int result = -ETIMEDOUT;

	gcp_assert_held(GCP_RANK_SLEEP);
	if (atomic_load(&gcp_gate.asleep)) {
		gcp_text_add(said, "the process is asleep already");
		return -EALREADY;
	}
	gcp_text_init(&text, place, sizeof(place));
	if (timeout_ms & GCP_SLEEP_IN_FILE)
		gcp_text_add(&text, "/dev/shm/gcpool.%u/%llu.%d.to", geteuid(),
			     (unsigned long long)gcp_process_namespace(), getpid());
	if (!gcp_gate_close(until)) {
		gcp_text_add(said, "calls of CUDA have not returned in time");
		return result;
	}
	result = fall_asleep(until, said);
	if (result == 0) {
		atomic_store(&gcp_gate.kept, spans.bytes);
		atomic_store(&gcp_gate.asleep, true);
		gave_up = false;
		gcp_text_add_bytes(
		    said, *place ? "asleep, a file keeps " : "asleep, the host keeps ",
		    spans.bytes);
		rest_add(said);
	} else {
		gcp_spans_close(&spans);
		atomic_store(&gcp_gate.closed, false);
	}
	return result;
}

int gcp_process_sleep(uint64_t timeout_ms, struct gcp_text *said)
{
	int result;

	if (!gcp_process_pooling()) {
		gcp_text_add(said, "the process has no memory of the library");
		return -ENOENT;
	}
	if (!gcp_gate.wait) {
		gcp_text_add(said, "the process was started without GCPOOL_CONTROL=1 "
				   "or GCPOOL_WAKE");
		return -EPERM;
	}
	if (gcp_thread.inside > 0) {
		gcp_text_add(said, "the thread is inside a call of CUDA");
		return -EBUSY;
	}
	GCP_LOCKED(&sleep_lock);
	result = sleep_locked(timeout_ms, said);
	gcp_log(GCP_LOG_INFO, "sleep: %s", said->bytes);
	return result;
}

/* --- wake ---------------------------------------------------------------------- */

/* Returns true if the device lacks memory for what was there. */
static bool is_lacking(CUcontext ctx, uint64_t bytes)
{
	size_t left = 0, total = 0;

	return GCP_WITHIN(ctx, gcp_real.cuMemGetInfo_v2(&left, &total)) ==
		   CUDA_SUCCESS &&
	       left < bytes;
}

/* Returns true if each device has memory for all of it. Asks other processes for what
 * is missing. Takes no memory itself: if one device lacked some, all would go back. */
static bool is_there(void)
{
	CUdevice device;
	uint64_t bytes;

	for (size_t i = 0; i < spans.count; i++) {
		CUcontext ctx = spans.at[i].ctx;

		if ((i > 0 && ctx == spans.at[i - 1].ctx) ||
		    !gcp_ctx_device(ctx, &device))
			continue;
		bytes = bytes_taken(device, false) +
			(device < DEVICES_MAX ? lanes[device] : 0);
		if (is_lacking(ctx, bytes) &&
		    (!gcp_help_ask(device, bytes, ctx) || is_lacking(ctx, bytes)))
			return false;
	}
	return true;
}

static int wake_try(void)
{
	int result = GCP_CUDA_OUT_OF_MEMORY;

	gcp_assert_held(GCP_RANK_SLEEP);
	if (!is_there())
		return result;
	result = gcp_pools_reopen(gcp_process.pools, -1);
	if (result == 0)
		result = gcp_spans_copy(&spans, false);
	if (result != 0)
		gcp_pools_sleep(gcp_process.pools);
	return result;
}

/* A peer that cannot be given access may lack memory, too (vm_open). */
static bool may_come(int result)
{
	return result == GCP_CUDA_OUT_OF_MEMORY || result == -EACCES;
}

static int wake_locked(bool by_call, uint64_t until)
{
	struct gcp_spans kept;
	int result;

	gcp_assert_held(GCP_RANK_SLEEP);
	if (!atomic_load(&gcp_gate.asleep))
		return -EALREADY;
	if (by_call && gave_up)
		until = 0;
	while (may_come(result = wake_try()) && gcp_clock_ns() < until &&
	       !atomic_load(&gcp_gate.ends))
		gcp_sleep(RETRY_NS);
	gave_up = result != 0;
	if (result != 0)
		return result;
	gcp_thread_watch();
	for (struct gcp_range *one; (one = gcp_ranges_first(&freed)); free(one)) {
		gcp_ranges_remove(&freed, one);
		if (gcp_process.observer)
			gcp_process.observer->freeing(one->at,
						      (struct gcp_observed_order){0});
		(void)gcp_pools_free(gcp_process.pools, one->at); /* Z6 */
	}
	(void)gcp_spill_return(false);
	kept = spans;
	spans = (struct gcp_spans){0};
	atomic_store(&gcp_gate.kept, 0);
	atomic_store(&gcp_gate.asleep, false);
	atomic_store(&gcp_gate.closed, false);
	gcp_spans_close(&kept); /* takes a while */
	return 0;
}

int gcp_process_wake(uint64_t by_call, struct gcp_text *said)
{
	uint64_t start = gcp_clock_ns();
	uint64_t until = start + gcp_process.options.wake_wait * 1000000000ull;
	int result = -EALREADY;

	if (gcp_gate.wait && gcp_thread.inside == 0) {
		gcp_mutex_lock(&sleep_lock);
		result = wake_locked(by_call == GCP_WAKE_BY_CALL, until);
		gcp_mutex_unlock(&sleep_lock);
	}
	if (result == 0)
		gcp_text_add(said, "awake after %llu ms",
			     (unsigned long long)(gcp_clock_ns() - start) / 1000000);
	else if (result == -EALREADY)
		gcp_text_add(said, "the process is awake");
	else
		gcp_text_add(said, "still asleep, %s (error %d)",
			     result == GCP_CUDA_OUT_OF_MEMORY
				 ? "the device has no memory for it"
				 : "the driver refuses its memory",
			     result);
	if (result != -EALREADY)
		gcp_log(result ? GCP_LOG_WARNING : GCP_LOG_INFO, "wake: %s",
			said->bytes);
	return result;
}

/* Waits for a second at most: blocks on the host work there, too. Memory that a device
 * may write by itself stays, as at a sleep. */
void gcp_process_unspill(void)
{
	uint64_t until = gcp_clock_ns() + UNSPILL_NS;
	GCP_TEXT(said, SAID_MAX);

	if (!gcp_gate.wait || gcp_thread.inside > 0 || !gcp_spill_return(true) ||
	    atomic_load(&gcp_gate.unknown) || gcp_third_party_dma_possible() ||
	    gcp_process.options.pool.completed_only)
		return;
	GCP_LOCKED(&sleep_lock);
	if (atomic_load(&gcp_gate.asleep) || !gcp_gate_close(until))
		return;
	if (quiet_wait(until, &said) == 0)
		(void)gcp_spill_return(false);
	atomic_store(&gcp_gate.closed, false);
}

uint64_t gcpool_trim(int device, uint64_t keep_bytes)
{
	uint64_t given;

	if (device < GCPOOL_HOST || !gcp_process_pooling() || gcp_gate_enter() != 0)
		return 0;
	gcp_tracker_collect(gcp_process.tracker);
	if (device == GCPOOL_HOST) {
		given = gcp_pinned_trim(gcp_process.pools, keep_bytes, false);
	} else {
		given = gcp_pools_trim(gcp_process.pools, device, keep_bytes, true) +
			gcp_share_trim(gcp_process.tracker, device, keep_bytes);
		gcp_spill_trim();
	}
	gcp_gate_leave();
	if (device != GCPOOL_HOST)
		gcp_process_unspill();
	return given;
}

static int answer(int (*call)(uint64_t timeout_ms, struct gcp_text *said),
		  uint64_t timeout_ms)
{
	GCP_TEXT(said, SAID_MAX);
	GCP_KEEP_ERRNO;

	return call(timeout_ms, &said);
}

int gcpool_sleep(unsigned timeout_ms)
{
	return answer(gcp_process_sleep, timeout_ms);
}

int gcpool_wake(void)
{
	return answer(gcp_process_wake, 0);
}

/* For calls at the gate. */
static int gate_wait(void)
{
	const struct timespec pause = {.tv_nsec = 10 * PAUSE_NS};
	int result = 0;

	if (atomic_load(&gcp_gate.ends))
		return CUDA_ERROR_DEINITIALIZED;
	if (gcp_process.options.wake == GCP_WAKE_MANUAL)
		(void)nanosleep(&pause, NULL); /* the thread may be cancelled */
	else
		result = answer(gcp_process_wake, GCP_WAKE_BY_CALL);
	if (result == -EALREADY)
		return 0;
	return result < 0 ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

/* Of a thread inside another call nothing is noted: that call waits. */
static bool free_note(CUdeviceptr addr)
{
	struct gcp_range key = {.at = addr, .bytes = 1}, *one;
	struct gcp_block_info info;

	if (gcp_thread.inside > 0)
		return false;
	GCP_LOCKED(&sleep_lock);
	if (!atomic_load(&gcp_gate.asleep))
		return false;
	if (gcp_pools_held(gcp_process.pools, addr, &info) != 0) {
		if (gcp_spill_free(addr, false) != 0)
			return false;
		gcp_observe_call(GCP_TRACE_pass_free, addr, 0, gcp_clock_ns(), 0);
		return true;
	}
	one = gcp_ranges_from(&freed, &key);
	if ((one && one->at == addr) || !(one = malloc(sizeof(*one))))
		return false;
	*one = key;
	gcp_ranges_insert(&freed, one);
	return true;
}

/* At exit no call wakes the process. */
static void process_ends(void)
{
	atomic_store(&gcp_gate.ends, true);
}

void gcp_sleep_start(void)
{
	if (gcp_process.options.wake == GCP_WAKE_OFF || atexit(process_ends) != 0)
		return;
	gcp_process.special = true;
	gcp_gate.begins = gcp_thread_watch;
	gcp_gate.free_later = free_note;
	gcp_gate.wait = gate_wait;
}
