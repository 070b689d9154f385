/* SPDX-License-Identifier: MIT */
/*
 * two_devices.h - what the programs of copies between devices share: two contexts with
 * two streams each, and blocks whose bytes are alike.
 */
#ifndef GCP_TESTS_TWO_DEVICES_H
#define GCP_TESTS_TWO_DEVICES_H

#include "scenarios.h"

static size_t block_bytes = MIB;
static CUcontext contexts[2];
static CUstream streams[2], others[2];

static void current(int device)
{
	OK(cuCtxSetCurrent(contexts[device]));
}

static void two_devices(void)
{
	for (int i = 0; i < 2; i++) {
		OK(cuDevicePrimaryCtxRetain(&contexts[i], i));
		current(i);
		OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
		OK(cuStreamCreate(&others[i], CU_STREAM_NON_BLOCKING));
	}
}

/* Bit 0: device 0 may access device 1; bit 1: the other way. */
static void access_give(int state)
{
	for (int i = 0; i < 2; i++) {
		current(i);
		if (state >> i & 1)
			OK(cuCtxEnablePeerAccess(contexts[1 - i], 0));
	}
}

static void all_wait(void)
{
	for (int i = 0; i < 2; i++) {
		current(i);
		OK(cuCtxSynchronize());
	}
}

static CUdeviceptr block_of(int device, unsigned char value)
{
	CUdeviceptr p;

	current(device);
	p = allocated(block_bytes);
	OK(cuMemsetD8(p, value, block_bytes));
	OK(cuCtxSynchronize());
	return p;
}

static bool block_is(int device, CUdeviceptr p, unsigned char value)
{
	static unsigned char words[MIB];

	current(device);
	OK(cuMemcpyDtoH(words, p, block_bytes));
	for (size_t i = 0; i < block_bytes; i++)
		if (words[i] != value)
			return false;
	return true;
}

/* What was opened stays open; plain CUDA has each device do its part again. */
static void access_give_and_take(void)
{
	block_bytes = MIB / 16;
	two_devices();
	access_give(3);
	OK(cuMemFree(block_of(0, 1)));
	OK(cuMemFree(block_of(1, 1)));
	for (int i = 0; i < 2; i++) {
		current(i);
		OK(cuCtxDisablePeerAccess(contexts[1 - i]));
	}
}

/* On device 1, which is current from then on, and on device 0. */
static void two_blocks(int state, CUdeviceptr *ret_to, CUdeviceptr *ret_from)
{
	two_devices();
	access_give(state);
	*ret_from = block_of(0, 7);
	*ret_to = block_of(1, 1);
	current(1);
}

/* --- memory comes again --- */

/* Takes blocks until the freed one comes again, and writes into each. */
enum { TAKEN_MAX = 24 };

static void take_again(int device, CUdeviceptr freed)
{
	CUdeviceptr taken[TAKEN_MAX];

	current(device);
	for (int i = 0; i < TAKEN_MAX; i++) {
		taken[i] = allocated(block_bytes);
		OK(cuMemsetD8Async(taken[i], 9, block_bytes, others[device]));
		if (taken[i] == freed)
			break;
		if (i % 4 == 3) { /* others go meanwhile, and epochs with them */
			OK(cuMemFree(taken[i]));
			gcpsim_advance(200);
		}
	}
}

/* Frees a block beside what was submitted, whose words the others are: which kind, in
 * which device, to which one, and which side is freed. */
static void free_and_take_again(int kind, int device, int to_device, bool of_source,
				CUdeviceptr gone)
{
	int freed = of_source ? 1 - to_device : to_device;

	current(freed);
	OK(cuMemFree(gone));
	take_again(freed, gone);
	if (gcpsim_hazards() > 0) {
		printf("kind %d in device %d to %d, free of the %s: %s\n", kind, device,
		       to_device, of_source ? "source" : "destination",
		       gcpsim_last_report());
		must(false, "memory is given out too early");
		exit(1);
	}
	all_wait();
}

#endif
