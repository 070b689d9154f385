/* SPDX-License-Identifier: MIT */
/*
 * ipc_imports.c - see ipc_imports.h.
 *
 * The parts of a block come as file descriptors, and are mapped side by side as they
 * are in the other process, which maps them in a row:
 *
 *      there   | part  | part  | part  |          here   | part  | part  | part  |
 *                 |    block      |                         |    block      |
 *
 * What the parts hold beside the block is reachable, too, as what lies beside a block
 * in a driver allocation is on plain CUDA.
 *
 * There is one connection to each process of which something is open. asking_lock is
 * held while the other process is asked. Its thread that answers takes no lock that is
 * held over such a call there, so two processes can open each other's memory.
 */
#include "ipc_imports.h"
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "../cuda/contexts.h"
#include "../cuda/ctx_scope.h"
#include "../cuda/cuda_vmm.h"
#include "ipc_server.h"
#include "../base/process.h"
#include "../cuda/resolve.h"

enum { PAUSE_NS = 20 * 1000 * 1000 };
enum { ENDED = CUDA_ERROR_NOT_READY }; /* the connection has */

struct link {
	struct gcp_ipc_process process; /* the other one */
	int fd;                         /* of the connection */
	bool broken;                    /* nothing can be asked any more */
	uint64_t users;                 /* imports */
	LIST_ENTRY(link) entry;
};

struct import {
	struct link *link;
	struct gcp_ipc_request request; /* of the block; `open`: no other one has it */
	struct gcp_import_info info;
	CUdeviceptr base;      /* of what is mapped */
	uint64_t span, mapped; /* bytes that are reserved, and that are mapped */
	int location;          /* the device of the memory */
	uint64_t opens;        /* by the program, not closed yet */
	LIST_ENTRY(import) entry;
};

/* Memory that CUDA has opened for a handle with an offset. The program's pointer is not
 * the one that CUDA gave. */
struct ordinary {
	CUdeviceptr ptr, base;
	CUcontext ctx; /* in which it was opened */
	LIST_ENTRY(ordinary) entry;
};

/* The first one is held while another process is asked; the second one, taken under it
 * or alone, only for a moment, so that what is open can be found meanwhile. */
static struct gcp_mutex asking_lock = GCP_MUTEX(GCP_RANK_ASKING);
static struct gcp_mutex imports_lock = GCP_MUTEX(GCP_RANK_IMPORTS);
static LIST_HEAD(, link) links; /* guarded by asking_lock */
static uint64_t last_open;
static LIST_HEAD(, import) imports; /* changed under both locks, read under one */
static _Atomic(uint64_t) imports_count;
static LIST_HEAD(, ordinary) ordinaries; /* guarded by imports_lock */

/* --- the other process ----------------------------------------------------------- */

static bool is_to(const struct link *link, const struct gcp_ipc_handle *handle)
{
	return memcmp(&link->process, &handle->process, sizeof(link->process)) == 0;
}

static CUresult link_get(const struct gcp_ipc_handle *handle, long deadline,
			 struct link **ret_link)
{
	gcp_assert_held(GCP_RANK_ASKING);
	CUresult result;
	struct link *link;

	LIST_FOREACH (link, &links, entry)
		if (!link->broken && is_to(link, handle)) {
			link->users++;
			*ret_link = link;
			return CUDA_SUCCESS;
		}
	*ret_link = link = calloc(1, sizeof(*link));
	result = link ? gcp_ipc_connect(&handle->process, deadline, &link->fd)
		      : CUDA_ERROR_OUT_OF_MEMORY;
	if (result != CUDA_SUCCESS) {
		free(link);
		return result;
	}
	assert(link->fd >= 0);
	link->process = handle->process;
	link->users = 1;
	LIST_INSERT_HEAD(&links, link, entry);
	return CUDA_SUCCESS;
}

