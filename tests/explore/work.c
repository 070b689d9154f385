/* SPDX-License-Identifier: MIT */
/*
 * work.c - work on memory: kernels, copies and sets, at once or captured.
 *
 * Each item first makes sure that it is in order with what touched the memory
 * before, then goes to the driver, then into the model. Contents are known as
 * "so many words from the start hold this value".
 */
#include "explore.h"

enum { SPIN_MAX = 20000 };

/* As in tests/integration/programs/kernels.h; gcpsim makes all of them from any image.
 */
enum { FILL, CHECK, COPY, ADD, SPIN, FILL_SLOW, CHECK_SLOW };

/* Added to the graph behind the stream's ends; what comes next there follows it, or
 * not.
 */
static CUresult launch_added(CUstream stream, bool joins, CUfunction function,
			     void **params)
{
	const CUDA_KERNEL_NODE_PARAMS kernel = {function, 1, 1,      1,    32,   1,
						1,        0, params, NULL, NULL, NULL};
	const CUgraphNode *ends;
	CUgraphNode node;
	CUgraph graph;
	size_t count;
	CUresult result = captured_ends(stream, &graph, &ends, &count);

	if (result == CUDA_SUCCESS)
		result = cuGraphAddKernelNode(&node, graph, ends, count, &kernel);
	if (result == CUDA_SUCCESS && joins)
		result = cuStreamUpdateCaptureDependencies_v2(
		    stream, &node, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES);
	return result;
}

static CUresult launch(struct thread *t, struct stream *s, int function, void **params)
{
	CUfunction f = t->model->contexts[s->context].functions[function];
	CUstream handle = stream_handle(t, s);

	if (s->capture && s->capture->added)
		return launch_added(handle, s->capture->added == ADDED_JOINED, f,
				    params);
	t->worked = all_is_calm(t->model) ? NULL : s;
	t->gone = t->model->streams_gone;
	return cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, handle, params, NULL);
}

/* In the default stream, by calls that do not wait for it. */
static CUresult copy_at_once(struct thread *t, struct stream *s,
			     const struct item *item, uint64_t dst, uint64_t src)
{
	const struct context *contexts = t->model->contexts;

	stream_handle(t, s);
	if (item->value / 6 % 2)
		return cuMemcpyDtoD(dst, src, item->words * 4ull);
	return cuMemcpyPeer(dst, contexts[item->dst->context].ctx, src,
			    contexts[item->src->context].ctx, item->words * 4ull);
}

/* As rows and layers that lie one behind the other. */
static CUDA_MEMCPY3D_PEER box_of(const struct thread *t, const struct item *item,
				 uint64_t dst, uint64_t src)
{
	const struct context *contexts = t->model->contexts;
	size_t height = item->words % 2 ? 1 : 2;
	size_t width = item->words * 4ull / height;
	unsigned type =
	    item->value / 3 % 2 ? CU_MEMORYTYPE_UNIFIED : CU_MEMORYTYPE_DEVICE;

	return (CUDA_MEMCPY3D_PEER){
	    .srcMemoryType = type,
	    .srcDevice = src,
	    .srcContext = contexts[item->src->context].ctx,
	    .srcPitch = width,
	    .srcHeight = height,
	    .dstMemoryType = type,
	    .dstDevice = dst,
	    .dstContext = contexts[item->dst->context].ctx,
	    .dstPitch = width,
	    .dstHeight = height,
	    .WidthInBytes = width,
	    .Height = height,
	    .Depth = 1,
	};
}

