/* SPDX-License-Identifier: MIT */
/*
 * log.c - see log.h. Everything happens on the caller's stack and goes
 * out by one write(2), so that lines of several processes do not mix.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "../../pool/pool.h"
#include "../gcpool.h"
#include "clock.h"
#include "log.h"

/* Places for counts of formats, some of which may share one: bounded in any case. */
enum { SITE_BITS = 10 };

static _Atomic(enum gcp_log_level) wanted_level = GCP_LOG_WARNING;
static struct {
	char file[GCP_PATH_MAX]; /* written once, by gcp_log_setup, as: */
	char here[GCP_PATH_MAX]; /* where the process was then; empty: not known */
	atomic_uint said[1 << SITE_BITS];
} messages;

/* Whether this thread is inside gcp_log already. */
static __thread bool inside __attribute__((tls_model("initial-exec")));

void gcp_log_setup(enum gcp_log_level level, const char *file)
{
	struct gcp_text text;
	int saved = errno;

	gcp_stderr_note();
	gcp_text_init(&text, messages.file, sizeof(messages.file));
	gcp_text_add(&text, "%s", file);
	if (!getcwd(messages.here, sizeof(messages.here)) || messages.here[0] != '/')
		messages.here[0] = '\0';
	errno = saved;
	atomic_store_explicit(&wanted_level, level, memory_order_release);
}

bool gcp_log_wanted(enum gcp_log_level level)
{
	return level != GCP_LOG_OFF &&
	       level <= atomic_load_explicit(&wanted_level, memory_order_relaxed);
}

static void text_add_list(struct gcp_text *text, const char *format, va_list list)
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

static void line_say(const char *format, va_list list, const char *end)
{
	char line[GCP_LINE_MAX];
	struct gcp_text text;
	GCP_KEEP_ERRNO;

	GCP_CANCEL_LATER; /* any lock may be held */
	inside = true;
	gcp_text_init(&text, line, sizeof(line) - 1);
	gcp_text_add(&text, "libgcpool[%d]: ", (int)getpid());
	text_add_list(&text, format, list);
	gcp_text_add(&text, "%s", end);
	gcp_text_mask(&text, 0);
	line[text.length++] = '\n';
	/* A log that cannot be written is no reason to lose the line. */
	if (gcp_text_put(&text, messages.file) != 0 && messages.file[0])
		(void)gcp_text_put(&text, "");
	inside = false;
}

/* Formats are literals: one address is one place in the source. How often it was said
 * before saturates, so that the count cannot wrap. */
void gcp_log(enum gcp_log_level level, const char *format, ...)
{
	uint64_t key = (uintptr_t)format * UINT64_C(0x9e3779b97f4a7c15);
	atomic_uint *said = &messages.said[key >> (64 - SITE_BITS)];
	unsigned int count = 0;
	va_list list;

	if (!gcp_log_wanted(level & ~GCP_LOG_OFTEN) || inside)
		return;
	if (level < GCP_LOG_DEBUG && (count = atomic_load(said)) < GCP_LOG_REPEATS_MAX)
		count = atomic_fetch_add(said, 1);
	if (count >= GCP_LOG_REPEATS_MAX)
		return;
	va_start(list, format);
	line_say(format, list,
		 count == GCP_LOG_REPEATS_MAX - 1 ? " (said 10 times, not again)" : "");
	va_end(list);
}
_Static_assert(GCP_LOG_REPEATS_MAX == 10, "the words above say so");

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
	text_add_list(text, format, list);
	va_end(list);
}

void gcp_text_mask(struct gcp_text *text, size_t from)
{
	unsigned char before = 0;

	for (char *next = text->bytes + from; *next; next++) {
		unsigned char byte = (unsigned char)*next;

		/* C1, 0x80 to 0x9f: one byte, or in UTF-8 the second behind 0xc2;
		 * behind any other byte from 0x80 on it is part of a letter. */
		bool c1 = byte >> 5 == 4 && (before < 0x80 || before == 0xc2);

		if (c1 && before == 0xc2)
			next[-1] = '?';
		if (c1 || byte < ' ' || byte == 0x7f)
			*next = '?';
		before = byte;
	}
}

void gcp_text_add_bytes(struct gcp_text *text, const char *words, uint64_t bytes)
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
	double number = (double)bytes / 1024;
	size_t unit = 0;

	if (bytes < 1024) {
		gcp_text_add(text, "%s%llu B", words, (unsigned long long)bytes);
		return;
	}
	/* 1023.95 would be shown as 1024.0. */
	for (; number >= 1023.95 && unit + 1 < sizeof(units) / sizeof(*units); unit++)
		number /= 1024;
	gcp_text_add(text, "%s%.1f %s", words, number, units[unit]);
}

/* --- write -------------------------------------------------------------------- */

/* What a write may send to a program that has not written anything: nothing reads the
 * pipe, or the file is as large as the process may make one. */
static const int write_signals[] = {SIGPIPE, SIGXFSZ};

