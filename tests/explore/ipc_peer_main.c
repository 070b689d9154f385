/* SPDX-License-Identifier: MIT */
/*
 * ipc_peer_main.c - the other process of a history (ipc_peer.h): does what it is
 * asked on its standard input, one thing after the other, until that ends. Started by
 * ipc_peer.c, under the library or without it. Status 1: it could not, or something
 * was wrong with its own work.
 */
#include "ipc_peer.h"

#include <stdbool.h>
#include <unistd.h>

#include "gcpsim.h"

enum { DEVICES_MAX = 2, SECONDS = 600 };

static CUcontext contexts[DEVICES_MAX];
static struct {
	CUdeviceptr ptr;
	int device;
} slots[IPC_PEER_SLOTS];
static uint32_t words[IPC_PEER_WORDS_MAX];

static bool use(int device)
{
	if (device < 0 || device >= DEVICES_MAX)
		return false;
	if (!contexts[device] &&
	    cuDevicePrimaryCtxRetain(&contexts[device], device) != CUDA_SUCCESS)
		return false;
	return cuCtxSetCurrent(contexts[device]) == CUDA_SUCCESS;
}

static CUresult check(const struct ask *ask, CUdeviceptr at, uint32_t *ret_wrong)
{
	CUresult result = cuMemcpyDtoH(words, at, ask->words * 4ull);

	for (uint32_t i = 0; result == CUDA_SUCCESS && i < ask->words; i++)
		*ret_wrong += words[i] != ask->value;
	return result;
}

static CUresult fill(const struct ask *ask, CUdeviceptr at)
{
	CUresult result = cuMemsetD32(at, ask->value, ask->words);

	return result == CUDA_SUCCESS ? cuCtxSynchronize() : result;
}

static CUresult make(const struct ask *ask, struct answer *answer)
{
	CUdeviceptr *ptr = &slots[ask->slot].ptr;
	CUresult result = cuMemAlloc(ptr, ask->bytes);

	return result == CUDA_SUCCESS ? cuIpcGetMemHandle(&answer->handle, *ptr)
				      : result;
}

static CUresult answer_find(const struct ask *ask, struct answer *answer)
{
	CUdeviceptr *ptr = &slots[ask->slot].ptr;

	switch ((enum ask_kind)ask->kind) {
	case ASK_OPEN:
		slots[ask->slot].device = ask->device;
		return cuIpcOpenMemHandle(ptr, ask->handle,
					  CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	case ASK_MAKE:
		slots[ask->slot].device = ask->device;
		return make(ask, answer);
	case ASK_CLOSE:
		return cuIpcCloseMemHandle(*ptr);
	case ASK_FREE:
		return cuMemFree(*ptr);
	case ASK_CHECK:
		return check(ask, *ptr + ask->offset, &answer->wrong);
	case ASK_FILL:
		return fill(ask, *ptr + ask->offset);
	}
	return CUDA_ERROR_INVALID_VALUE;
}

int main(void)
{
	struct ask ask;

	alarm(SECONDS);
	if (cuInit(0) != CUDA_SUCCESS)
		return 1;
	while (read(STDIN_FILENO, &ask, sizeof(ask)) == sizeof(ask)) {
		struct answer answer = {.result = CUDA_ERROR_INVALID_VALUE};
		bool opens = ask.kind == ASK_OPEN || ask.kind == ASK_MAKE;

		if (ask.slot < IPC_PEER_SLOTS && ask.words <= IPC_PEER_WORDS_MAX &&
		    use(opens ? ask.device : slots[ask.slot].device))
			answer.result = (int32_t)answer_find(&ask, &answer);
		if (write(STDIN_FILENO, &answer, sizeof(answer)) != sizeof(answer))
			return 1;
	}
	return gcpsim_hazards() + gcpsim_disorders() + gcpsim_faults() +
		   gcpsim_misuses() >
	       0;
}