/* A batch of two halves. */
static CUresult copy_in_a_batch(CUstream stream, const CUDA_MEMCPY3D_PEER *box)
{
	size_t bytes = box->WidthInBytes, first = 0;
	CUdeviceptr dst[] = {box->dstDevice, box->dstDevice + bytes};
	CUdeviceptr src[] = {box->srcDevice, box->srcDevice + bytes};
	CUmemcpyAttributes order = {.srcAccessOrder =
					CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
	CUDA_MEMCPY3D_BATCH_OP op = {
	    .src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = src[0]},
	    .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = dst[0]},
	    .extent = {.width = bytes, .height = box->Height, .depth = 1},
	    .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
	};
	size_t sizes[] = {bytes, bytes};

	return bytes % 8 ? cuMemcpy3DBatchAsync(1, &op, 0, stream)
			 : cuMemcpyBatchAsync(dst, src, sizes, box->Height, &order,
					      &first, 1, stream);
}

/* Between any two devices, by each of the calls that do it in a stream. */
static CUresult copy_by_form(struct thread *t, struct stream *s,
			     const struct item *item, uint64_t dst, uint64_t src)
{
	CUDA_MEMCPY3D_PEER box = box_of(t, item, dst, src);
	CUDA_MEMCPY2D rows = {.srcMemoryType = box.srcMemoryType,
			      .srcDevice = src,
			      .srcPitch = box.srcPitch,
			      .dstMemoryType = box.dstMemoryType,
			      .dstDevice = dst,
			      .dstPitch = box.dstPitch,
			      .WidthInBytes = box.WidthInBytes,
			      .Height = box.Height};
	CUstream stream = stream_handle(t, s);
	unsigned form =
	    (s->capture ? 0 : item->value / 3 % 2 * 4) + item->value / 6 % 4;
	CUDA_MEMCPY3D layers;

	if (form == 6 &&
	    (s->kind == STREAM_LEGACY || t->model->setting->driver_version < 13000))
		form = 7;
	switch (form) {
	case 0:
		return cuMemcpyDtoDAsync(dst, src, item->words * 4ull, stream);
	case 1:
		return cuMemcpyAsync(dst, src, item->words * 4ull, stream);
	case 2:
		return cuMemcpy2DAsync(&rows, stream);
	case 3:
		box.srcContext = box.dstContext = NULL;
		memcpy(&layers, &box, sizeof(layers));
		return cuMemcpy3DAsync(&layers, stream);
	case 4:
	case 5:
		return cuMemcpy3DPeerAsync(&box, stream);
	case 6:
		return copy_in_a_batch(stream, &box);
	default:
		return cuMemcpyPeerAsync(dst, box.dstContext, src, box.srcContext,
					 item->words * 4ull, stream);
	}
}

/* Copies reach memory of a device without peer access, too, kernels and sets do not. */
static bool is_reached(const struct model *w, const struct stream *s,
		       const struct block *block)
{
	return !block || block->host || peers_are_open(w->setting) ||
	       block->device == w->contexts[s->context].device;
}

static CUresult submit_copy(struct thread *t, struct stream *s, const struct item *item,
			    uint64_t dst, uint64_t src)
{
	uint64_t words = item->words;
	void *copy[] = {&dst, &src, &words};

	if (item->dst->host)
		return cuMemcpyDtoHAsync((void *)(uintptr_t)dst, src, words * 4,
					 stream_handle(t, s));
	if (item->src->host)
		return cuMemcpyHtoDAsync(dst, (const void *)(uintptr_t)src, words * 4,
					 stream_handle(t, s));
	if (!s->capture && s->kind == STREAM_LEGACY && item->value % 3 == 2 &&
	    item->value / 3 % 2)
		return copy_at_once(t, s, item, dst, src);
	if (item->value % 3 == 0 && is_reached(t->model, s, item->dst) &&
	    is_reached(t->model, s, item->src))
		return launch(t, s, COPY, copy);
	return copy_by_form(t, s, item, dst, src);
}

