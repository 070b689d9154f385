/* SPDX-License-Identifier: MIT */
/*
 * manners.c - programs in whose process a library has to behave: their files, users,
 * signals and limits are their own.
 *
 *   manners SCENARIO    plays one; 0: all is as on plain CUDA
 */
#include <fcntl.h>
#include <sys/socket.h>

#include "scenarios.h"

/* The library has a line to say about it. */
static void memory_is_refused(void)
{
	CUdeviceptr p;

	must(cuMemAlloc(&p, (size_t)1 << 45) == CUDA_ERROR_OUT_OF_MEMORY, "refused");
}

/* --- descriptor 2 ----------------------------------------------------------------- */

SCENARIO_PRIMARY(probes_for_memory)
{
	memory_is_refused();
}

/* A daemon: what it opens next is descriptor 2. */
static void stderr_closed(void)
{
	(void)primary();
	(void)close(STDERR_FILENO);
}

/* The program writes 9 bytes before the line and 9 after it. */
static void records_written(int fd, int end)
{
	char bytes[4096];

	must(fd == STDERR_FILENO, "the program's file is descriptor 2");
	must(write(fd, "RECORD-1\n", 9) == 9, "written");
	memory_is_refused();
	must(write(fd, "RECORD-2\n", 9) == 9, "written");
	must((end < 0 ? pread(fd, bytes, sizeof(bytes), 0)
		      : read(end, bytes, sizeof(bytes))) == 18,
	     "what the program wrote, and no more");
}

static int database_open(int flags)
{
	char name[] = "/tmp/gcpool-test-XXXXXX";
	int fd = mkostemp(name, flags);

	unlink(name);
	return fd;
}

SCENARIO(a_file_takes_the_place_of_stderr)
{
	stderr_closed();
	records_written(database_open(0), -1);
}

SCENARIO_PRIMARY(a_file_takes_it_after_an_allocation)
{
	OK(cuMemFree(allocated(MIB)));
	stderr_closed();
	records_written(database_open(0), -1);
}

SCENARIO(a_file_that_is_closed_on_exec_takes_it)
{
	(void)close(STDERR_FILENO);
	int fd = database_open(O_CLOEXEC);

	(void)primary();
	records_written(fd, -1);
}

SCENARIO(a_connection_takes_it)
{
	int ends[2];

	stderr_closed();
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "a pair of sockets");
	records_written(ends[0], ends[1]);
}

/* --- processes -------------------------------------------------------------------- */

/* Allocates and frees until its stdin ends. */
SCENARIO_PRIMARY(works_until_told)
{
	char byte;

	(void)fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
	do {
		OK(cuMemFree(allocated(MIB)));
		(void)!write(STDOUT_FILENO, "w", 1); /* one turn is done */
		usleep(1000);
	} while (read(STDIN_FILENO, &byte, 1) < 0);
}

/* --- signals ---------------------------------------------------------------------- */

static void end(int number)
{
	exit(0);
}

static void *allocates_for_ever(void *unused)
{
	CUdeviceptr p[64];

	(void)primary();
	for (size_t round = 0;; round++) {
		for (size_t i = 0; i < 64; i++)
			p[i] = allocated((round * 7919 + i * 104729) % (9 * MIB) + 1);
		for (size_t i = 0; i < 64; i++)
			OK(cuMemFree(p[i]));
	}
	return unused;
}

/* MANNERS_AFTER: microseconds. */
SCENARIO(ends_in_a_signal_handler)
{
	signal(SIGALRM, end);
	ualarm((useconds_t)strtol(getenv("MANNERS_AFTER"), NULL, 10), 0);
	(void)allocates_for_ever(NULL);
}

static void stay(int number)
{
	while (number)
		pause();
}

/* The handler has interrupted another thread, and never returns. All that is loaded
 * when first needed is there: with the loader's lock taken no process can end. */
SCENARIO_PRIMARY(ends_beside_a_signal_handler)
{
	pthread_t thread;

	OK(cuMemFree(allocated(1000)));
	signal(SIGALRM, stay);
	pthread_create(&thread, NULL, allocates_for_ever, NULL);
	usleep((useconds_t)strtol(getenv("MANNERS_AFTER"), NULL, 10));
	pthread_kill(thread, SIGALRM);
	usleep(10000);
	exit(0);
}

/* --- users ------------------------------------------------------------------------ */

enum { USER = 65534, OTHER = 65533 };

/* A service of root's allocates first while it acts for a user. */
SCENARIO_PRIMARY(acts_for_a_user_at_first)
{
	must(seteuid(USER) == 0, "the user");
	OK(cuMemFree(allocated(1000)));
	must(seteuid(0) == 0, "root again");
	works_until_told();
}

/* It has a page of the user's, and more rights than the user later. */
SCENARIO_PRIMARY(user_becomes_root)
{
	must(setresuid(USER, USER, 0) == 0, "the user");
	OK(cuMemFree(allocated(1000)));
	must(setresuid(0, 0, 0) == 0, "root");
	works_until_told();
}

SCENARIO(is_another_user)
{
	must(setresuid(OTHER, OTHER, OTHER) == 0, "the user");
	(void)primary();
	works_until_told();
}
