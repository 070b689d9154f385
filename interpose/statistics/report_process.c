/* SPDX-License-Identifier: MIT */
/*
 * report_process.c - what the report says of the process, its host and its devices.
 * See report.h.
 *
 * CUDA is not called here: the hooks hand over what it says of a device while the
 * program is in a call of its own (gcp_report_note_gpu).
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../base/clock.h"
#include "../gcpool.h"
#include "report.h"
#include "call_stats.h"

#define ULL(number) ((unsigned long long)(number))

enum { GPUS_MAX = 64 };

static struct gcp_mutex noted_lock = GCP_MUTEX(GCP_RANK_NOTED); /* to write the next */
static struct {
	struct gcp_gpu gpus[GPUS_MAX];
	_Atomic(uint64_t) known; /* bit per device that is filled in */
	_Atomic(int) cuda;       /* as in struct gcp_gpu */
} noted;

bool gcp_report_knows_gpu(int device)
{
	return device < 0 || device >= GPUS_MAX || (noted.known >> device & 1);
}

void gcp_report_note_gpu(int device, const struct gcp_gpu *gpu)
{
	if (device < 0 || device >= GPUS_MAX)
		return;
	gcp_mutex_lock(&noted_lock);
	if (!gcp_report_knows_gpu(device)) {
		noted.gpus[device] = *gpu;
		if (!gpu->name[0])
			strcpy(noted.gpus[device].name, "unknown");
		noted.cuda = gpu->cuda;
		noted.known |= 1ull << device; /* what is known stays as it is */
	}
	gcp_mutex_unlock(&noted_lock);
}

/* --- what the system knows ------------------------------------------------ */

/* The first bytes of a file of /proc or /sys; 0 if there are none. */
static size_t file_read(const char *path, char *bytes, size_t capacity)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t length = 0;

	while (fd >= 0 && length < capacity) {
		ssize_t got = read(fd, bytes + length, capacity - length);

		if (got <= 0)
			break;
		length += (size_t)got;
	}
	if (fd >= 0)
		close(fd);
	return length;
}

static void hostname_read(char *name, size_t capacity)
{
	name[0] = 0;
	(void)gethostname(name, capacity);
	name[capacity - 1] = 0;
}

/* The version of the kernel's module: 580.159.04. Empty: there is none. */
static void driver_version_read(char *version, size_t capacity)
{
	size_t length = file_read("/sys/module/nvidia/version", version, capacity - 1);

	version[length] = 0;
	version[strcspn(version, "\n")] = 0;
}

/* Calls `scope` with each argument of the program, as far as they are short. */
static void arguments_for_each(void (*scope)(struct gcp_text *text,
					     const char *argument),
			       struct gcp_text *text)
{
	enum { ARGUMENTS_MAX = 2048 };
	char bytes[ARGUMENTS_MAX + 1];
	size_t length = file_read("/proc/self/cmdline", bytes, ARGUMENTS_MAX);

	bytes[length] = 0;
	for (size_t at = 0; at < length; at += strlen(bytes + at) + 1)
		scope(text, bytes + at);
	if (length == ARGUMENTS_MAX)
		scope(text, "...");
}

/* --- the time -------------------------------------------------------------------- */

static uint64_t report_ms(void)
{
	uint64_t start = gcp_call_stats_start_ns();

	return start ? (gcp_clock_ns() - start) / 1000000 : 0;
}

/* Not gmtime: it may read files and allocate. Days to a date as in the proleptic
 * Gregorian calendar, whose years are counted from March here. */
void gcp_text_add_time(struct gcp_text *text, int64_t seconds)
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

static int64_t start_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (int64_t)now.tv_sec - (int64_t)(report_ms() / 1000);
}

/* --- options in force ----------------------------------------------------- */

static void options_for_each(const struct gcp_options *options,
			     void (*scope)(struct gcp_text *text, const char *name,
					   const char *value, int number),
			     struct gcp_text *text)
{
	char value[GCP_LINE_MAX], standard[GCP_LINE_MAX];
	struct gcp_options defaults;
	struct gcp_text shown;
	int number = 0;

	gcp_options_default(&defaults);
	for (size_t i = 0; options && i < gcp_option_all_count; i++) {
		const struct gcp_option *option = &gcp_option_table[i];

		gcp_text_init(&shown, standard, sizeof(standard));
		gcp_option_show_value(option, &defaults, &shown);
		gcp_text_init(&shown, value, sizeof(value));
		gcp_option_show_value(option, options, &shown);
		if (strcmp(value, standard) != 0)
			scope(text, option->name, value, number++);
	}
}

/* --- text ---------------------------------------------------------------------- */

static void argument_text(struct gcp_text *text, const char *argument)
{
	gcp_text_add(text, " %s", argument);
}

static void option_text(struct gcp_text *text, const char *name, const char *value,
			int number)
{
	gcp_text_add(text, "%s %s=%s", number == 0 ? "  options:" : "", name, value);
}

static void gpus_text(struct gcp_text *text)
{
	char version[64];

	driver_version_read(version, sizeof(version));
	for (int device = 0; device < GPUS_MAX; device++) {
		if (!(noted.known >> device & 1))
			continue;
		gcp_text_add(text, "  device %d: %s, ", device,
			     noted.gpus[device].name);
		gcp_text_add_bytes(text, noted.gpus[device].bytes);
		if (noted.gpus[device].uuid[0])
			gcp_text_add(text, ", %s", noted.gpus[device].uuid);
		if (noted.gpus[device].pci[0])
			gcp_text_add(text, " at %s", noted.gpus[device].pci);
		if (version[0])
			gcp_text_add(text, ", driver %s", version);
		if (noted.cuda)
			gcp_text_add(text, ", CUDA %d.%d", noted.cuda / 1000,
				     noted.cuda % 1000 / 10);
		gcp_text_add(text, "\n");
	}
}

