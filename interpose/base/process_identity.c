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

/* proc(5): field 22 (start); the name, field 2, may hold anything and ends with the
 * last parenthesis. */
uint64_t gcp_process_start_time(void)
{
	char text[1024], *field;

	(void)gcp_file_read("/proc/self/stat", text, sizeof(text));
	field = strrchr(text, ')');
	for (int i = 2; field && i < 22; i++) {
		field = strchr(field, ' ');
		field += field != NULL;
	}
	return field ? gcp_digits_read(field) : 0;
}

uint64_t gcp_process_namespace(void)
{
	int saved = errno;
	struct stat about;
	long result = syscall(SYS_newfstatat, AT_FDCWD, "/proc/self/ns/pid", &about, 0);

	errno = saved;
	return result == 0 ? about.st_ino : 0;
}

void gcp_process_program(char *bytes, size_t capacity)
{
	long length = gcp_file_read("/proc/self/cmdline", bytes, capacity);

	for (long i = 0; i + 1 < length; i++)
		if (!bytes[i] || bytes[i] == '\n')
			bytes[i] = ' ';
}
