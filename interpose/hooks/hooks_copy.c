/* SPDX-License-Identifier: MIT */
/*
 * hooks_copy.c - the hooks on copies: called while a capture is under way, as
 * hooks_launch.c, and while the process has several contexts, for copies in which
 * another device than the stream's takes part.
 *
 * Memory that the library maps is open to its own device and to those with peer access
 * (cuda_vmm.c). Memory of cuMemAlloc can be copied from any context. The same copies of
 * mapped memory are refused, except where the call names the context of each side: then
 * it does what the other calls do with memory of cuMemAlloc (the same order, the same
 * fences, the same waits: tests/gpu/results/mapped-memory.md). So each copy that has
 * such memory is made by cuMemcpy3DPeer or cuMemcpy3DPeerAsync. These cannot be
 * captured: a graph's copy gets memory that is opened to every device, and so does a
 * batch that is refused. A batch is not looked into: it counts as one in which others
 * take part.
 *
 * What a fence of a context does not cover of all this, also of ordinary memory:
 * foreign_work.c.
 */
#include <string.h>

#include "../cuda/ctx_scope.h"
#include "../cuda/foreign_work.h"
#include "../cuda/streams.h"
#include "../cuda/cuda_vmm.h"
#include "../process/passed.h"
#include "../process/spill.h"
#include "hooks.h"

/* A call: what it copies, and of which contexts the sides are. */
struct copy {
	CUDA_MEMCPY3D_PEER what;
	bool in_stream;      /* it is asynchronous */
	CUstream stream;     /* as gcp_stream_named gives it */
	CUcontext executing; /* the stream's */
	int device;          /* that one's */

	bool rewritten; /* is to be made by a call that names the contexts */
	bool several;   /* it is a batch, which is not looked into */
	/* The contexts of what is the pools', on the stream's device and elsewhere. */
	CUcontext homes[2];
	bool is_far[2];
};

/* --- what is copied ------------------------------------------------------------ */

static CUDA_MEMCPY3D_PEER line(CUmemorytype to_type, CUdeviceptr to,
			       CUmemorytype from_type, CUdeviceptr from, size_t bytes)
{
	return (CUDA_MEMCPY3D_PEER){
	    .dstMemoryType = to_type,
	    .dstDevice = to,
	    .dstHost = (void *)(uintptr_t)to, // NOLINT(performance-no-int-to-ptr)
	    .dstPitch = bytes,
	    .dstHeight = 1,
	    .srcMemoryType = from_type,
	    .srcDevice = from,
	    .srcHost = (void *)(uintptr_t)from, // NOLINT(performance-no-int-to-ptr)
	    .srcPitch = bytes,
	    .srcHeight = 1,
	    .WidthInBytes = bytes,
	    .Height = 1,
	    .Depth = 1,
	};
}

/* Nothing: the real function is to refuse it. */
static const CUDA_MEMCPY3D_PEER nothing = {.srcMemoryType = CU_MEMORYTYPE_HOST,
					   .dstMemoryType = CU_MEMORYTYPE_HOST};

static CUDA_MEMCPY3D_PEER rectangle(const CUDA_MEMCPY2D *copy)
{
#define GCP_SIDE(side)                                                                 \
	.side##XInBytes = copy->side##XInBytes, .side##Y = copy->side##Y,              \
	.side##MemoryType = copy->side##MemoryType, .side##Host = copy->side##Host,    \
	.side##Device = copy->side##Device, .side##Array = copy->side##Array,          \
	.side##Pitch = copy->side##Pitch ?: copy->side##XInBytes + copy->WidthInBytes, \
	.side##Height = copy->side##Y + copy->Height
	return (CUDA_MEMCPY3D_PEER){GCP_SIDE(src), GCP_SIDE(dst),
				    .WidthInBytes = copy->WidthInBytes,
				    .Height = copy->Height, .Depth = 1};
#undef GCP_SIDE
}

/* The two differ in the contexts, in whose place the other one has two fields that
 * must be zero. */
_Static_assert(sizeof(CUDA_MEMCPY3D) == sizeof(CUDA_MEMCPY3D_PEER), "cuda.h");

static CUmemorytype type_of(char letter)
{
	return letter == 'H'   ? CU_MEMORYTYPE_HOST
	       : letter == 'D' ? CU_MEMORYTYPE_DEVICE
			       : CU_MEMORYTYPE_UNIFIED;
}

/* Returns what a call copies, by the name and the parameters of its function; of a line
 * to or from an array the sides alone, and it is not rewritten. */
