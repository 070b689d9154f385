/* SPDX-License-Identifier: MIT */
/*
 * report_write.c - when the report is written, and where to. See report.h.
 *
 * At the end of the process, and with GCPOOL_STATS_EVERY inside calls of the program.
 * Each report is appended: several processes may share a file. A report that cannot be
 * written is said in one line; the last one goes to stderr then.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "../base/clock.h"
#include "../base/process.h"
#include "report.h"

/* More than 64 devices with all that can be said of them. */
enum { REPORT_BYTES_MAX = 4 << 20 };

/* Reports are written one at a time. */
static atomic_flag writing = ATOMIC_FLAG_INIT;

static void failure_say(int error, bool final)
{
	const char *file = gcp_process.options.stats_file;
	GCP_TEXT(text, 64);

	gcp_text_add_errno(&text, error);
	gcp_log(GCP_LOG_WARNING, "cannot write the statistics to %.200s (%s), %s",
		file[0] ? file : "stderr", text.bytes,
		final ? "writing them to stderr" : "trying again later");
}

static void report_write(bool final)
{
	const struct gcp_options *options = &gcp_process.options;
	struct gcp_report report = {gcp_process.pools, options, .under_way = !final};
	struct gcp_text text;
	void *memory = mmap(NULL, REPORT_BYTES_MAX, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int error;

	if (memory == MAP_FAILED) {
		gcp_log(GCP_LOG_WARNING,
			"no memory for the statistics, leaving them out");
		return;
	}
	GCP_CANCEL_LATER; /* others wait until it is written */
	gcp_text_init(&text, memory, REPORT_BYTES_MAX);
	gcp_report_add(&report, options->stats == GCP_STATS_JSON, &text);
	error = gcp_text_put(&text, options->stats_file);
	if (error)
		failure_say(error, final);
	if (error && final && options->stats_file[0])
		(void)gcp_text_put(&text, "");
	munmap(memory, REPORT_BYTES_MAX);
}

/* --- at exit ------------------------------------------------------------------- */

void gcp_report_exit(void)
{
	GCP_KEEP_ERRNO;

	if (gcp_process.options.stats == GCP_STATS_OFF)
		return;
	for (int turn = 0; atomic_flag_test_and_set(&writing); turn++)
		gcp_pause(turn); /* another thread writes; none does afterwards */
	report_write(true);
}

/* --- from time to time ------------------------------------------------------------ */

/* Whether it is time, for one caller of many. */
static bool is_due(uint64_t every_ns)
{
	static _Atomic(uint64_t) last_ns; /* 0: there was none */
	uint64_t now = gcp_clock_ns(), last = atomic_load(&last_ns);
	uint64_t since = last ? last : gcp_call_stats_start_ns;

	return now - since >= every_ns &&
	       atomic_compare_exchange_strong(&last_ns, &last, now);
}

void gcp_report_tick(void)
{
	GCP_KEEP_ERRNO;

	if (!is_due(gcp_process.options.stats_every * 1000000000ull) ||
	    atomic_flag_test_and_set(&writing))
		return;
	report_write(false);
	atomic_flag_clear(&writing);
}
