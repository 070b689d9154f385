/* SPDX-License-Identifier: MIT */
/*
 * kernels.h - launches the kernels of kernels.cu through the driver.
 *
 * A struct gcpt_kernels belongs to the context that was current when it was
 * loaded, and may be used by all threads that have it current.
 */
#ifndef GCPT_KERNELS_H
#define GCPT_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "driver.h"

struct gcpt_kernels {
	CUmodule module;
	CUfunction fill, check, copy, add, spin, fill_slow, check_slow, trap;
};

/* Into the current context. Returns the driver's code. */
int gcpt_kernels_load(struct gcpt_kernels *k);

/* Each launches one kernel and returns the driver's code. n counts words of
 * 32 bits; see kernels.cu. */
int gcpt_launch_fill(const struct gcpt_kernels *k, CUstream stream, void *p, size_t n,
		     uint32_t value);
int gcpt_launch_check(const struct gcpt_kernels *k, CUstream stream, const void *p,
		      size_t n, uint32_t expected, void *wrong);
int gcpt_launch_copy(const struct gcpt_kernels *k, CUstream stream, void *dst,
		     const void *src, size_t n);
int gcpt_launch_add(const struct gcpt_kernels *k, CUstream stream, void *p, size_t n,
		    uint32_t delta);
int gcpt_launch_spin(const struct gcpt_kernels *k, CUstream stream, uint64_t ns);
int gcpt_launch_fill_slow(const struct gcpt_kernels *k, CUstream stream, void *p,
			  size_t n, uint32_t value, uint64_t ns);
int gcpt_launch_check_slow(const struct gcpt_kernels *k, CUstream stream, const void *p,
			   size_t n, uint32_t expected, void *wrong, uint64_t ns);
int gcpt_launch_trap(const struct gcpt_kernels *k, CUstream stream);

#endif