static CUDA_MEMCPY3D_PEER copied(const char *name, const uint64_t *words)
{
	const char *form = name + strlen("cuMemcpy");
	const void *copy = (const void *)(uintptr_t)words[0];
	CUDA_MEMCPY3D_PEER what = nothing;

	assert(strncmp(name, "cuMemcpy", strlen("cuMemcpy")) == 0);
	if (*form == '2')
		return copy ? rectangle(copy) : nothing;
	if (*form == '3') {
		if (copy)
			memcpy(&what, copy, sizeof(what));
		return what;
	}
	if (*form == 'P')
		return line(CU_MEMORYTYPE_DEVICE, words[0], CU_MEMORYTYPE_DEVICE,
			    words[2], words[4]);
	if (strcmp(form, "AtoD") == 0)
		return line(CU_MEMORYTYPE_DEVICE, words[0], CU_MEMORYTYPE_ARRAY, 0, 0);
	if (strcmp(form, "DtoA") == 0)
		return line(CU_MEMORYTYPE_ARRAY, 0, CU_MEMORYTYPE_DEVICE, words[2], 0);
	return line(type_of(*form ? form[3] : 0), words[0], type_of(*form), words[1],
		    words[2]);
}

/* --- the sides ----------------------------------------------------------------- */

enum { ON_HOST = -1, ON_UNKNOWN = -2 };

struct side {
	CUmemorytype type; /* UNIFIED: nothing better is known */
	CUcontext ctx;     /* NULL: none is known */
	int device;        /* or of the enumeration */
	bool pooled, mapped;
};

/* Memory that is not the pools'. What CUDA does not know is the host's. */
static void side_ask(CUdeviceptr at, struct side *side)
{
	CUpointer_attribute wanted[] = {
	    CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
	    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_CONTEXT};
	unsigned int type = 0, managed = 0;
	int device = ON_UNKNOWN;
	void *answers[] = {&type, &managed, &device, &side->ctx};

	side->device = ON_HOST;
	if (gcp_real.cuPointerGetAttributes(4, wanted, answers, at) != CUDA_SUCCESS ||
	    type == 0 || type == CU_MEMORYTYPE_HOST) {
		side->type = CU_MEMORYTYPE_HOST;
		side->ctx = NULL;
		return;
	}
	side->device = managed ? ON_UNKNOWN : device;
	if (managed)
		side->ctx = NULL;
	if (side->ctx)
		side->type = CU_MEMORYTYPE_DEVICE;
}

static struct side side_find(CUmemorytype type, CUdeviceptr at)
{
	struct side side = {.type = type, .device = ON_HOST};
	struct gcp_block_info info;
	int found;

	if (type == CU_MEMORYTYPE_HOST)
		return side;
	side.device = ON_UNKNOWN;
	if (type == CU_MEMORYTYPE_ARRAY)
		return side;
	found = gcp_pools_held(gcp_process.pools, at, &info);
	if (found != 0)
		found = gcp_block_find(at, &info);
	if (found == 0)
		return (struct side){CU_MEMORYTYPE_DEVICE, info.ctx, info.device, true,
				     info.mapped};
	side_ask(at, &side);
	return side;
}

/* What is not known may be. */
static bool is_elsewhere(const struct side *side, const struct copy *copy)
{
	return side->device != ON_HOST && side->device != copy->device;
}

/* The context of a side that is no memory of a device is that of the stream. */
static void contexts_name(struct copy *copy, const struct side *to,
			  const struct side *from)
{
	CUDA_MEMCPY3D_PEER *what = &copy->what;

	assert(copy->executing);
	if (what->dstMemoryType == CU_MEMORYTYPE_UNIFIED)
		what->dstHost =
		    (void *)what->dstDevice; // NOLINT(performance-no-int-to-ptr)
	if (what->srcMemoryType == CU_MEMORYTYPE_UNIFIED)
		what->srcHost =
		    (void *)what->srcDevice; // NOLINT(performance-no-int-to-ptr)
	what->dstMemoryType = to->type;
	what->dstContext = to->ctx ? to->ctx : copy->executing;
	what->srcMemoryType = from->type;
	what->srcContext = from->ctx ? from->ctx : copy->executing;
}

/* Mapped memory that the stream's device has no access to, or memory of another device
 * with which it is copied. */
static bool needs_contexts(const struct copy *copy, const struct side *side,
			   const struct side *other)
{
	return side->mapped &&
	       (is_elsewhere(side, copy) || (other->ctx && is_elsewhere(other, copy)));
}

/* Returns true if another device takes part. */
static bool copy_is_between(struct copy *copy, const char *name, const uint64_t *words)
{
	struct side sides[2];

	assert(copy->executing && gcp_process_pooling());
	copy->what = copied(name, words);
	sides[0] = side_find(copy->what.dstMemoryType, copy->what.dstDevice);
	sides[1] = side_find(copy->what.srcMemoryType, copy->what.srcDevice);
	for (int i = 0; i < 2; i++) {
		copy->homes[i] = sides[i].pooled ? sides[i].ctx : NULL;
		copy->is_far[i] = is_elsewhere(&sides[i], copy);
	}
	copy->rewritten = !strstr(name, "Peer") && copy->what.WidthInBytes > 0 &&
			  copy->what.Height > 0 && copy->what.Depth > 0 &&
			  (needs_contexts(copy, &sides[0], &sides[1]) ||
			   needs_contexts(copy, &sides[1], &sides[0]));
	if (copy->rewritten)
		contexts_name(copy, &sides[0], &sides[1]);
	return copy->is_far[0] || copy->is_far[1];
}

