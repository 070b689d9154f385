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
 * batch.
 *
 * What a fence of a context does not cover of all this, also of ordinary memory:
 * foreign_work.c.
 */
#include <string.h>

#include "../cuda/ctx_scope.h"
#include "../cuda/foreign_work.h"
#include "../cuda/streams.h"
#include "../cuda/cuda_vmm.h"
#include "../process/spill.h"
#include "hooks.h"

/* A call: what it copies, and of which contexts the sides are. */
struct copy {
	CUDA_MEMCPY3D_PEER what;
	bool names_contexts; /* it has them */
	bool in_stream;      /* it is asynchronous */
	CUstream stream;     /* as gcp_stream_named gives it */
	CUcontext executing; /* the stream's */
	int device;          /* that one's */

	bool between, batch; /* another device takes part; it is one of several */
	int cancel;          /* as it was, if `between` */
	int calls;           /* that were due */
	bool mapped;         /* a side is memory that the library has mapped */
	bool rewritten;      /* is to be made by a call that names the contexts */
	bool made;           /* it was: `result` is the program's */
	/* The contexts of what is the pools', on the stream's device and elsewhere. */
	CUcontext homes[2];
	bool is_far[2];
	CUresult result;
};

/* Memory is open to more devices than have peer access: some copies between devices
 * are one device's own work then, where plain cudaFree would wait in both contexts. */
static atomic_bool opened;

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

/* One side is an array; the other one memory of a device. */
static CUDA_MEMCPY3D_PEER line_array(CUarray to, CUarray from, size_t offset,
				     CUdeviceptr at, size_t bytes)
{
	CUDA_MEMCPY3D_PEER what =
	    line(to ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_DEVICE, at,
		 to ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_ARRAY, at, bytes);

	what.dstArray = to;
	what.srcArray = from;
	*(to ? &what.dstXInBytes : &what.srcXInBytes) = offset;
	return what;
}

/* Nothing: the real function is to refuse it. */
static const CUDA_MEMCPY3D_PEER nothing = {.srcMemoryType = CU_MEMORYTYPE_HOST,
					   .dstMemoryType = CU_MEMORYTYPE_HOST};

static size_t pitch_of(size_t pitch, size_t x, size_t width)
{
	return pitch ? pitch : x + width;
}

static CUDA_MEMCPY3D_PEER rectangle(const CUDA_MEMCPY2D *copy)
{
	if (!copy)
		return nothing;
	return (CUDA_MEMCPY3D_PEER){
	    .srcXInBytes = copy->srcXInBytes,
	    .srcY = copy->srcY,
	    .srcMemoryType = copy->srcMemoryType,
	    .srcHost = copy->srcHost,
	    .srcDevice = copy->srcDevice,
	    .srcArray = copy->srcArray,
	    .srcPitch = pitch_of(copy->srcPitch, copy->srcXInBytes, copy->WidthInBytes),
	    .srcHeight = copy->srcY + copy->Height,
	    .dstXInBytes = copy->dstXInBytes,
	    .dstY = copy->dstY,
	    .dstMemoryType = copy->dstMemoryType,
	    .dstHost = copy->dstHost,
	    .dstDevice = copy->dstDevice,
	    .dstArray = copy->dstArray,
	    .dstPitch = pitch_of(copy->dstPitch, copy->dstXInBytes, copy->WidthInBytes),
	    .dstHeight = copy->dstY + copy->Height,
	    .WidthInBytes = copy->WidthInBytes,
	    .Height = copy->Height,
	    .Depth = 1,
	};
}

/* The two differ in the contexts, in whose place the other one has two fields that
 * must be zero. */
_Static_assert(sizeof(CUDA_MEMCPY3D) == sizeof(CUDA_MEMCPY3D_PEER), "cuda.h");

/* `copy`: one of the two, or NULL. */
static CUDA_MEMCPY3D_PEER volume(const void *copy)
{
	CUDA_MEMCPY3D_PEER what = nothing;

	if (copy)
		memcpy(&what, copy, sizeof(what));
	return what;
}

#define HOST(p)   CU_MEMORYTYPE_HOST, (CUdeviceptr)(uintptr_t)(p)
#define DEVICE(p) CU_MEMORYTYPE_DEVICE, p
#define ANY(p)    CU_MEMORYTYPE_UNIFIED, p

