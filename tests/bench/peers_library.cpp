/* SPDX-License-Identifier: MIT */
/*
 * peers_library.cpp - this library as peers.cpp measures it: through the driver API,
 * through the static cudart of the program, and through a shared cudart, all as a
 * program under LD_PRELOAD reaches it.
 */
#include <dlfcn.h>
#include <string>

#include <cuda_runtime_api.h>

#include "../../interpose/gcpool.h"
#include "peers.h"

static std::string cudart; /* the soname of the shared one; "" if there is none */

static int (*library_stats)(int, struct gcpool_stats *, size_t);
static uint64_t (*library_trim)(int, uint64_t);
static cudaError_t (*shared_malloc)(void **, size_t);
static cudaError_t (*shared_free)(void *);

static int (*driver_malloc)(unsigned long long *, size_t); /* cuMemAlloc_v2 */
static int (*driver_free)(unsigned long long);

extern "C" unsigned long long peers_library_allocations(void)
{
	struct gcpool_stats stats;

	if (!library_stats || library_stats(0, &stats, sizeof(stats)) != 0)
		return 0;
	return stats.allocation.allocated;
}

static size_t library_reserved()
{
	struct gcpool_stats stats;

	return library_stats(0, &stats, sizeof(stats)) == 0
		   ? stats.reserved_bytes.current
		   : 0;
}

static void library_reset()
{
	library_trim(0, 0);
}

static int static_alloc(void **ret_ptr, size_t bytes, void *)
{
	return cudaMalloc(ret_ptr, bytes);
}

static int static_free(void *ptr, size_t, void *)
{
	return cudaFree(ptr);
}

static int shared_alloc(void **ret_ptr, size_t bytes, void *)
{
	return shared_malloc(ret_ptr, bytes);
}

static int shared_free_it(void *ptr, size_t, void *)
{
	return shared_free(ptr);
}

static int driver_alloc(void **ret_ptr, size_t bytes, void *)
{
	unsigned long long address = 0;
	int result = driver_malloc(&address, bytes);

	*ret_ptr = (void *)address;
	return result;
}

static int driver_free_it(void *ptr, size_t, void *)
{
	return driver_free((unsigned long long)ptr);
}

extern "C" bool peers_library_cudart(void)
{
	std::string name = "libcudart.so." + std::to_string(CUDART_VERSION / 1000);

	if (CUDART_VERSION / 1000 == 11)
		name += ".0";
	if (!dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL))
		return false;
	cudart = name;
	return true;
}

/* What a program linked with the shared cudart is bound to. */
static bool shared_find()
{
	Dl_info info;
	void *library;

	if (cudart.empty() || !dladdr((void *)library_stats, &info))
		return false;
	library = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
	if (!library)
		return false;
	*(void **)&shared_malloc = dlvsym(library, "cudaMalloc", cudart.c_str());
	*(void **)&shared_free = dlvsym(library, "cudaFree", cudart.c_str());
	return shared_malloc && shared_free;
}

static bool driver_find()
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);

	if (!driver)
		return false;
	*(void **)&driver_malloc = dlsym(driver, "cuMemAlloc_v2");
	*(void **)&driver_free = dlsym(driver, "cuMemFree_v2");
	return driver_malloc && driver_free;
}

extern "C" const struct peer *peers_of_library(void)
{
	static struct peer peers[4];
	struct peer *next = peers;

	*(void **)&library_stats = dlsym(RTLD_DEFAULT, "gcpool_get_stats");
	*(void **)&library_trim = dlsym(RTLD_DEFAULT, "gcpool_trim");
	if (!library_stats || !library_trim)
		return peers;
	if (driver_find())
		*next++ = {"libgcpool, driver API", driver_alloc, driver_free_it,
			   library_reserved, library_reset};
	*next++ = {"libgcpool, static cudart", static_alloc, static_free,
		   library_reserved, library_reset};
	if (shared_find())
		*next++ = {"libgcpool, shared cudart", shared_alloc, shared_free_it,
			   library_reserved, library_reset};
	return peers;
}
