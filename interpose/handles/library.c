/* SPDX-License-Identifier: MIT */
/*
 * library.c - see handles.h. Whether handles are pooled: what the options say; of a
 * library, where it is, and whether all of the state of its handles is understood. And
 * that state. The loader has a lock of
 * its own and holds it while constructors run, which may come here: it is never asked
 * with a lock of ours held.
 */
#include <string.h>
#include <unistd.h>

#include "../hooks/dlsym.h"
#include "handles.h"

/* --- options --------------------------------------------------------------------- */

static enum gcp_handles_mode mode_read(void)
{
	struct gcp_options options;

	(void)gcp_options_look(&options, false);
	if (options.mode != GCP_MODE_POOL || options.handles == GCP_HANDLES_OFF)
		return GCP_HANDLES_OFF;
	gcp_log_setup(options.log_level, options.log_file);
	if (!gcpool_work) {
		gcp_log(GCP_LOG_WARNING,
			"libgcpool-handles.so needs its libgcpool.so preloaded, too");
		return GCP_HANDLES_OFF;
	}
	gcp_log(GCP_LOG_INFO,
		"pooling handles of shared cuBLAS, cuDNN and cuSOLVER; those of "
		"libraries that are linked statically are out of reach");
	return (enum gcp_handles_mode)options.handles;
}

/* Threads that meet here read the same. */
enum gcp_handles_mode gcp_handles_mode(void)
{
	static _Atomic int known; /* the mode + 1 */
	int mode = atomic_load_explicit(&known, memory_order_relaxed);

	if (mode == 0)
		atomic_store(&known, mode = (int)mode_read() + 1);
	return (enum gcp_handles_mode)(mode - 1);
}

/* --- the real functions ---------------------------------------------------------- */

static bool real_fill(const struct gcp_handle_library *library,
		      const struct gcp_elf *elf, struct gcp_handle_real *ret_real)
{
	*(void **)&ret_real->create = gcp_elf_symbol(elf, library->create_name);
	*(void **)&ret_real->destroy = gcp_elf_symbol(elf, library->destroy_name);
	return ret_real->create && ret_real->destroy;
}

/* True if a library stands behind this one that wraps the functions: without this one
 * the loader would have bound the program's calls to it. NVIDIA's define versions. */
static bool real_wrapped(const struct gcp_handle_library *library,
			 struct gcp_handle_real *ret_real)
{
	void *next = gcp_dlsym_next(library->create_name);
	struct gcp_elf elf;

	return next && gcp_elf_at(next, &elf) && !elf.versions &&
	       real_fill(library, &elf, ret_real);
}

bool gcp_handle_library_real(const struct gcp_handle_library *library,
			     struct gcp_handle_real *ret_real)
{
	struct gcp_elf elf;

	if (atomic_load(&library->state) == GCP_HANDLE_LIBRARY_POOLED) {
		*ret_real = library->real;
		return true;
	}
	return real_wrapped(library, ret_real) ||
	       (gcp_elf_find(library->soname, &elf) &&
		real_fill(library, &elf, ret_real));
}

/* --- whether it is pooled -------------------------------------------------------- */

/* A getter without its setter, or the other way round, is a version that is not
 * known; one without both has not got that part of the state. */
static const char *access_fill(const struct gcp_handle_kind *kind,
			       const struct gcp_elf *elf,
			       struct gcp_handle_access *access)
{
	const struct gcp_handle_setting *setting = kind->settings;

	for (int i = 0; i < GCP_HANDLE_SETTINGS_MAX && setting[i].setter; i++) {
		access->getters[i] = gcp_elf_symbol(elf, setting[i].getter);
		access->setters[i] = gcp_elf_symbol(elf, setting[i].setter);
		if (!access->getters[i] && (access->setters[i] || setting[i].required))
			return setting[i].getter;
		if (!access->setters[i] && access->getters[i])
			return setting[i].setter;
	}
	return NULL;
}

