/* SPDX-License-Identifier: MIT */
/*
 * trace_format.h - the file of a recording (GCPOOL_TRACE), byte by byte: what
 * trace_file.c writes and scripts/gcpool-trace reads. docs/looking-inside.md explains
 * it.
 *
 *   0         header, 4 KiB
 *   4 KiB     chunks of 1 MiB each, in the order in which the file grew
 *
 * A chunk begins with 64 bytes that say what it holds. A slot of events is whole when
 * its stamp is that of its place, so a file of a process that was killed is read as far
 * as it was written. All numbers are little endian. A reader refuses a higher version.
 */
#ifndef GCP_INTERPOSE_TRACE_FORMAT_H
#define GCP_INTERPOSE_TRACE_FORMAT_H

#include <stdint.h>

#define GCP_TRACE_MAGIC "GCPTRACE"

enum {
	GCP_TRACE_VERSION = 1,
	GCP_TRACE_HEADER_BYTES = 4096,
	GCP_TRACE_CHUNK_BYTES = 1 << 20,
	GCP_TRACE_FRAMES_MAX = 64,
};

struct gcp_trace_header {
	char magic[8];
	uint32_t version;
	uint32_t header_bytes, chunk_bytes, event_bytes;
	uint32_t chunk_slots; /* events in a chunk */
	uint32_t frames;      /* in an entry of stacks; 0: none are recorded */
	uint32_t pid, page_bytes;
	uint64_t start_time; /* of the process, in clock ticks since boot */
	uint64_t realtime_ns, monotonic_ns; /* when the recording began */
	_Atomic uint64_t end_ns;            /* monotonic; 0: it did not end by itself */
	_Atomic uint64_t chunks;            /* that the file has */
	_Atomic uint64_t lost_events;       /* overwritten by newer ones */
	_Atomic uint64_t lost_stacks;       /* for which there was no room */
	char host[64];
	char program[256]; /* arguments with spaces between, cut */
};

/* What a chunk holds. */
enum gcp_trace_content {
	GCP_TRACE_EMPTY,
	GCP_TRACE_EVENTS,  /* slots; overwritten, oldest first, when the file is full */
	GCP_TRACE_RARE,    /* slots of events that are never overwritten */
	GCP_TRACE_STACKS,  /* entries of 1 + frames words: a hash, and addresses till 0
			    */
	GCP_TRACE_MODULES, /* struct gcp_trace_module, one behind the other */
	GCP_TRACE_CONTENTS,
};

struct gcp_trace_chunk {
	_Atomic uint32_t content; /* enum gcp_trace_content; written last */
	uint32_t reserved;
	uint64_t number;        /* of this chunk among those of its content */
	_Atomic uint64_t bytes; /* MODULES: that are written */
	uint64_t unused[5];
};

struct gcp_trace_event {
	uint64_t time_ns; /* monotonic */
	uint64_t addr, bytes, arg;
	uint32_t more;
	uint32_t stack; /* number of an entry of stacks, from 1; 0: none */
	uint16_t thread;
	uint8_t kind; /* GCP_TRACE_KINDS */
	uint8_t device;
	_Atomic uint32_t
	    stamp; /* the slot's number of its content plus 1; written last */
};

enum {
	GCP_TRACE_CHUNK_SLOTS =
	    (GCP_TRACE_CHUNK_BYTES - sizeof(struct gcp_trace_chunk)) /
	    sizeof(struct gcp_trace_event) / 16 * 16,
};

/* An executable mapping of the process, as /proc/PID/maps had it. The path follows,
 * without a zero, and as many bytes as make a multiple of 8. */
struct gcp_trace_module {
	uint64_t time_ns;
	uint64_t start, end, offset;
	uint64_t path_bytes;
};

_Static_assert(sizeof(struct gcp_trace_header) <= GCP_TRACE_HEADER_BYTES, "one page");
_Static_assert(sizeof(struct gcp_trace_chunk) == 64, "the format");
_Static_assert(sizeof(struct gcp_trace_event) == 48, "the format");

/* X(number, name, addr, bytes, arg, more): what the fields mean, "" if nothing. took:
 * how long the call of the driver took, in ns. */
#define GCP_TRACE_KINDS(X)                                                             \
	X(1, thread, "of the kernel", "name, 8 bytes", "name, 8 more", "")             \
	X(2, device, "name, 8 bytes", "memory", "name, 8 more", "")                    \
	X(3, sample, "allocated", "active", "reserved", "private, in 4 KiB")           \
	X(4, out_of_memory, "", "asked for", "", "which limit")                        \
	X(6, context, "context", "", "", "")                                           \
	X(7, device_name, "8 more of it", "8 more", "8 more", "")                      \
	X(10, alloc, "block", "asked for", "", "of the block, in 512 bytes")           \
	X(11, alloc_graph, "block", "asked for", "heap", "of the block, in 512 bytes") \
	X(12, free, "block", "asked for", "", "of the block, in 512 bytes")            \
	X(13, free_graph, "block", "asked for", "heap", "of the block, in 512 bytes")  \
	X(14, free_async, "block", "asked for", "stream", "in 512 bytes")              \
	X(16, pass_alloc, "memory", "asked for", "", "took")                           \
	X(17, pass_free, "memory", "", "", "took")                                     \
	X(18, host_alloc, "block", "asked for", "", "flags")                           \
	X(19, host_free, "block", "", "", "")                                          \
	X(20, free_wrong, "address", "", "", "1: freed already, 2: not known")         \
	X(30, segment_alloc, "segment", "of it", "context", "took")                    \
	X(31, segment_free, "segment", "", "context", "took")                          \
	X(32, segment_refused, "", "asked for", "context", "result")                   \
	X(33, vm_reserve, "addresses", "of them", "", "took")                          \
	X(34, vm_unreserve, "addresses", "of them", "", "took")                        \
	X(35, vm_map, "addresses", "mapped", "handle", "took")                         \
	X(36, vm_unmap, "addresses", "unmapped", "", "took")                           \
	X(37, vm_create, "handle", "of it", "", "took")                                \
	X(38, vm_release, "handle", "", "", "took")                                    \
	X(39, driver_trim, "", "", "context", "took")                                  \
	X(40, fence_record, "fence", "", "context", "took")                            \
	X(41, fence_done, "fence", "", "", "")                                         \
	X(42, fence_wait, "fence", "", "", "took")                                     \
	X(43, fence_order, "fence", "", "", "took")                                    \
	X(44, context_wait, "", "", "context", "took")                                 \
	X(45, host_segment_alloc, "memory", "of it", "context", "took")                \
	X(46, host_segment_free, "memory", "", "context", "took")                      \
	X(50, capture_begin, "", "", "stream", "mode")                                 \
	X(51, capture_end, "", "", "stream", "result")

#define GCP_X(number, name, addr, bytes, arg, more) GCP_TRACE_##name = number,
enum gcp_trace_kind { GCP_TRACE_NOTHING, GCP_TRACE_KINDS(GCP_X) };
#undef GCP_X

#endif
