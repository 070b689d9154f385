/* SPDX-License-Identifier: MIT */
/*
 * report_process.c - what the report says of the process, its host and its devices.
 * See report.h.
 *
 * A report does not call CUDA: the hooks hand over what it says of a device while the
 * program is in a call of its own (gcp_report_note_gpu).
 */
#include <string.h>
#include <unistd.h>

#include "../base/clock.h"
#include "../cuda/gate.h"
#include "../base/process_identity.h"
#include "../gcpool.h"
#include "report.h"
#include "writer.h"

enum { GPUS_MAX = 64 };

static struct gcp_mutex noted_lock = GCP_MUTEX(GCP_RANK_NOTED); /* to write the next */
static struct {
	struct gcp_gpu gpus[GPUS_MAX];
	_Atomic(uint64_t) known; /* bit per device that is filled in */
	_Atomic(int) cuda;       /* as in struct gcp_gpu */
	_Atomic(uint64_t) others[GPUS_MAX];
} noted;

bool gcp_report_knows_gpu(int device)
{
	return device < 0 || device >= GPUS_MAX || (noted.known >> device & 1);
}

/* NULL: it is not known. */
static const struct gcp_gpu *gpu_of(int device)
{
	return device >= 0 && device < GPUS_MAX && (noted.known >> device & 1)
		   ? &noted.gpus[device]
		   : NULL;
}

const char *gcp_report_uuid(int device)
{
	return gpu_of(device) ? gpu_of(device)->uuid : "";
}

void gcp_report_note_gpu(int device, const struct gcp_gpu *gpu)
{
	if (device < 0 || device >= GPUS_MAX)
		return;
	GCP_LOCKED(&noted_lock);
	if (!gcp_report_knows_gpu(device)) {
		noted.gpus[device] = *gpu;
		if (!gpu->name[0])
			strcpy(noted.gpus[device].name, "unknown");
		noted.cuda = gpu->cuda;
		noted.known |= 1ull << device; /* what is known stays as it is */
	}
}

void gcp_report_note_others(int device, uint64_t bytes)
{
	if (device >= 0 && device < GPUS_MAX)
		noted.others[device] = bytes;
}

/* --- the time -------------------------------------------------------------------- */

static uint64_t report_ms(void)
{
	uint64_t start = gcp_call_stats_start_ns;

	return start ? (gcp_clock_ns() - start) / 1000000 : 0;
}

/* "2026-01-31T23:59:59Z", of seconds since 1970. Not gmtime: it may read files and
 * allocate. Days to a date as in the proleptic Gregorian calendar, whose years are
 * counted from March here. */
static void time_add(struct gcp_text *text, int64_t seconds)
{
	int64_t days = seconds / 86400, rest = seconds % 86400;
	int64_t era_days = days + 719468; /* since 1 March of the year 0 */
	int64_t era = era_days / 146097, day = era_days % 146097;
	int64_t year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
	int64_t of_year = day - (365 * year + year / 4 - year / 100);
	int64_t month = (5 * of_year + 2) / 153;
	int64_t of_month = of_year - (153 * month + 2) / 5 + 1;

	gcp_text_add(text, "%04d-%02d-%02dT%02d:%02d:%02dZ",
		     (int)(year + 400 * era + (month >= 10)),
		     (int)(month < 10 ? month + 3 : month - 9), (int)of_month,
		     (int)(rest / 3600), (int)(rest / 60 % 60), (int)(rest % 60));
}

/* --- the report ---------------------------------------------------------------- */

/* Options in force that are not the default. */
static void options_write(struct gcp_writer *writer)
{
	const struct gcp_options *options = &gcp_process.options;
	struct gcp_options defaults;

	gcp_options_default(&defaults);
	gcp_write_line(writer, "options", '{');
	for (size_t i = 0; i < gcp_option_all_count; i++) {
		const struct gcp_option *option = &gcp_option_table[i];

		GCP_TEXT(standard, GCP_LINE_MAX);
		GCP_TEXT(value, GCP_LINE_MAX);

		gcp_option_show_value(option, &defaults, &standard);
		gcp_option_show_value(option, options, &value);
		if (strcmp(value.bytes, standard.bytes) != 0)
			gcp_write_string(writer, option->name, value.bytes);
	}
	gcp_write_close(writer, '}');
}

