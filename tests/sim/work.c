/* SPDX-License-Identifier: MIT */
/*
 * work.c - what work does when it runs: kernels, copies and sets on the bytes
 * of the simulated memory.
 *
 * Called by schedule.c under the big lock, with the memory as it is then: an
 * address that is not allocated any more is a fault, as on a GPU, and sticks
 * to the context. Knows nothing of order.
 */
#include "sim.h"

static const char *const kernel_names[SIM_KERNEL_COUNT] = {
    [SIM_KERNEL_FILL] = "gcpt_fill",
    [SIM_KERNEL_CHECK] = "gcpt_check",
    [SIM_KERNEL_COPY] = "gcpt_copy",
    [SIM_KERNEL_ADD] = "gcpt_add",
    [SIM_KERNEL_SPIN] = "gcpt_spin",
    [SIM_KERNEL_FILL_SLOW] = "gcpt_fill_slow",
    [SIM_KERNEL_CHECK_SLOW] = "gcpt_check_slow",
    [SIM_KERNEL_TRAP] = "gcpt_trap",
};

const char *sim_work_name(const struct sim_work *work)
{
	switch (work->kind) {
	case SIM_WORK_KERNEL:
		return kernel_names[work->kernel];
	case SIM_WORK_COPY:
		return "copy";
	case SIM_WORK_SET:
		return "memset";
	case SIM_WORK_HOST:
		return "host function";
	case SIM_WORK_ALLOC:
		return "cuMemAllocAsync";
	case SIM_WORK_FREE:
	case SIM_WORK_GRAPH_FREE:
		return "cuMemFreeAsync";
	case SIM_WORK_NOTHING:
		break;
	}
	return "nothing";
}

/* --- ownership ------------------------------------------------------------ */

void sim_work_copy(struct sim_work *work, const struct sim_work *other)
{
	*work = *other;
	if (work->kind == SIM_WORK_COPY && other->copy.staged) {
		uint64_t bytes = work->copy.bytes * work->copy.rows;

		work->copy.staged = sim_calloc(bytes);
		memcpy(work->copy.staged, other->copy.staged, bytes);
	}
}

void sim_work_finish(struct sim_work *work)
{
	if (work->kind == SIM_WORK_COPY)
		free(work->copy.staged);
}

/* --- reaching memory ------------------------------------------------------ */

static void *reach(struct sim_ctx *ctx, const struct sim_work *work, uint64_t addr,
		   uint64_t bytes, bool writes)
{
	void *view = sim_memory_device_view(ctx, addr, bytes, writes);

	if (!view)
		sim_report(&sim.faults,
			   "fault: %s %s bytes 0x%lx-0x%lx, which are not allocated or "
			   "not accessible on device %d",
			   sim_work_name(work), writes ? "writes" : "reads", addr,
			   (addr + bytes - 1), ctx->device);
	return view;
}

/* Copies may go between any two devices and from and to any host memory. */
static void *reach_copy(const struct sim_work *work, uint64_t addr, uint64_t bytes,
			bool writes)
{
	void *view = sim_memory_host_view(addr, bytes, writes);

	if (!view && !sim_memory_is_device(addr) && !sim_memory_find(addr))
		return (void *)(uintptr_t)addr;
	if (!view)
		sim_report(&sim.faults,
			   "fault: %s %s bytes 0x%lx-0x%lx, which are not allocated",
			   sim_work_name(work), writes ? "writes" : "reads", addr,
			   (addr + bytes - 1));
	return view;
}

/* --- kernels -------------------------------------------------------------- */

static CUresult run_fill(struct sim_ctx *ctx, const struct sim_work *work)
{
	uint64_t n = work->launch.arg[1];
	uint32_t *p = reach(ctx, work, work->launch.arg[0], n * 4, true);

	SIM_FAIL_IF(ILLEGAL_ADDRESS, !p);
	for (uint64_t i = 0; i < n; i++)
		p[i] = (uint32_t)work->launch.arg[2];
	return CUDA_SUCCESS;
}

