/* SPDX-License-Identifier: MIT */
/*
 * log.h - what the library says to people: one line for each message, on
 * stderr or in the log file.
 *
 * Called from every file of interpose/, with any lock held, in any thread, also
 * at exit and in a forked child. Never allocates, never uses stdio, never
 * changes errno, never calls CUDA. A message that a message causes is dropped.
 */
#ifndef GCP_INTERPOSE_LOG_H
#define GCP_INTERPOSE_LOG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* In the order of GCPOOL_LOG's choices. */
enum gcp_log_level {
	GCP_LOG_OFF,
	GCP_LOG_ERROR,
	GCP_LOG_WARNING,
	GCP_LOG_INFO,
	GCP_LOG_DEBUG,
	GCP_LOG_OFTEN = 8, /* a flag: the line is not limited to GCP_LOG_REPEATS_MAX */
};

/* A line longer than this is cut; a path longer than this is refused. */
enum { GCP_LINE_MAX = 1024, GCP_PATH_MAX = 1024 };

/* The same line of code says no more than this many messages, below debug. */
enum { GCP_LOG_REPEATS_MAX = 10 };

/* What is said, and where. `file` may be empty (stderr) and hold %p (the
 * process id); it is opened for each message, so that it can be rotated, and
 * so that a program that closes all descriptors loses nothing. From here on a
 * relative path is one of the directory in which the process is now. */
void gcp_log_setup(enum gcp_log_level level, const char *file);

/* Says "libgcpool[pid]: " and the formatted line, with ? for control characters. */
void gcp_log(enum gcp_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Whether a message of that level would be said. One relaxed load. */
bool gcp_log_wanted(enum gcp_log_level level);

/* The commit that the library was built from; empty: unknown. */
extern const char gcp_commit[];

/* --- text into a buffer, for reports ----------------------------------------- */

/* Invariant: length < capacity, bytes[length] == 0; what does not fit is
 * dropped and `cut` set. */
struct gcp_text {
	char *bytes;
	size_t capacity; /* bytes */
	size_t length;   /* bytes, without the closing zero */
	bool cut;
};

void gcp_text_init(struct gcp_text *text, char *bytes, size_t capacity);
/* An empty one, with its bytes. */
#define GCP_TEXT(name, size)                                                           \
	char name##_bytes[size] = "";                                                  \
	struct gcp_text name = {.bytes = name##_bytes, .capacity = (size)}
void gcp_text_add(struct gcp_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* What is quoted is another's, as a value of the environment: it may have line breaks,
 * and sequences that a terminal obeys. From byte `from` on each becomes "?". */
void gcp_text_mask(struct gcp_text *text, size_t from);

/* The number that the digits at the beginning say; what does not fit is UINT64_MAX.
 * (strtoul of a recent glibc's headers is a function that older ones have not.) */
static inline uint64_t gcp_digits_read(const char *digits)
{
	uint64_t number = 0;

	for (; *digits >= '0' && *digits <= '9'; digits++)
		if (__builtin_mul_overflow(number, 10, &number) ||
		    __builtin_add_overflow(number, (uint64_t)(*digits - '0'), &number))
			return UINT64_MAX;
	return number;
}

/* Adds the words, then the bytes in the unit that fits: "512 B", "1.5 KiB". */
void gcp_text_add_bytes(struct gcp_text *text, const char *words, uint64_t bytes);

/* Writes all of it, whatever write(2) takes at a time. 0, or the errno of the write
 * that failed (the file may have a part then), of which the program gets no signal.
 * EAGAIN: nothing was read for a second. */
int gcp_text_write(const struct gcp_text *text, int fd);

/* Notes which file descriptor 2 is, if that was not done before. Called before the
 * first call of the program does anything else. */
void gcp_stderr_note(void);

/* Opens `pattern` for appending, with %p replaced by the process id; "" gives
 * stderr, or EBADF where descriptor 2 is something else of the program's. Returns a
 * descriptor, to be closed if it is above 2, or -1. A FIFO is not waited for. */
int gcp_file_open(const char *pattern);
/* Not fstat: the headers of a new glibc make of it what an old one has not. */
static inline int gcp_file_stat(int fd, struct stat *ret_about)
{
	return (int)syscall(SYS_fstat, fd, ret_about);
}

/* Opens, writes and closes. 0 or an errno. */
int gcp_text_put(const struct gcp_text *text, const char *pattern);

/* All other files that the library makes or opens for writing. Close-on-exec, above
 * descriptor 2, without waiting. In a directory that all users may write a
 * symbolic link (ELOOP) and a file of another user, or with another name (EPERM), are
 * refused. */
int gcp_path_open(const char *path, int flags, mode_t mode);

/* Adds `pattern` with %p replaced by the process id; a relative one behind the
 * directory in which the options were read, for the program may change it. */
void gcp_text_add_path(struct gcp_text *text, const char *pattern);

/* An errno in words, those that files come with; another one's number, which stays
 * until the thread asks for one again. */
const char *gcp_errno_words(int error);

#endif
