/* SPDX-License-Identifier: MIT */
/*
 * handles_library.c - see handles_library.h. The loader has a lock of its own and
 * holds it while constructors run, which may come here: it is never asked with a lock
 * of ours held.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "handles_library.h"
#include "../hooks/hooks.h"
#include "../base/log.h"
#include "../base/options.h"
#include "../base/process.h"

#define GCP_X(tag, name, id, create_fn, destroy_fn)                                    \
	{                                                                              \
	    .soname = #name,                                                           \
	    .kind = &gcp_handle_kinds[GCP_HANDLE_##id],                                \
	    .create_name = #create_fn,                                                 \
	    .destroy_name = #destroy_fn,                                               \
	    .create_entry = (void *)gcp_entry_##tag##_create,                          \
	    .destroy_entry = (void *)gcp_entry_##tag##_destroy,                        \
	    .counts = &gcp_handle_counts[GCP_HANDLE_INDEX_##tag],                      \
	},
struct gcp_handle_library gcp_handle_libraries[] = {GCP_HANDLE_LIBRARIES(GCP_X)};
#undef GCP_X

const int gcp_handle_library_count =
    sizeof(gcp_handle_libraries) / sizeof(gcp_handle_libraries[0]);

enum gcp_handles_mode gcp_handles_mode(void)
{
	static _Atomic int known; /* mode + 1 */
	int mode = atomic_load_explicit(&known, memory_order_relaxed) - 1;
	struct gcp_options options;

	if (mode >= 0)
		return (enum gcp_handles_mode)mode;
	gcp_options_parse(&options, getauxval(AT_SECURE) ? NULL : environ, NULL, NULL);
	mode = options.mode == GCP_MODE_POOL ? (int)options.handles : GCP_HANDLES_OFF;
	atomic_store_explicit(&known, mode + 1, memory_order_relaxed);
	return (enum gcp_handles_mode)mode;
}

/* --- the real functions ---------------------------------------------------------- */

static bool real_fill(const struct gcp_handle_library *library,
		      const struct gcp_elf *elf, struct gcp_handle_real *ret_real)
{
	*(void **)&ret_real->create = gcp_elf_symbol(elf, library->create_name);
	*(void **)&ret_real->destroy = gcp_elf_symbol(elf, library->destroy_name);
	return ret_real->create && ret_real->destroy;
}

static int unloads_read(struct dl_phdr_info *info, size_t size, void *data)
{
	if (size >= offsetof(struct dl_phdr_info, dlpi_subs) + sizeof(info->dlpi_subs))
		*(uint64_t *)data = info->dlpi_subs + 1;
	return 1;
}

/* How often the loader has unloaded something, + 1; 0: it does not say. */
static uint64_t unloads_now(void)
{
	uint64_t count = 0;

	dl_iterate_phdr(unloads_read, &count);
	return count;
}

static bool real_cached(struct gcp_handle_library *library, uint64_t now,
			struct gcp_handle_real *ret_real)
{
	bool valid = false;

	if (now == 0 || atomic_flag_test_and_set(&library->cache_busy))
		return false;
	if (library->cached_at == now) {
		*ret_real = library->cached;
		valid = true;
	}
	atomic_flag_clear(&library->cache_busy);
	return valid;
}

static void real_cache(struct gcp_handle_library *library, uint64_t now,
		       const struct gcp_handle_real *real)
{
	if (atomic_flag_test_and_set(&library->cache_busy))
		return;
	library->cached = *real;
	library->cached_at = now;
	atomic_flag_clear(&library->cache_busy);
}

bool gcp_handle_library_real(struct gcp_handle_library *library,
			     struct gcp_handle_real *ret_real)
{
	struct gcp_elf elf;
	uint64_t now;

	if (atomic_load(&library->state) == GCP_HANDLE_LIBRARY_POOLED) {
		*ret_real = library->real;
		return true;
	}
	now = unloads_now();
	if (real_cached(library, now, ret_real))
		return true;
	if (!gcp_elf_find(library->soname, &elf) || !real_fill(library, &elf, ret_real))
		return false;
	real_cache(library, now, ret_real);
	return true;
}

