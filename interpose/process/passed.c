/* SPDX-License-Identifier: MIT */
/*
 * passed.c - see passed.h. One record for each allocation, in one tree; a place where a
 * handle is mapped has a record, too, which holds that of the handle. Where the host is
 * out of memory an allocation has none, and does not count. Of an address at which a
 * block has had a mark there is one for the allocation that had it last.
 */
#include <stdlib.h>

#include "../../pool/base/treap.h"
#include "../base/process.h"
#include "../cuda/ctx_scope.h"
#include "../cuda/resolve.h"
#include "../observe/observer.h"
#include "passed.h"
#include "shortage.h"

struct record {
	struct gcp_treap_node node;
	enum gcp_passed_kind kind;
	uint64_t key;
	CUcontext ctx;
	struct gcp_passed memory;
	struct record *handle; /* MAPPING: of what is mapped there */
	uint64_t id;           /* MARK: of the allocation */
	uint32_t users;        /* in the tree, and of mappings */
};

static bool record_before(const struct record *a, const struct record *b)
{
	return a->kind != b->kind ? a->kind < b->kind : a->key < b->key;
}
GCP_TREAP(records, record, node, record_before, NULL)

static struct gcp_treap records;
static struct gcp_mutex records_lock = GCP_MUTEX(GCP_RANK_PASSED);
_Atomic uint32_t gcp_marks_seen;

static void passed_count(const struct gcp_passed *memory, int64_t sign)
{
	assert(memory->call < GCP_COUNTED_CALL_COUNT && (sign == 1 || sign == -1));
	atomic_fetch_add(&gcp_call_stats[memory->call].held,
			 sign * (int64_t)memory->bytes);
	if (sign < 0 && memory->device >= 0)
		(void)gcp_pools_pass(gcp_process.pools, memory->device,
				     -(int64_t)memory->bytes);
}

static void record_release(struct record *record)
{
	gcp_assert_held(GCP_RANK_PASSED);
	assert(record->users > 0);
	assert(!record->handle == (record->kind != GCP_PASSED_MAPPING));
	if (--record->users > 0)
		return;
	if (record->handle)
		record_release(record->handle);
	else
		passed_count(&record->memory, -1);
	free(record);
}

static void record_remove(struct record *record)
{
	records_remove(&records, record);
	record_release(record);
}

/* The first one at or above `key`, below `end`. */
static struct record *record_find(enum gcp_passed_kind kind, uint64_t key, uint64_t end)
{
	const struct record sought = {.kind = kind, .key = key};
	struct record *found = records_from(&records, &sought);

	gcp_assert_held(GCP_RANK_PASSED);
	return found && found->kind == kind && found->key < end ? found : NULL;
}

/* A record that has the key already is of memory that went without a call. */
static bool record_add(const struct record *record)
{
	struct record *copy = malloc(sizeof(*copy)), *old;

	if (!copy)
		return false;
	old = record_find(record->kind, record->key, record->key + 1);
	if (old)
		record_remove(old);
	*copy = *record;
	copy->users = 1;
	records_insert(&records, copy);
	return true;
}

/* It goes with the current context, but for memory of handles. */
static void passed_add(enum gcp_passed_kind kind, uint64_t key,
		       const struct gcp_passed *memory)
{
	struct record record = {.kind = kind, .key = key, .memory = *memory};

	if (kind != GCP_PASSED_HANDLE)
		(void)gcp_real.cuCtxGetCurrent(&record.ctx);
	GCP_LOCKED(&records_lock);
	passed_count(memory, 1);
	if (!record_add(&record))
		passed_count(memory, -1);
}

void gcp_passed_drop(enum gcp_passed_kind kind, uint64_t key, uint64_t count)
{
	struct record *record;

	assert(kind < GCP_MARK_SYNC_MEMOPS);
	if (!gcp_process_pooling()) /* after a fork another thread may have the lock */
		return;
	GCP_LOCKED(&records_lock);
	while ((record = record_find(kind, key, key + count)))
		record_remove(record);
}

void gcp_passed_map(uint64_t handle, uint64_t addr)
{
	struct record *record;

	if (!gcp_process_pooling())
		return;
	GCP_LOCKED(&records_lock);
	record = record_find(GCP_PASSED_HANDLE, handle, handle + 1);
	if (record && record_add(&(struct record){
			  .kind = GCP_PASSED_MAPPING, .key = addr, .handle = record}))
		record->users++;
}

