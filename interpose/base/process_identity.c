/* SPDX-License-Identifier: MIT */
/*
 * process_identity.c - see process_identity.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "log.h"
#include "process_identity.h"

/* The system calls themselves: functions of libc are cancellation points. */
long gcp_file_read(const char *path, char *bytes, size_t capacity)
{
	int saved = errno;
	long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC), got = -1;

	if (fd >= 0) {
		got = syscall(SYS_read, fd, bytes, capacity - 1);
		(void)syscall(SYS_close, fd);
	}
	bytes[got > 0 ? got : 0] = '\0';
	errno = saved;
	return got;
}

/* proc(5): fields 3 (state), 20 (threads) and 22 (start) follow the name, which may
 * hold anything and ends with the last parenthesis. What is left of a process whose
 * last thread has ended is a zombie with one thread; its files are closed. */
uint64_t gcp_process_start_time(pid_t pid)
{
	char text[1024], *field;
	GCP_TEXT(name, 40);
	uint64_t threads = 0;

	gcp_text_add(&name, "/proc/%d/stat", (int)pid);
	(void)gcp_file_read(name.bytes, text, sizeof(text));
	field = strrchr(text, ')');
	if (!field || strlen(field) < 4)
		return 0;
	field += 2;
	char state = *field;
	for (int i = 3; field && i < 22; i++) {
		if (i == 20)
			threads = gcp_digits_read(field);
		field = strchr(field, ' ');
		field += field != NULL;
	}
	if (!field || state == 'X' || (state == 'Z' && threads <= 1))
		return 0;
	return gcp_digits_read(field);
}

/* The link says "pid:[4026531836]". */
uint64_t gcp_process_namespace(void)
{
	char bytes[64];
	int saved = errno;
	ssize_t got = readlink("/proc/self/ns/pid", bytes, sizeof(bytes) - 1);
	const char *next;

	errno = saved;
	bytes[got > 0 ? got : 0] = '\0';
	next = strchr(bytes, '[');
	return next ? gcp_digits_read(next + 1) : 0;
}

void gcp_process_program(char *bytes, size_t capacity)
{
	long length = gcp_file_read("/proc/self/cmdline", bytes, capacity);

	for (long i = 0; i + 1 < length; i++)
		if (!bytes[i] || bytes[i] == '\n')
			bytes[i] = ' ';
}
