/* SPDX-License-Identifier: MIT */
/*
 * debug_device.c - patterns in device memory: see debug_device.h.
 *
 * What is compared is copied to the host first, into memory that is registered, so that
 * a copy in a stream of the program returns at once:
 *
 *   | STAGE: compared now, under stage_lock | slot | slot | slot | ...
 *
 * A slot holds the pattern until the copy has arrived. So it may be looked at any time,
 * also at exit, where CUDA is not asked any more: what is not as it was put there came
 * from the device.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "debug_device.h"
#include "instrument.h"

enum {
	STAGE_BYTES = 1 << 20,
	SLOTS = 1024,
	CONTEXTS_MAX = 64,
	MARGIN_BYTE = 0xa5,
};
#define FREED_WORD 0xfff5dea5u

struct slot {
	bool used, recorded;
	void *ctx;
	CUevent event; /* of ctx; NULL: none yet */
	enum gcp_debug_pattern pattern;
	gcp_addr addr;
	uint64_t bytes;
	struct gcp_debug_block block;
};

static struct gcp_mutex lock = GCP_MUTEX(GCP_RANK_DEBUG_DEVICE); /* slots, owns */
static struct gcp_mutex stage_lock = GCP_MUTEX(GCP_RANK_DEBUG_STAGE);
static unsigned char *memory; /* STAGE_BYTES, then one slot after the other */
static void *memory_ctx;      /* where it was registered; NULL: it is not */
static struct slot *slots;
static uint32_t slot_next; /* where a free one is looked for first */

static struct {
	void *ctx;
	CUstream stream;
} owns[CONTEXTS_MAX];

/* --- the host's side --------------------------------------------------------- */

static unsigned char *slot_bytes(const struct slot *slot)
{
	gcp_assert_held(GCP_RANK_DEBUG_DEVICE);
	return memory + STAGE_BYTES + (size_t)(slot - slots) * GCP_DEBUG_LATER_MAX;
}

/* In a scope of `ctx`. Where it is not registered (memory_ctx) copies would wait. lock
 * is held. */