#define COPIED_cuMemcpy            line(ANY(to), ANY(from), bytes)
#define COPIED_cuMemcpyAsync       line(ANY(to), ANY(from), bytes)
#define COPIED_cuMemcpyHtoD        line(DEVICE(to), HOST(from), bytes)
#define COPIED_cuMemcpyHtoDAsync   line(DEVICE(to), HOST(from), bytes)
#define COPIED_cuMemcpyDtoH        line(HOST(to), DEVICE(from), bytes)
#define COPIED_cuMemcpyDtoHAsync   line(HOST(to), DEVICE(from), bytes)
#define COPIED_cuMemcpyDtoD        line(DEVICE(to), DEVICE(from), bytes)
#define COPIED_cuMemcpyDtoDAsync   line(DEVICE(to), DEVICE(from), bytes)
#define COPIED_cuMemcpyDtoA        line_array(to, NULL, offset, from, bytes)
#define COPIED_cuMemcpyAtoD        line_array(NULL, from, offset, to, bytes)
#define COPIED_cuMemcpy2D          rectangle(copy)
#define COPIED_cuMemcpy2DUnaligned rectangle(copy)
#define COPIED_cuMemcpy2DAsync     rectangle(copy)
#define COPIED_cuMemcpy3D          volume(copy)
#define COPIED_cuMemcpy3DAsync     volume(copy)
#define COPIED_cuMemcpyPeer                                                            \
	((void)to_ctx, (void)from_ctx, line(DEVICE(to), DEVICE(from), bytes))
#define COPIED_cuMemcpyPeerAsync                                                       \
	((void)to_ctx, (void)from_ctx, line(DEVICE(to), DEVICE(from), bytes))
#define COPIED_cuMemcpy3DPeer      volume(copy)
#define COPIED_cuMemcpy3DPeerAsync volume(copy)

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

static bool executing_find(struct copy *copy)
{
	copy->executing = gcp_stream_context(copy->stream);
	return copy->executing && gcp_ctx_device(copy->executing, &copy->device);
}

/* The context of a side that is no memory of a device is that of the stream. */
static void contexts_name(struct copy *copy, const struct side *to,
			  const struct side *from)
{
	CUDA_MEMCPY3D_PEER *what = &copy->what;

	assert(copy->executing && !copy->names_contexts);
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
	if (!side->mapped)
		return false;
	return is_elsewhere(side, copy) || (other->ctx && is_elsewhere(other, copy));
}

/* Returns true if another device takes part. Only while pooling. */
static bool copy_is_between(struct copy *copy)
{
	struct side sides[2];

	assert(gcp_process_pooling());
	if (!executing_find(copy))
		return false;
	sides[0] = side_find(copy->what.dstMemoryType, copy->what.dstDevice);
	sides[1] = side_find(copy->what.srcMemoryType, copy->what.srcDevice);
	if (!is_elsewhere(&sides[0], copy) && !is_elsewhere(&sides[1], copy))
		return false;
	for (int i = 0; i < 2; i++) {
		copy->mapped |= sides[i].mapped;
		copy->homes[i] = sides[i].pooled ? sides[i].ctx : NULL;
		copy->is_far[i] = is_elsewhere(&sides[i], copy);
	}
	copy->rewritten = !copy->names_contexts && copy->what.WidthInBytes > 0 &&
			  copy->what.Height > 0 && copy->what.Depth > 0 &&
			  (needs_contexts(copy, &sides[0], &sides[1]) ||
			   needs_contexts(copy, &sides[1], &sides[0]));
	if (copy->rewritten)
		contexts_name(copy, &sides[0], &sides[1]);
	return true;
}

/* --- making it ----------------------------------------------------------------- */

static void open_everywhere(void)
{
	atomic_store(&opened, true);
	gcp_vmm_open_everywhere();
}

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

/* Errors that the program's own call may not give. */
static bool is_refused(CUresult result)
{
	return result == CUDA_ERROR_INVALID_VALUE ||
	       result == CUDA_ERROR_INVALID_CONTEXT ||
	       result == CUDA_ERROR_INVALID_HANDLE ||
	       result == CUDA_ERROR_NOT_SUPPORTED;
}