void gcp_passed_context_gone(CUcontext ctx)
{
	GCP_LOCKED(&records_lock);
	for (struct record *record = records_first(&records), *next; ctx && record;
	     record = next) {
		next = records_next(record);
		if (record->ctx == ctx)
			record_remove(record);
	}
}

/* --- marks --------------------------------------------------------------------- */

bool gcp_mark_set(CUdeviceptr addr, uint64_t id, enum gcp_passed_kind mark, bool on)
{
	const struct record record = {
	    .kind = mark, .key = addr, .id = id, .memory.device = -1};
	struct record *old;

	assert(addr && id > 0 && mark >= GCP_MARK_SYNC_MEMOPS);
	GCP_LOCKED(&records_lock);
	if (on) {
		atomic_fetch_or(&gcp_marks_seen, UINT32_C(1) << mark);
		return record_add(&record);
	}
	old = record_find(mark, addr, addr + 1);
	if (old && old->id == id)
		record_remove(old);
	return true;
}

bool gcp_mark_get(CUdeviceptr addr, uint64_t id, enum gcp_passed_kind mark)
{
	const struct record *found;

	if (!gcp_marks_any(mark))
		return false;
	assert(id > 0); /* 0 is that of no allocation */
	GCP_LOCKED(&records_lock);
	found = record_find(mark, addr, addr + 1);
	return found && found->id == id;
}

/* --- calls --------------------------------------------------------------------- */

CUdevice gcp_device_here(void)
{
	CUdevice device;

	return gcp_real.cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : -1;
}

bool gcp_pass_may(struct gcp_pass *pass)
{
	if (pass->memory.bytes > GCP_BYTES_MAX || !gcp_process_pooling())
		pass->memory.device = -1;
	pass->counts = pass->memory.device >= 0 &&
		       gcp_pools_pass(gcp_process.pools, pass->memory.device,
				      (int64_t)pass->memory.bytes);
	return pass->counts || pass->memory.device < 0;
}

CUresult gcp_pass_tried(struct gcp_pass *pass, CUresult result)
{
	if (result != CUDA_SUCCESS && pass->counts)
		(void)gcp_pools_pass(gcp_process.pools, pass->memory.device,
				     -(int64_t)pass->memory.bytes);
	return result;
}

CUresult gcp_pass_end(struct gcp_pass *pass, CUresult result, uint64_t key)
{
	gcp_call_stats_add(pass->memory.call, pass->start, pass->memory.bytes,
			   (int)result);
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		gcp_shortage_say(pass->call_name, pass->memory.bytes,
				 pass->memory.device < 0 ? GCP_SHORTAGE_DRIVER
							 : GCP_SHORTAGE_POOL,
				 false);
	if (result == CUDA_SUCCESS && pass->memory.call == GCP_COUNTED_mem_alloc)
		gcp_observe_call(GCP_TRACE_pass_alloc, key, pass->memory.bytes,
				 pass->start, 0);
	if (result == CUDA_SUCCESS && key && gcp_process_pooling())
		passed_add(pass->kind, key, &pass->memory);
	return result;
}

void gcp_passed_note_others(int device)
{
	size_t left = 0, total = 0;
	CUresult result = GCP_WITHIN(NULL, gcp_real.cuMemGetInfo_v2(&left, &total));
	uint64_t taken = gcp_pools_taken(gcp_process.pools, device) + left;

	assert(device >= 0);
	if (result == CUDA_SUCCESS)
		gcp_report_note_others(device, total > taken ? total - taken : 0);
}

CUdevice gcp_passed_device(const CUmemAllocationProp *properties)
{
	return properties && properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE
		   ? properties->location.id
		   : -1;
}

uint64_t gcp_passed_array_bytes(size_t width, size_t height, size_t depth,
				CUarray_format format, unsigned int channels)
{
	static const unsigned char bytes_of[] = {
	    [CU_AD_FORMAT_UNSIGNED_INT16] = 2, [CU_AD_FORMAT_UNSIGNED_INT32] = 4,
	    [CU_AD_FORMAT_SIGNED_INT16] = 2,   [CU_AD_FORMAT_SIGNED_INT32] = 4,
	    [CU_AD_FORMAT_HALF] = 2,           [CU_AD_FORMAT_FLOAT] = 4,
	};
	size_t wide = format < sizeof(bytes_of) ? bytes_of[format] : 0;

	return width * (height ?: 1) * (depth ?: 1) * channels * (wide ?: 1);
}