/* What must be known before handles of it may be kept; else the reason. */
static bool library_understood(struct gcp_handle_library *library,
			       const struct gcp_elf *elf, struct gcp_text *reason)
{
	const char *unknown =
	    gcp_elf_function(elf, gcp_handle_setter_unknown, library->kind);
	const char *missing = access_fill(library->kind, elf, &library->access);
	struct gcp_handle_real wrapper;

	if (real_wrapped(library, &wrapper))
		gcp_text_add(reason, "is wrapped by another library");
	else if (unknown || missing)
		gcp_text_add(reason, "%s %s", unknown ? "has the unknown" : "lacks",
			     unknown ? unknown : missing);
	return reason->length == 0;
}

/* Of threads that meet here one looks. */
static enum gcp_handle_library_state library_look(struct gcp_handle_library *library)
{
	enum gcp_handle_library_state state = GCP_HANDLE_LIBRARY_UNSEEN;
	struct gcp_handle_real real;
	struct gcp_elf elf;
	GCP_TEXT(reason, 128);

	if (!gcp_elf_find(library->soname, &elf) || !real_fill(library, &elf, &real) ||
	    !atomic_compare_exchange_strong(&library->state, &state,
					    GCP_HANDLE_LIBRARY_LOOKED_AT))
		return state;
	library->real = real;
	state = library_understood(library, &elf, &reason) && gcp_elf_pin(&elf)
		    ? GCP_HANDLE_LIBRARY_POOLED
		    : GCP_HANDLE_LIBRARY_PLAIN;
	atomic_store(&library->state, state);
	if (reason.length > 0)
		gcp_log(GCP_LOG_INFO, "%s %s: its %s handles are not pooled",
			library->soname, reason.bytes, library->kind->name);
	return state;
}

bool gcp_handle_library_pooled(struct gcp_handle_library *library)
{
	enum gcp_handle_library_state state =
	    atomic_load_explicit(&library->state, memory_order_acquire);

	if (state == GCP_HANDLE_LIBRARY_UNSEEN && gcp_handles_mode() != GCP_HANDLES_OFF)
		state = library_look(library);
	return state == GCP_HANDLE_LIBRARY_POOLED;
}

uint64_t gcp_handle_environment(void)
{
	uint64_t sum = 0;

	for (char *const *next = environ; next && *next; next++) {
		uint64_t hash = 14695981039346656037u;

		if (strncmp(*next, "CU", 2) != 0 &&
		    strncmp(*next, "NVIDIA_TF32", 11) != 0)
			continue;
		for (const char *c = *next; *c; c++)
			hash = (hash ^ (unsigned char)*c) * 1099511628211u;
		sum += hash;
	}
	return sum;
}

/* --- the state of a handle ------------------------------------------------------- */

static bool setting_set(const struct gcp_handle_library *library, void *handle,
			int setting, uint64_t value)
{
	int (*set_pointer)(void *, void *);
	int (*set_value)(void *, int);

	*(void **)&set_pointer = library->access.setters[setting];
	*(void **)&set_value = library->access.setters[setting];
	if (library->kind->settings[setting].pointer)
		return set_pointer(handle, (void *)(uintptr_t)value) == 0;
	return set_value(handle, (int)value) == 0;
}

bool gcp_handle_state(const struct gcp_handle_library *library, void *handle,
		      uint64_t *values, bool reset)
{
	assert(atomic_load(&library->state) == GCP_HANDLE_LIBRARY_POOLED);
	for (int i = 0; i < GCP_HANDLE_SETTINGS_MAX; i++) {
		int (*getter)(void *, void *);
		uint64_t value = 0; /* an enum fills the lower half */

		*(void **)&getter = library->access.getters[i];
		if (!getter)
			continue;
		if (getter(handle, &value) != 0)
			return false;
		if (!reset)
			values[i] = value;
		else if ((value != values[i] || library->kind->settings[i].always) &&
			 !setting_set(library, handle, i, values[i]))
			return false;
	}
	return true;
}
