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
	bool dst_tracked, src_tracked; /* once checked: CUDA knows it; else pageable */
	uint64_t dst, src, bytes, rows, dst_pitch, src_pitch;
};

/* One row. */
static inline struct sim_copy sim_copy_line(enum sim_side dst_side, uint64_t dst,
					    enum sim_side src_side, uint64_t src,
					    uint64_t bytes)
{
	return (struct sim_copy){.dst_side = dst_side,
				 .src_side = src_side,
				 .dst = dst,
				 .src = src,
				 .bytes = bytes,
				 .rows = 1,
				 .dst_pitch = bytes,
				 .src_pitch = bytes};
}

/* Whether the stream's device can make it, as far as a call tells. */
CUresult sim_copy_check(struct sim_copy *c, const struct sim_stream *stream);
/* One that was checked. */
CUresult sim_copy_submit(const struct sim_copy *c, struct sim_stream *stream);
/* The call returns when it is done. */
bool sim_copy_waits(const struct sim_copy *c);

#endif
