/* SPDX-License-Identifier: MIT */
/*
 * handles_table.h - the tables of library handles: which functions create and
 * destroy them, what state a handle has, and which setters do not concern it.
 *
 * Entries, exports, look-ups, the reset of a handle and the check of a library for
 * unknown setters are all expansions of these tables. A library is pooled once
 * each of its setters stands in them, and its soname in GCP_HANDLE_LIBRARIES.
 */
#ifndef GCP_INTERPOSE_HANDLES_TABLE_H
#define GCP_INTERPOSE_HANDLES_TABLE_H

#include "../base/elfwalk.h"

/* clang-format off */

/* X(tag, soname, kind, create, destroy). A program linked with libcublas.so.13 binds
 * cublasCreate_v2@libcublas.so.13: the symbol version, which is also the soname, tells
 * which library the caller belongs to, so several may be loaded at once. A version
 * that is not listed is not hooked at all. */
#define GCP_HANDLE_LIBRARIES(X)                                                        \
	X(cublas12, libcublas.so.12, CUBLAS, cublasCreate_v2, cublasDestroy_v2)      \
	X(cublas13, libcublas.so.13, CUBLAS, cublasCreate_v2, cublasDestroy_v2)      \
	X(cudnn9, libcudnn.so.9, CUDNN, cudnnCreate, cudnnDestroy)                   \
	X(cusolverDn11, libcusolver.so.11, CUSOLVERDN, cusolverDnCreate,             \
	  cusolverDnDestroy)                                                           \
	X(cusolverDn12, libcusolver.so.12, CUSOLVERDN, cusolverDnCreate,             \
	  cusolverDnDestroy)                                                           \
	X(cusolverSp11, libcusolver.so.11, CUSOLVERSP, cusolverSpCreate,             \
	  cusolverSpDestroy)                                                           \
	X(cusolverSp12, libcusolver.so.12, CUSOLVERSP, cusolverSpCreate,             \
	  cusolverSpDestroy)

/* clang-format on */

enum {
#define GCP_X(tag, soname, kind, create, destroy) GCP_HANDLE_INDEX_##tag,
	GCP_HANDLE_LIBRARIES(GCP_X)
#undef GCP_X
};

enum gcp_handle_kind_id {
	GCP_HANDLE_CUBLAS,
	GCP_HANDLE_CUDNN,
	GCP_HANDLE_CUSOLVERDN,
	GCP_HANDLE_CUSOLVERSP,
	GCP_HANDLE_KINDS,
};

enum { GCP_HANDLE_SETTINGS_MAX = 16 };

/* One part of a handle's state: status getter(handle, T *value) and
 * status setter(handle, T value). */
struct gcp_handle_setting {
	const char *getter;
	const char *setter;
	bool pointer;  /* T is a pointer (a stream), else an int or enum */
	bool required; /* a library without it is not pooled */
	bool always;   /* set also if unchanged: the setter resets more than it sets */
};

struct gcp_handle_kind {
	const char *name;
	const char *prefix; /* of the library's functions */
	int invalid;        /* status for a handle that was destroyed already */
	struct gcp_handle_setting settings[GCP_HANDLE_SETTINGS_MAX];
	/* Setters of anything but a handle, with spaces between; a final * stands for
	 * any ending. */
	const char *others;
};

extern const struct gcp_handle_kind gcp_handle_kinds[GCP_HANDLE_KINDS];

/* Returns true if the name is that of a setter which the table of the library does not
 * have. of_kind: a struct gcp_handle_kind. */
bool gcp_handle_setter_unknown(const void *of_kind, const char *name);

#endif
