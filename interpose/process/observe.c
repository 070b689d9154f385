/* SPDX-License-Identifier: MIT */
/*
 * observe.c - see observe.h. libgcpool-observe.so is looked for in the directory that
 * this library was loaded from, which the loader noted then ($ORIGIN).
 */
#include <dlfcn.h>
#include <stdlib.h>

#include "../cuda/gate.h"
#include "calling_thread.h"
#include "../observe/live.h"
#include "observe.h"
#include "help.h"
#include "sleep.h"

#define LIBRARY "libgcpool-observe.so"

typedef __typeof__(gcpool_observe) open_fn;

static open_fn *_Atomic library; /* its entry */

static uint64_t ranks_held(void)
{
	return gcp_ranks_held;
}

static int thread_device(void)
{
	return gcp_thread.device;
}

static int request_serve(uint32_t kind, int device, uint64_t argument,
			 uint64_t *ret_answer, struct gcp_text *said)
{
	if (kind == GCP_LIVE_SLEEP || kind == GCP_LIVE_WAKE)
		return abs((kind == GCP_LIVE_SLEEP ? gcp_process_sleep
						   : gcp_process_wake)(argument, said));
	if (kind != GCP_LIVE_TRIM && kind != GCP_LIVE_HELP &&
	    (kind != GCP_LIVE_QUOTA || !argument))
		return ENOSYS;
	*ret_answer = 0;
	if (!gcp_gate_try()) {
		if (kind != GCP_LIVE_HELP) /* which reads no words */
			gcp_text_add(said, "the process is asleep");
		return EALREADY;
	}
	if (kind == GCP_LIVE_QUOTA)
		gcp_pools_set_quota(gcp_process.pools, argument);
	else if (kind == GCP_LIVE_HELP)
		*ret_answer = gcp_help_give(device, argument);
	else
		for (int i = 0; i <= gcp_pools_device_max(gcp_process.pools); i++)
			*ret_answer += gcpool_trim(i, argument);
	gcp_gate_leave();
	if (kind == GCP_LIVE_TRIM)
		gcp_process_unspill();
	return 0;
}

#define SERVICE(name) .name = gcp_##name,
static const struct gcp_services services = {
    .process = &gcp_process,
    .real = &gcp_real,
    .request = request_serve,
    .ranks_held = ranks_held,
    .device = thread_device,
    GCP_SERVICES(SERVICE) /* the others */
};

/* --- load -------------------------------------------------------------------- */

static bool is_wanted(const struct gcp_options *options)
{
	return options->mode == GCP_MODE_POOL &&
	       (options->trace_file[0] || options->live || options->debug);
}

static void library_load(void)
{
	void *(*load)(const char *, int), *(*find)(void *, const char *), *found;
	char *(*error_take)(void);

	*(void **)&load = gcp_elf_libc_symbol("dlopen");
	*(void **)&find = gcp_elf_libc_symbol("dlsym");
	*(void **)&error_take = gcp_elf_libc_symbol("dlerror");
	if (!load || !find || !error_take)
		return;
	found = load("$ORIGIN/" LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (found)
		atomic_store(&library, (open_fn *)find(found, GCP_OBSERVE_ENTRY));
	(void)error_take(); /* the program's calls have not failed */
}

void gcp_observe_load(void)
{
	struct gcp_options options;
	GCP_KEEP_ERRNO;

	(void)gcp_options_look(&options, false);
	if (is_wanted(&options))
		library_load();
}

void gcp_observe_start(const struct gcp_options *options)
{
	open_fn *open = atomic_load(&library);

	gcp_assert_held(GCP_RANK_START);
	assert(!gcp_process.instruments && !gcp_process.pools); /* before the pools */
	if (!is_wanted(options))
		return;
	if (!open || !open(GCP_OBSERVE_VERSION, &services, &gcp_process.instruments))
		gcp_log(GCP_LOG_WARNING,
			"no " LIBRARY " of this version beside libgcpool.so, going "
			"on without recordings, live view and GCPOOL_DEBUG");
	if (gcp_process.instruments && gcp_process.instruments->events) {
		gcp_process.observer = gcp_process.instruments;
		gcp_process.special = true;
		gcp_process.alloc_asks = &gcp_always;
	}
}

/* --- device memory ----------------------------------------------------------- */

static uint64_t margin_wanted(void)
{
	return gcp_process.observer ? gcp_process.observer->margin() : 0;
}

/* Tells what an allocation has given. */
static int told(int result, const gcp_addr *addr, struct gcp_observed_order order)
{
	assert(result != 0 || *addr);
	if (result == 0 && gcp_process.observer)
		gcp_process.observer->allocated(*addr, order);
	return result;
}

/* With a margin behind the block, if memory is there for it. */
int gcp_observe_alloc(struct gcp_pool *pool, uint64_t bytes, gcp_addr *ret_addr)
{
	uint64_t margin = margin_wanted();
	int result = GCP_CUDA_OUT_OF_MEMORY;

	if (margin) {
		gcp_tracker_collect(gcp_process.tracker);
		result = gcp_pool_alloc_margin(pool, bytes, margin, ret_addr);
	}
	if (result == GCP_CUDA_OUT_OF_MEMORY)
		result = gcp_tracker_alloc(gcp_process.tracker, pool, gcp_thread.ctx,
					   gcp_thread.stream, bytes, ret_addr);
	return told(result, ret_addr, (struct gcp_observed_order){0});
}

int gcp_observe_alloc_async(struct gcp_pool *pool, uint64_t bytes, void *stream,
			    struct gcp_stream_order *order, gcp_addr *ret_addr)
{
	uint64_t margin = margin_wanted();
	int result = gcp_pool_alloc_stream(pool, bytes, margin, order, ret_addr);

	if (margin && result == GCP_CUDA_OUT_OF_MEMORY)
		result = gcp_pool_alloc_stream(pool, bytes, 0, order, ret_addr);
	return told(result, ret_addr, (struct gcp_observed_order){true, true, stream});
}

int gcp_observe_free(gcp_addr addr)
{
	if (gcp_process.observer)
		gcp_process.observer->freeing(addr, (struct gcp_observed_order){0});
	return gcp_pools_free(gcp_process.pools, addr);
}

int gcp_observe_free_async(gcp_addr addr, uint64_t order, void *stream)
{
	if (gcp_process.observer)
		gcp_process.observer->freeing(
		    addr, (struct gcp_observed_order){true, order != 0, stream});
	return gcp_pools_free_async(gcp_process.pools, addr, order);
}
