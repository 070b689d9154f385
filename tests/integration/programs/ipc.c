/* SPDX-License-Identifier: MIT */
/*
 * ipc.c - two processes exchange a block through an IPC handle.
 *
 * The parent allocates several small blocks, so that an allocator that cuts
 * them from one driver allocation has the exported one at a non-zero offset.
 * The child opens it, must find the parent's pattern, and writes its own; the
 * parent must find that, and its other blocks untouched.
 *
 *   --size BYTES   of each block
 *   --child-plain  the child runs without LD_PRELOAD
 *   --child-off    the child runs with GCPOOL_MODE=off
 *
 * Exit code 0: data right on both sides. 3: the child could not open the
 * handle (the program says which error), and the parent's data are untouched.
 *
 * Tried: everywhere
 * Run: transcript.py @
 * Run: trial.py code=3 @ --child-plain
 * Run: trial.py code=3 @ --child-off
 */
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"
#include "kernels.h"
#include "util.h"

enum { BLOCKS = 5, EXPORTED = 3, PARENT_VALUE = 0x1000, CHILD_VALUE = 0x2000 };

struct note { /* parent to child */
	struct gcpt_ipc handle;
	uint64_t words;
};

static unsigned long long count_wrong(const struct gcpt_kernels *k, void *p,
				      uint64_t words, uint32_t expected)
{
	unsigned long long wrong = 0;
	void *counter;

	GCPT_OK(gcpt_malloc(&counter, sizeof(wrong)));
	GCPT_OK(gcpt_copy(counter, &wrong, sizeof(wrong)));
	GCPT_OK(gcpt_launch_check(k, NULL, p, words, expected, counter));
	GCPT_OK(gcpt_copy(&wrong, counter, sizeof(wrong)), gcpt_free(counter));
	return wrong;
}

static int child(int fd)
{
	struct gcpt_kernels k;
	unsigned long long wrong;
	struct note note;
	void *p;
	int code;

	if (read(fd, &note, sizeof(note)) != (ssize_t)sizeof(note))
		return 2;
	GCPT_OK(gcpt_use(0), gcpt_kernels_load(&k));
	code = gcpt_ipc_open(&p, &note.handle);
	if (code) {
		printf("ipc: the child cannot open the handle: %d %s\n", code,
		       gcpt_error_name(code));
		return 3;
	}
	wrong = count_wrong(&k, p, note.words, PARENT_VALUE + EXPORTED);
	GCPT_OK(gcpt_launch_fill(&k, NULL, p, note.words, CHILD_VALUE), gcpt_sync());
	GCPT_OK(gcpt_ipc_close(p));
	printf("ipc: the child found %llu wrong words\n", wrong);
	return wrong ? 1 : 0;
}

/* Starts this program again as the child: CUDA does not live through fork. */
static pid_t child_start(int argc, char **argv, int *ret_fd)
{
	int ends[2];
	char number[16];
	pid_t pid;

	if (pipe(ends))
		exit(2);
	fflush(stdout);
	pid = fork();
	if (pid < 0)
		exit(2);
	if (!pid) {
		if (gcpt_flag(argc, argv, "--child-plain"))
			unsetenv("LD_PRELOAD");
		if (gcpt_flag(argc, argv, "--child-off"))
			setenv("GCPOOL_MODE", "off", 1);
		close(ends[1]);
		snprintf(number, sizeof(number), "%d", ends[0]);
		execl("/proc/self/exe", argv[0], "--child", number, (char *)NULL);
		_exit(2);
	}
	close(ends[0]);
	*ret_fd = ends[1];
	return pid;
}

/* Each of a pattern of its own. */
static void blocks_make(const struct gcpt_kernels *k, void **block, uint64_t size)
{
	for (uint32_t i = 0; i < BLOCKS; i++) {
		GCPT_OK(gcpt_malloc(&block[i], size));
		GCPT_OK(
		    gcpt_launch_fill(k, NULL, block[i], size / 4, PARENT_VALUE + i));
	}
}

static int parent_result(const struct gcpt_kernels *k, void **block, uint64_t words,
			 int status)
{
	int code = WIFEXITED(status) ? WEXITSTATUS(status) : 2;
	unsigned long long wrong = 0;

	for (uint32_t i = 0; i < BLOCKS; i++)
		wrong += count_wrong(k, block[i], words,
				     i == EXPORTED && code != 3 ? CHILD_VALUE
								: PARENT_VALUE + i);
	printf("ipc: the parent found %llu wrong words\n", wrong);
	return wrong ? 1 : code;
}

int main(int argc, char **argv)
{
	uint64_t size = gcpt_arg(argc, argv, "--size", 4096);
	int fd = (int)gcpt_arg(argc, argv, "--child", 0), status;
	struct note note = {.words = size / 4};
	struct gcpt_kernels k;
	void *block[BLOCKS];
	pid_t pid;

	if (fd)
		return child(fd);
	pid = child_start(argc, argv, &fd);
	GCPT_OK(gcpt_use(0), gcpt_kernels_load(&k));
	blocks_make(&k, block, size);
	GCPT_OK(gcpt_sync(), gcpt_ipc_get(&note.handle, block[EXPORTED]));
	if (write(fd, &note, sizeof(note)) != (ssize_t)sizeof(note))
		return 2;
	if (waitpid(pid, &status, 0) != pid)
		return 2;
	status = parent_result(&k, block, size / 4, status);
	for (unsigned i = 0; i < BLOCKS; i++)
		GCPT_OK(gcpt_free(block[i]));
	return status;
}