/* --- making it ----------------------------------------------------------------- */

static CUresult copy_call(const struct copy *copy)
{
	assert(copy->rewritten && copy->executing); /* the fields say the contexts */
	/* In a stream: as safe beside captures of other threads as the program's. */
	if (copy->in_stream)
		return GCP_WITHIN(
		    NULL, gcp_real.cuMemcpy3DPeerAsync(&copy->what, copy->stream));
	if (copy->stream == CU_STREAM_PER_THREAD)
		return gcp_real.cuMemcpy3DPeer_ptds(&copy->what);
	return gcp_real.cuMemcpy3DPeer(&copy->what);
}

/* After a copy that succeeded. It counts in the context of its stream, where pinned
 * memory may have been part of it; and in those of both sides, where plain cudaFree
 * waits in both. A synchronous call may return before its last part is done, which came
 * from pageable memory. */
static void copy_cover(const struct copy *copy)
{
	/* Synchronous calls are in the default stream; and asynchronous ones in the
	 * legacy stream, not in a thread's. */
	bool far = !copy->in_stream ||
		   (uintptr_t)copy->stream <= (uintptr_t)CU_STREAM_LEGACY ||
		   gcp_vmm_is_wider();
	CUcontext contexts[3] = {NULL};

	assert(copy->executing); /* whose work it is */
	for (int i = 0; i < 2; i++)
		if (far || !copy->is_far[i])
			contexts[i] = copy->homes[i];
	if ((!copy->several || !gcp_vmm_is_wider()) &&
	    (contexts[2] = gcp_contexts_home_of(copy->executing)))
		gcp_foreign_work_submitted(copy->executing, copy->stream, contexts, 3);
	else
		gcp_foreign_work_submitted(copy->executing, copy->stream, NULL, 0);
}

/* --- the hooks ----------------------------------------------------------------- */

static bool copies_matter(void)
{
	return gcp_contexts_are_several() && gcp_process_pooling();
}

/* Memory that is open to no other device than its own cannot be copied to another one.
 * Waits for another thread that opens it. */
bool gcp_copy_opens(CUresult result)
{
	return result == CUDA_ERROR_INVALID_VALUE && copies_matter() &&
	       gcp_vmm_open_everywhere();
}

CUresult gcp_copy_again(CUresult result, const struct gcp_call_words *words)
{
	return gcp_copy_opens(result) ? gcp_words_call(words) : result;
}

/* The program's own call is made where the other one has failed: it may give another
 * error, or none. */
static CUresult copy_make(struct copy *copy, const struct gcp_call_words *words,
			  bool captured)
{
	assert(!copy->several || !copy->rewritten);
	if (copy->rewritten && !captured && copy_call(copy) == CUDA_SUCCESS)
		return CUDA_SUCCESS;
	if (captured && (copy->rewritten || copy->several))
		(void)gcp_vmm_open_everywhere();
	return gcp_copy_again(gcp_words_call(words), words);
}

CUresult gcp_copy_call(const struct gcp_call_words *words)
{
	struct copy copy = {.in_stream = words->in_stream,
			    .stream = words->stream,
			    .several = words->table == GCP_TABLE_COPIES_BATCH};
	CUresult result;
	bool captured;

	assert(!copy.several || copy.in_stream); /* no batch is synchronous */
	if (!copies_matter() || !(copy.executing = gcp_stream_context(copy.stream)) ||
	    !gcp_ctx_device(copy.executing, &copy.device) ||
	    (!copy.several && !copy_is_between(&copy, words->base, words->at)))
		return gcp_words_call(words);
	GCP_CANCEL_LATER;
	captured = copy.in_stream && gcp_stream_captures(copy.stream);
	result = copy_make(&copy, words, captured);
	if (result == CUDA_SUCCESS && !captured) /* a captured copy does not run yet */
		copy_cover(&copy);
	return result;
}

/* --- synchronous memory operations ----------------------------------------------- */

static bool is_sync_memops(CUdeviceptr ptr)
{
	struct gcp_block_info info;

	return ptr && gcp_block_find(ptr, &info) == 0 &&
	       gcp_mark_get(info.addr, info.id, GCP_MARK_SYNC_MEMOPS);
}

CUresult gcp_sync_memops_wait(CUresult result, const struct gcp_call_words *words)
{
	CUDA_MEMCPY3D_PEER what = {.dstDevice = words->at[0]};

	assert(!words->in_stream); /* a copy in a stream does not wait */
	if (result != CUDA_SUCCESS || !gcp_process_pooling() ||
	    !gcp_marks_any(GCP_MARK_SYNC_MEMOPS))
		return result;
	if (words->table == GCP_TABLE_COPIES_SYNC)
		what = copied(words->base, words->at);
	if (!is_sync_memops(what.dstDevice) && !is_sync_memops(what.srcDevice))
		return result;
	return GCP_WITHIN(NULL, gcp_real.cuStreamSynchronize(words->stream));
}
