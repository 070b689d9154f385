/* SPDX-License-Identifier: MIT */
/*
 * ipc.c - sharing memory with other processes.
 *
 * Entry points, under the big lock. A handle names a whole allocation: of an
 * interior pointer it keeps nothing (facts: the offset is lost). Another
 * process reaches the bytes through this one's memfd in /proc. A handle that
 * is not exactly as it was made is refused.
 */
#include "sim.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* What the 64 bytes of a handle hold. */
struct handle {
	char magic[4];
	int32_t table_fd; /* of the exporter's table */
	uint64_t offset, bytes, buffer_id;
	int32_t pid, fd, device;
	uint32_t place;    /* in it */
	uint64_t checksum; /* of all before */
	uint64_t more_zero;
};
_Static_assert(sizeof(struct handle) == sizeof(CUipcMemHandle),
	       "a handle has the size that CUDA says");

static uint64_t checksum(const struct handle *handle)
{
	const unsigned char *p = (const unsigned char *)handle;
	uint64_t sum = 0xcbf29ce484222325ull; /* FNV-1a */

	for (size_t i = 0; i < offsetof(struct handle, checksum); i++)
		sum = (sum ^ p[i]) * 0x100000001b3ull;
	return sum;
}

/* --- the table ------------------------------------------------------------ */

/* What this process exports and has not freed, by place: buffer ids, for other
 * processes to see. Places are not used twice; the first one is never used. */
enum { TABLE = 1 << 16 };
static struct {
	int fd;
	pid_t pid; /* whose: a child makes its own */
	uint64_t *at;
	uint32_t used;
} table;

static bool table_open(void)
{
	size_t bytes = TABLE * sizeof(*table.at);

	if (table.at && table.pid == getpid())
		return true;
	table.fd = memfd_create("gcpsim-exports", MFD_CLOEXEC);
	if (table.fd < 0 || ftruncate(table.fd, (off_t)bytes) != 0)
		return false;
	table.at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, table.fd, 0);
	if (table.at == MAP_FAILED)
		table.at = NULL;
	table.pid = getpid();
	table.used = 1;
	return table.at != NULL;
}

void sim_ipc_release(const struct sim_alloc *alloc)
{
	if (alloc->ipc_place && table.pid == getpid())
		__atomic_store_n(&table.at[alloc->ipc_place], 0, __ATOMIC_RELEASE);
}

/* Whether the exporter still has it: CUDA_ERROR_INVALID_VALUE if not; and
 * CUDA_ERROR_INVALID_HANDLE if the exporter has ended (measured). */