static bool memory_make(void *ctx)
{
	gcp_assert_held(GCP_RANK_DEBUG_DEVICE);
	size_t bytes = STAGE_BYTES + (size_t)SLOTS * GCP_DEBUG_LATER_MAX;
	size_t table = SLOTS * sizeof(struct slot);

	if (!memory) {
		void *p = mmap(NULL, bytes + table, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED)
			return false;
		slots = (void *)((unsigned char *)p + bytes);
		memory = p;
	}
	if (!memory_ctx &&
	    gcp.real->cuMemHostRegister_v2(memory, bytes,
					   CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS)
		memory_ctx = ctx;
	return true;
}

static unsigned char pattern_byte(enum gcp_debug_pattern pattern, gcp_addr addr)
{
	return pattern == GCP_DEBUG_MARGIN
		   ? MARGIN_BYTE
		   : (unsigned char)(FREED_WORD >> addr % 4 * 8);
}

static void pattern_put(enum gcp_debug_pattern pattern, gcp_addr addr,
			unsigned char *bytes, uint64_t count)
{
	gcp_assert_held(GCP_RANK_DEBUG_DEVICE);
	for (uint64_t i = 0; i < count; i++)
		bytes[i] = pattern_byte(pattern, addr + i);
}

/* Both patterns repeat after 4 bytes. */
static bool pattern_is(enum gcp_debug_pattern pattern, gcp_addr addr,
		       const unsigned char *bytes, uint64_t count)
{
	for (uint64_t i = 0; i < 4 && i < count; i++)
		if (bytes[i] != pattern_byte(pattern, addr + i))
			return false;
	return count <= 4 || memcmp(bytes, bytes + 4, count - 4) == 0;
}

static void pattern_compare(enum gcp_debug_pattern pattern, gcp_addr addr,
			    const unsigned char *bytes, uint64_t count,
			    struct gcp_debug_found *found)
{
	if (pattern_is(pattern, addr, bytes, count))
		return;
	for (uint64_t i = 0; i < count; i++) {
		if (bytes[i] == pattern_byte(pattern, addr + i))
			continue;
		if (found->wrong++ == 0)
			found->first = addr + i;
	}
}

/* --- streams ----------------------------------------------------------------- */

/* In a scope of ctx. */
static int own_stream(void *ctx, CUstream *ret_stream)
{
	int result = CUDA_SUCCESS, at = -1;

	gcp.mutex_lock(&lock);
	for (int i = CONTEXTS_MAX - 1; i >= 0; i--)
		if (owns[i].ctx == ctx || (!owns[i].ctx && (at < 0 || !owns[at].ctx)))
			at = i;
	if (at < 0)
		result = CUDA_ERROR_NOT_SUPPORTED;
	else if (!owns[at].ctx)
		result = (int)gcp.real->cuStreamCreate(&owns[at].stream,
						       CU_STREAM_NON_BLOCKING);
	if (result == CUDA_SUCCESS) {
		owns[at].ctx = ctx;
		*ret_stream = owns[at].stream;
	}
	gcp.mutex_unlock(&lock);
	return result;
}

/* Begins a scope of the queue's context, and finds its stream. */
static int queue_begin(const struct gcp_debug_queue *queue, struct gcp_ctx_scope *scope,
		       CUstream *ret_stream)
{
	int result = (int)gcp.ctx_scope_begin(scope, queue->ctx);

	if (result != 0)
		return result;
	*ret_stream = queue->stream;
	if (queue->own)
		result = own_stream(queue->ctx, ret_stream);
	if (result != 0)
		gcp.ctx_scope_end(scope);
	return result;
}

int gcp_debug_write(const struct gcp_debug_queue *queue, enum gcp_debug_pattern pattern,
		    gcp_addr addr, uint64_t bytes)
{
	struct gcp_ctx_scope scope;
	CUstream stream = NULL;
	int result = queue_begin(queue, &scope, &stream);

	if (result != 0)
		return result;
	if (pattern == GCP_DEBUG_MARGIN)
		result =
		    (int)gcp.real->cuMemsetD8Async(addr, MARGIN_BYTE, bytes, stream);
	else
		result = (int)gcp.real->cuMemsetD32Async(addr, FREED_WORD, bytes / 4,
							 stream);
	gcp.ctx_scope_end(&scope);
	return result;
}

int gcp_debug_wait(void *ctx)
{
	const struct gcp_debug_queue queue = {.ctx = ctx, .own = true};
	struct gcp_ctx_scope scope;
	CUstream stream = NULL;
	int result = queue_begin(&queue, &scope, &stream);

	if (result != 0)
		return result;
	result = (int)gcp.real->cuStreamSynchronize(stream);
	gcp.ctx_scope_end(&scope);
	return result;
}

/* --- compared now ------------------------------------------------------------ */

static bool memory_ready(void *ctx)
{
	bool ready;

	gcp.mutex_lock(&lock);
	ready = memory_make(ctx);
	gcp.mutex_unlock(&lock);
	return ready;
}

/* stage_lock is held, in a scope of the stream's context. */
static int stage_fill(CUstream stream, gcp_addr addr, uint64_t bytes)
{
	gcp_assert_held(GCP_RANK_DEBUG_STAGE);
	CUresult result = gcp.real->cuMemcpyDtoHAsync_v2(memory, addr, bytes, stream);

	return (int)(result == CUDA_SUCCESS ? gcp.real->cuStreamSynchronize(stream)
					    : result);
}

int gcp_debug_compare(void *ctx, enum gcp_debug_pattern pattern, gcp_addr addr,
		      uint64_t bytes, struct gcp_debug_found *ret_found)
{
	const struct gcp_debug_queue queue = {.ctx = ctx, .own = true};
	struct gcp_ctx_scope scope;
	CUstream stream = NULL;
	int result = queue_begin(&queue, &scope, &stream);

	*ret_found = (struct gcp_debug_found){0, 0};
	if (result != 0)
		return result;
	if (!memory_ready(ctx))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	gcp.mutex_lock(&stage_lock);
	for (uint64_t done = 0, step; result == 0 && done < bytes; done += step) {
		step = bytes - done < STAGE_BYTES ? bytes - done : STAGE_BYTES;
		result = stage_fill(stream, addr + done, step);
		if (result == 0)
			pattern_compare(pattern, addr + done, memory, step, ret_found);
	}
	gcp.mutex_unlock(&stage_lock);
	gcp.ctx_scope_end(&scope);
	return result;
}

/* --- compared later ---------------------------------------------------------- */

/* lock is held. */
static struct slot *slot_take(void)
{
	gcp_assert_held(GCP_RANK_DEBUG_DEVICE);
	for (uint32_t i = 0; i < SLOTS; i++) {
		struct slot *slot = &slots[(slot_next + i) % SLOTS];

		if (slot->used)
			continue;
		slot_next = (uint32_t)(slot - slots) + 1;
		return slot;
	}
	return NULL;
}

/* An event of the queue's context, in a scope of it. lock is held. */
static int slot_event(struct slot *slot, void *ctx)
{
	gcp_assert_held(GCP_RANK_DEBUG_DEVICE);
	CUresult result;

	if (slot->event && slot->ctx == ctx)
		return 0;
	if (slot->event)
		gcp.real->cuEventDestroy_v2(slot->event);
	slot->event = NULL;
	result = gcp.real->cuEventCreate(&slot->event, CU_EVENT_DISABLE_TIMING);
	if (result != CUDA_SUCCESS)
		slot->event = NULL;
	slot->ctx = ctx;
	return (int)result;
}

/* The copy, and the event behind it. lock is held, in a scope. */
static int slot_send(struct slot *slot, CUstream stream)
{
	gcp_assert_held(GCP_RANK_DEBUG_DEVICE);
	CUresult result;

	pattern_put(slot->pattern, slot->addr, slot_bytes(slot), slot->bytes);
	result = gcp.real->cuMemcpyDtoHAsync_v2(slot_bytes(slot), slot->addr,
						slot->bytes, stream);
	if (result != CUDA_SUCCESS)
		return (int)result;
	slot->used = true;
	slot->recorded = gcp.real->cuEventRecord(slot->event, stream) == CUDA_SUCCESS;
	return 0;
}

int gcp_debug_compare_later(const struct gcp_debug_queue *queue,
			    const struct gcp_debug_block *block,
			    enum gcp_debug_pattern pattern, gcp_addr addr,
			    uint64_t bytes)
{
	struct gcp_ctx_scope scope;
	CUstream stream = NULL;
	int result = queue_begin(queue, &scope, &stream);
	struct slot *slot;

	if (result != 0)
		return result;
	gcp.mutex_lock(&lock);
	slot = memory_make(queue->ctx) && memory_ctx ? slot_take() : NULL;
	if (slot)
		result = slot_event(slot, queue->ctx);
	if (slot && result == 0) {
		slot->pattern = pattern;
		slot->addr = addr;
		slot->bytes = bytes < GCP_DEBUG_LATER_MAX ? bytes : GCP_DEBUG_LATER_MAX;
		slot->block = *block;
		result = slot_send(slot, stream);
	}
	gcp.mutex_unlock(&lock);
	gcp.ctx_scope_end(&scope);
	return result;
}

/* What the slot has, said; it stays taken. lock is held. */
static void slot_look(const struct slot *slot, gcp_debug_found_fn *found)
{
	gcp_assert_held(GCP_RANK_DEBUG_DEVICE);
	struct gcp_debug_found what = {0, 0};

	pattern_compare(slot->pattern, slot->addr, slot_bytes(slot), slot->bytes,
			&what);
	if (what.wrong)
		found(&slot->block, slot->pattern, &what);
}

void gcp_debug_device_poll(gcp_debug_found_fn *found)
{
	struct gcp_ctx_scope scope;

	if (gcp.ctx_scope_begin(&scope, NULL) != CUDA_SUCCESS)
		return;
	gcp.mutex_lock(&lock);
	for (uint32_t i = 0; slots && i < SLOTS; i++) {
		struct slot *slot = &slots[i];

		if (!slot->used || !slot->recorded ||
		    gcp.real->cuEventQuery(slot->event) != CUDA_SUCCESS)
			continue;
		slot_look(slot, found);
		slot->used = false;
	}
	gcp.mutex_unlock(&lock);
	gcp.ctx_scope_end(&scope);
}

void gcp_debug_device_end(gcp_debug_found_fn *found)
{
	gcp.mutex_lock(&lock);
	for (uint32_t i = 0; slots && i < SLOTS; i++) {
		if (slots[i].used)
			slot_look(&slots[i], found);
		slots[i].used = false;
	}
	gcp.mutex_unlock(&lock);
}

void gcp_debug_device_context_gone(void *ctx, gcp_debug_found_fn *found)
{
	gcp.mutex_lock(&lock);
	for (uint32_t i = 0; slots && i < SLOTS; i++) {
		if (slots[i].ctx != ctx)
			continue;
		if (slots[i].used)
			slot_look(&slots[i], found);
		slots[i].used = false;
		slots[i].event = NULL;
		slots[i].ctx = NULL;
	}
	for (int i = 0; i < CONTEXTS_MAX; i++)
		if (owns[i].ctx == ctx)
			owns[i].ctx = NULL;
	if (memory_ctx == ctx)
		memory_ctx = NULL;
	gcp.mutex_unlock(&lock);
}
