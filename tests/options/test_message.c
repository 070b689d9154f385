/* SPDX-License-Identifier: MIT */
/*
 * test_message.c - messages, text, and the files that both go to.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../interpose/base/log.h"
#include "../unit/cases.h"

#define TEST(name) CASE(name, log_begin, log_end)

/* --- messages ------------------------------------------------------------------ */

static char log_place[] = "/tmp/gcpool-test-XXXXXX", log_pattern[64], log_path[64];

/* How many lines the log has; the last one is left in `last`. */
static int log_lines(char *last, size_t size)
{
	FILE *file = fopen(log_path, "r");
	char line[2 * GCP_LINE_MAX];
	int count = 0;

	while (file && fgets(line, sizeof(line), file)) {
		count++;
		line[size - 1] = 0;
		memcpy(last, line, size);
	}
	if (file)
		fclose(file);
	return count;
}

static int log_begin(void **state)
{
	(void)state;
	memset(strrchr(log_place, '-') + 1, 'X', 6);
	assert_non_null(mkdtemp(log_place));
	snprintf(log_pattern, sizeof(log_pattern), "%s/%%p.log", log_place);
	snprintf(log_path, sizeof(log_path), "%s/%d.log", log_place, (int)getpid());
	gcp_log_setup(GCP_LOG_INFO, log_pattern);
	return 0;
}

static int log_end(void **state)
{
	(void)state;
	unlink(log_path);
	rmdir(log_place);
	gcp_log_setup(GCP_LOG_WARNING, "");
	return 0;
}

TEST(a_message_is_one_line_with_the_process_id)
{
	char last[GCP_LINE_MAX], wanted[64];

	errno = EXDEV;
	gcp_log(GCP_LOG_INFO, "%s, going on", "something");
	gcp_log(GCP_LOG_DEBUG, "not this");
	assert_int_equal(errno, EXDEV);
	assert_int_equal(log_lines(last, sizeof(last)), 1);
	snprintf(wanted, sizeof(wanted), "libgcpool[%d]: something, going on\n",
		 (int)getpid());
	assert_string_equal(last, wanted);
}

TEST(what_a_message_quotes_makes_no_second_line)
{
	char last[GCP_LINE_MAX], wanted[64];

	gcp_log(GCP_LOG_WARNING, "%s is wrong", "a\nb\r\tc\33[2J\177\303\251");
	assert_int_equal(log_lines(last, sizeof(last)), 1);
	snprintf(wanted, sizeof(wanted),
		 "libgcpool[%d]: a?b??c?[2J?\303\251 is wrong\n", (int)getpid());
	assert_string_equal(last, wanted);
}

TEST(a_place_repeats_itself_only_so_often)
{
	char last[GCP_LINE_MAX];

	for (int i = 0; i < 100; i++)
		gcp_log(GCP_LOG_WARNING, "number %d", i);
	assert_int_equal(log_lines(last, sizeof(last)), GCP_LOG_REPEATS_MAX);
	assert_non_null(strstr(last, "number 9 (said 10 times, not again)\n"));
}

TEST(a_line_that_the_caller_counts_is_always_said)
{
	char last[GCP_LINE_MAX];

	for (int i = 0; i < 30; i++)
		gcp_log(GCP_LOG_WARNING | GCP_LOG_OFTEN, "number %d", i);
	gcp_log(GCP_LOG_DEBUG | GCP_LOG_OFTEN, "not this");
	assert_int_equal(log_lines(last, sizeof(last)), 30);
}

CASE(bytes_have_the_unit_that_fits, NULL, NULL)
{
	static const struct {
		uint64_t bytes;
		const char *words;
	} table[] = {
	    {0, "0 B"},
	    {1023, "1023 B"},
	    {1024, "1.0 KiB"},
	    {1536, "1.5 KiB"},
	    {(1 << 20) - 1, "1.0 MiB"},
	    {3 << 20, "3.0 MiB"},
	    {1ull << 40, "1.0 TiB"},
	    {5000ull << 40, "5000.0 TiB"},
	};
	struct gcp_text text;
	char bytes[32];

	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		gcp_text_init(&text, bytes, sizeof(bytes));
		gcp_text_add_bytes(&text, "", table[i].bytes);
		assert_string_equal(bytes, table[i].words);
	}
}

TEST(a_file_takes_no_descriptor_of_the_program)
{
	int saved[3], fd;

	for (int low = 0; low < 3; low++) {
		saved[low] = fcntl(low, F_DUPFD, 10);
		close(low);
	}
	fd = gcp_file_open(log_pattern);
	for (int low = 0; low < 3; low++) {
		dup2(saved[low], low);
		close(saved[low]);
	}
	assert_true(fd > 2);
	close(fd);
	assert_int_equal(gcp_file_open("/nonexistent/file"), -1);
	assert_true(gcp_file_open("") >= 2);
}

/* A directory that all users may write, and in it the names `own` and `other`: a file
 * of ours, and a link to it. */
CASE(a_name_in_a_directory_of_all_users_is_not_followed, NULL, NULL)
{
	char place[] = "/tmp/gcpool-test-XXXXXX", own[64], other[64];

	snprintf(own, sizeof(own), "%s/own", mkdtemp(place));
	snprintf(other, sizeof(other), "%s/other", place);
	OK(close(gcp_path_open(own, O_WRONLY | O_CREAT, 0600)), symlink(own, other));
	OK(close(gcp_path_open(other, O_WRONLY, 0))); /* the user's own directory */
	OK(chmod(place, 01777), close(gcp_path_open(own, O_WRONLY, 0)));
	assert_true(gcp_path_open(other, O_WRONLY, 0) == -1 && errno == ELOOP);
	OK(unlink(other), link(own, other));
	assert_true(gcp_path_open(other, O_WRONLY, 0) == -1 && errno == EPERM);
	OK(unlink(own), unlink(other), rmdir(place));
}

/* --- a stderr that does not block ---------------------------------------------- */

/* A pipe in which no byte has room, and whose writing end does not block. */
static void full_pipe_make(int ends[2])
{
	OK(pipe(ends), fcntl(ends[1], F_SETFL, O_NONBLOCK));
	while (write(ends[1], "f", 1) == 1)
		;
	assert_int_equal(errno, EAGAIN);
}

/* What the library would wait, and does not. */
static int waited_ms;

int poll(struct pollfd *fds, nfds_t count, int ms)
{
	waited_ms += ms;
	return ppoll(fds, count, &(struct timespec){0}, NULL);
}

CASE(what_nothing_reads_is_waited_for_once, NULL, NULL)
{
	char bytes[] = "w", room[65536];
	struct gcp_text text = {bytes, sizeof(bytes), 1, false};
	int ends[2];

	full_pipe_make(ends);
	waited_ms = 0;
	assert_int_equal(gcp_text_write(&text, ends[1]), EAGAIN);
	assert_in_range(waited_ms, 1, 1000);
	assert_string_equal(gcp_errno_words(EAGAIN), "nothing reads it");
	/* The program goes on: many lines together wait no longer than one. */
	waited_ms = 0;
	for (int i = 0; i < 20; i++)
		assert_int_equal(gcp_text_write(&text, ends[1]), EAGAIN);
	assert_int_equal(waited_ms, 0);
	/* Until something was read. */
	assert_true(read(ends[0], room, sizeof(room)) > 0);
	OK(gcp_text_write(&text, ends[1]));
	while (write(ends[1], "f", 1) == 1)
		;
	assert_int_equal(gcp_text_write(&text, ends[1]), EAGAIN);
	assert_in_range(waited_ms, 1, 1000);
	close(ends[0]);
	close(ends[1]);
}