static CUresult run_check(struct sim_ctx *ctx, const struct sim_work *work)
{
	uint64_t n = work->launch.arg[1], bad = 0;
	const uint32_t *p = reach(ctx, work, work->launch.arg[0], n * 4, false);
	unsigned long long *wrong = reach(ctx, work, work->launch.arg[3], 8, true);

	SIM_FAIL_IF(ILLEGAL_ADDRESS, !p || !wrong);
	for (uint64_t i = 0; i < n; i++)
		bad += p[i] != (uint32_t)work->launch.arg[2];
	if (bad)
		__atomic_fetch_add(wrong, bad, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

static CUresult run_copy_kernel(struct sim_ctx *ctx, const struct sim_work *work)
{
	uint64_t bytes = work->launch.arg[2] * 4;
	void *dst = reach(ctx, work, work->launch.arg[0], bytes, true);
	const void *src = reach(ctx, work, work->launch.arg[1], bytes, false);

	SIM_FAIL_IF(ILLEGAL_ADDRESS, !dst || !src);
	memmove(dst, src, bytes);
	return CUDA_SUCCESS;
}

static CUresult run_add(struct sim_ctx *ctx, const struct sim_work *work)
{
	uint64_t n = work->launch.arg[1];
	uint32_t *p = reach(ctx, work, work->launch.arg[0], n * 4, true);

	SIM_FAIL_IF(ILLEGAL_ADDRESS, !p);
	for (uint64_t i = 0; i < n; i++)
		p[i] += (uint32_t)work->launch.arg[2];
	return CUDA_SUCCESS;
}

static CUresult run_kernel(struct sim_ctx *ctx, const struct sim_work *work)
{
	bool empty = work->kernel != SIM_KERNEL_SPIN &&
		     work->kernel != SIM_KERNEL_TRAP &&
		     work->launch.arg[work->kernel == SIM_KERNEL_COPY ? 2 : 1] == 0;

	if (empty)
		return CUDA_SUCCESS;
	switch (work->kernel) {
	case SIM_KERNEL_FILL:
	case SIM_KERNEL_FILL_SLOW:
		return run_fill(ctx, work);
	case SIM_KERNEL_CHECK:
	case SIM_KERNEL_CHECK_SLOW:
		return run_check(ctx, work);
	case SIM_KERNEL_COPY:
		return run_copy_kernel(ctx, work);
	case SIM_KERNEL_ADD:
		return run_add(ctx, work);
	case SIM_KERNEL_TRAP:
		return CUDA_ERROR_LAUNCH_FAILED;
	case SIM_KERNEL_SPIN:
	case SIM_KERNEL_COUNT:
		break;
	}
	return CUDA_SUCCESS;
}

/* --- copies and sets ------------------------------------------------------ */

static CUresult run_copy(const struct sim_work *work)
{
	uint64_t bytes = work->copy.bytes;

	for (uint64_t row = 0; row < work->copy.rows && bytes > 0; row++) {
		void *dst = reach_copy(
		    work, work->copy.dst + row * work->copy.dst_pitch, bytes, true);
		const void *src =
		    work->copy.staged
			? (const char *)work->copy.staged + row * bytes
			: reach_copy(work, work->copy.src + row * work->copy.src_pitch,
				     bytes, false);

		SIM_FAIL_IF(ILLEGAL_ADDRESS, !dst || !src);
		memmove(dst, src, bytes);
	}
	return CUDA_SUCCESS;
}

static void set_row(void *row, uint64_t value, uint64_t width, uint64_t count)
{
	uint16_t *halves = row;
	uint32_t *words = row;

	if (width == 1)
		memset(row, (int)value, count);
	else if (width == 2)
		for (uint64_t i = 0; i < count; i++)
			halves[i] = (uint16_t)value;
	else
		for (uint64_t i = 0; i < count; i++)
			words[i] = (uint32_t)value;
}

static CUresult run_set(struct sim_ctx *ctx, const struct sim_work *work)
{
	uint64_t bytes = work->set.count * work->set.width;

	for (uint64_t row = 0; row < work->set.rows && bytes > 0; row++) {
		void *p = reach(ctx, work, work->set.dst + row * work->set.pitch, bytes,
				true);

		SIM_FAIL_IF(ILLEGAL_ADDRESS, !p);
		set_row(p, work->set.value, work->set.width, work->set.count);
	}
	return CUDA_SUCCESS;
}

CUresult sim_work_run(struct sim_ctx *ctx, const struct sim_work *work)
{
	struct sim_alloc *alloc;

	switch (work->kind) {
	case SIM_WORK_KERNEL:
		return run_kernel(ctx, work);
	case SIM_WORK_COPY:
		return run_copy(work);
	case SIM_WORK_SET:
		return run_set(ctx, work);
	case SIM_WORK_FREE:
		alloc = sim_memory_find(work->memory.addr);
		if (alloc)
			sim_memory_free(alloc);
		break;
	case SIM_WORK_ALLOC:
	case SIM_WORK_GRAPH_FREE:
	case SIM_WORK_HOST:
	case SIM_WORK_NOTHING:
		break;
	}
	return CUDA_SUCCESS;
}
