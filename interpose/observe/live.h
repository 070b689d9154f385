/* SPDX-License-Identifier: MIT */
/*
 * live.h - the live view (GCPOOL_LIVE=1): a page of shared memory that `gcpool top`
 * reads, and through which `gcpool ctl` asks for something.
 *
 * Called by instruments.c. The page is
 * /dev/shm/gcpool.UID/NAMESPACE.PID (namespace of process numbers), and a large answer
 * is that name with .reply behind it. The directory must be its user's, and closed to
 * all others: what lies in it is that user's then. A process whose real and effective
 * users differ has no page.
 * The library's thread writes it, every tenth of a second, and does what is asked for.
 */
#ifndef GCP_INTERPOSE_LIVE_H
#define GCP_INTERPOSE_LIVE_H

#include "../statistics/report.h"

#define GCP_LIVE_MAGIC "GCPLIVE1"

enum {
	GCP_LIVE_VERSION = 8,
	GCP_LIVE_BYTES = 1 << 17,
	GCP_LIVE_DEVICES = 16,
};

/* What may be asked for. */
enum gcp_live_kind {
	GCP_LIVE_NOTHING,
	GCP_LIVE_TRIM,     /* gcpool_trim of each device; argument: bytes to keep */
	GCP_LIVE_STATS,    /* the report as JSON, into the reply */
	GCP_LIVE_SNAPSHOT, /* all blocks, into the reply: struct gcp_live_block */
	GCP_LIVE_QUOTA,    /* argument: the quota from now on, a limit of pool.h */
	GCP_LIVE_SLEEP,    /* argument: milliseconds; a sentence, into the reply. The
			    * highest bit: to a file in the directory to which the link
			    * <page>.to leads, which the process opens by its rights */
	GCP_LIVE_WAKE,     /* a sentence, into the reply */
	GCP_LIVE_HELP, /* argument: bytes that another process lacks on the device */
};

/* With GCPOOL_CONTROL: what other processes may ask for. */
struct gcp_live_device {
	char uuid[48];
	_Atomic uint64_t unused; /* bytes */
	uint64_t asked_ns;       /* monotonic, written by the one that asks */
};

/* The page. scripts/gcpool_trace/live.py reads it: what changes here changes the
 * version. */
struct gcp_live_page {
	char magic[8];
	uint32_t version, bytes;
	/* A request: written by gcpool ctl, `asked` last; the answer, `done` last. */
	_Atomic uint32_t asked, done;
	uint32_t kind, result; /* result: 0 or an errno */
	uint64_t argument, answer;
	uint64_t start_time;       /* of the process: process_identity.h */
	_Atomic uint64_t sequence; /* odd: what follows is just written */
	uint64_t updated_ns;       /* monotonic; 0: not yet */
	uint64_t length;           /* of the text */
	uint64_t device;           /* of GCP_LIVE_HELP */
	char trace[GCP_PATH_MAX];  /* GCPOOL_TRACE */
	struct gcp_live_device devices[GCP_LIVE_DEVICES];
	char text[]; /* the report as JSON, without single blocks */
};

/* A block of a snapshot. */
struct gcp_live_block {
	uint64_t addr, size, requested;
	uint32_t device, used;
};

/* Makes the page. False: one line has said why not. */
bool gcp_live_start(const struct gcp_options *options);
/* The process ends: the page goes. */
void gcp_live_end(void);

/* From time to time, in the library's thread, with no lock held. */
void gcp_live_occasion(void);

#endif