/* --- whether it is pooled -------------------------------------------------------- */

/* A getter without its setter, or the other way round, is a version that is not
 * known; one without both has not got that part of the state. */
static const char *access_fill(const struct gcp_handle_kind *kind,
			       const struct gcp_elf *elf,
			       struct gcp_handle_access *access)
{
	const struct gcp_handle_setting *setting = kind->settings;

	memset(access, 0, sizeof(*access));
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

/* What must be known before handles of it may be kept; `reason` gets what is not. */
static bool library_understood(const struct gcp_handle_library *library,
			       const struct gcp_elf *elf,
			       struct gcp_handle_access *access,
			       struct gcp_text *reason)
{
	const char *unknown = gcp_handle_unknown_setter(library->kind, elf);
	const char *missing = access_fill(library->kind, elf, access);

	if (unknown || missing)
		gcp_text_add(reason, "%s %s", unknown ? "has the unknown" : "lacks",
			     unknown ? unknown : missing);
	return !unknown && !missing;
}

/* Says once why it is not pooled, if it is not. After the options have been read. */
static void library_say(struct gcp_handle_library *library)
{
	if (gcp_handles_mode() != GCP_HANDLES_OFF &&
	    atomic_load(&library->state) == GCP_HANDLE_LIBRARY_PLAIN &&
	    !atomic_flag_test_and_set(&library->plain_said))
		gcp_log(GCP_LOG_INFO, "%s %s: its %s handles are not pooled",
			library->soname, library->plain_reason, library->kind->name);
}

void gcp_handle_libraries_say(void)
{
	if (gcp_handles_mode() == GCP_HANDLES_OFF)
		return;
	gcp_log(GCP_LOG_INFO,
		"pooling handles of shared cuBLAS, cuBLASLt, cuDNN, cuSOLVER and "
		"cuSPARSE; those of libraries that are linked statically are out "
		"of reach");
	for (int i = 0; i < gcp_handle_library_count; i++)
		library_say(&gcp_handle_libraries[i]);
}

static enum gcp_handle_library_state library_look(struct gcp_handle_library *library)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	enum gcp_handle_library_state state = GCP_HANDLE_LIBRARY_PLAIN;
	struct gcp_handle_access access;
	struct gcp_handle_real real;
	struct gcp_text reason;
	char words[sizeof(library->plain_reason)];
	struct gcp_elf elf;

	if (!gcp_elf_find(library->soname, &elf) || !real_fill(library, &elf, &real))
		return GCP_HANDLE_LIBRARY_UNSEEN;
	gcp_text_init(&reason, words, sizeof(words));
	if (library_understood(library, &elf, &access, &reason) && gcp_elf_pin(&elf))
		state = GCP_HANDLE_LIBRARY_POOLED;
	pthread_mutex_lock(&lock);
	if (atomic_load(&library->state) == GCP_HANDLE_LIBRARY_UNSEEN) {
		library->real = real;
		library->access = access;
		memcpy(library->plain_reason, words, sizeof(words));
		atomic_store(&library->state, state);
	}
	pthread_mutex_unlock(&lock);
	if (gcp_process_pooling())
		library_say(library);
	return atomic_load(&library->state);
}

bool gcp_handle_library_pooled(struct gcp_handle_library *library)
{
	enum gcp_handle_library_state state =
	    atomic_load_explicit(&library->state, memory_order_acquire);
	int saved = errno;

	if (state == GCP_HANDLE_LIBRARY_UNSEEN && gcp_handles_mode() != GCP_HANDLES_OFF)
		state = library_look(library);
	errno = saved;
	return state == GCP_HANDLE_LIBRARY_POOLED;
}

void gcp_handle_libraries_context_gone(CUcontext ctx)
{
	for (int i = 0; i < gcp_handle_library_count; i++)
		if (atomic_load(&gcp_handle_libraries[i].implied) == ctx)
			atomic_store(&gcp_handle_libraries[i].implied, NULL);
}

void gcp_handle_libraries_after_fork(void)
{
	for (int i = 0; i < gcp_handle_library_count; i++)
		atomic_flag_clear(&gcp_handle_libraries[i].cache_busy);
}

