/* SPDX-License-Identifier: MIT */
/*
 * hooks_runtime.c - the short cut for programs linked with a shared libcudart: it saves
 * cudart's own cost of cudaMalloc and cudaFree.
 *
 * Only a sure thing is done here. A thread is sure after the real cudaMalloc has
 * come through to the driver's hook once, for then the current context is the
 * one that cudart means; cudaSetDevice and anything that changes a context end
 * that. All else (no context yet, NULL, size 0, memory that is not ours, every
 * error) goes to the real function, which comes back through the driver's
 * hooks, so that cudart's state and cudaGetLastError are as without us.
 *
 * The real function belongs to the cudart that the caller is linked with, which
 * the symbol version tells (symbols.h). If the same version was loaded twice from
 * different files, the first is taken; they share the driver's state, and only
 * a last error could end up in the other one.
 */
#include <errno.h>
#include <pthread.h>

#include "elfwalk.h"
#include "hooks.h"
#include "process_life.h"
#include "hooks_memory.h"

/* cudaError_t of which no header is included here. */
enum { GCP_CUDART_SUCCESS = 0, GCP_CUDART_UNLOADING = 4 };

struct gcp_runtime {
	int (*cudaMalloc)(void **ret_ptr, size_t bytes);
	int (*cudaFree)(void *ptr);
	int (*cudaSetDevice)(int device);
};

/* --- the real cudarts ------------------------------------------------------------ */

static pthread_mutex_t runtime_lock = PTHREAD_MUTEX_INITIALIZER;

static bool runtime_fill(struct gcp_runtime *runtime, const struct gcp_elf *elf)
{
	*(void **)&runtime->cudaMalloc = gcp_elf_symbol(elf, "cudaMalloc");
	*(void **)&runtime->cudaFree = gcp_elf_symbol(elf, "cudaFree");
	*(void **)&runtime->cudaSetDevice = gcp_elf_symbol(elf, "cudaSetDevice");
	return runtime->cudaMalloc && runtime->cudaFree && runtime->cudaSetDevice;
}

/* Filled once, under runtime_lock; NULL: there is no such cudart. The loader is asked
 * without that lock: it has one of its own, and holds it while the constructors of a
 * library run, which may come here. */
static const struct gcp_runtime *runtime_get(struct gcp_runtime *runtime,
					     atomic_bool *filled, const char *version)
{
	struct gcp_elf elf;
	int saved = errno;

	if (atomic_load_explicit(filled, memory_order_acquire))
		return runtime;
	if (gcp_elf_find(version, &elf) && gcp_elf_pin(&elf)) {
		pthread_mutex_lock(&runtime_lock);
		if (!atomic_load_explicit(filled, memory_order_relaxed) &&
		    runtime_fill(runtime, &elf))
			atomic_store_explicit(filled, true, memory_order_release);
		pthread_mutex_unlock(&runtime_lock);
	}
	errno = saved;
	return atomic_load(filled) ? runtime : NULL;
}

/* --- the short cut ---------------------------------------------------------------- */

/* Sure is said only while pooling, and by a thread whose end is watched; a fork
 * changes the generation. So this is all that has to be asked. */
static inline bool runtime_confirmed(void)
{
	return __builtin_expect(
	    gcp_thread.runtime_confirmed ==
		atomic_load_explicit(&gcp_contexts_generation, memory_order_acquire),
	    1);
}

/* The short cuts. < 0: the real function is needed. */
static inline int runtime_fast_cudaMalloc(void **ret_ptr, size_t bytes)
{
	struct gcp_pool *pool;
	gcp_addr addr;

	if (!ret_ptr || !bytes || !runtime_confirmed())
		return -1;
	pool = gcp_process_pool();
	if (!pool || gcp_memory_alloc(pool, bytes, &addr) != 0)
		return -1;
	*ret_ptr = (void *)(uintptr_t)addr;
	return GCP_CUDART_SUCCESS;
}

/* A sticky device error has the same number in both layers, and whatever the
 * program calls next reports it again. */
