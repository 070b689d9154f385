/* SPDX-License-Identifier: MIT */
/*
 * third_party_dma.c - see third_party_dma.h.
 *
 * A network card, or a driver mapping of device memory into the CPU, may write
 * outside of CUDA's queues. Called by pool/ before it reuses memory behind a barrier: a
 * barrier holds back streams, and these libraries let a device write that is in no
 * stream. So may a driver that no such library speaks to: the program has told it of
 * memory, by a call that only such drivers need, and may tell it of more without one.
 *
 * It is asked at barriers, not when memory that one has made ready is handed out: a
 * library that is loaded after the barrier, and before its work is done, may be given a
 * block of it. Asking takes the loader's lock, which the way of a hit has no room for;
 * and what threads have cached, or the heap has merged, cannot be taken back to pending
 * by a later answer. GCPOOL_REUSE=completed leaves no such moment.
 */
#include <link.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "../../pool/pool.h"
#include "third_party_dma.h"

/* Named before ".so", or before "-" and a hash: so a Python package names those that
 * it brings along. Every PyTorch loads libcufile: storage writes by itself only where
 * there is a driver of the kernel for it. (Where one lets devices reach each other
 * without that driver, docs/limits.md says what to set.) */
static const char *const libraries[] = {"libcufile", "libibverbs", "libgdrapi",
					"libfabric", "libmlx5",    "libcxi",
					"libpsm2"};
static const char *const storage_drivers[] = {"/proc/driver/nvidia-fs",
					      "/dev/nvidia-fs0"};

static atomic_bool found, told;
static atomic_ullong adds_seen; /* dlpi_adds of the last full look */

struct gcp_look {
	unsigned long long adds;
	bool full; /* look at all names, not only at the count */
	bool found;
};

static bool is_library(const char *name, const char *of)
{
	size_t length = strlen(of);

	return strncmp(name, of, length) == 0 &&
	       (name[length] == '.' || name[length] == '-');
}

static bool storage_has_driver(void)
{
	GCP_KEEP_ERRNO;
	bool there = false;

	for (size_t i = 0; i < sizeof(storage_drivers) / sizeof(*storage_drivers); i++)
		there |= access(storage_drivers[i], F_OK) == 0;
	return there;
}

static bool is_writer(const char *name)
{
	for (size_t i = 0; i < sizeof(libraries) / sizeof(*libraries); i++)
		if (is_library(name, libraries[i]))
			return i > 0 || storage_has_driver();
	return false;
}

static int dma_object_check(struct dl_phdr_info *info, size_t size, void *data)
{
	struct gcp_look *look = data;
	const char *name = info->dlpi_name ? info->dlpi_name : "";
	const char *slash = strrchr(name, '/');

	(void)size;
	look->adds = info->dlpi_adds;
	if (!look->full && look->adds == atomic_load(&adds_seen))
		return 1;
	look->full = true;
	look->found = is_writer(slash ? slash + 1 : name);
	return look->found;
}

bool gcp_third_party_dma_present(void)
{
	struct gcp_look look = {0};

	if (atomic_load_explicit(&found, memory_order_relaxed))
		return true;
	dl_iterate_phdr(dma_object_check, &look);
	if (look.found)
		atomic_store(&found, true);
	atomic_store(&adds_seen, look.adds);
	return look.found;
}

void gcp_third_party_dma_told(void)
{
	atomic_store(&told, true);
}

bool gcp_third_party_dma_possible(void)
{
	return atomic_load(&told) || gcp_third_party_dma_present();
}