CUresult item_submit(struct thread *t, struct stream *s, const struct item *item)
{
	const struct context *context = &t->model->contexts[s->context];
	uint64_t words = item->words,
		 wrong = context->counter ? context->counter->addr : 0;
	uint64_t dst = 0, src = 0, spin = item->spin_ns;
	uint32_t value = item->value;
	void *fill[] = {&dst, &words, &value, &spin};
	void *check[] = {&src, &words, &value, &wrong, &spin};

	if (item->dst)
		dst = item->dst->addr + item->dst->regions[item->dst_region].offset;
	if (item->src)
		src = item->src->addr + item->src->regions[item->src_region].offset;
	switch (item->kind) {
	case ITEM_FILL:
		return launch(t, s, spin ? FILL_SLOW : FILL, fill);
	case ITEM_CHECK:
		return launch(t, s, spin ? CHECK_SLOW : CHECK, check);
	case ITEM_ADD:
		return launch(t, s, ADD, fill);
	case ITEM_SET:
		return cuMemsetD32Async(dst, value, words, stream_handle(t, s));
	case ITEM_COPY:
		break;
	}
	return submit_copy(t, s, item, dst, src);
}

void item_apply(struct model *w, const struct item *item)
{
	struct region *dst = item->dst ? &item->dst->regions[item->dst_region] : NULL;
	const struct region *src =
	    item->src ? &item->src->regions[item->src_region] : NULL;

	(void)w;
	switch (item->kind) {
	case ITEM_FILL:
	case ITEM_SET:
		dst->known = item->words;
		dst->value = item->value;
		break;
	case ITEM_ADD:
		dst->known = dst->known < item->words ? dst->known : item->words;
		dst->value += item->value;
		break;
	case ITEM_COPY:
		dst->known = src->known < item->words ? src->known : item->words;
		dst->value = src->value;
		break;
	case ITEM_CHECK:
		break;
	}
}

/* --- at once --- */

static void item_touch(const struct item *item, struct mark mark)
{
	if (item->src)
		region_touch(&item->src->regions[item->src_region], mark, WANT_READ);
	if (item->dst)
		region_touch(&item->dst->regions[item->dst_region], mark, WANT_WRITE);
}

static bool item_order(struct thread *t, struct stream *s, const struct item *item,
		       unsigned how)
{
	if (item->src &&
	    !order_region(t, s, &item->src->regions[item->src_region], WANT_READ, how))
		return false;
	return !item->dst || order_region(t, s, &item->dst->regions[item->dst_region],
					  WANT_WRITE, how);
}

static void item_play(struct thread *t, struct stream *s, const struct item *item,
		      unsigned how)
{
	if (!item_order(t, s, item, how))
		return;
	if (!fine(t->model, item_submit(t, s, item), "work"))
		return;
	item_touch(item, order_step(t->model, s));
	item_apply(t->model, item);
}

/* --- host copies -------------------------------------------------------------- */

static void read_back(struct thread *t, struct block *block, unsigned number)
{
	struct region *region = block_region(block, number);
	struct stream *s = stream_pick(t, 0);
	uint32_t words[64];
	uint32_t count = region->known < 64 ? region->known : 64;
	bool good;

	if (count == 0 || !s || !legacy_is_free(t->model, s->context) ||
	    block_is_early(t->model, block) || !may_be_unsafe(t) ||
	    !order_region(t, s, region, WANT_READ, number))
		return;
	stream_handle(t, s);
	gcpsim_plain_asks(1);
	good = FINE(t, cuMemcpyDtoH(words, block->addr + region->offset, count * 4));
	gcpsim_plain_asks(-1);
	if (!good)
		return;
	region_touch(region, order_step(t->model, s), WANT_READ);
	clock_join(&t->model->host, &s->clock);
	for (uint32_t i = 0; i < count; i++)
		if (words[i] != region->value)
			failure(t->model, "word %u of 0x%lx is %u and should be %u", i,
				block->addr, words[i], region->value);
}

