/* SPDX-License-Identifier: MIT */
/*
 * rows.h - the table of all functions that are hooked or called, in the order of
 * symbols.h. It is in exports_stubs.S: distances in place of
 * pointers, so that the loader has nothing to do for it in programs without CUDA.
 */
#ifndef GCP_INTERPOSE_ROWS_H
#define GCP_INTERPOSE_ROWS_H

#include <stdint.h>

#include "symbols.h"

/* From the field itself to what it names. */
struct gcp_row {
	int32_t entry; /* 0: called, not hooked */
	int32_t name;
	int32_t base; /* behind those of the driver: the library's name */
	uint16_t version;
	uint8_t flags;
	uint8_t required;
};

#define GCP_X(...)          +1
#define GCP_V(tag, library) GCP_RUNTIME_HOOKS(GCP_X, tag, library)
enum {
	GCP_ROWS_DRIVER = 0 GCP_DRIVER_HOOKS(GCP_X) GCP_DRIVER_USED(GCP_X),
	GCP_ROWS = GCP_ROWS_DRIVER GCP_RUNTIMES(GCP_V),
};
#undef GCP_V
#undef GCP_X

extern const struct gcp_row gcp_rows[GCP_ROWS] __attribute__((visibility("hidden")));

static inline void *gcp_row_entry(const struct gcp_row *row)
{
	return row->entry ? (char *)&row->entry + row->entry : NULL;
}

static inline const char *gcp_row_name(const struct gcp_row *row)
{
	return (const char *)&row->name + row->name;
}

static inline const char *gcp_row_base(const struct gcp_row *row)
{
	return (const char *)&row->base + row->base;
}

#endif
