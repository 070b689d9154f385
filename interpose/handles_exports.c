/* SPDX-License-Identifier: MIT */
/*
 * handles_exports.c - what a program linked with cuBLAS, cuDNN, ... calls: two
 * entries for each row of GCP_HANDLE_LIBRARIES.
 *
 * The exported names carry the library's own symbol version, hidden ("@"), as those
 * of cudart do (exports.c): only references to that version of the library bind
 * them, and dlsym never finds them.
 */
#include "handles.h"
#include "hooks.h"

#define GCP_X(tag, soname, kind, create, destroy)                                      \
	__asm__(".symver gcp_entry_" #tag "_create, " #create "@" soname);             \
	__attribute__((visibility("default"))) int gcp_entry_##tag##_create(           \
	    void **ret_handle)                                                         \
	{                                                                              \
		return gcp_handles_create(                                             \
		    &gcp_handle_libraries[GCP_HANDLE_INDEX_##tag], ret_handle);        \
	}                                                                              \
	__asm__(".symver gcp_entry_" #tag "_destroy, " #destroy "@" soname);           \
	__attribute__((visibility("default"))) int gcp_entry_##tag##_destroy(          \
	    void *handle)                                                              \
	{                                                                              \
		return gcp_handles_destroy(                                            \
		    &gcp_handle_libraries[GCP_HANDLE_INDEX_##tag], handle);            \
	}
GCP_HANDLE_LIBRARIES(GCP_X)
#undef GCP_X