/* Before the program's own call, which need not be made if copy->made. */
static void copy_begin(struct copy *copy)
{
	bool captured;

	assert(!copy->made && copy->calls == 0);
	copy->between = copy_is_between(copy);
	if (!copy->between)
		return;
	copy->cancel = gcp_cancel_defer();
	captured = copy->in_stream && gcp_stream_captures(copy->stream);
	if (captured && copy->rewritten) {
		open_everywhere();
	} else if (copy->rewritten) {
		copy->result = copy_call(copy);
		copy->made = !is_refused(copy->result);
	}
	if (captured)
		copy->executing = NULL; /* no work yet */
}

/* Returns true if the program's own call is to be made; once more if it was refused,
 * maybe for want of access, which there is now. */
static bool copy_is_due(struct copy *copy)
{
	if (copy->calls++ == 0)
		return !copy->made;
	if (copy->calls > 2 || !copy->rewritten || copy->made ||
	    copy->result != CUDA_ERROR_INVALID_VALUE)
		return false;
	open_everywhere();
	return true;
}

/* Whether mapped memory may be open to a device whose context has no peer access. */
static bool opens_more(void)
{
	return atomic_load(&opened) || gcp_vmm_is_wider();
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
		   (copy->mapped && opens_more());
	CUcontext contexts[3] = {NULL};
	int device;

	assert(copy->result == CUDA_SUCCESS); /* else there may be no work */
	if (!copy->executing)
		return;
	for (int i = 0; i < 2; i++)
		if (far || !copy->is_far[i])
			contexts[i] = copy->homes[i];
	if (gcp_contexts_home(copy->executing, &contexts[2], &device))
		gcp_foreign_work_submitted(copy->executing, copy->stream, contexts, 3);
	else
		gcp_foreign_work_submitted(copy->executing, copy->stream, NULL, 0);
}

/* --- batches ------------------------------------------------------------------- */

/* CUDA_MEMCPY3D_BATCH_OP, which cuda.h has since CUDA 12.8. */
struct batch_operand {
	int type;
	union {
		struct {
			CUdeviceptr at;
			size_t row, layer;
			CUmemLocation hint;
		} pointer;
		struct {
			CUarray array;
			size_t offset[3];
		} array;
	};
};
struct batch_copy {
	struct batch_operand from, to;
	size_t extent[3];
	int order;
	unsigned int flags;
};
enum { OPERAND_POINTER = 1 };
#if CUDA_VERSION >= 12080
_Static_assert(sizeof(struct batch_copy) == sizeof(CUDA_MEMCPY3D_BATCH_OP), "cuda.h");
#endif

/* A side of one of its copies. NULL: an array. */
static void batch_add(struct copy *copy, const CUdeviceptr *at)
{
	struct side side = {.device = ON_UNKNOWN};

	assert(copy->executing && copy->in_stream);
	if (at)
		side = side_find(CU_MEMORYTYPE_UNIFIED, *at);
	if (!is_elsewhere(&side, copy))
		return;
	copy->between = true;
	copy->rewritten |= side.mapped;
}

/* The program's own call makes all of it. */
static void batch_begin(struct copy *copy)
{
	assert(copy->calls == 0 && copy->in_stream);
	if (!copy->between)
		return;
	if (copy->rewritten)
		open_everywhere();
	copy->rewritten = false;
	copy->batch = true;
	copy->cancel = gcp_cancel_defer();
}

static void batch_of_lines(struct copy *copy, const CUdeviceptr *to,
			   const CUdeviceptr *from, size_t count)
{
	if (!to || !from || !executing_find(copy))
		return;
	for (size_t i = 0; i < count; i++) {
		batch_add(copy, &to[i]);
		batch_add(copy, &from[i]);
	}
	batch_begin(copy);
}

static const CUdeviceptr *pointer_of(const struct batch_operand *operand)
{
	return operand->type == OPERAND_POINTER ? &operand->pointer.at : NULL;
}

static void batch_of_volumes(struct copy *copy, const struct batch_copy *copies,
			     size_t count)
{
	if (!copies || !executing_find(copy))
		return;
	for (size_t i = 0; i < count; i++) {
		batch_add(copy, pointer_of(&copies[i].to));
		batch_add(copy, pointer_of(&copies[i].from));
	}
	batch_begin(copy);
}

