/* SPDX-License-Identifier: MIT */
/*
 * resolve.c - see resolve.h. Called from the dlsym stub, the cuGetProcAddress
 * hooks and the exported entries. Everything is filled once, under
 * resolve_lock, and only read afterwards.
 */
#include <string.h>

#include "../../pool/pool.h"
#include "../base/elfwalk.h"
#include "resolve.h"

struct gcp_real gcp_real;
atomic_bool gcp_resolve_done;

/* The slots of gcp_real are in the order of the rows. */
_Static_assert(sizeof(gcp_real) == GCP_ROWS_DRIVER * sizeof(void *), "a slot a row");

/* The address that cuGetProcAddress returns for each row, which may differ from the
 * exported one. */
static void *given[GCP_ROWS_DRIVER];

static struct gcp_mutex resolve_lock = GCP_MUTEX(GCP_RANK_RESOLVE);
static struct gcp_elf libcuda;

/* libcuda may look up its own functions while we ask it for them. */
static __thread bool resolving __attribute__((tls_model("initial-exec")));

/* Returns what cuGetProcAddress gives for a row. NULL: nothing, or the driver is too
 * old. */
static void *row_ask(const struct gcp_row *row)
{
	gcp_assert_held(GCP_RANK_RESOLVE);
	const char *base = gcp_row_base(row);
	void *found = NULL;
	int status = 0;

	return gcp_real.cuGetProcAddress_v2 &&
		       gcp_real.cuGetProcAddress_v2(base, &found, row->version,
						    row->flags, &status) == CUDA_SUCCESS
		   ? found
		   : NULL;
}

static void resolve_locked(const struct gcp_elf *found)
{
	gcp_assert_held(GCP_RANK_RESOLVE);
	assert(resolving);
	libcuda = *found;
	for (int i = 0; i < GCP_ROWS_DRIVER; i++) {
		*gcp_row_slot(i) = gcp_elf_symbol(&libcuda, gcp_row_name(&gcp_rows[i]));
		given[i] = NULL;
	}
	for (int i = 0; i < GCP_ROWS_DRIVER; i++) {
		void *answer = row_ask(&gcp_rows[i]);

		if (!*gcp_row_slot(i) && gcp_resolve_hook(answer) == answer)
			*gcp_row_slot(i) = answer; /* no form that is exported */
		if (*gcp_row_slot(i))
			given[i] = answer;
	}
}

bool gcp_resolve_all(void (*begins)(void), void (*resolved)(void))
{
	struct gcp_elf found;
	bool done;

	if (resolving)
		return false;
	/* Without the lock: the loader has one of its own, and holds it while the
	 * constructors of a library run, which may come here. */
	resolving = true;
	done = gcp_elf_find("libcuda.so.1", &found) && gcp_elf_pin(&found);
	resolving = false;
	if (!done)
		return false;
	begins();
	GCP_LOCKED(&resolve_lock);
	resolving = true;
	if (!atomic_load_explicit(&gcp_resolve_done, memory_order_relaxed)) {
		resolve_locked(&found);
		resolved();
	}
	atomic_store_explicit(&gcp_resolve_done, done, memory_order_release);
	resolving = false;
	return done;
}

bool gcp_resolve_complete(void)
{
	for (int i = 0; i < GCP_ROWS_DRIVER; i++)
		if (gcp_rows[i].required && !*gcp_row_slot(i))
			return false;
	return true;
}

/* Of the many names that begin with "cu", those of the driver go on with a capital
 * letter. */
void *const *gcp_resolve_slot(const char *name)
{
	for (int i = 0; name[2] >= 'A' && name[2] <= 'Z' && i < GCP_ROWS_DRIVER; i++)
		if (gcp_rows[i].entry && strcmp(gcp_row_name(&gcp_rows[i]), name) == 0)
			return gcp_row_slot(i);
	return NULL;
}

void *gcp_resolve_symbol(const char *name)
{
	return gcp_elf_symbol(&libcuda, name);
}

static void *hook_find(void *const *addresses, const void *fn)
{
	for (int i = 0; i < GCP_ROWS_DRIVER; i++)
		if (addresses[i] == fn && gcp_rows[i].entry)
			return gcp_row_entry(&gcp_rows[i]);
	return NULL;
}

/* Exported addresses go first: a row that the driver answers with another form of the
 * function must not claim that form. */
void *gcp_resolve_hook(void *fn)
{
	return fn ? hook_find(gcp_row_slot(0), fn) ?: hook_find(given, fn) ?: fn : NULL;
}

bool gcp_resolve_in_driver(const void *address)
{
	struct gcp_elf elf;

	if (atomic_load_explicit(&gcp_resolve_done, memory_order_acquire))
		return gcp_elf_contains(&libcuda, address);
	return gcp_elf_find("libcuda.so.1", &elf) && gcp_elf_contains(&elf, address);
}

void gcp_resolve_after_fork(void)
{
	gcp_mutex_init(&resolve_lock, GCP_RANK_RESOLVE);
}