/* The connection of one that is closed, or was refused. */
static void link_put(struct link *link)
{
	gcp_assert_held(GCP_RANK_ASKING);
	assert(link->users > 0);
	if (--link->users > 0)
		return;
	LIST_REMOVE(link, entry);
	close(link->fd);
	free(link);
}

/* Waits until there is room, but not where that was in vain before. False: in vain. */
static bool request_send(struct import *import, enum gcp_ipc_op op, long deadline)
{
	gcp_assert_held(GCP_RANK_ASKING);
	struct link *link = import->link;

	import->request.op = op;
	link->broken |=
	    !gcp_ipc_send(link->fd, &import->request, sizeof(import->request), NULL, 0,
			  link->broken ? GCP_IPC_NO_WAIT : deadline);
	return !link->broken;
}

static CUresult import_ask(struct import *import, long deadline,
			   struct gcp_ipc_answer *answer, int *fds,
			   unsigned int *ret_count)
{
	gcp_assert_held(GCP_RANK_ASKING);
	struct link *link = import->link;
	enum gcp_ipc_got got = GCP_IPC_ENDED;

	if (request_send(import, GCP_IPC_OPEN, deadline))
		got = gcp_ipc_receive(link->fd, answer, sizeof(*answer), fds, ret_count,
				      deadline);
	if (got == GCP_IPC_MESSAGE && answer->reply == link->process.reply)
		return (CUresult)answer->result;
	link->broken = true;
	return got == GCP_IPC_ENDED ? (CUresult)ENDED : CUDA_ERROR_OPERATING_SYSTEM;
}

/* --- mapping --------------------------------------------------------------------- */

/* To the device of the context, and to all that can reach the memory, as the library's
 * own: peers of the context's device may use it, and copies between devices may. */
static CUresult access_set(const struct import *import)
{
	gcp_assert_held(GCP_RANK_ASKING);
	uint64_t users = gcp_vmm_users(import->location, import->info.device);

	if (!(users >> import->info.device & 1))
		return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	return gcp_vmm_open_to(users, import->base, import->span);
}

void gcp_imports_device_joined(int device)
{
	struct import *import;

	if (atomic_load(&imports_count) == 0)
		return;
	GCP_LOCKED(&asking_lock);
	LIST_FOREACH (import, &imports, entry)
		if (gcp_vmm_users(import->location, import->info.device) >> device & 1)
			(void)access_set(import);
}

