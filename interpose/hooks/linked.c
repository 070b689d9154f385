/* SPDX-License-Identifier: MIT */
/*
 * linked.c - where the calls go that the loader has bound to an exported symbol of
 * ours.
 *
 * Without this library it would have bound them to the next definition in the order of
 * look-up. That is a function of libcuda, cudart, ..., for which the entry stands, or
 * one of a library that wraps or replaces those. The call then goes to that library as
 * it came. What it passes on comes back: it gets its functions by dlsym, which gives it
 * the entry (dlsym.c).
 *
 * Called by the stubs of exports_stubs.S, maybe before cuInit, from any thread; makes
 * no CUDA call and takes no lock. Once it is known that there is no such library, the
 * stubs do not ask.
 */
#include <stdbool.h>

#include "dlsym.h"
#include "../../pool/pool.h"
#include "../base/elfwalk.h"
#include "../cuda/resolve.h"

atomic_bool gcp_linked_alone;

/* Written once, all with the same value by whichever thread. */
static void *_Atomic targets[GCP_ROWS];

static bool is_nvidias(const struct gcp_elf *elf)
{
	if (gcp_elf_is(elf, "libcuda.so.1"))
		return true;
	for (int i = GCP_ROWS_DRIVER; i < GCP_ROWS; i++)
		if (gcp_elf_is(elf, gcp_row_base(&gcp_rows[i])))
			return true;
	return false;
}

/* The next definition, unless it is NVIDIA's: NULL. A library that it is in stays
 * loaded from then on, as one does to which the loader binds. `nvidias`: one of
 * NVIDIA's libraries that was met before. */
static void *next_definition(const char *name, struct gcp_elf *nvidias)
{
	void *next = gcp_dlsym_next(name);
	struct gcp_elf elf;

	if (!next || gcp_elf_contains(nvidias, next) || !gcp_elf_at(next, &elf))
		return NULL;
	if (is_nvidias(&elf)) {
		*nvidias = elf;
		return NULL;
	}
	return gcp_elf_pin(&elf) ? next : NULL;
}

static void look_all(void)
{
	struct gcp_elf nvidias = {0};
	bool alone = true;
	void *entry, *next;

	for (int i = 0; i < GCP_ROWS; i++) {
		entry = gcp_row_entry(&gcp_rows[i]);
		if (!entry)
			continue;
		next = next_definition(gcp_row_name(&gcp_rows[i]), &nvidias);
		alone = alone && !next;
		atomic_store_explicit(&targets[i], next ? next : entry,
				      memory_order_release);
	}
	atomic_store_explicit(&gcp_linked_alone, alone, memory_order_release);
}

void *gcp_linked_target(unsigned int row)
{
	GCP_KEEP_ERRNO;

	if (!atomic_load_explicit(&targets[row], memory_order_acquire))
		look_all();
	return atomic_load_explicit(&targets[row], memory_order_acquire);
}
