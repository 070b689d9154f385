/* SPDX-License-Identifier: MIT */
/*
 * oracle.c - what must hold after each step and at the end, and how a child says
 * that it does not.
 */
#include "explore.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <unistd.h>

#include "gcpool.h"

struct library library;

void oracle_init(void)
{
	gcpsim_plain_watch();
#define LIBRARY_ROW(result, name, parameters, function)                                \
	*(void **)&library.name = dlsym(RTLD_DEFAULT, #function);
	EXPLORE_LIBRARY(LIBRARY_ROW)
}

/* --- saying that something is wrong --- */

void failure(struct model *w, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(outcome->why, sizeof(outcome->why), format, args);
	va_end(args);
	outcome->step = w->step;
	outcome->failed = 1;
	_exit(1);
}

/* What a planned fault may lead to, and the program has been told, or would have been
 * by plain CUDA; from there on it is another program. */
static bool is_told(const struct model *w, CUresult result)
{
	const char *name = w->setting->fault ? w->setting->fault->name : "";
	bool of_memory = strcmp(name, FAULT_MEMORY) == 0;
	bool of_captures = strncmp(name, "cuStreamGetCaptureInfo", 22) == 0;

	/* A wait for an event was refused after the stream had joined the capture: what
	 * the library must know then cannot be asked, or written down. The stream is
	 * captured all the same, can join no other capture, and the legacy one, which
	 * it waits for, refuses work. */
	if ((of_memory || of_captures) &&
	    (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
	     result == CUDA_ERROR_STREAM_CAPTURE_ISOLATION))
		return true;
	/* Without memory for its books the library leaves a context to plain CUDA,
	 * which refuses this during captures. */
	if (of_memory && result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
		return true;
	/* Nor does the program join that stream. */
	if (of_memory || of_captures)
		return result == CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	/* A peer that could not be let in: one line says so. */
	return strcmp(name, "cuMemSetAccess") == 0 && w->setting->devices > 1 &&
	       result == CUDA_ERROR_ILLEGAL_ADDRESS;
}

bool fine(struct model *w, CUresult result, const char *call)
{
	const char *end = strchr(call, '(');

	if (result == CUDA_SUCCESS)
		return true;
	if (fault_gives(w, result))
		return false;
	if (plain_is_spoilt(w) && is_told(w, result)) {
		excused(EXCUSE_FAULT);
		outcome->done = 1;
		_exit(0);
	}
	failure(w, "%.*s gives %d", end ? (int)(end - call) : (int)strlen(call), call,
		(int)result);
}

bool fine_query(struct model *w, CUresult result)
{
	return result != CUDA_ERROR_NOT_READY && fine(w, result, "query");
}

/* --- after each step --- */

static void findings_check(struct model *w)
{
	if (gcpsim_hazards() + gcpsim_disorders() + gcpsim_faults() > 0)
		failure(w, "%s", gcpsim_last_report());
	if (gcpsim_misuses() > 0)
		failure(w, "misuse: %s", gcpsim_last_report());
	plain_waits_check(w);
	if (gcpsim_new_orders() > 0 && !plain_is_spoilt(w))
		failure(w, "%s", gcpsim_last_report());
	if (gcpsim_invalidated() != w->invalidated)
		failure(w, "a capture was invalidated, and not by the program");
}

static void invariants_check(struct model *w)
{
	const char *broken = library.check ? library.check() : NULL;

	/* The library's thread may be about to free what another process closed. */
	for (int tries = 0; tries < 5000 && broken && w->closed_late; tries++) {
		usleep(1000);
		broken = library.check();
	}
	if (broken)
		failure(w, "invariant: %s", broken);
}

static void peaks_check(struct model *w, int device, const struct gcpool_stats *stats,
			uint64_t blocks, uint64_t bytes)
{
	if (w->peak_blocks[device] < blocks)
		w->peak_blocks[device] = blocks;
	if (w->peak_bytes[device] < bytes)
		w->peak_bytes[device] = bytes;
	if ((stats->allocation.peak < w->peak_blocks[device] ||
	     stats->requested_bytes.peak < w->peak_bytes[device]) &&
	    !fault_excuses(w))
		failure(w,
			"device %d: peaks of %lu blocks and %lu bytes are called "
			"%lu and %lu",
			device, w->peak_blocks[device], w->peak_bytes[device],
			stats->allocation.peak, stats->requested_bytes.peak);
}

static void device_check(struct model *w, int device)
{
	struct gcpool_stats stats;
	uint64_t count = 0, bytes = 0;
	uint64_t given =
	    w->setting->vmm ? gcpsim_memory_used(device) : gcpsim_memory_live(device);

	if (!library.get_stats || w->setting->leak ||
	    library.get_stats(device, &stats, sizeof(stats)) != 0)
		return;
	for (const struct block *block = w->blocks; block; block = block->next)
		if (block->live && !block->host && !block->borrowed && !block->passed &&
		    block->device == device) {
			bytes += block->bytes;
			count++;
		}
	peaks_check(w, device, &stats, count, bytes);
	/* What is freed while the process is asleep counts until it wakes. */
	if (library.asleep() ? stats.allocation.current < count
			     : stats.allocation.current != count)
		failure(w, "device %d: %lu blocks are live, the library says %lu",
			device, count, stats.allocation.current);
	if (library.asleep() ? stats.requested_bytes.current < bytes
			     : stats.requested_bytes.current != bytes)
		failure(w, "device %d: %lu bytes are live, the library says %lu",
			device, bytes, stats.requested_bytes.current);
	if (w->setting->quota && stats.reserved_bytes.current > w->setting->quota)
		failure(w, "device %d: %lu bytes are taken, the quota is %lu", device,
			stats.reserved_bytes.current, w->setting->quota);
	if (gcpsim_memory_used(-2) > w->setting->spill)
		failure(w, "%lu bytes of the host are taken, %lu may be",
			gcpsim_memory_used(-2), w->setting->spill);
	if (stats.hits + stats.misses < w->allocations[device] && !fault_excuses(w))
		failure(w, "device %d: %lu hits and %lu misses, of %lu allocations",
			device, stats.hits, stats.misses, w->allocations[device]);
	if ((stats.reserved_bytes.current > given && !library.asleep()) ||
	    stats.allocated_bytes.current > stats.active_bytes.current ||
	    stats.active_bytes.current > stats.reserved_bytes.current)
		failure(w,
			"device %d: allocated %lu, active %lu, reserved %lu, and "
			"the driver gave %lu",
			device, stats.allocated_bytes.current,
			stats.active_bytes.current, stats.reserved_bytes.current,
			given);
}

/* Without what the library left to CUDA: pinned.c says when it may. */
static void host_check(struct model *w)
{
	uint64_t quota = plain_option("GCPOOL_HOST_QUOTA", 0); /* 0: none */
	struct gcpool_host_stats stats;
	uint64_t count = 0, bytes = 0;

	if (w->setting->leak || !library.get_host_stats ||
	    library.get_host_stats(&stats, sizeof(stats)) != 0)
		return;
	for (const struct block *block = w->blocks; block; block = block->next)
		if (block->live && block->host && !block->foreign && !block->passed) {
			bytes += block->bytes;
			count++;
		}
	if (stats.active_requests.current > count ||
	    stats.requested_bytes.current > bytes ||
	    ((stats.active_requests.current != count ||
	      stats.requested_bytes.current != bytes) &&
	     !fault_excuses(w)))
		failure(w,
			"%lu blocks, %lu bytes of pinned memory are live, the "
			"library says %lu, %lu",
			count, bytes, stats.active_requests.current,
			stats.requested_bytes.current);
	if (stats.requested_bytes.current > stats.active_bytes.current ||
	    stats.active_bytes.current > stats.allocated_bytes.current ||
	    stats.allocated_bytes.current > gcpsim_memory_live(-1))
		failure(w, "pinned: active %lu, allocated %lu, the driver gave %lu",
			stats.active_bytes.current, stats.allocated_bytes.current,
			gcpsim_memory_live(-1));
	if (quota && stats.allocated_bytes.current > quota)
		failure(w, "%lu bytes are pinned, the quota is %lu",
			stats.allocated_bytes.current, quota);
}

void oracle_books(struct model *w)
{
	if (w->setting->plain || !library.active)
		return;
	if (!library.active())
		failure(w, "the library has ended, and nothing has made it end");
	invariants_check(w);
	for (int i = 0; i < w->setting->devices; i++)
		device_check(w, i);
	host_check(w);
}

void oracle_step(struct model *w)
{
	findings_check(w);
	plain_step(w);
	if (w->setting->check_often)
		oracle_books(w);
	gcpsim_plain_returned();
}

void oracle_counter(struct model *w, int slot)
{
	const struct context *context = &w->contexts[slot];
	uint64_t wrong = 0;

	if (!context->live || !context->counter)
		return;
	gcpsim_peek(context->counter->addr, &wrong, 8);
	if (wrong > 0)
		failure(w, "kernels found %lu wrong words", wrong);
}

/* --- at the end --- */

static uint64_t allocations(const struct model *w)
{
	uint64_t count = 0;

	for (int i = 0; i < w->setting->devices; i++)
		count += w->setting->vmm ? gcpsim_memory_used(i) > 0 /* is none */
					 : gcpsim_allocations(i);
	return count + gcpsim_memory_used(-2);
}

/* What CUDA served streams with it keeps until it is told to give it back. */
static void default_pools_trim(const struct model *w)
{
	CUmemoryPool pool;

	for (int i = 0; w->passed_async && i < w->setting->devices; i++) {
		if (cuDeviceGetDefaultMemPool(&pool, i) == CUDA_SUCCESS)
			(void)cuMemPoolTrimTo(pool, 0);
		if (w->own_pools[i])
			(void)cuMemPoolTrimTo(w->own_pools[i], 0);
	}
}

/* Threads of the driver and of the library may need a moment, on a busy machine a long
 * one. */
static void trim_all(struct model *w)
{
	gcpsim_plain_asks(1);
	for (int tries = 0; tries < 5000; tries++) {
		for (int i = 0; library.trim && i < w->setting->devices; i++)
			library.trim(i, 0);
		default_pools_trim(w);
		if (w->left || allocations(w) == 0)
			return;
		usleep(1000);
	}
}

static bool is_left(const struct model *w)
{
	if (w->left && !w->setting->leak && !w->setting->plain)
		excused(plain_is_spoilt(w) ? EXCUSE_FAULT : EXCUSE_LEFT);
	return w->left;
}

static void lost_note(struct model *w)
{
	w->left |= plain_is_spoilt(w) && (w->setting->fault->loses ||
					  (library.keeps_some && library.keeps_some()));
}

/* Everything was freed: the driver gets all of it back. */
void oracle_end(struct model *w)
{
	gcpsim_drain();
	oracle_step(w);
	oracle_books(w);
	if (gcpsim_pending() > 0)
		failure(w, "%lu operations never end", gcpsim_pending());
	lost_note(w);
	trim_all(w);
	oracle_step(w);
	if (gcpsim_user_objects() > 0)
		failure(w, "%lu user objects are left", gcpsim_user_objects());
	if (allocations(w) > 0 && !is_left(w))
		failure(w, "%lu allocations of %lu and %lu bytes are never given back",
			allocations(w), gcpsim_memory_live(0), gcpsim_memory_live(1));
}

static void finish(struct model *w)
{
	gcpsim_drain();
	gcpsim_plain_asks(1);
	default_pools_trim(w);
	lost_note(w);
	library.finish();
	findings_check(w);
	if ((allocations(w) > 0 || gcpsim_memory_live(-1) > 0) && !is_left(w))
		failure(w,
			"%lu allocations of %lu and %lu bytes, %lu pinned, are not "
			"in the books",
			allocations(w), gcpsim_memory_live(0), gcpsim_memory_live(1),
			gcpsim_memory_live(-1));
}

static struct model *finishes_at_exit;

static void finish_at_exit(void)
{
	if (finishes_at_exit)
		finish(finishes_at_exit);
}

/* Handlers are called in turn from the last one on: that of the library, which ends its
 * threads, is not there yet. */
void oracle_finish_prepare(void)
{
	(void)atexit(finish_at_exit);
}

void oracle_finish(struct model *w)
{
	if (w->setting->plain || !library.finish || !library.active ||
	    !library.active())
		return;
	finishes_at_exit = w;
}
