/* SPDX-License-Identifier: MIT */
/*
 * entries.c - see handles.h. What a program calls in the place of the libraries: two
 * entries for each row of GCP_HANDLE_LIBRARIES, reached as the loader has bound them,
 * or by dlsym. And the statistics at exit.
 *
 * The exported names carry the library's own symbol version, hidden ("@"): only
 * references to that version of the library bind them, and dlsym never finds them.
 */
#include <dlfcn.h>
#include <string.h>

#include "../hooks/dlsym.h"
#include "../statistics/writer.h"
#include "handles.h"

#define GCP_EXPORT __attribute__((visibility("default")))
#define HANDLE_ENTRIES(tag, name, id, create, destroy)                                 \
	GCP_EXPORT int gcp_entry_##tag##_create(void **ret_handle);                    \
	GCP_EXPORT int gcp_entry_##tag##_destroy(void *handle);                        \
	int gcp_entry_##tag##_create(void **ret_handle)                                \
	{                                                                              \
		return gcp_handles_create(                                             \
		    &gcp_handle_libraries[GCP_HANDLE_INDEX_##tag], ret_handle);        \
	}                                                                              \
	int gcp_entry_##tag##_destroy(void *handle)                                    \
	{                                                                              \
		return gcp_handles_destroy(                                            \
		    &gcp_handle_libraries[GCP_HANDLE_INDEX_##tag], handle);            \
	}                                                                              \
	__asm__(".symver gcp_entry_" #tag "_create," #create "@" #name);               \
	__asm__(".symver gcp_entry_" #tag "_destroy," #destroy "@" #name);
GCP_HANDLE_LIBRARIES(HANDLE_ENTRIES)

#define HANDLE_LIBRARY(tag, name, id, create_fn, destroy_fn)                           \
	{                                                                              \
	    .soname = #name,                                                           \
	    .kind = &gcp_handle_kinds[GCP_HANDLE_##id],                                \
	    .create_name = #create_fn,                                                 \
	    .destroy_name = #destroy_fn,                                               \
	    .create_entry = (void *)gcp_entry_##tag##_create,                          \
	    .destroy_entry = (void *)gcp_entry_##tag##_destroy,                        \
	},
struct gcp_handle_library gcp_handle_libraries[] = {
    GCP_HANDLE_LIBRARIES(HANDLE_LIBRARY)};

const int gcp_handle_library_count =
    sizeof(gcp_handle_libraries) / sizeof(gcp_handle_libraries[0]);

/* --- look-ups -------------------------------------------------------------------- */

/* The entry of the library, which is pooled, that stands for `real`. */
static void *entry_of(const struct gcp_handle_library *library, const void *real)
{
	assert(atomic_load(&library->state) == GCP_HANDLE_LIBRARY_POOLED);
	if (real == (void *)library->real.create)
		return library->create_entry;
	return real == (void *)library->real.destroy ? library->destroy_entry : NULL;
}

/* A real function is exchanged for its entry. Not by RTLD_NEXT: its caller wraps the
 * function, and gets what it wraps. */
static void *dlsym_answer(void *handle, const char *name, const void *caller)
{
	GCP_KEEP_ERRNO;

	for (int i = 0; handle != RTLD_NEXT && i < gcp_handle_library_count; i++) {
		struct gcp_handle_library *library = &gcp_handle_libraries[i];
		struct gcp_elf elf;
		void *entry;

		if ((strcmp(library->create_name, name) != 0 &&
		     strcmp(library->destroy_name, name) != 0) ||
		    !gcp_handle_library_pooled(library) ||
		    !(entry = entry_of(library, gcp_dlsym_ask(handle, name))))
			continue;
		/* The library that looks itself up wants its own. */
		return gcp_elf_find(library->soname, &elf) &&
			       !gcp_elf_contains(&elf, caller)
			   ? entry
			   : NULL;
	}
	return NULL;
}

GCP_DLSYM_ROUTE(dlsym_answer)

/* --- statistics: at exit, without a lock ------------------------------------------ */

static void row_write(struct gcp_writer *writer,
		      const struct gcp_handle_library *library)
{
	const struct gcp_handle_counts *counts = &library->counts;

	if (counts->created == 0) /* none were known */
		return;
	gcp_write_line(writer, writer->json ? NULL : library->kind->name, '{');
	if (writer->json)
		gcp_write_string(writer, "kind", library->kind->name);
	gcp_write_number(writer, "created", counts->created);
	gcp_write_number(writer, "reused", counts->reused);
	gcp_write_number(writer, "destroyed", counts->destroyed);
	gcp_write_number(writer, "used", counts->used);
	gcp_write_number(writer, "peak", counts->peak);
	gcp_write_string(writer, "library", library->soname);
	gcp_write_close(writer, '}');
}

__attribute__((destructor)) static void statistics_write(void)
{
	struct gcp_options options;
	GCP_TEXT(text, 4096);
	struct gcp_writer writer = {.text = &text};
	GCP_KEEP_ERRNO;

	if (!gcpool_active || !gcpool_active())
		return;
	(void)gcp_options_look(&options, false);
	if (options.stats == GCP_STATS_OFF)
		return;
	writer.json = options.stats == GCP_STATS_JSON;
	gcp_write_open(&writer, NULL, '{');
	gcp_write_open(&writer, "handles", '[');
	gcp_write_title(&writer, "handles");
	for (int i = 0; i < gcp_handle_library_count; i++)
		row_write(&writer, &gcp_handle_libraries[i]);
	gcp_write_close(&writer, ']');
	gcp_write_close(&writer, '}');
	gcp_text_add(&text, "%s", writer.json ? "\n" : "");
	if (text.length > 0)
		(void)gcp_text_put(&text, options.stats_file);
}
