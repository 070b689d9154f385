/* SPDX-License-Identifier: MIT */
/*
 * process_identity.c - see process_identity.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "log.h"
#include "process_identity.h"

/* Up to `capacity` - 1 bytes of a small file, and a zero. */
static size_t file_read(const char *path, char *bytes, size_t capacity)
{
	int saved = errno, fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? 0 : read(fd, bytes, capacity - 1);

	if (fd >= 0)
		close(fd);
	errno = saved;
	bytes[got > 0 ? got : 0] = '\0';
	return got > 0 ? (size_t)got : 0;
}

/* /proc/PID/stat: the 3rd field is the state and the 22nd the start; the 2nd, in
 * parentheses, may hold anything. */
uint64_t gcp_process_start_time(int pid)
{
	char path[64], bytes[1024];
	struct gcp_text text;
	const char *next;
	uint64_t ticks = 0;

	gcp_text_init(&text, path, sizeof(path));
	gcp_text_add(&text, "/proc/%d/stat", pid);
	file_read(path, bytes, sizeof(bytes));
	next = strrchr(bytes, ')');
	if (!next || strlen(next) < 3 || next[2] == 'Z' || next[2] == 'X')
		return 0;
	for (int field = 2; field < 22 && next; field++)
		next = strchr(next + 1, ' ');
	for (; next && next[1] >= '0' && next[1] <= '9'; next++)
		ticks = 10 * ticks + (uint64_t)(next[1] - '0');
	return ticks;
}

bool gcp_process_lives(int pid, uint64_t start_time)
{
	return pid > 0 && start_time && gcp_process_start_time(pid) == start_time;
}

/* The link says "pid:[4026531836]". */
uint64_t gcp_process_namespace(void)
{
	char bytes[64];
	int saved = errno;
	ssize_t got = readlink("/proc/self/ns/pid", bytes, sizeof(bytes) - 1);
	const char *next;
	uint64_t number = 0;

	errno = saved;
	bytes[got > 0 ? got : 0] = '\0';
	next = strchr(bytes, '[');
	for (; next && next[1] >= '0' && next[1] <= '9'; next++)
		number = 10 * number + (uint64_t)(next[1] - '0');
	return number;
}

void gcp_process_program(char *bytes, size_t capacity)
{
	size_t length = file_read("/proc/self/cmdline", bytes, capacity);

	for (size_t i = 0; i + 1 < length; i++)
		if (!bytes[i] || bytes[i] == '\n')
			bytes[i] = ' ';
}
