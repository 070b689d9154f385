/* SPDX-License-Identifier: MIT */
/*
 * report_write.c - when the report is written, and where to. See report.h.
 *
 * At the end of the process; appended, for several processes may share a file. One that
 * cannot be written there is said in one line, and goes to stderr.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "../base/process.h"
#include "report.h"

/* More than 64 devices with all that can be said of them. */
enum { REPORT_BYTES_MAX = 4 << 20 };

static void failure_say(int error)
{
	const char *file = gcp_process.options.stats_file;

	gcp_log(GCP_LOG_WARNING,
		"cannot write the statistics to %.200s (%s), writing them to stderr",
		file[0] ? file : "stderr", gcp_errno_words(error));
}

void gcp_report_exit(void)
{
	const struct gcp_options *options = &gcp_process.options;
	struct gcp_text text;
	void *memory;
	int error;
	GCP_KEEP_ERRNO;

	if (options->stats == GCP_STATS_OFF)
		return;
	GCP_CANCEL_LATER;
	memory = mmap(NULL, REPORT_BYTES_MAX, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED) {
		gcp_log(GCP_LOG_WARNING,
			"no memory for the statistics, leaving them out");
		return;
	}
	gcp_text_init(&text, memory, REPORT_BYTES_MAX);
	gcp_report_add(options->stats == GCP_STATS_JSON, false, &text);
	error = gcp_text_put(&text, options->stats_file);
	if (error)
		failure_say(error);
	if (error && options->stats_file[0])
		(void)gcp_text_put(&text, "");
	munmap(memory, REPORT_BYTES_MAX);
}