static CUresult exported_check(const struct handle *handle)
{
	uint64_t buffer_id = 0;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", handle->pid, handle->table_fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	SIM_FAIL_IF(INVALID_HANDLE, fd < 0);
	if (pread(fd, &buffer_id, sizeof(buffer_id),
		  handle->place * sizeof(buffer_id)) != sizeof(buffer_id))
		buffer_id = 0;
	close(fd);
	return buffer_id == handle->buffer_id ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- entry points --------------------------------------------------------- */

SIM_ENTRY(cuIpcGetMemHandle)
{
	struct handle handle = {.magic = "SIM"};
	struct sim_alloc *alloc;

	SIM_FAIL_IF(INVALID_VALUE, !pHandle);
	SIM_CURRENT(ctx);
	alloc = sim_memory_find(dptr);
	SIM_FAIL_IF(INVALID_VALUE, !alloc || alloc->kind != SIM_MEMORY_DEVICE);
	SIM_FAIL_IF(OPERATING_SYSTEM,
		    !table_open() || (!alloc->ipc_place && table.used == TABLE));
	if (!alloc->ipc_place)
		alloc->ipc_place = table.used++;
	__atomic_store_n(&table.at[alloc->ipc_place], alloc->buffer_id,
			 __ATOMIC_RELEASE);
	handle.table_fd = table.fd;
	handle.place = alloc->ipc_place;
	handle.fd = sim_memory_fd(alloc->device, alloc->addr, &handle.offset);
	handle.bytes = alloc->bytes;
	handle.buffer_id = alloc->buffer_id;
	handle.pid = getpid();
	handle.device = alloc->device;
	handle.checksum = checksum(&handle);
	memcpy(pHandle, &handle, sizeof(handle));
	return CUDA_SUCCESS;
}

/* Memory is shared in pages of 4 KiB; an allocation may begin inside one. */
static CUresult map_foreign(const struct handle *handle, struct sim_ctx *ctx,
			    CUdeviceptr *ret_ptr)
{
	uint64_t skip = handle->offset % 4096;
	struct sim_alloc *alloc;
	char path[64];
	int fd, failed;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", handle->pid, handle->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	SIM_FAIL_IF(MAP_FAILED, fd < 0);
	if (sim_memory_alloc(ctx, handle->bytes + skip, SIM_MEMORY_IPC, &alloc) != 0) {
		close(fd);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	failed =
	    sim_memory_map(alloc->addr, (handle->bytes + skip + 4095) / 4096 * 4096, fd,
			   handle->offset - skip);
	close(fd);
	if (failed) {
		sim_memory_free(alloc);
		return CUDA_ERROR_MAP_FAILED;
	}
	alloc->ipc_opens = 1;
	alloc->ipc_pid = handle->pid;
	alloc->ipc_skip = (uint32_t)skip;
	alloc->buffer_id = handle->checksum;
	*ret_ptr = alloc->addr + skip;
	return CUDA_SUCCESS;
}

/* Of what another process has, one context of a device opens something at a time. */
static bool is_for_another(const struct handle *handle, struct sim_ctx *ctx)
{
	for (const struct sim_alloc *a = sim_memory_first(); a; a = a->next)
		if (a->kind == SIM_MEMORY_IPC && a->ipc_pid == handle->pid &&
		    a->ctx->device == ctx->device && a->ctx != sim_ctx_memory(ctx))
			return true;
	return false;
}

SIM_ENTRY(cuIpcOpenMemHandle_v2)
{
	struct handle handle;

	memcpy(&handle, &raw, sizeof(handle));
	SIM_FAIL_IF(INVALID_VALUE,
		    !pdptr || Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	SIM_CURRENT(ctx);
	SIM_FAIL_IF(INVALID_VALUE, memcmp(handle.magic, "SIM", 4) != 0 ||
				       handle.checksum != checksum(&handle) ||
				       handle.more_zero);
	SIM_FAIL_IF(INVALID_CONTEXT, handle.pid == getpid());
	SIM_FAIL_IF(INVALID_HANDLE, is_for_another(&handle, ctx));
	for (struct sim_alloc *a = sim_memory_first(); a; a = a->next) {
		if (a->kind != SIM_MEMORY_IPC || a->buffer_id != handle.checksum ||
		    a->ctx != sim_ctx_memory(ctx))
			continue;
		a->ipc_opens++;
		*pdptr = a->addr + handle.offset % 4096;
		return CUDA_SUCCESS;
	}
	SIM_TRY(exported_check(&handle));
	return map_foreign(&handle, sim_ctx_memory(ctx), pdptr);
}

SIM_ENTRY(cuIpcCloseMemHandle)
{
	struct sim_alloc *alloc;

	SIM_CURRENT(ctx);
	alloc = sim_memory_find(dptr);
	SIM_FAIL_IF(INVALID_VALUE, !alloc || alloc->kind != SIM_MEMORY_IPC ||
				       dptr != alloc->addr + alloc->ipc_skip);
	/* Also if it stays open (measured: as long as a kernel that does not use it).
	 */
	SIM_TRY(sim_ctx_wait(alloc->ctx));
	if (--alloc->ipc_opens == 0)
		sim_memory_free(alloc);
	return CUDA_SUCCESS;
}