/* The next part. */
static CUresult part_map(struct import *import, int fd, uint64_t bytes)
{
	gcp_assert_held(GCP_RANK_ASKING);
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp properties = {.location.id = import->location};
	CUresult result = gcp_real.cuMemImportFromShareableHandle(
	    &handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

	if (result != CUDA_SUCCESS)
		return result;
	if (import->mapped == 0)
		result = gcp_real.cuMemGetAllocationPropertiesFromHandle(&properties,
									 handle);
	import->location = properties.location.id;
	if (result == CUDA_SUCCESS)
		result = gcp_real.cuMemMap(import->base + import->mapped, bytes, 0,
					   handle, 0);
	if (result == CUDA_SUCCESS)
		import->mapped += bytes;
	(void)gcp_real.cuMemRelease(handle);
	return result;
}

/* The parts of one answer; `fds` are closed. */
static CUresult answer_map(struct import *import, const struct gcp_ipc_answer *answer,
			   const int *fds, unsigned int count)
{
	gcp_assert_held(GCP_RANK_ASKING);
	CUresult result = CUDA_SUCCESS;

	if (!import->base) {
		import->span = answer->span;
		result =
		    gcp_real.cuMemAddressReserve(&import->base, import->span, 0, 0, 0);
		import->info.ptr = import->base + answer->before;
		import->info.bytes = answer->bytes;
	}
	if (count == 0 || count != answer->count)
		result = CUDA_ERROR_OPERATING_SYSTEM;
	assert(count <= GCP_IPC_PARTS);
	for (unsigned int i = 0; i < count; i++) {
		if (result == CUDA_SUCCESS)
			result = part_map(import, fds[i], answer->parts[i]);
		close(fds[i]);
	}
	return result;
}

/* Unmaps the memory, and then tells the exporter that it is closed. */
static void import_unmap(struct import *import)
{
	gcp_assert_held(GCP_RANK_ASKING);
	assert(import->mapped <= import->span || !import->base);
	if (import->mapped > 0)
		(void)gcp_real.cuMemUnmap(import->base, import->mapped);
	if (import->base)
		(void)gcp_real.cuMemAddressFree(import->base, import->span);
	(void)request_send(import, GCP_IPC_CLOSE, gcp_ipc_deadline(GCP_IPC_ROOM_MS));
	link_put(import->link);
}

/* Asks for all parts, the first of which begins before the block. */
static CUresult import_map(struct import *import, long deadline)
{
	gcp_assert_held(GCP_RANK_ASKING);
	struct gcp_ipc_request *request = &import->request;
	struct gcp_ipc_answer answer;
	int fds[GCP_IPC_PARTS];
	unsigned int count;
	CUresult result;

	request->from = request->addr;
	do {
		result = import_ask(import, deadline, &answer, fds, &count);
		if (result == CUDA_SUCCESS)
			result = answer_map(import, &answer, fds, count);
		request->from =
		    request->addr + import->mapped + import->base - import->info.ptr;
	} while (result == CUDA_SUCCESS && import->mapped < import->span);
	return result == CUDA_SUCCESS ? access_set(import) : result;
}

/* --- opening --------------------------------------------------------------------- */

/* CUDA lets one context of a device open what another process has (measured). */
static CUresult import_find(const struct gcp_ipc_handle *handle,
			    const struct gcp_import_info *here,
			    struct import **ret_import)
{
	gcp_assert_held(GCP_RANK_ASKING);
	struct import *import;

	*ret_import = NULL;
	LIST_FOREACH (import, &imports, entry) {
		if (import->info.device != here->device || !is_to(import->link, handle))
			continue;
		if (import->info.ctx != here->ctx)
			return CUDA_ERROR_INVALID_HANDLE;
		if (import->request.id == handle->id)
			*ret_import = import;
	}
	return CUDA_SUCCESS;
}

static CUresult import_try(const struct gcp_ipc_handle *handle, struct import *import,
			   long deadline)
{
	gcp_assert_held(GCP_RANK_ASKING);
	CUresult result = link_get(handle, deadline, &import->link);

	if (result != CUDA_SUCCESS)
		return result;
	import->base = import->mapped = 0;
	result = import_map(import, deadline);
	if (result != CUDA_SUCCESS)
		import_unmap(import);
	return result;
}

/* A connection may end while the process lives, if that had no files left; and the
 * process itself may be ending: its door is gone a moment later. */
static CUresult import_make(const struct gcp_ipc_handle *handle, struct import *import)
{
	gcp_assert_held(GCP_RANK_ASKING);
	const long deadline = gcp_ipc_deadline(GCP_IPC_ASK_MS);
	const long again = gcp_ipc_deadline(GCP_IPC_ROOM_MS);
	CUresult result;

	while ((result = GCP_WITHIN(NULL, import_try(handle, import, deadline))) ==
		   (CUresult)ENDED &&
	       gcp_ipc_deadline(0) < again)
		gcp_sleep(PAUSE_NS);
	return result == (CUresult)ENDED ? CUDA_ERROR_OPERATING_SYSTEM : result;
}

static CUresult import_open(const struct gcp_ipc_handle *handle,
			    const struct gcp_import_info *here, CUdeviceptr *ret_ptr)
{
	gcp_assert_held(GCP_RANK_ASKING);
	struct import *import;
	CUresult result = import_find(handle, here, &import);

	if (result != CUDA_SUCCESS)
		return result;
	if (!import) {
		import = calloc(1, sizeof(*import));
		if (!import)
			return CUDA_ERROR_OUT_OF_MEMORY;
		import->request = (struct gcp_ipc_request){
		    .open = ++last_open, .addr = handle->addr, .id = handle->id};
		import->info = *here;
		result = import_make(handle, import);
		if (result != CUDA_SUCCESS) {
			free(import);
			return result;
		}
		gcp_mutex_lock(&imports_lock);
		LIST_INSERT_HEAD(&imports, import, entry);
		gcp_mutex_unlock(&imports_lock);
		atomic_fetch_add(&imports_count, 1);
	}
	assert(import->mapped == import->span && import->link->users > 0);
	import->opens++;
	*ret_ptr = import->info.ptr;
	return CUDA_SUCCESS;
}

/* A green context's memory is its primary's. */
static CUresult context_here(struct gcp_import_info *ret_here)
{
	CUcontext ctx = NULL, home;
	CUdevice device;
	CUresult result = gcp_real.cuCtxGetCurrent(&ctx);

	if (result == CUDA_SUCCESS && !ctx)
		result = CUDA_ERROR_INVALID_CONTEXT;
	if (result == CUDA_SUCCESS)
		result = gcp_real.cuCtxGetDevice(&device);
	if (result != CUDA_SUCCESS)
		return result;
	home = gcp_contexts_home_of(ctx);
	*ret_here = (struct gcp_import_info){
	    .ctx = home ?: ctx, .device = device, .pooled = home};
	return CUDA_SUCCESS;
}

CUresult gcp_imports_open(CUdeviceptr *ret_ptr, const struct gcp_ipc_handle *handle,
			  unsigned int flags)
{
	struct gcp_import_info here;
	CUresult result;

	if (!ret_ptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
		return CUDA_ERROR_INVALID_VALUE;
	result = context_here(&here);
	if (result != CUDA_SUCCESS)
		return result;
	if (gcp_ipc_server_is_self(&handle->process))
		return CUDA_ERROR_INVALID_CONTEXT;
	assert(gcp_ranks_held == 0); /* no lock while another process is asked */
	gcp_mutex_lock(&asking_lock);
	result = import_open(handle, &here, ret_ptr);
	gcp_mutex_unlock(&asking_lock);
	if (result == CUDA_ERROR_OPERATING_SYSTEM)
		gcp_log(GCP_LOG_ERROR,
			"the process that has exported memory does not hand it "
			"over, refusing to open it");
	return result;
}

/* --- closing --------------------------------------------------------------------- */

/* What holds `ptr`. One of the locks is held. */
static struct import *import_at(CUdeviceptr ptr)
{
	assert(gcp_ranks_held & (GCP_RANK_BIT(ASKING) | GCP_RANK_BIT(IMPORTS)));
	struct import *import;

	LIST_FOREACH (import, &imports, entry)
		if (ptr - import->info.ptr < import->info.bytes)
			return import;
	return NULL;
}

/* asking_lock is held. Nothing works on it any more. */
static void import_end(struct import *import)
{
	gcp_assert_held(GCP_RANK_ASKING);
	gcp_mutex_lock(&imports_lock);
	LIST_REMOVE(import, entry);
	gcp_mutex_unlock(&imports_lock);
	atomic_fetch_sub(&imports_count, 1);
	(void)GCP_WITHIN(NULL, (import_unmap(import), CUDA_SUCCESS));
	free(import);
}

/* As CUDA does, also if it stays open (measured). To free memory waits in every state
 * of captures. */
static CUresult context_wait(const struct gcp_import_info *info)
{
	struct gcp_pool *pool;
	CUdeviceptr ptr;
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	if (info->pooled &&
	    gcp_pool_get(gcp_process.pools, info->ctx, info->device, &pool) == 0)
		result = (CUresult)gcp_pool_finish(pool);
	if (result != CUDA_ERROR_OUT_OF_MEMORY)
		return result;
	return GCP_WITHIN(info->ctx, gcp_real.cuMemAlloc_v2(&ptr, 1) == CUDA_SUCCESS
					 ? gcp_real.cuMemFree_v2(ptr)
					 : gcp_real.cuCtxSynchronize());
}

static CUresult mapped_close(CUdeviceptr ptr, const struct gcp_import_info *info)
{
	struct gcp_import_info here;
	struct import *import;
	CUresult result = context_here(&here);

	if (result == CUDA_SUCCESS)
		result = context_wait(info);
	if (result != CUDA_SUCCESS)
		return result;
	GCP_LOCKED(&asking_lock);
	import = import_at(ptr);
	if (!import || import->info.ptr != ptr)
		result = CUDA_ERROR_INVALID_VALUE;
	else if (--import->opens == 0)
		import_end(import);
	return result;
}

static void ordinary_insert(struct ordinary *ordinary)
{
	GCP_LOCKED(&imports_lock);
	LIST_INSERT_HEAD(&ordinaries, ordinary, entry);
}

bool gcp_imports_note(CUdeviceptr base, uint64_t offset)
{
	struct ordinary *ordinary = calloc(1, sizeof(*ordinary));
	struct gcp_import_info here = {.ctx = NULL};

	if (!ordinary)
		return false;
	assert(offset > 0 && base != 0);
	(void)context_here(&here);
	*ordinary = (struct ordinary){base + offset, base, .ctx = here.ctx};
	ordinary_insert(ordinary);
	return true;
}

/* The newest one: what was open there before is closed, known or not. Taken before the
 * real call, for another thread may open something else there as soon as that is done.
 */
static CUresult ordinary_close(CUdeviceptr ptr)
{
	struct ordinary *ordinary;
	CUresult result;

	gcp_mutex_lock(&imports_lock);
	LIST_FOREACH (ordinary, &ordinaries, entry)
		if (ordinary->ptr == ptr)
			break;
	if (ordinary)
		LIST_REMOVE(ordinary, entry);
	gcp_mutex_unlock(&imports_lock);
	result = gcp_real.cuIpcCloseMemHandle(ordinary ? ordinary->base : ptr);
	if (ordinary && result != CUDA_SUCCESS)
		ordinary_insert(ordinary);
	else
		free(ordinary);
	return result;
}

CUresult gcp_imports_close(CUdeviceptr ptr)
{
	struct gcp_import_info info;

	return gcp_imports_find(ptr, &info) && info.ptr == ptr
		   ? mapped_close(ptr, &info)
		   : ordinary_close(ptr);
}

/* --- what is open ---------------------------------------------------------------- */

bool gcp_imports_find(CUdeviceptr ptr, struct gcp_import_info *ret_info)
{
	const struct import *import;

	if (atomic_load_explicit(&imports_count, memory_order_relaxed) == 0)
		return false;
	GCP_LOCKED(&imports_lock);
	import = import_at(ptr);
	if (import)
		*ret_info = import->info;
	return import != NULL;
}

void gcp_imports_context_gone(CUcontext ctx)
{
	struct import *import, *next;
	struct ordinary *one, *after;

	gcp_mutex_lock(&imports_lock);
	for (one = LIST_FIRST(&ordinaries); one; one = after) {
		after = LIST_NEXT(one, entry);
		if (one->ctx == ctx) {
			LIST_REMOVE(one, entry);
			free(one);
		}
	}
	gcp_mutex_unlock(&imports_lock);
	if (atomic_load(&imports_count) == 0)
		return;
	gcp_mutex_lock(&asking_lock);
	for (import = LIST_FIRST(&imports); import; import = next) {
		next = LIST_NEXT(import, entry);
		if (import->info.ctx == ctx)
			import_end(import);
	}
	gcp_mutex_unlock(&asking_lock);
}

void gcp_imports_after_fork(void)
{
	struct link *link;

	LIST_FOREACH (link, &links, entry)
		close(link->fd);
	gcp_mutex_init(&asking_lock, GCP_RANK_ASKING);
	gcp_mutex_init(&imports_lock, GCP_RANK_IMPORTS);
	LIST_INIT(&links);
	LIST_INIT(&imports);
	LIST_INIT(&ordinaries);
	atomic_store(&imports_count, 0);
}
