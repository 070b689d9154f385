/* SPDX-License-Identifier: MIT */
/*
 * ipc_exports.c - see ipc_exports.h.
 *
 * CUDA wants memory to be freed only when other processes have closed it, and all of
 * them may do that late, end, or never do it: plain CUDA keeps the memory until then,
 * and gives the addresses to others meanwhile. Here the block is lent: the pool knows
 * its state.
 *
 *      exported -- free, not open --> the pool's
 *          |                             ^
 *          +-- free, open --> lent ------+  closed by the last one
 *
 * A handle is good until the free: nothing opens a lent block.
 *
 * Rules of exported memory:
 *  I1 no free takes a block that another process may have open
 *  I2 an exported block is freed behind all work of its context
 *  I3 memory that another process has open is given to nothing else
 *  I4 what is opened begins where the block begins
 *  I5 a block is exported when earlier work on its memory is completed
 *  I6 memory is handed to processes of the same user and of root alone
 *  I7 a handle that is released has no file (handle_files.c)
 */
#include "ipc_exports.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "../base/process.h"

enum { BUCKETS = 1024, FILES_READY = 4 }; /* files: 0.6 ms each */

struct export
{
	uint64_t id;
	gcp_addr addr;
	uint64_t bytes; /* that the program asked for */
	CUcontext ctx;
	uint64_t opens; /* of other processes, not closed yet */
	struct export *next;
};

CUresult (*gcp_exports_file)(uint64_t handle, int *ret_fd);
struct gcp_mutex gcp_exports_lock = GCP_MUTEX(GCP_RANK_EXPORTS);
/* By address; no two have the same. Guarded by the lock. */
static struct export *exports[BUCKETS];
static uint64_t last_id;

/* --- the table ------------------------------------------------------------------- */

/* Returns the link that points to the export, or to the end of the list. */
static struct export **export_at(gcp_addr addr)
{
	gcp_assert_held(GCP_RANK_EXPORTS);
	struct export **at = &exports[(addr >> 9 ^ addr >> 19) % BUCKETS];

	while (*at && (*at)->addr != addr)
		at = &(*at)->next;
	return at;
}

static void export_remove(struct export **at)
{
	gcp_assert_held(GCP_RANK_EXPORTS);
	struct export *export = *at;

	*at = export->next;
	free(export);
}

/* --- exporting ------------------------------------------------------------------- */

/* gcp_pools_for_each_handle: makes the files that other processes will ask for, of the
 * first handles of a block. Returns true at the last one, which ends the walk. */
static int file_ready(void *left, uint64_t handle, gcp_addr addr, uint64_t bytes)
{
	int fd;

	(void)addr, (void)bytes;
	if (gcp_exports_file(handle, &fd) == CUDA_SUCCESS)
		close(fd);
	return --*(int *)left == 0;
}

/* An entry of an earlier block at this address is overwritten: that block went without
 * a free, when a graph pool was set back to an earlier state. */
static int export_add(const struct gcp_block_info *info, uint64_t *ret_id)
{
	gcp_assert_held(GCP_RANK_EXPORTS);
	int result = gcp_pools_export(gcp_process.pools, info->addr);
	struct export **at = export_at(info->addr);
	bool fresh = result == 0 || !*at;

	if (result < 0 && result != -EALREADY)
		return result;
	if (!*at)
		*at = calloc(1, sizeof(**at));
	if (!*at) {
		(void)gcp_pools_unexport(gcp_process.pools, info->addr);
		return -ENOMEM;
	}
	if (fresh)
		**at = (struct export){
		    .id = ++last_id,
		    .addr = info->addr,
		    .bytes = info->requested,
		    .ctx = info->ctx,
		    .next = (*at)->next,
		};
	assert((*at)->ctx == info->ctx);
	*ret_id = (*at)->id;
	return 0;
}