static void write_from_host(struct thread *t, struct block *block, const struct op *op)
{
	struct region *region = block_region(block, op->how);
	struct stream *s = stream_pick(t, 0);
	uint32_t words[64];
	uint32_t count = region->words < 64 ? region->words : 64;
	bool good;

	if (count == 0 || !s || !legacy_is_free(t->model, s->context) ||
	    block_is_early(t->model, block) ||
	    !order_region(t, s, region, WANT_WRITE, op->how))
		return;
	for (uint32_t i = 0; i < count; i++)
		words[i] = op->value;
	stream_handle(t, s);
	gcpsim_plain_asks(1);
	good = FINE(t, cuMemcpyHtoD(block->addr + region->offset, words, count * 4));
	gcpsim_plain_asks(-1);
	if (!good)
		return;
	region_touch(region, order_step(t->model, s), WANT_WRITE);
	region->known = count;
	region->value = op->value;
}

/* --- operations --- */

/* What an operation says, if it can be done. */
static bool item_of(struct model *w, const struct op *op, struct item *ret_item)
{
	static const enum item_kind kinds[OP_KINDS] = {
	    [OP_FILL] = ITEM_FILL,       [OP_SET] = ITEM_SET,
	    [OP_ADD] = ITEM_ADD,         [OP_CHECK] = ITEM_CHECK,
	    [OP_COPY] = ITEM_COPY,       [OP_PINNED_UP] = ITEM_COPY,
	    [OP_PINNED_DOWN] = ITEM_COPY};
	struct block *a = w->slots[op->a % BLOCK_SLOTS];
	struct block *b = w->slots[op->b % BLOCK_SLOTS];
	struct block *pin = w->pinned[op->b % PINNED_SLOTS];
	unsigned number = op->how & 1;
	struct item item = {.value = op->value,
			    .spin_ns = op->how & 2 ? op->bytes % SPIN_MAX : 0};
	struct region *region;

	if (op->kind == OP_PINNED_DOWN) {
		b = a;
		a = pin;
	} else if (op->kind == OP_PINNED_UP) {
		b = pin;
	}
	if (!a)
		return false;
	region = block_region(a, number);
	number = (unsigned)(region - a->regions);
	item.words = region->words;
	item.dst = a;
	item.dst_region = (uint8_t)number;
	item.kind = kinds[op->kind];
	if (item.kind == ITEM_CHECK) {
		item.dst = NULL;
		item.src = a;
		item.src_region = (uint8_t)number;
	} else if (item.kind == ITEM_COPY) {
		if (!b || a == b)
			return false;
		region = block_region(b, op->how >> 2);
		item.src = b;
		item.src_region = (uint8_t)(region - b->regions);
		if (item.words > region->words)
			item.words = region->words;
	}
	*ret_item = item;
	return item.words > 0;
}

static void item_op(struct thread *t, const struct op *op)
{
	struct item item;
	struct stream *s;

	if (!item_of(t->model, op, &item))
		return;
	s = stream_pick(t, op->c);
	if (!s || (s->kind == STREAM_LEGACY && !legacy_is_free(t->model, s->context)) ||
	    (item.kind != ITEM_COPY &&
	     !(is_reached(t->model, s, item.dst) && is_reached(t->model, s, item.src))))
		return;
	if (s->capture) {
		capture_item(t, s, &item);
		return;
	}
	if ((item.dst && block_is_early(t->model, item.dst)) ||
	    (item.src && block_is_early(t->model, item.src)))
		return;
	if (item.kind == ITEM_CHECK) {
		const struct region *region = &item.src->regions[item.src_region];

		item.words = region->known;
		item.value = region->value;
		if (item.words == 0 || !t->model->contexts[s->context].counter)
			return;
	}
	item_play(t, s, &item, op->how >> 3);
}

void work_play(struct thread *t, const struct op *op)
{
	struct block *block = t->model->slots[op->a % BLOCK_SLOTS];

	if (op->kind != OP_READ_BACK && op->kind != OP_WRITE)
		item_op(t, op);
	else if (block && op->kind == OP_WRITE)
		write_from_host(t, block, op);
	else if (block)
		read_back(t, block, op->how);
}
