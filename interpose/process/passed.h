/* SPDX-License-Identifier: MIT */
/*
 * passed.h - memory of devices that the program has from the driver itself, because its
 * calls pass through: what of it the program holds, for the statistics and the quota.
 *
 * Called by the hooks, with no lock held.
 */
#ifndef GCP_INTERPOSE_PASSED_H
#define GCP_INTERPOSE_PASSED_H

#include "../cuda/symbols.h"
#include "../statistics/report.h"

/* Larger requests cannot succeed; the real function says so. */
#define GCP_BYTES_MAX ((size_t)1 << 46)

/* By what memory is given back. */
enum gcp_passed_kind {
	GCP_PASSED_ADDRESS,
	GCP_PASSED_ARRAY,
	GCP_PASSED_HANDLE, /* that of cuMemCreate */
	GCP_PASSED_MAPPING,
};

struct gcp_passed {
	enum gcp_counted_call call; /* which has given it */
	int device;
	uint64_t bytes;
};

/* A call for memory. memory.device is -1 where no quota counts it. */
struct gcp_pass {
	const char *call_name;
	struct gcp_passed memory;
	enum gcp_passed_kind kind;
	uint64_t start;
	bool counts; /* now */
};
/* Before each try. False: it is beyond the quota, and memory is out. */
bool gcp_pass_may(struct gcp_pass *pass);
/* After each. Returns `result`. */
CUresult gcp_pass_tried(struct gcp_pass *pass, CUresult result);
/* After the last: the program has got the memory of that key (0: no record is made), or
 * one line says that it has not. Returns `result`. */
CUresult gcp_pass_end(struct gcp_pass *pass, CUresult result, uint64_t key);

/* Which device's quota counts memory: of the current context, of cuMemCreate. -1: none.
 */
CUdevice gcp_device_here(void);
CUdevice gcp_passed_device(const CUmemAllocationProp *properties);
/* Of an array, without what the driver rounds up. */
uint64_t gcp_passed_array_bytes(size_t width, size_t height, size_t depth,
				CUarray_format format, unsigned int channels);

/* Memory of a handle is mapped. */
void gcp_passed_map(uint64_t handle, uint64_t addr);
/* Before the program gives back what has `count` keys from `key` on: what is known of
 * it does not count any more. Memory of a handle counts until that is released and
 * mapped nowhere. */
void gcp_passed_drop(enum gcp_passed_kind kind, uint64_t key, uint64_t count);

/* The context is gone, and its memory with it. */
void gcp_passed_context_gone(CUcontext ctx);

#endif