#define BEGINS_cuMemcpyBatchAsync   batch_of_lines(&between, to, from, count)
#define BEGINS_cuMemcpy3DBatchAsync batch_of_volumes(&between, copies, count)

static void batch_cover(const struct copy *copy)
{
	if (gcp_stream_captures(copy->stream))
		return;
	if (opens_more())
		gcp_foreign_work_submitted(copy->executing, copy->stream, NULL, 0);
	else
		copy_cover(copy);
}

/* --- the hooks ----------------------------------------------------------------- */

static bool copies_matter(void)
{
	return gcp_contexts_are_several() && gcp_process_pooling();
}

/* A call begins, in whose stream `submitted` tells that there is work: an error ends
 * it. Returns true if another device may take part. */
static bool copy_starts(struct copy *copy, CUstream stream, bool in_stream,
			CUresult submitted)
{
	*copy = (struct copy){
	    .in_stream = in_stream, .stream = stream, .result = submitted};
	copy->made = submitted != CUDA_SUCCESS;
	return !copy->made && copies_matter();
}

static CUresult copy_end(const struct copy *copy)
{
	assert(copy->calls > 0 && (!copy->made || copy->between || copy->result));
	if (!copy->between)
		return copy->result;
	if (copy->result == CUDA_SUCCESS && copy->batch)
		batch_cover(copy);
	else if (copy->result == CUDA_SUCCESS)
		copy_cover(copy);
	gcp_cancel_restore(&copy->cancel);
	return copy->result;
}

/* begins: where another device may take part. */
#define GCP_COPY(name, stream, in_stream, submitted, begins)                           \
	GCP_HOOKED(name)                                                               \
	{                                                                              \
		struct copy between;                                                   \
                                                                                       \
		if (copy_starts(&between, stream, in_stream, submitted))               \
			begins;                                                        \
		while (copy_is_due(&between))                                          \
			between.result = GCP_CALLED(name);                             \
		return copy_end(&between);                                             \
	}
#define GCP_BEGINS(called, copied)                                                     \
	(between.names_contexts = strstr(called, "Peer") != NULL,                      \
	 between.what = copied, copy_begin(&between))
#define GCP_COPY_ASYNC(name, twin, begins)                                             \
	GCP_COPY(name, gcp_stream_named(stream, twin), true,                           \
		 gcp_stream_submits(stream, twin), begins)

#define COPIES_HOOK(name, base, version, twin, need)                                   \
	GCP_COPY_ASYNC(name, twin, GCP_BEGINS(#base, COPIED_##base))
GCP_HOOKS_COPIES(COPIES_HOOK)

#define COPIES_SYNC_HOOK(name, base, version, twin, need)                              \
	GCP_COPY(name, gcp_stream_named(NULL, twin), false,                            \
		 (gcp_stream_submits_eagerly(NULL), CUDA_SUCCESS),                     \
		 GCP_BEGINS(#base, COPIED_##base))
GCP_HOOKS_COPIES_SYNC(COPIES_SYNC_HOOK)

#define COPIES_BATCH_HOOK(name, base, version, twin, need)                             \
	GCP_COPY_ASYNC(name, twin, BEGINS_##base)
GCP_HOOKS_COPIES_BATCH(COPIES_BATCH_HOOK)

/* --- graphs -------------------------------------------------------------------- */

void gcp_copy_node_made(const CUDA_MEMCPY3D *copy, CUcontext ctx, bool anywhere)
{
	struct side to, from;
	CUdevice device = ON_UNKNOWN;

	if (!copy || !copies_matter() || (!anywhere && !gcp_ctx_device(ctx, &device)))
		return;
	to = side_find(copy->dstMemoryType, copy->dstDevice);
	from = side_find(copy->srcMemoryType, copy->srcDevice);
	if ((to.mapped && to.device != device) ||
	    (from.mapped && from.device != device))
		open_everywhere();
}

void gcp_copy_graph_launched(CUstream stream)
{
	struct copy copy = {.in_stream = true, .stream = stream};

	if (atomic_load_explicit(&opened, memory_order_acquire) && copies_matter() &&
	    executing_find(&copy))
		batch_cover(&copy);
}
