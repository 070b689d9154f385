/* SPDX-License-Identifier: MIT */
/*
 * options_table.c - the table of options: where a value lies, what it may be, and what
 * it is when the environment does not say. The defaults of sizes are those of
 * gcp_config_default.
 */
#include <string.h>

#include "options.h"

#define FIELD(field)                                                                   \
	.offset = offsetof(struct gcp_options, field),                                 \
	.size = sizeof(((struct gcp_options *)0)->field)

#define SWITCH(field) GCP_OPTION_CHOICE, FIELD(field), .values = "0|1", .on = "1"
#define NUMBER(kind, field, shown, bounds)                                             \
	GCP_OPTION_##kind, FIELD(field), .standard = shown, .values = bounds
/* 16T is more than any device has. */
#define BYTES "0 to 16T"
#define LIMIT "0 to 16T, N%, none"
#define QUOTA "1 to 16T, N%, none"
#define PATH  "a path"

enum { TEST_OPTIONS = 6 }; /* the last ones */

const struct gcp_option gcp_option_table[] = {
    {"GCPOOL_MODE", "pool; off: plain CUDA", GCP_OPTION_CHOICE, FIELD(mode),
     .values = "pool|off", .on = "pool"},
    {"GCPOOL_BACKEND",
     "vmm: unused memory anywhere serves any request, by mapping it there; segments: "
     "memory of the driver; auto: mapped where it does all that the driver's does",
     GCP_OPTION_CHOICE, FIELD(pool.backend), .values = "auto|vmm|segments"},
    {"GCPOOL_THREAD_CACHE", "most that a thread keeps for itself",
     NUMBER(BYTES, pool.thread_cache_bytes, "32M", BYTES), .nothing = "none"},
    {"GCPOOL_CACHE_LIMIT",
     "most unused memory kept per context; 0: frees wait and give all back",
     NUMBER(LIMIT, pool.cache_limit, "none", LIMIT)},
    {"GCPOOL_DECAY", "milliseconds after which memory that nothing used goes back",
     NUMBER(COUNT, pool.decay_ms, "10000", "0 to 1073741824"), .nothing = "never"},
    {"GCPOOL_QUOTA", "how large a device is to the program",
     NUMBER(LIMIT, pool.quota, "none", QUOTA)},
    {"GCPOOL_SPILL", "most memory of the host taken where a device is full",
     NUMBER(LIMIT, spill, "0", LIMIT), .of_host = true},
    {"GCPOOL_BLOCKING_FREE", "a free waits for the device, as plain cudaFree does",
     SWITCH(pool.blocking_free)},
    {"GCPOOL_REUSE",
     "completed: no reuse before the device is done; auto: so if RDMA is loaded",
     GCP_OPTION_CHOICE, FIELD(pool.completed_only), .values = "auto|completed"},
    {"GCPOOL_HOST", "pinned host memory is pooled, too", SWITCH(pool.pinned)},
    {"GCPOOL_HOST_WINDOW",
     "freed pinned bytes of a context that may wait for the device; then a free waits",
     NUMBER(BYTES, pool.pinned_window, "256M", BYTES)},
    {"GCPOOL_HOST_CACHE_LIMIT",
     "most unused pinned memory kept; 0: frees wait and give all back",
     NUMBER(LIMIT, pool.pinned_cache_limit, "none", LIMIT), .of_host = true},
    {"GCPOOL_HOST_QUOTA", "most pinned memory held",
     NUMBER(LIMIT, pool.pinned_quota, "none", QUOTA), .of_host = true},
    {"GCPOOL_THREAD",
     "a thread gives back what is idle, and looks whether pinned memory is ready",
     SWITCH(thread)},
    {"GCPOOL_ASYNC", "mapped pools serve stream-ordered memory, too", SWITCH(async)},
    {"GCPOOL_GRAPH_SHARE",
     "captured graphs that do not run at the same time share mapped memory",
     SWITCH(graph_share)},
    {"GCPOOL_HANDLES",
     "libgcpool-handles.so pools handles of cuBLAS, cuDNN, ...; sync: a destroy waits",
     GCP_OPTION_CHOICE, FIELD(handles), .values = "0|1|sync", .on = "1"},
    {"GCPOOL_LOG", "what is said", GCP_OPTION_CHOICE, FIELD(log_level),
     .values = "off|error|warn|info|debug"},
    {"GCPOOL_LOG_FILE", "where it is said; %p is the process id", GCP_OPTION_TEXT,
     FIELD(log_file), .values = PATH, .nothing = "stderr"},
    {"GCPOOL_STATS", "statistics at exit", GCP_OPTION_CHOICE, FIELD(stats),
     .values = "off|text|json", .on = "text"},
    {"GCPOOL_STATS_FILE", "where they are appended; %p is the process id",
     GCP_OPTION_TEXT, FIELD(stats_file), .values = PATH, .nothing = "stderr"},
    {"GCPOOL_LIVE",
     "a page of shared memory for gcpool top and gcpool ctl; sets GCPOOL_THREAD",
     SWITCH(live)},
    {"GCPOOL_CONTROL", "sets GCPOOL_LIVE, _WAKE; for gcpool ctl sleep, and help",
     SWITCH(control)},
    {"GCPOOL_WAKE",
     "the process may sleep; auto: its next call wakes it; manual: that call waits",
     GCP_OPTION_CHOICE, FIELD(wake), .values = "off|auto|manual", .on = "auto"},
    {"GCPOOL_WAKE_WAIT", "seconds to wait for memory at a wake",
     NUMBER(COUNT, wake_wait, "60", "0 to 16777216")},
    {"GCPOOL_TRACE", "file of a recording for gcpool-trace; %p is the process id",
     GCP_OPTION_TEXT, FIELD(trace_file), .values = PATH, .nothing = "none"},
    {"GCPOOL_TRACE_SIZE", "its size at most; then the newest events stay",
     NUMBER(BYTES, trace_bytes, "256M", "8M to 16G by 1M")},
    {"GCPOOL_TRACE_STACKS", "frames of the call stack in each recorded event",
     NUMBER(COUNT, trace_frames, "none", "0 to 64"), .nothing = "none"},
    {"GCPOOL_DEBUG",
     "finds writes behind blocks (guard) and to freed ones (poison), and blocks that "
     "are never freed",
     NUMBER(SET, debug, "off", "poison|guard|leaks|all")},
    {"GCPOOL_STRICT", "a wrong option ends the program, with exit code 2",
     SWITCH(strict)},
    /* For tests alone: not shown to users, and not promised. */
    {"GCPOOL_TEST_CLASS_STEPS", "size classes (buckets) per power of two",
     NUMBER(COUNT, pool.class_steps, "8", "1 to 64")},
    {"GCPOOL_TEST_CLASS_MIN", "smallest size class",
     NUMBER(BYTES, pool.class_min, "512", "512 to 64M by 512")},
    {"GCPOOL_TEST_CLASS_MAX", "largest size class; beyond it sizes round up to 4 KiB",
     NUMBER(BYTES, pool.class_max, "1M", "512 to 64M by 512")},
    {"GCPOOL_TEST_WINDOW", "growth bound: freed bytes that may wait for the device",
     NUMBER(BYTES, pool.window_bytes, "56M", BYTES)},
    {"GCPOOL_TEST_WINDOW_BLOCKS",
     "growth bound: freed blocks of one size that may wait",
     NUMBER(COUNT, pool.window_blocks, "1024", "1 to 1048576")},
    {"GCPOOL_TEST_FENCE_BATCH", "frees of one thread that share a fence",
     NUMBER(COUNT, pool.epoch_blocks, "256", "1 to 65536")},
};
_Static_assert(sizeof(gcp_option_table) / sizeof(gcp_option_table[0]) <=
		   GCP_OPTIONS_MAX,
	       "room for what is given");
const size_t gcp_option_all_count =
    sizeof(gcp_option_table) / sizeof(gcp_option_table[0]);
const size_t gcp_option_count =
    sizeof(gcp_option_table) / sizeof(gcp_option_table[0]) - TEST_OPTIONS;

void gcp_options_default(struct gcp_options *options)
{
	memset(options, 0, sizeof(*options));
	options->log_level = GCP_LOG_WARNING;
	options->trace_bytes = 256 << 20;
	options->async = options->graph_share = true;
	options->handles = 1;
	options->wake_wait = 60;
	gcp_config_default(&options->pool);
	options->pool.backend = GCP_BACKEND_AUTO;
}
