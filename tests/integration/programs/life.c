/* SPDX-License-Identifier: MIT */
/*
 * life.c - the ends of processes: fork with CUDA in use, and the ways to leave.
 *
 *   --fork     the child's calls fail as CUDA says, the parent goes on
 *   --spawn    a child that starts another program
 *   --return   leave by main's return, with live blocks and pending work
 *   --thread   leave by exit() of one thread while others allocate
 *   --atexit   free a block in an atexit handler
 *   --quick    leave by _exit
 *
 * Prints a transcript and ends with code 0.
 *
 * Tried: everywhere
 * Run: transcript.py @ --fork
 * Run: transcript.py @ --spawn
 * Run: transcript.py @ --return
 * Run: transcript.py @ --thread
 * Run: transcript.py @ --atexit
 * Run: transcript.py @ --quick
 */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"
#include "kernels.h"
#include "util.h"

static struct gcpt_kernels kernels;
static CUstream stream;

static void work(const char *program)
{
	void *p, *q;

	GCPT_OK(gcpt_malloc(&p, 1 << 20));
	GCPT_OK(gcpt_launch_fill_slow(&kernels, stream, p, 1000, 1, 50000));
	GCPT_OK(gcpt_free(p), gcpt_malloc(&q, 1 << 20));
	GCPT_OK(gcpt_launch_fill_slow(&kernels, stream, q, 1000, 1, 50000));
	printf("%s: works, and leaves a block and work behind\n", program);
}

static int by_fork(void)
{
	void *p, *fresh = NULL;
	int status;
	pid_t pid;

	GCPT_OK(gcpt_malloc(&p, 1 << 20));
	fflush(stdout);
	pid = fork();
	if (!pid) {
		/* Whatever CUDA says, it says it: no crash, no hang. */
		int a = gcpt_malloc(&fresh, 4096), b = gcpt_free(p);

		printf("child: malloc %d, free %d\n", a, b);
		exit(a && b ? 0 : 1);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return 2;
	printf("parent: the child ended with %d\n",
	       WIFEXITED(status) ? WEXITSTATUS(status) : -1);
	GCPT_OK(gcpt_free(p));
	work("parent");
	GCPT_OK(gcpt_sync());
	return status ? 1 : 0;
}

static int by_spawn(void)
{
	int code;

	work("before");
	fflush(stdout);
	code = system("echo a shell in between; sh -c 'exit 3'");
	printf("the shell ended with %d\n", WEXITSTATUS(code));
	work("after");
	return 0;
}

static void *endless(void *arg)
{
	void *p;

	(void)arg;
	/* Errors are fair once the process is leaving, which may be before the thread
	 * has begun. */
	if (gcpt_use(0) == 0)
		while (gcpt_malloc(&p, 4096) == 0 && gcpt_free(p) == 0)
			;
	for (;;)
		pause();
	return NULL;
}

static int by_thread(void)
{
	pthread_t thread;

	for (int i = 0; i < 3; i++)
		pthread_create(&thread, NULL, endless, NULL);
	work("main");
	usleep(20000);
	exit(0);
}

static void *late_block;

static void at_exit(void)
{
	int code = gcpt_free(late_block);

	/* 4: the driver is already shutting down. Both are right. */
	printf("atexit: free %s\n",
	       code == 0 || code == 4 ? "fine" : gcpt_error_name(code));
}

static int by_atexit(void)
{
	GCPT_OK(gcpt_malloc(&late_block, 1 << 16));
	atexit(at_exit);
	work("main");
	return 0;
}

int main(int argc, char **argv)
{
	GCPT_OK(gcpt_use(0), gcpt_kernels_load(&kernels), gcpt_stream_create(&stream));
	if (gcpt_flag(argc, argv, "--fork"))
		return by_fork();
	if (gcpt_flag(argc, argv, "--spawn"))
		return by_spawn();
	if (gcpt_flag(argc, argv, "--thread"))
		return by_thread();
	if (gcpt_flag(argc, argv, "--atexit"))
		return by_atexit();
	work("main");
	fflush(stdout);
	if (gcpt_flag(argc, argv, "--quick"))
		_exit(0);
	return 0;
}
