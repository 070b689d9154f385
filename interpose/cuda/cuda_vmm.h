/* SPDX-License-Identifier: MIT */
/*
 * cuda_vmm.h - mapped memory of the real driver, and which devices it is open to.
 */
#ifndef GCP_INTERPOSE_CUDA_VMM_H
#define GCP_INTERPOSE_CUDA_VMM_H

#include "../../pool/driver_table.h"
#include "symbols.h"

/* Fills its part of the table; as gcp_driver_fill. */
void gcp_driver_fill_vmm(struct gcp_driver *ret_driver);

/* A context of the device was seen for the first time. False: a device beyond those
 * that this library opens memory to. No lock is held. */
bool gcp_vmm_device_joined(int device);

/* Returns when all that is mapped, now and later, is open to each device that has, or
 * will have, a context here, and can reach it. Legal in captures. False: a call of it
 * had returned before, in any thread. */
bool gcp_vmm_open_everywhere(void);

/* Returns true if a call of it has begun. */
bool gcp_vmm_is_everywhere(void);
/* Returns true if memory may be open to a device whose context has no peer access: some
 * copies between devices are one device's own work then, where plain cudaFree would
 * wait in both contexts. */
bool gcp_vmm_is_wider(void);

/* `device` gets access to all that is mapped on `owner`, now and later. False: some of
 * it is refused. Only while pooling. cuda_vmm.c */
bool gcp_vmm_give_access(int owner, int device);

/* Returns true if mapped memory of the device can be handed to other processes. Of one
 * that has some. */
bool gcp_vmm_is_shared(int device);

/* The devices, a bit for each, that can reach memory of `device`: of those that have or
 * had a context in this process, that one itself, and `user`. */
uint64_t gcp_vmm_users(int device, int user);
/* Opens mapped addresses to the devices of `mask`. */
CUresult gcp_vmm_open_to(uint64_t mask, gcp_addr addr, uint64_t bytes);

#endif