enum { WRITE_SIGNALS = sizeof(write_signals) / sizeof(*write_signals) };

struct held_signals {
	sigset_t mask, pending; /* before */
};

static void signals_hold(struct held_signals *held)
{
	sigset_t ours;

	sigemptyset(&ours);
	for (int i = 0; i < WRITE_SIGNALS; i++)
		sigaddset(&ours, write_signals[i]);
	/* Stops a job in the background (stty tostop); not sent where it is blocked. */
	sigaddset(&ours, SIGTTOU);
	sigemptyset(&held->pending);
	sigpending(&held->pending);
	/* Of this thread: Linux means no more by sigprocmask. */
	sigprocmask(SIG_BLOCK, &ours, &held->mask);
}

/* Those that have come meanwhile are ours. */
static void signals_release(const struct held_signals *held)
{
	const struct timespec now = {0, 0};
	sigset_t ours;

	sigemptyset(&ours);
	for (int i = 0; i < WRITE_SIGNALS; i++)
		if (!sigismember(&held->pending, write_signals[i]))
			sigaddset(&ours, write_signals[i]);
	while (sigtimedwait(&ours, NULL, &now) > 0 || errno == EINTR)
		;
	sigprocmask(SIG_SETMASK, &held->mask, NULL);
}

/* A descriptor was full for so long: it is not waited for again before a write has
 * worked, so that a program which reads its own pipe goes on. */
static atomic_bool unread;

enum {
	READER_WAIT_MS = 1000,
	PIECE = 4096, /* bytes: a pipe that has room takes so much without waiting */
};

/* A regular file gets all by one write(2): other processes append to it. Waits until
 * `fd` takes more, for READER_WAIT_MS since it last took something at most. */