static inline int runtime_fast_cudaFree(void *ptr)
{
	if (!ptr || !runtime_confirmed())
		return -1;
	return gcp_pools_free(gcp_process.pools, (gcp_addr)(uintptr_t)ptr);
}

static inline int runtime_fast_cudaSetDevice(int device)
{
	(void)device;
	return -1;
}

/* --- the short cut of calls that are observed ------------------------------------- */

/* Whether the thread would be sure, if nothing observed. */
static bool runtime_is_observed(void)
{
	return gcp_observers &&
	       gcp_thread.runtime_observed ==
		   atomic_load_explicit(&gcp_contexts_generation, memory_order_acquire);
}

static int runtime_observed_cudaMalloc(void **ret_ptr, size_t bytes)
{
	struct gcp_pool *pool;
	gcp_addr addr;

	if (!ret_ptr || !bytes || !runtime_is_observed())
		return -1;
	pool = gcp_process_pool();
	if (!pool || gcp_memory_alloc(pool, bytes, &addr) != 0)
		return -1;
	*ret_ptr = (void *)(uintptr_t)addr;
	return GCP_CUDART_SUCCESS;
}

static int runtime_observed_cudaFree(void *ptr)
{
	if (!ptr || !runtime_is_observed())
		return -1;
	return gcp_memory_free((gcp_addr)(uintptr_t)ptr);
}

/* --- the long way --------------------------------------------------------- */

static int runtime_cudaMalloc(const struct gcp_runtime *real, void **ret_ptr,
			      size_t bytes)
{
	int result = runtime_observed_cudaMalloc(ret_ptr, bytes);

	if (result >= 0)
		return result;
	gcp_thread.runtime_confirmed = 0;
	gcp_thread.runtime_inside = true;
	result = real->cudaMalloc(ret_ptr, bytes);
	gcp_thread.runtime_inside = false;
	if (result != GCP_CUDART_SUCCESS)
		gcp_thread.runtime_confirmed = 0;
	if (gcp_observers) { /* the short cut is not for calls that are observed */
		gcp_thread.runtime_observed = gcp_thread.runtime_confirmed;
		gcp_thread.runtime_confirmed = 0;
	}
	return result;
}

static int runtime_cudaFree(const struct gcp_runtime *real, void *ptr)
{
	int result = runtime_observed_cudaFree(ptr);

	return result >= 0 ? result : real->cudaFree(ptr);
}

static int runtime_cudaSetDevice(const struct gcp_runtime *real, int device)
{
	gcp_thread.runtime_confirmed = 0;
	gcp_thread.runtime_observed = 0;
	return real->cudaSetDevice(device);
}

/* --- exports ---------------------------------------------------------------------- */

#define GCP_X(tag, version, name, parameters, arguments)                               \
	GCP_VERSIONED(gcp_entry_##tag##_##name, #name "@" version)                     \
	__attribute__((visibility("default"))) int gcp_entry_##tag##_##name parameters \
	{                                                                              \
		int result = runtime_fast_##name arguments;                            \
                                                                                       \
		if (__builtin_expect(result >= 0, 1))                                  \
			return result;                                                 \
		if (gcp_observers)                                                     \
			gcp_observe_enter_runtime(                                     \
			    (uintptr_t)__builtin_return_address(0),                    \
			    gcp_frame_register());                                     \
		const struct gcp_runtime *real =                                       \
		    runtime_get(&tag, &tag##_filled, version);                         \
		result = real ? runtime_##name(real, GCP_ARGUMENTS arguments)          \
			      : GCP_CUDART_UNLOADING;                                  \
		gcp_observe_leave_runtime();                                           \
		return result;                                                         \
	}
#define GCP_ARGUMENTS(...) __VA_ARGS__
#define GCP_V(tag, version)                                                            \
	static struct gcp_runtime tag;                                                 \
	static atomic_bool tag##_filled;                                               \
	GCP_RUNTIME_HOOKS(GCP_X, tag, version)
GCP_RUNTIMES(GCP_V)
