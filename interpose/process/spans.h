/* SPDX-License-Identifier: MIT */
/*
 * spans.h - ranges of device memory, and memory of the host or of a file that keeps
 * their content. Called by sleep.c with its lock held.
 */
#ifndef GCP_INTERPOSE_SPANS_H
#define GCP_INTERPOSE_SPANS_H

#include "../base/process.h"

struct gcp_span {
	CUcontext ctx; /* that copies it */
	CUdeviceptr addr;
	uint64_t bytes;
	uint64_t at; /* in the host's memory */
};

struct gcp_spans {
	struct gcp_span *at; /* in the order of `at` */
	size_t count, room;
	uint64_t bytes;
	char *host;  /* bytes */
	void *stage; /* pinned, for copies on their way */
	uint32_t stages;
};

/* False: no memory. */
bool gcp_spans_add(struct gcp_spans *spans, const struct gcp_block_view *block);
/* Returns the bytes of the host that may be taken, less a tenth of its memory and of
 * the limit of each cgroup that the process is in. */
uint64_t gcp_host_room(void);
/* Takes the memory of the host or, unless `place` is empty, of a file in that
 * directory: it has all its room, and no name any more. 0, or an errno. */
int gcp_spans_open(struct gcp_spans *spans, const char *place);
/* Copies all of it to the host, or back to the device. 0, or the driver's error. */
int gcp_spans_copy(struct gcp_spans *spans, bool out);
/* Gives everything back: it is as at the start. */
void gcp_spans_close(struct gcp_spans *spans);

#endif
