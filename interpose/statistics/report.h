/* SPDX-License-Identifier: MIT */
/*
 * report.h - what happened: statistics of the program's calls, and the report.
 *
 * The hooks call gcp_call_stats_*; the end of the process calls gcp_report_exit.
 * Callable from any thread, with no lock of the pools held. Never calls CUDA,
 * never changes errno, never uses malloc or stdio.
 *
 * Counted are calls of GCP_COUNTED_CALLS that pass through to the driver. What the pool
 * serves is counted by the pool itself, without shared counters.
 *
 * The JSON report is one object on one line, appended to GCPOOL_STATS_FILE
 * (several processes: one line each). Names stay; new ones may come.
 *
 *   schema             3; grows when a name goes or changes its meaning
 *   library, version   "libgcpool", "0.2.0"
 *   commit             that it was built from, "b56b6bd0"; absent: unknown
 *   mode               "pool"
 *   final              false: the process goes on (gcpool ctl)
 *   pid, program       of the process
 *   arguments          [ its command line, 2 KiB of it at most ]
 *   hostname           of the machine
 *   started            time of the first allocation, "2026-01-31T23:59:59Z"
 *   seconds            from then to this report
 *   driver, cuda       "580.159.04", "13.0"; absent: unknown
 *   asleep_bytes       kept on the host; absent: the process is awake
 *   help_asked, help_got_bytes, help_given_bytes
 *                      memory lent between processes; absent: none
 *   options            { NAME: value }: options in force that are not the default
 *   calls              { NAME of GCP_COUNTED_CALLS: {count, failed, bytes, ns,
 *                      held_bytes} }; bytes of those that succeeded; held: now
 *   host               pinned memory, if there was any:
 *     GAUGE of pool.h's GCP_PINNED_ tables  {current, peak, allocated, freed}
 *     COUNTER            number
 *     driver_calls       { CALL: {count, ns, mean_ns, min_ns, max_ns} }
 *   devices            [ one object for each device used:
 *     device             its number
 *     name, uuid, pci, memory_bytes
 *                        of the device; absent: unknown
 *     GAUGE of pool.h    {current, peak, allocated, freed}
 *     COUNTER of pool.h  number
 *     driver_calls       { CALL of pool.h: {count, ns} }: made by the library
 *     largest_free_bytes, reserved_at_peak_bytes, mapped_bytes
 *     passed_bytes       of the device, of what passes through and counts against the
 *                        quota, in whole 2 MiB: all but managed memory
 *     other_bytes        used on the device beside reserved_bytes and passed_bytes when
 *                        the library asked last: CUDA's own, managed memory, what the
 *                        driver's pools keep, and that of other processes
 *   ]
 */
#ifndef GCP_INTERPOSE_REPORT_H
#define GCP_INTERPOSE_REPORT_H

#include "../base/options.h"

/* The driver's calls that are counted, all versions of each; host_alloc: also
 * cuMemAllocHost; array_create: 3D and mipmapped ones, too. */
#define GCP_COUNTED_CALLS(X)                                                           \
	X(mem_alloc)                                                                   \
	X(mem_free)                                                                    \
	X(mem_alloc_pitch)                                                             \
	X(mem_alloc_managed)                                                           \
	X(mem_alloc_async)                                                             \
	X(mem_alloc_from_pool)                                                         \
	X(mem_free_async)                                                              \
	X(mem_create)                                                                  \
	X(mem_host_alloc)                                                              \
	X(mem_host_free)                                                               \
	X(array_create)                                                                \
	X(mem_get_info)

enum gcp_counted_call {
#define GCP_X(name) GCP_COUNTED_##name,
	GCP_COUNTED_CALLS(GCP_X)
#undef GCP_X
	    GCP_COUNTED_CALL_COUNT
};

/* Sums over the life of the process, and when that began (gcp_call_stats_begin), or 0.
 */
extern struct gcp_call_stats {
	_Atomic uint64_t count, failed; /* calls */
	_Atomic uint64_t bytes;         /* of calls that succeeded */
	_Atomic uint64_t ns;
	_Atomic uint64_t held; /* bytes that the program has now */
} gcp_call_stats[GCP_COUNTED_CALL_COUNT];
extern _Atomic uint64_t gcp_call_stats_start_ns;

/* The first allocation of the process: time starts. */
void gcp_call_stats_begin(void);

/* A call that reached the driver returned `result` (a CUresult); it began at
 * `start_ns` (gcp_clock_ns) and was to give or take `bytes` (0: unknown). */
void gcp_call_stats_add(enum gcp_counted_call call, uint64_t start_ns, uint64_t bytes,
			int result);

/* Appends the report to `text`, as JSON or as text; takes the locks of the statistics.
 * Only while pooling. under_way: the process goes on. */
void gcp_report_add(bool json, bool under_way, struct gcp_text *text);

/* Of it, what is said of the process and its devices (report_process.c). */
struct gcp_writer;
void gcp_report_process(struct gcp_writer *writer, bool under_way);
void gcp_report_gpu(struct gcp_writer *writer, int device);

/* What CUDA says of a device, asked by the hooks in a call of the program that uses the
 * device. Empty strings: unknown. */
struct gcp_gpu {
	char name[96];
	char uuid[48]; /* "GPU-" or "MIG-" and 36 characters, as nvidia-smi prints it */
	char pci[16];  /* "0000:3b:00.0" */
	uint64_t bytes;
	int cuda; /* 13000: CUDA 13.0; 0: unknown */
};
bool gcp_report_knows_gpu(int device);
/* As in struct gcp_gpu; empty: it is not known. */
const char *gcp_report_uuid(int device);
/* So many bytes of it are used by none of what is counted. */
void gcp_report_note_others(int device, uint64_t bytes);
void gcp_report_note_gpu(int device, const struct gcp_gpu *gpu);

/* At the end of the process: writes what GCPOOL_STATS asks for to where
 * GCPOOL_STATS_FILE says. Called once, and not in a forked child. */
void gcp_report_exit(void);

#endif
