/* SPDX-License-Identifier: MIT */
/*
 * copy.h - one copy on its way to a stream: what copy.c does for single copies, and
 * copy_batch.c for each one of a batch. Under the big lock.
 */
#ifndef SIM_COPY_H
#define SIM_COPY_H

#include "sim.h"

enum sim_side { SIDE_HOST, SIDE_DEVICE, SIDE_ANY };

struct sim_copy {
	CUstream stream;
	bool async;
	bool peer; /* between contexts that the call names */
	/* Of a batch: the source is read before the call returns; whenever it suits. */
	bool during_call, any_time;
	enum sim_side dst_side, src_side;
	uint64_t dst, src, bytes, rows, dst_pitch, src_pitch;
};

/* CUDA knows the memory; else it is pageable. */
struct sim_tracked {
	bool dst, src;
};

/* Whether the stream's device can make it, as far as a call tells. */
CUresult sim_copy_check(const struct sim_copy *c, const struct sim_stream *stream,
			struct sim_tracked *ret_tracked);
/* One that was checked. */
CUresult sim_copy_submit(const struct sim_copy *c, struct sim_stream *stream,
			 struct sim_tracked tracked);
/* The call returns when it is done. */
bool sim_copy_waits(const struct sim_copy *c, struct sim_tracked tracked);

#endif
