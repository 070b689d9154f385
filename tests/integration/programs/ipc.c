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
 *   --again        the child opens the block several times, and closes it as often
 *   --first-form   ... by the first form of cuIpcOpenMemHandle
 *
 * Exit code 0: data right on both sides. 3: the child could not open the
 * handle (the program says which error), and the parent's data are untouched.
 *
 * Tried: everywhere
 * Run: transcript.py @
 * Run: trial.py code=3 @ --child-plain
 * Run: trial.py code=3 @ --child-off
 */
#include <dirent.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"
#include "kernels.h"
#include "util.h"

enum { BLOCKS = 5, EXPORTED = 3, PARENT_VALUE = 0x1000, CHILD_VALUE = 0x2000 };

struct note {                          /* parent to child */
	struct gcpt_ipc handle, other; /* maybe of the same memory */
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
	GCPT_OK(gcpt_copy(&wrong, counter, sizeof(wrong)));
	GCPT_OK(gcpt_free(counter));
	return wrong;
}

static int files_open(void)
{
	DIR *files = opendir("/proc/self/fd");
	int count = 0;

	while (files && readdir(files))
		count++;
	if (files)
		closedir(files);
	return count;
}

static int open_by(bool first_form, void **ret_p, const struct gcpt_ipc *handle)
{
	typedef CUresult open_fn(CUdeviceptr * p, CUipcMemHandle theirs,
				 unsigned flags);
	open_fn *first = (open_fn *)dlsym(RTLD_DEFAULT, "cuIpcOpenMemHandle");
	CUipcMemHandle theirs;
	CUdeviceptr p = 0;
	CUresult code;

	if (!first_form)
		return gcpt_ipc_open(ret_p, handle);
	memcpy(&theirs, handle, sizeof(theirs));
	code = first ? first(&p, theirs, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) : 1;
	*ret_p = (void *)(uintptr_t)p;
	return (int)code;
}

/* What is open is not this process's to unmap, and stays. 0: CUDA refuses it. */
static unsigned long long unmap(const void *p)
{
	/* CU_POINTER_ATTRIBUTE_..., which older headers lack. */
	enum { MAPPING_SIZE = 18, MAPPING_BASE_ADDR = 19 };
	CUdeviceptr at = (CUdeviceptr)(uintptr_t)p, base = 0;
	size_t size = 0;

	if (!cu.cuMemUnmap ||
	    cu.cuPointerGetAttribute(&base, (CUpointer_attribute)MAPPING_BASE_ADDR,
				     at) ||
	    cu.cuPointerGetAttribute(&size, (CUpointer_attribute)MAPPING_SIZE, at))
		return 0;
	return cu.cuMemUnmap(base, size) == CUDA_SUCCESS;
}

/* It is there until it was closed as often as it was opened, and leaves no file. */
static unsigned long long open_again(const struct gcpt_kernels *k,
				     const struct note *note, bool first_form)
{
	enum { TURNS = 5 };
	unsigned long long wrong = 0;
	int files = 0;
	void *p, *q;

	for (int turn = 0; turn < TURNS; turn++) {
		GCPT_OK(open_by(first_form, &p, &note->handle));
		GCPT_OK(open_by(first_form, &q, &note->handle));
		GCPT_OK(gcpt_ipc_close(p));
		wrong += unmap(q);
		wrong += count_wrong(k, q, note->words, PARENT_VALUE + EXPORTED);
		GCPT_OK(gcpt_sync());
		GCPT_OK(gcpt_ipc_close(q));
		if (turn > 0 && files_open() != files) {
			printf("ipc: %d files are open instead of %d\n", files_open(),
			       files);
			wrong++;
		}
		files = files_open();
	}
	return wrong;
}

/* A pointer that is closed is closed, whatever else is open. */
static unsigned long long close_too_often(const struct gcpt_kernels *k,
					  const struct note *note)
{
	unsigned long long wrong;
	void *p, *other;

	GCPT_OK(gcpt_ipc_open(&other, &note->other));
	GCPT_OK(gcpt_ipc_open(&p, &note->handle));
	GCPT_OK(gcpt_ipc_close(p));
	wrong = gcpt_ipc_close(p) == 0;
	gcpt_last_error();
	wrong += count_wrong(k, other, note->words, PARENT_VALUE);
	GCPT_OK(gcpt_ipc_close(other));
	return wrong;
}

static int child(int fd, bool again, bool first_form)
{
	struct gcpt_kernels k;
	unsigned long long wrong;
	struct note note;
	void *p;
	int code;

	if (read(fd, &note, sizeof(note)) != (ssize_t)sizeof(note))
		return 2;
	GCPT_OK(gcpt_use(0));
	GCPT_OK(gcpt_kernels_load(&k));
	code = open_by(first_form, &p, &note.handle);
	if (code) {
		printf("ipc: the child cannot open the handle: %d %s\n", code,
		       gcpt_error_name(code));
		return 3;
	}
	wrong = count_wrong(&k, p, note.words, PARENT_VALUE + EXPORTED);
	if (again) {
		GCPT_OK(gcpt_ipc_close(p));
		wrong += open_again(&k, &note, first_form);
		wrong += close_too_often(&k, &note);
		GCPT_OK(open_by(first_form, &p, &note.handle));
	}
	GCPT_OK(gcpt_launch_fill(&k, NULL, p, note.words, CHILD_VALUE));
	GCPT_OK(gcpt_sync());
	GCPT_OK(gcpt_ipc_close(p));
	printf("ipc: the child found %llu wrong words\n", wrong);
	return wrong ? 1 : 0;
}

/* Starts this program again as the child: CUDA does not live through fork. */
static pid_t child_start(int argc, char **argv, int *ret_fd)
{
	const char *again = gcpt_flag(argc, argv, "--again") ? "--again" : NULL;
	const char *first =
	    gcpt_flag(argc, argv, "--first-form") ? "--first-form" : "--";
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
		execl("/proc/self/exe", argv[0], "--child", number, first, again,
		      (char *)NULL);
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
		return child(fd, gcpt_flag(argc, argv, "--again"),
			     gcpt_flag(argc, argv, "--first-form"));
	pid = child_start(argc, argv, &fd);
	GCPT_OK(gcpt_use(0));
	GCPT_OK(gcpt_kernels_load(&k));
	blocks_make(&k, block, size);
	GCPT_OK(gcpt_sync());
	GCPT_OK(gcpt_ipc_get(&note.handle, block[EXPORTED]));
	GCPT_OK(gcpt_ipc_get(&note.other, block[0]));
	if (write(fd, &note, sizeof(note)) != (ssize_t)sizeof(note))
		return 2;
	if (waitpid(pid, &status, 0) != pid)
		return 2;
	status = parent_result(&k, block, size / 4, status);
	for (unsigned i = 0; i < BLOCKS; i++)
		GCPT_OK(gcpt_free(block[i]));
	return status;
}
