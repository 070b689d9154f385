/* SPDX-License-Identifier: MIT */
/*
 * log.c - see log.h. Everything happens on the caller's stack and goes
 * out by one write(2), so that lines of several processes do not mix.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "log.h"

/* Formats that were said, and how often. A full table counts what remains in
 * one place: bounded in any case. */
enum { SITES_MAX = 64 };

static struct {
	_Atomic(enum gcp_log_level) level;
	char file[GCP_PATH_MAX]; /* written once, by gcp_log_setup */
	struct {
		_Atomic(const char *) format;
		atomic_uint count;
	} sites[SITES_MAX + 1];
} messages = {.level = GCP_LOG_WARNING};

/* Whether this thread is inside gcp_log already. */
static __thread bool inside __attribute__((tls_model("initial-exec")));

static unsigned int site_count(const char *format);
static int above_stderr(int fd);

void gcp_log_setup(enum gcp_log_level level, const char *file)
{
	struct gcp_text text;

	gcp_text_init(&text, messages.file, sizeof(messages.file));
	gcp_text_add(&text, "%s", file);
	atomic_store_explicit(&messages.level, level, memory_order_release);
}

bool gcp_log_wanted(enum gcp_log_level level)
{
	return level != GCP_LOG_OFF &&
	       level <= atomic_load_explicit(&messages.level, memory_order_relaxed);
}

void gcp_log(enum gcp_log_level level, const char *format, ...)
{
	char line[GCP_LINE_MAX];
	struct gcp_text text;
	unsigned int count;
	va_list list;
	int saved = errno;
	int fd;

	if (!gcp_log_wanted(level) || inside)
		return;
	count = level == GCP_LOG_DEBUG ? 0 : site_count(format);
	if (count >= GCP_LOG_REPEATS_MAX)
		return;
	inside = true;
	gcp_text_init(&text, line, sizeof(line) - 1);
	gcp_text_add(&text, "libgcpool[%d]: ", (int)getpid());
	va_start(list, format);
	gcp_text_add_list(&text, format, list);
	va_end(list);
	if (count == GCP_LOG_REPEATS_MAX - 1)
		gcp_text_add(&text, " (said %d times, not again)", GCP_LOG_REPEATS_MAX);
	line[text.length++] = '\n';
	fd = gcp_file_open(messages.file);
	gcp_text_write(&text, fd >= 0 ? fd : STDERR_FILENO);
	gcp_file_close(fd);
	inside = false;
	errno = saved;
}

/* How often `format` was said before. Formats are literals: one address is one
 * place in the source. */
static unsigned int site_count(const char *format)
{
	size_t i;

	for (i = 0; i < SITES_MAX; i++) {
		const char *expected = NULL;

		if (atomic_load(&messages.sites[i].format) == format ||
		    atomic_compare_exchange_strong(&messages.sites[i].format, &expected,
						   format) ||
		    expected == format)
			break;
	}
	/* Saturates, so that the count cannot wrap. */
	if (atomic_load(&messages.sites[i].count) >= GCP_LOG_REPEATS_MAX)
		return GCP_LOG_REPEATS_MAX;
	return atomic_fetch_add(&messages.sites[i].count, 1);
}

/* --- text ---------------------------------------------------------------------- */

void gcp_text_init(struct gcp_text *text, char *bytes, size_t capacity)
{
	*text = (struct gcp_text){.bytes = bytes, .capacity = capacity};
	bytes[0] = 0;
}

void gcp_text_add(struct gcp_text *text, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	gcp_text_add_list(text, format, list);
	va_end(list);
}

void gcp_text_add_list(struct gcp_text *text, const char *format, va_list list)
{
	size_t room = text->capacity - text->length;
	int length = vsnprintf(text->bytes + text->length, room, format, list);

	if (length < 0)
		return;
	if ((size_t)length >= room) {
		text->cut = true;
		length = (int)room - 1;
	}
	text->length += (size_t)length;
}

void gcp_text_write(const struct gcp_text *text, int fd)
{
	const char *next = text->bytes;
	size_t left = text->length;

	while (fd >= 0 && left > 0) {
		ssize_t written = write(fd, next, left);

		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			return;
		next += written;
		left -= (size_t)written;
	}
}

/* --- files --------------------------------------------------------------------- */

int gcp_file_open(const char *pattern)
{
	char path[GCP_PATH_MAX];
	struct gcp_text text;

	if (!pattern[0])
		return STDERR_FILENO;
	gcp_text_init(&text, path, sizeof(path));
	for (; *pattern; pattern++) {
		if (pattern[0] == '%' && pattern[1] == 'p') {
			gcp_text_add(&text, "%d", (int)getpid());
			pattern++;
		} else {
			gcp_text_add(&text, "%c", *pattern);
		}
	}
	if (text.cut)
		return -1;
	return above_stderr(
	    open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0666));
}

/* A program may have closed 0, 1 or 2: nobody may find our file there. */
static int above_stderr(int fd)
{
	int moved;

	if (fd < 0 || fd > STDERR_FILENO)
		return fd;
	moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	close(fd);
	return moved;
}

void gcp_file_close(int fd)
{
	if (fd > STDERR_FILENO)
		close(fd);
}