int gcp_exports_add(const struct gcp_block_info *info, uint64_t *ret_id)
{
	int result;

	*ret_id = 0;
	if (!info->mapped) {
		result = gcp_pools_export(gcp_process.pools, info->addr);
		return result == -EALREADY ? 0 : result;
	}
	gcp_mutex_lock(&gcp_exports_lock);
	result = export_add(info, ret_id);
	if (result == 0)
		(void)gcp_pools_for_each_handle(gcp_process.pools, info->addr,
						info->addr, file_ready,
						&(int){FILES_READY});
	gcp_mutex_unlock(&gcp_exports_lock);
	return result;
}

/* --- freeing --------------------------------------------------------------------- */

int gcp_exports_free(gcp_addr addr, bool waits, void (*catch_up)(void))
{
	struct gcp_block_info info;
	struct export **at;
	int waited = 0, result;
	bool unused;

	/* cudaFree of stream-ordered memory does not wait, exported or not. */
	if (waits &&
	    (gcp_pools_held(gcp_process.pools, addr, &info) != 0 || !info.async))
		waited = gcp_pools_finish(gcp_process.pools, addr);
	if (waited < 0)
		return -EINVAL;
	/* Waiting during a capture takes memory, if little, and there is none: the
	 * block's epoch alone keeps its memory from being used too early. */
	if (waited == GCP_CUDA_OUT_OF_MEMORY)
		waited = 0;
	gcp_mutex_lock(&gcp_exports_lock);
	catch_up(); /* another process may have closed it already, and said so */
	at = export_at(addr);
	unused = !*at || (*at)->opens == 0;
	result = unused ? gcp_pools_unexport(gcp_process.pools, addr)
			: gcp_pools_lend(gcp_process.pools, addr);
	if (result == 0 && unused && *at)
		export_remove(at);
	gcp_mutex_unlock(&gcp_exports_lock);
	if (result != 0)
		return -EINVAL; /* it is lent: freed twice */
	if (unused)
		result = waits ? gcp_pools_free(gcp_process.pools, addr)
			       : gcp_pools_free_async(gcp_process.pools, addr, 0);
	return result == 0 ? waited : result;
}

/* --- other processes ------------------------------------------------------------- */

bool gcp_exports_open(gcp_addr addr, uint64_t id, uint64_t *ret_bytes)
{
	struct export *export = *export_at(addr);

	if (!export || export->id != id ||
	    !gcp_pools_is_exported(gcp_process.pools, addr))
		return false;
	assert(!gcp_pools_is_lent(gcp_process.pools, addr));
	export->opens++;
	*ret_bytes = export->bytes;
	return true;
}

/* Where its context may be ending a lent block goes with it, or later:
 * gcp_exports_take_back. The free has waited for the work of this process. */
void gcp_exports_close(gcp_addr addr, uint64_t id)
{
	struct export **at = export_at(addr);

	if (*at && (*at)->id == id && (*at)->opens > 0 && --(*at)->opens == 0 &&
	    gcp_pools_take_back(gcp_process.pools, addr) == 0)
		export_remove(at);
}

/* --- ends ------------------------------------------------------------------------ */

/* Of a context that is gone, or, for NULL, what is lent and nothing has open. */
static bool export_goes(const struct export *export, CUcontext ctx)
{
	gcp_assert_held(GCP_RANK_EXPORTS);
	return ctx ? export->ctx == ctx
		   : export->opens == 0 &&
			 gcp_pools_take_back(gcp_process.pools, export->addr) == 0;
}

void gcp_exports_context_gone(CUcontext ctx)
{
	gcp_mutex_lock(&gcp_exports_lock);
	for (int i = 0; i < BUCKETS; i++)
		for (struct export **at = &exports[i]; *at;)
			if (export_goes(*at, ctx))
				export_remove(at);
			else
				at = &(*at)->next;
	gcp_mutex_unlock(&gcp_exports_lock);
}

void gcp_exports_take_back(void)
{
	gcp_exports_context_gone(NULL);
}

void gcp_exports_context_stays(CUcontext ctx)
{
	(void)ctx;
	gcp_exports_take_back();
}

void gcp_exports_after_fork(void)
{
	gcp_mutex_init(&gcp_exports_lock, GCP_RANK_EXPORTS);
	for (int i = 0; i < BUCKETS; i++)
		exports[i] = NULL;
}