/* Of a line that quotes what others have chosen, and that began there. */
static void line_end(struct gcp_text *text, size_t began)
{
	gcp_text_mask(text, began);
	gcp_text_add(text, "\n");
}

void gcp_report_process_text(const struct gcp_report *report, struct gcp_text *text)
{
	size_t before = text->length;
	char host[256];

	hostname_read(host, sizeof(host));
	gcp_text_add(text, "libgcpool ");
	gcp_text_add_version(text);
	gcp_text_add(text, ": %s, process %d on %s", program_invocation_name,
		     (int)getpid(), host);
	line_end(text, before);
	before = text->length;
	gcp_text_add(text, "  command:");
	arguments_for_each(argument_text, text);
	line_end(text, before);
	gcp_text_add(text, "  first allocation ");
	gcp_text_add_time(text, start_seconds());
	gcp_text_add(text, ", %.2f s before %s\n", (double)report_ms() / 1e3,
		     report->under_way ? "this report; the process goes on"
				       : "the end of the process");
	gpus_text(text);
	before = text->length;
	options_for_each(report->options, option_text, text);
	if (text->length > before)
		line_end(text, before);
}

/* --- JSON ---------------------------------------------------------------------- */

/* Bytes of the character of UTF-8 that begins there; 0: none does. */
static int character_bytes(const char *string)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	unsigned char first = (unsigned char)*string;
	int bytes = __builtin_clz(~((uint32_t)first << 24)); /* its leading ones */
	uint32_t number = first & (0x7fu >> bytes);

	if (bytes == 0)
		return 1;
	if (bytes == 1 || bytes > 4)
		return 0;
	for (int i = 1; i < bytes; i++) {
		unsigned char next = (unsigned char)string[i];

		if (next >> 6 != 2)
			return 0;
		number = number << 6 | (next & 0x3f);
	}
	if (number < least[bytes] || number > 0x10ffff || number >> 11 == 0x1b)
		return 0; /* longer than it need be; none; a half of UTF-16 */
	return bytes;
}

/* Names of files may be any bytes, and arguments are cut: what is not UTF-8, which
 * JSON has to be, becomes the replacement character. */
static void report_string_json(const char *string, struct gcp_text *text)
{
	gcp_text_add(text, "\"");
	for (int bytes; *string; string += bytes ? bytes : 1) {
		unsigned char byte = (unsigned char)*string;

		bytes = character_bytes(string);
		if (bytes == 0)
			gcp_text_add(text, "\\ufffd");
		else if (byte == '"' || byte == '\\')
			gcp_text_add(text, "\\%c", byte);
		else if (byte < 0x20)
			gcp_text_add(text, "\\u%04x", byte);
		else
			gcp_text_add(text, "%.*s", bytes, string);
	}
	gcp_text_add(text, "\"");
}

static void argument_json(struct gcp_text *text, const char *argument)
{
	if (text->length && text->bytes[text->length - 1] != '[')
		gcp_text_add(text, ", ");
	report_string_json(argument, text);
}

static void option_json(struct gcp_text *text, const char *name, const char *value,
			int number)
{
	gcp_text_add(text, "%s\"%s\": ", number ? ", " : "", name);
	report_string_json(value, text);
}

static void drivers_json(struct gcp_text *text)
{
	char version[64];

	driver_version_read(version, sizeof(version));
	if (version[0]) {
		gcp_text_add(text, ", \"driver\": ");
		report_string_json(version, text);
	}
	if (noted.cuda)
		gcp_text_add(text, ", \"cuda\": \"%d.%d\"", noted.cuda / 1000,
			     noted.cuda % 1000 / 10);
}

void gcp_report_process_json(const struct gcp_report *report, struct gcp_text *text)
{
	uint64_t ms = report_ms();
	char host[256];

	gcp_text_add(text,
		     "{\"schema\": 1, \"library\": \"libgcpool\", \"version\": \"%s\", "
		     "\"commit\": \"%s\", \"mode\": \"pool\", \"final\": %s, \"pid\": "
		     "%d, \"program\": ",
		     GCPOOL_VERSION_STRING, gcp_commit,
		     report->under_way ? "false" : "true", (int)getpid());
	report_string_json(program_invocation_name, text);
	gcp_text_add(text, ", \"arguments\": [");
	arguments_for_each(argument_json, text);
	gcp_text_add(text, "], \"hostname\": ");
	hostname_read(host, sizeof(host));
	report_string_json(host, text);
	gcp_text_add(text, ", \"started\": \"");
	gcp_text_add_time(text, start_seconds());
	/* Not %f: its point follows the program's locale. */
	gcp_text_add(text, "\", \"seconds\": %llu.%03llu", ULL(ms / 1000),
		     ULL(ms % 1000));
	drivers_json(text);
	gcp_text_add(text, ", \"options\": {");
	options_for_each(report->options, option_json, text);
	gcp_text_add(text, "}");
}

static void known_json(const char *name, const char *value, struct gcp_text *text)
{
	if (!value[0])
		return;
	gcp_text_add(text, ", \"%s\": ", name);
	report_string_json(value, text);
}

void gcp_report_gpu_json(int device, struct gcp_text *text)
{
	if (device < 0 || device >= GPUS_MAX || !(noted.known >> device & 1))
		return;
	known_json("name", noted.gpus[device].name, text);
	known_json("uuid", noted.gpus[device].uuid, text);
	known_json("pci", noted.gpus[device].pci, text);
	gcp_text_add(text, ", \"memory_bytes\": %llu", ULL(noted.gpus[device].bytes));
}
