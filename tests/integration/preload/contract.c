/* SPDX-License-Identifier: MIT */
/*
 * contract.c - what a program may rely on with plain CUDA, where a cache could take it
 * away.
 *
 *   contract SCENARIO    plays one; 0: all is as with plain CUDA
 */
#include "scenarios.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* No thread may make that system call any more, as in a sandbox that starts late. */
static void system_call_refuse(unsigned int number, unsigned int error)
{
	struct sock_filter filter[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {4, filter};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC,
		    &program) != 0) {
		puts("system calls cannot be filtered here");
		exit(77);
	}
}

/* The file of GCPOOL_TRACE has its disk space all the same, before it is written. */
SCENARIO(a_recording_where_files_cannot_be_allocated, "BY=look")
{
	struct stat about = {0};

	(void)unlink(getenv("GCPOOL_TRACE")); /* of an earlier test */
	system_call_refuse(SYS_fallocate, EOPNOTSUPP);
	(void)primary();
	OK(cuMemFree(allocated(MIB)));
	must(stat(getenv("GCPOOL_TRACE"), &about) == 0 && about.st_size > 0,
	     "a recording");
	must(about.st_size % 4096 == 0, "whole pages of it");
	must(about.st_blocks * 512 >= about.st_size, "its disk space");
}

SCENARIO_PRIMARY(many_blocks_synchronize, "GCPSIM_SPEED=never")
{
	enum { BLOCKS = 300 };
	CUdeviceptr block[BLOCKS];
	unsigned value, bad = 0;
	int set = 1;

	for (int i = 0; i < BLOCKS; i++)
		block[i] = allocated(1000);
	for (int i = BLOCKS - 1; i >= 0; i -= 2)
		OK(cuPointerSetAttribute(&set, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
					 block[i]));
	for (int i = 0; i < BLOCKS; i++) {
		OK(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
					 block[i]));
		bad += value != (unsigned)i % 2;
	}
	must(bad == 0, "another block has it");
	for (int i = 0; i < BLOCKS; i++) {
		OK(cuMemsetD8Async(block[0], 1, 1000, NULL));
		OK(cuMemcpyDtoD(block[i], block[0], 1000));
		bad +=
		    (cuStreamQuery(CU_STREAM_LEGACY) == CUDA_SUCCESS) != (i % 2 == 1);
		OK(cuMemsetD8Async(block[0], 1, 1000, NULL));
		OK(cuMemcpyDtoD(block[0], block[i], 1000));
		bad +=
		    (cuStreamQuery(CU_STREAM_LEGACY) == CUDA_SUCCESS) != (i % 2 == 1);
	}
	must(bad == 0, "a copy waits, or does not");
}

/* The context's work fails, and the program makes it anew. */
SCENARIO_PRIMARY(allocations_after_a_reset, "GCPOOL_TEST_WINDOW=0")
{
	CUdeviceptr block;
	CUmodule module;
	CUfunction trap;
	uint64_t calls;

	OK(cuMemFree(allocated(MIB)), cuModuleLoadData(&module, ""));
	OK(cuModuleGetFunction(&trap, module, "gcpt_trap"));
	OK(cuLaunchKernel(trap, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	must(cuCtxSynchronize() == CUDA_ERROR_LAUNCH_FAILED, "it did not fail");
	for (int i = 0; i < 3; i++)
		must(cuMemAlloc(&block, MIB) == CUDA_ERROR_LAUNCH_FAILED,
		     "the pool gave memory");
	OK(cuDevicePrimaryCtxReset(0));
	(void)primary();
	OK(cuMemFree(allocated(MIB)));
	calls = gcpsim_calls("cuMemAlloc_v2") + gcpsim_calls("cuMemCreate");
	for (int i = 0; i < 10; i++)
		OK(cuMemFree(allocated(MIB)));
	must(gcpsim_calls("cuMemAlloc_v2") + gcpsim_calls("cuMemCreate") == calls,
	     "the pool is gone for good");
}