/* As far as they are short. */
static void arguments_write(struct gcp_writer *writer)
{
	enum { ARGUMENTS_MAX = 2048 };
	char bytes[ARGUMENTS_MAX + 1];
	long length = gcp_file_read("/proc/self/cmdline", bytes, sizeof(bytes));

	gcp_write_line(writer, "arguments", '[');
	for (long at = 0; at < length; at += (long)strlen(bytes + at) + 1)
		gcp_write_string(writer, NULL, bytes + at);
	if (length == ARGUMENTS_MAX)
		gcp_write_string(writer, NULL, "...");
	gcp_write_close(writer, ']');
}

/* "580.159.04", of the kernel's module, and "13.0". */
static void versions_write(struct gcp_writer *writer)
{
	GCP_TEXT(text, 64);
	char driver[64];

	(void)gcp_file_read("/sys/module/nvidia/version", driver, sizeof(driver));
	driver[strcspn(driver, "\n")] = 0;
	gcp_write_string(writer, "driver", driver);
	if (noted.cuda)
		gcp_text_add(&text, "%d.%d", noted.cuda / 1000, noted.cuda % 1000 / 10);
	gcp_write_string(writer, "cuda", text.bytes);
}

void gcp_report_process(struct gcp_writer *writer, bool under_way)
{
	unsigned long long ms = report_ms();
	GCP_TEXT(started, 256);
	GCP_TEXT(seconds, 256);
	char host[256] = "";
	struct timespec now;

	gcp_write_title(writer, "libgcpool");
	if (writer->json) {
		gcp_write_number(writer, "schema", 3);
		gcp_write_string(writer, "library", "libgcpool");
		gcp_write_string(writer, "mode", "pool");
	}
	gcp_write_string(writer, "version", GCPOOL_VERSION_STRING);
	gcp_write_string(writer, "commit", gcp_commit);
	gcp_write_raw(writer, "final", under_way ? "false" : "true");
	gcp_write_number(writer, "pid", (uint64_t)getpid());
	gcp_write_string(writer, "program", program_invocation_name);
	arguments_write(writer);
	(void)gethostname(host, sizeof(host) - 1);
	gcp_write_string(writer, "hostname", host);
	clock_gettime(CLOCK_REALTIME, &now);
	time_add(&started, (int64_t)now.tv_sec - (int64_t)(ms / 1000));
	gcp_write_string(writer, "started", started.bytes);
	/* Not %f: its point follows the program's locale. */
	gcp_text_add(&seconds, "%llu.%03llu", ms / 1000, ms % 1000);
	gcp_write_raw(writer, "seconds", seconds.bytes);
	versions_write(writer);
	if (atomic_load(&gcp_gate.asleep))
		gcp_write_number(writer, "asleep_bytes", atomic_load(&gcp_gate.kept));
	if (gcp_process.help.asked | gcp_process.help.given) {
		gcp_write_number(writer, "help_asked", gcp_process.help.asked);
		gcp_write_number(writer, "help_got_bytes", gcp_process.help.got);
		gcp_write_number(writer, "help_given_bytes", gcp_process.help.given);
	}
	options_write(writer);
}

void gcp_report_gpu(struct gcp_writer *writer, int device)
{
	const struct gcp_gpu *gpu = gpu_of(device);

	if (!gpu)
		return;
	gcp_write_string(writer, "name", gpu->name);
	gcp_write_string(writer, "uuid", gpu->uuid);
	gcp_write_string(writer, "pci", gpu->pci);
	gcp_write_number(writer, "memory_bytes", gpu->bytes);
	gcp_write_number(writer, "other_bytes", noted.others[device]);
}