/* --- look-ups -------------------------------------------------------------------- */

bool gcp_handles_named(const char *name)
{
	/* Of the many names that begin with "cu", few go on like this. */
	if (name[2] != 'b' && name[2] != 'd' && name[2] != 's')
		return false;
	for (int i = 0; i < gcp_handle_library_count; i++)
		if (strcmp(gcp_handle_libraries[i].create_name, name) == 0 ||
		    strcmp(gcp_handle_libraries[i].destroy_name, name) == 0)
			return true;
	return false;
}

static void *library_hook(struct gcp_handle_library *library, const char *name,
			  void *real)
{
	struct gcp_handle_real known;

	if ((strcmp(library->create_name, name) != 0 &&
	     strcmp(library->destroy_name, name) != 0) ||
	    !gcp_handle_library_pooled(library) ||
	    !gcp_handle_library_real(library, &known))
		return NULL;
	if ((void *)known.create == real)
		return library->create_entry;
	return (void *)known.destroy == real ? library->destroy_entry : NULL;
}

void *gcp_handles_hook(const char *name, void *real, const void *caller)
{
	struct gcp_elf elf;
	void *entry = NULL;
	int i = 0;

	if (!real || gcp_handles_mode() == GCP_HANDLES_OFF)
		return NULL;
	for (; !entry && i < gcp_handle_library_count; i++)
		entry = library_hook(&gcp_handle_libraries[i], name, real);
	/* The library that looks itself up wants its own. */
	if (entry && gcp_elf_find(gcp_handle_libraries[i - 1].soname, &elf) &&
	    gcp_elf_contains(&elf, caller))
		return NULL;
	return entry;
}

/* A container has dozens of variables that begin with CU or NV: none is compared with
 * every prefix. */
static bool is_read_by_libraries(const char *variable)
{
	static const char *const prefixes[] = {"CUBLAS", "CUDNN", "CUSOLVER",
					       "CUSPARSE"};

	if (variable[0] == 'N')
		return variable[1] == 'V' && variable[2] == 'I' &&
		       strncmp(variable, "NVIDIA_TF32", 11) == 0;
	if (variable[0] != 'C' || variable[1] != 'U')
		return false;
	for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++)
		if (variable[2] == prefixes[i][2] && variable[3] == prefixes[i][3] &&
		    strncmp(variable, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	return false;
}

uint64_t gcp_handle_environment(void)
{
	uint64_t sum = 0;

	for (char *const *next = environ; next && *next; next++) {
		uint64_t hash = 14695981039346656037u;

		if (!is_read_by_libraries(*next))
			continue;
		for (const char *c = *next; *c; c++)
			hash = (hash ^ (unsigned char)*c) * 1099511628211u;
		sum += hash;
	}
	return sum;
}

/* --- the state of a handle ------------------------------------------------------- */

/* One part of it. */
static bool setting_get(const struct gcp_handle_library *library, void *handle,
			int setting, uint64_t *ret_value)
{
	int (*getter)(void *, void *);
	uint64_t value = 0; /* an enum fills the lower half */

	*(void **)&getter = library->access.getters[setting];
	if (getter(handle, &value) != 0)
		return false;
	*ret_value = value;
	return true;
}

static bool handle_set(const struct gcp_handle_library *library, void *handle,
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

bool gcp_handle_read(const struct gcp_handle_library *library, void *handle,
		     uint64_t *ret_values)
{
	for (int i = 0; i < GCP_HANDLE_SETTINGS_MAX; i++)
		if (library->access.getters[i] &&
		    !setting_get(library, handle, i, &ret_values[i]))
			return false;
	return true;
}

bool gcp_handle_reset(const struct gcp_handle_library *library, void *handle,
		      const uint64_t *values)
{
	uint64_t value;

	for (int i = 0; i < GCP_HANDLE_SETTINGS_MAX; i++) {
		if (!library->access.getters[i])
			continue;
		if (!setting_get(library, handle, i, &value))
			return false;
		if ((value != values[i] || library->kind->settings[i].always) &&
		    !handle_set(library, handle, i, values[i]))
			return false;
	}
	return true;
}
