/* SPDX-License-Identifier: MIT */
/*
 * handle_files.c - the files in which handles of mapped memory go to other processes.
 * Files are made and closed under vmm_lock (of pool/), under which handles come and go.
 * Legal in captures.
 *
 * The driver takes 590 us to make a handle's file and 480 us to close the last one of
 * it, and 60 us to import and map the handle (H200). So the files of the handles that
 * were exported last are kept, and other processes get duplicates.
 */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "../cuda/ctx_scope.h"
#include "../cuda/resolve.h"
#include "../ipc/ipc_server.h"
#include "process_life.h"

enum { KEPT = 128, SHARE = 4 }; /* never more than one in SHARE that may be open */

static struct kept {
	uint64_t handle; /* 0: none */
	int fd;
} kept[KEPT];
static unsigned int next;
static int (*driver_release)(uint64_t handle);

static struct kept *kept_find(uint64_t handle)
{
	for (int i = 0; i < KEPT; i++)
		if (kept[i].handle == handle)
			return &kept[i];
	return NULL;
}

static void kept_drop(struct kept *one)
{
	if (one->handle)
		close(one->fd);
	*one = (struct kept){0};
}

/* Not by fcntl, which new glibc names anew. */
static int file_copy(int fd)
{
	return (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 0);
}

/* In the place of the oldest. */
static void keep(uint64_t handle, int fd)
{
	gcp_assert_held(GCP_RANK_VMM);
	struct rlimit limit;
	int copy = file_copy(fd);

	if (copy < 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0 ||
	    (rlim_t)copy >= limit.rlim_cur / SHARE) {
		close(copy);
		return;
	}
	kept_drop(&kept[next % KEPT]);
	kept[next++ % KEPT] = (struct kept){handle, copy};
}

static CUresult handle_file(uint64_t handle, int *ret_fd)
{
	gcp_assert_held(GCP_RANK_VMM);
	struct kept *one = kept_find(handle);
	CUresult result;

	assert(handle != 0);
	if (one) {
		*ret_fd = file_copy(one->fd);
		return *ret_fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
	}
	result = GCP_WITHIN(
	    NULL, gcp_real.cuMemExportToShareableHandle(
		      ret_fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	if (result == CUDA_SUCCESS)
		keep(handle, *ret_fd);
	return result;
}

/* The driver may give its number to other memory. */
static int handle_release(uint64_t handle)
{
	gcp_assert_held(GCP_RANK_VMM);
	struct kept *one = kept_find(handle);

	if (one)
		kept_drop(one);
	return driver_release(handle);
}

void gcp_handle_files_watch(struct gcp_driver *driver)
{
	driver_release = driver->vm_release;
	driver->vm_release = handle_release;
	gcp_ipc_server_file = handle_file;
}

void gcp_handle_files_after_fork(void)
{
	for (int i = 0; i < KEPT; i++)
		kept_drop(&kept[i]);
}