static int bytes_write(const struct gcp_text *text, int fd)
{
	const char *next = text->bytes;
	size_t left = text->length;
	uint64_t since_ns = gcp_clock_ns();
	struct stat about;

	if (gcp_file_stat(fd, &about) != 0)
		return errno;
	while (left > 0) {
		struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
		int waited_ms = (int)((gcp_clock_ns() - since_ns) / 1000000);
		bool waits = waited_ms < READER_WAIT_MS && !atomic_load(&unread);
		int ready = poll(&poll_fd, 1, waits ? READER_WAIT_MS - waited_ms : 0);
		ssize_t written;

		if (ready < 0 && errno == EINTR)
			continue;
		atomic_store(&unread, ready == 0);
		if (ready == 0)
			return EAGAIN;
		if (S_ISSOCK(about.st_mode))
			written = send(fd, next, left, MSG_DONTWAIT | MSG_NOSIGNAL);
		else
			written = write(fd, next,
					S_ISREG(about.st_mode) || left < PIECE ? left
									       : PIECE);
		if (written < 0 && errno == EAGAIN)
			gcp_sleep(1000 * 1000);
		if (written < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (written <= 0)
			return written < 0 ? errno : EIO;
		since_ns = gcp_clock_ns();
		next += written;
		left -= (size_t)written;
	}
	return 0;
}

int gcp_text_write(const struct gcp_text *text, int fd)
{
	struct held_signals held;
	int result;

	signals_hold(&held);
	result = bytes_write(text, fd);
	signals_release(&held);
	return result;
}

/* --- stderr -------------------------------------------------------------------- */

/* The file that descriptor 2 was at the first call. */
static struct {
	_Atomic uint64_t device, inode;
	atomic_bool noted;
} first;

void gcp_stderr_note(void)
{
	struct stat about;
	GCP_KEEP_ERRNO;

	if (!atomic_load(&first.noted) && gcp_file_stat(STDERR_FILENO, &about) == 0) {
		atomic_store(&first.device, about.st_dev);
		atomic_store(&first.inode, about.st_ino);
	}
	atomic_store(&first.noted, true);
}

/* A program that has closed its stderr, as daemons do, may have a file of its own data
 * or a connection as descriptor 2. Its stderr is not close-on-exec, and is a terminal,
 * a pipe, or the file of the first call. */
static bool stderr_is_open(struct stat *ret_about)
{
	long flags = syscall(SYS_fcntl, STDERR_FILENO, F_GETFD);

	if (flags < 0 || flags & FD_CLOEXEC ||
	    gcp_file_stat(STDERR_FILENO, ret_about) != 0)
		return false;
	gcp_stderr_note();
	return S_ISFIFO(ret_about->st_mode) ||
	       (S_ISCHR(ret_about->st_mode) && isatty(STDERR_FILENO)) ||
	       (ret_about->st_dev == atomic_load(&first.device) &&
		ret_about->st_ino == atomic_load(&first.inode));
}

/* A program may have closed 0, 1 or 2: our file must not take their place. */
static int above_stderr(int fd)
{
	int moved;

	if (fd < 0 || fd > STDERR_FILENO)
		return fd;
	/* Not fcntl: the headers make fcntl64 of it, which glibc has from 2.28 on. */
	moved = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	close(fd);
	return moved;
}

/* A write to a pipe or a terminal waits, if another process has filled it after the
 * poll or if it takes only a part. So both are opened once more, not to block; where
 * that is not allowed, they are written as they are. */
static int stderr_open(void)
{
	struct stat about, again;
	int fd;

	if (!stderr_is_open(&about)) {
		errno = EBADF;
		return -1;
	}
	if (!S_ISFIFO(about.st_mode) && !isatty(STDERR_FILENO))
		return STDERR_FILENO;
	fd = above_stderr(
	    open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
	if (fd < 0)
		return STDERR_FILENO;
	if (gcp_file_stat(fd, &again) == 0 && again.st_dev == about.st_dev &&
	    again.st_ino == about.st_ino)
		return fd;
	close(fd);
	return STDERR_FILENO;
}

/* --- files --------------------------------------------------------------------- */

void gcp_text_add_path(struct gcp_text *text, const char *pattern)
{
	if (pattern[0] && pattern[0] != '/' && messages.here[0] &&
	    strlen(messages.here) + strlen(pattern) + 16 < text->capacity)
		gcp_text_add(text, "%s/", messages.here);
	for (const char *end; (end = strstr(pattern, "%p")); pattern = end + 2)
		gcp_text_add(text, "%.*s%d", (int)(end - pattern), pattern,
			     (int)getpid());
	gcp_text_add(text, "%s", pattern);
}

/* The directory of `path`, to open names in; *ret_name: what follows it. */
static int directory_open(const char *path, const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	GCP_TEXT(directory, GCP_PATH_MAX);

	*ret_name = slash ? slash + 1 : path;
	gcp_text_add(&directory, "%.*s", slash ? (int)(slash - path) + 1 : 1,
		     slash ? path : ".");
	return open(directory.bytes, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* Another user may have made a file there, or linked one of ours to the name. */
static bool is_own(int fd)
{
	struct stat about;

	return gcp_file_stat(fd, &about) == 0 && about.st_uid == geteuid() &&
	       (!S_ISREG(about.st_mode) || about.st_nlink == 1);
}

int gcp_path_open(const char *path, int flags, mode_t mode)
{
	struct stat about;
	const char *name;
	int directory = directory_open(path, &name), fd = -1;
	bool shared;

	if (directory < 0)
		return -1;
	shared = gcp_file_stat(directory, &about) != 0 || about.st_mode & S_IWOTH;
	flags |= O_CLOEXEC | O_NOCTTY | O_NONBLOCK | (shared ? O_NOFOLLOW : 0);
	fd = above_stderr(openat(directory, name, flags, mode));
	if (fd >= 0 && shared && !is_own(fd)) {
		close(fd);
		fd = -1;
		errno = EPERM;
	}
	(void)syscall(SYS_close, directory); /* errno stays */
	return fd;
}

int gcp_file_open(const char *pattern)
{
	GCP_TEXT(text, GCP_PATH_MAX);

	if (!pattern[0])
		return stderr_open();
	gcp_text_add_path(&text, pattern);
	if (text.cut) {
		errno = ENAMETOOLONG;
		return -1;
	}
	return gcp_path_open(text.bytes, O_WRONLY | O_CREAT | O_APPEND, 0666);
}

int gcp_text_put(const struct gcp_text *text, const char *pattern)
{
	int fd = gcp_file_open(pattern), result, closed;

	if (fd < 0)
		return errno;
	result = gcp_text_write(text, fd);
	closed = fd > STDERR_FILENO && close(fd) != 0 ? errno : 0;
	return result ? result : closed;
}

/* The library has another one, of commit.c. */
__attribute__((weak)) const char gcp_commit[] = "";

/* Not strerror: it may allocate, and speaks the program's language. */
const char *gcp_errno_words(int error)
{
	static __thread char number[32] __attribute__((tls_model("initial-exec")));
	struct gcp_text text;
	static const struct {
		int error;
		const char *words;
	} table[] = {
	    {ENOSPC, "no space left on the device"},
	    {EDQUOT, "disk quota exceeded"},
	    {ENOTDIR, "not a directory"},
	    {EROFS, "read-only file system"},
	    {EFBIG, "file too large"},
	    {EACCES, "permission denied"},
	    {ENOENT, "no such directory"},
	    {ENAMETOOLONG, "the name is too long"},
	    {ENOMEM, "no memory"},
	    {EEXIST, "it exists: remove it, or use %p in its name"},
	    {EAGAIN, "nothing reads it"},
	    {ENXIO, "nothing reads it"},
	    {EPIPE, "nothing reads it"},
	    {EPERM, "another user's, in a directory of all users"},
	    {ELOOP, "a symbolic link in a directory of all users"},
	    {EBADF, "the program has closed it"},
	    {EIO, "input or output fails"},
	    {EISDIR, "it is a directory"},
	    {EMFILE, "too many files are open"},
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
		if (table[i].error == error)
			return table[i].words;
	gcp_text_init(&text, number, sizeof(number));
	gcp_text_add(&text, "error %d", error);
	return number;
}
