/* SPDX-License-Identifier: MIT */
/*
 * hooks_runtime.c - the short cut for programs linked with a shared libcudart: it saves
 * cudart's own cost of cudaMalloc, cudaFree, cudaMallocAsync and cudaFreeAsync.
 *
 * Only a sure thing is done here. A thread is sure after the real cudaMalloc has
 * come through to the driver's hook once, for then the current context is the
 * one that cudart means; cudaSetDevice and anything that changes a context end
 * that, and so does the lack of one. All else (no context yet, NULL, size 0, memory
 * that is not ours, every error) goes to the real function, which comes back through
 * the driver's hooks, so that cudart's state and cudaGetLastError are as without us.
 *
 * Some want to learn of every cudaFree. A library that wraps cudart's functions (MPICH)
 * gets the calls before they come here (linked.c). A library that patches the code of
 * cuMemFree or cudaFree (UCX) has to find it executed: so the short cut looks at the
 * first bytes of both, and is not taken when they are not as they were.
 *
 * The real function belongs to the cudart that the caller is linked with, which
 * the symbol version tells (symbols.h). If the same version was loaded twice from
 * different files, the first is taken; they share the driver's state, and only
 * a last error could end up in the other one.
 */
#include <errno.h>
#include <string.h>

#include "../base/elfwalk.h"
#include "hooks.h"
#include "hooks_async.h"
#include "../process/calling_thread.h"
#include "../process/process_life.h"
#include "hooks_memory.h"
#include "../cuda/streams.h"

/* cudaError_t of which no header is included here. */
enum { GCP_CUDART_SUCCESS = 0, GCP_CUDART_UNLOADING = 4, GCP_CUDART_NO_SYMBOL = 500 };

/* The first bytes of a function, and what they are while no library has patched it. */
struct gcp_code {
	const uint64_t *at;
	uint64_t bytes;
};

/* cudaMallocAsync and cudaFreeAsync: NULL before CUDA 11.2. */
struct gcp_runtime_streamed {
	int (*alloc)(void **ret_ptr, size_t bytes, CUstream stream);
	int (*free)(void *ptr, CUstream stream);
	struct gcp_code alloc_code, free_code;
};

struct gcp_runtime {
	int (*cudaMalloc)(void **ret_ptr, size_t bytes);
	int (*cudaFree)(void *ptr);
	int (*cudaSetDevice)(int device);
	struct gcp_runtime_streamed streamed, streamed_ptsz;
	struct gcp_code malloc_code, free_code; /* never equal: no short cut */
};

static const uint64_t no_code;
#define GCP_NO_STREAMED                                                                \
	{                                                                              \
		.alloc_code = {&no_code, 1}, .free_code = { &no_code, 1 }              \
	}
#define GCP_NO_RUNTIME                                                                 \
	{                                                                              \
		.malloc_code = {&no_code, 1}, .free_code = {&no_code, 1},              \
		.streamed = GCP_NO_STREAMED, .streamed_ptsz = GCP_NO_STREAMED          \
	}

/* --- the real cudarts ------------------------------------------------------------ */

/* What the code at `function` begins with, and must begin with later, too. Code that
 * jumps away at once is patched already. */
static void code_remember(void *function, struct gcp_code *ret_code)
{
	uint64_t bytes;

	assert(function);
	memcpy(&bytes, function, sizeof(bytes));
	*ret_code = (struct gcp_code){function, gcp_code_jumps(bytes) ? ~bytes : bytes};
}

static void *streamed_function(const struct gcp_elf *elf, const char *name,
			       struct gcp_code *ret_code)
{
	void *function = gcp_elf_symbol(elf, name);

	if (function)
		code_remember(function, ret_code);
	return function;
}

static void streamed_fill(struct gcp_runtime *runtime, const struct gcp_elf *elf)
{
	struct gcp_runtime_streamed *plain = &runtime->streamed;
	struct gcp_runtime_streamed *ptsz = &runtime->streamed_ptsz;

	*(void **)&plain->alloc =
	    streamed_function(elf, "cudaMallocAsync", &plain->alloc_code);
	*(void **)&plain->free =
	    streamed_function(elf, "cudaFreeAsync", &plain->free_code);
	*(void **)&ptsz->alloc =
	    streamed_function(elf, "cudaMallocAsync_ptsz", &ptsz->alloc_code);
	*(void **)&ptsz->free =
	    streamed_function(elf, "cudaFreeAsync_ptsz", &ptsz->free_code);
}

static bool runtime_fill(struct gcp_runtime *runtime, const struct gcp_elf *elf)
{
	struct gcp_runtime found = GCP_NO_RUNTIME;

	*(void **)&found.cudaMalloc = gcp_elf_symbol(elf, "cudaMalloc");
	*(void **)&found.cudaFree = gcp_elf_symbol(elf, "cudaFree");
	*(void **)&found.cudaSetDevice = gcp_elf_symbol(elf, "cudaSetDevice");
	if (!found.cudaMalloc || !found.cudaFree || !found.cudaSetDevice)
		return false;
	code_remember((void *)found.cudaMalloc, &found.malloc_code);
	code_remember((void *)found.cudaFree, &found.free_code);
	streamed_fill(&found, elf);
	*runtime = found;
	return true;
}

/* Filled once, under runtime_lock; NULL: there is no such cudart. The loader is asked
 * without that lock: it has one of its own, and holds it while the constructors of a
 * library run, which may come here. */
static const struct gcp_runtime *runtime_get(struct gcp_runtime *runtime,
					     atomic_bool *filled, const char *version)
{
	struct gcp_runtime found;
	struct gcp_elf elf;
	int saved = errno;

	if (atomic_load_explicit(filled, memory_order_acquire))
		return runtime;
	if (gcp_elf_find(version, &elf) && gcp_elf_pin(&elf) &&
	    runtime_fill(&found, &elf)) {
		gcp_mutex_lock(&gcp_process.runtime_lock);
		if (!atomic_load_explicit(filled, memory_order_relaxed)) {
			*runtime = found;
			atomic_store_explicit(filled, true, memory_order_release);
		}
		gcp_mutex_unlock(&gcp_process.runtime_lock);
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

/* Whether the code is as it was. Without a lock: a thread that fills the runtime first
 * makes it so for others, which may see that late and go the long way. */
static inline bool code_is(const volatile uint64_t *code, uint64_t bytes)
{
	return __builtin_expect(*code == bytes, 1);
}

static inline bool malloc_is_patched(const struct gcp_runtime *runtime)
{
	return !code_is((const uint64_t *)(uintptr_t)gcp_entry_cuMemAlloc_v2,
			GCP_ENTRY_CODE) ||
	       !code_is(runtime->malloc_code.at, runtime->malloc_code.bytes);
}

static inline bool free_is_patched(const struct gcp_runtime *runtime)
{
	return !code_is((const uint64_t *)(uintptr_t)gcp_entry_cuMemFree_v2,
			GCP_ENTRY_CODE) ||
	       !code_is(runtime->free_code.at, runtime->free_code.bytes);
}

/* The short cuts, in each entry. < 0: the real function is needed. */
#define GCP_SHORT static inline __attribute__((always_inline)) int

/* A refusal is the driver's to tell the runtime, which keeps it as its last error. */
GCP_SHORT runtime_alloc(struct gcp_pool *pool, void **ret_ptr, size_t bytes)
{
	gcp_addr addr;
	int result = pool ? gcp_memory_alloc(pool, bytes, &addr) : -1;

	assert(bytes > 0 && gcp_process_pooling());
	if (__builtin_expect(result != 0, 0)) {
		gcp_thread.runtime_refused = result > 0 ? result : 0;
		return -1;
	}
	*ret_ptr = (void *)(uintptr_t)addr;
	return GCP_CUDART_SUCCESS;
}

GCP_SHORT runtime_fast_cudaMalloc(const struct gcp_runtime *runtime, void **ret_ptr,
				  size_t bytes)
{
	if (!ret_ptr || !bytes || !runtime_confirmed() || malloc_is_patched(runtime))
		return -1;
	return runtime_alloc(gcp_thread_pool_confirmed(), ret_ptr, bytes);
}

/* A sticky device error has the same number in both layers, and whatever the
 * program calls next reports it again. */
GCP_SHORT runtime_fast_cudaFree(const struct gcp_runtime *runtime, void *ptr)
{
	if (!ptr || !runtime_confirmed() || free_is_patched(runtime))
		return -1;
	return gcp_pools_free(gcp_process.pools, (gcp_addr)(uintptr_t)ptr);
}

GCP_SHORT runtime_fast_cudaSetDevice(const struct gcp_runtime *runtime, int device)
{
	(void)runtime, (void)device;
	return -1;
}

/* --- the short cut of stream-ordered memory ------------------------------ */

/* These take a lock of cudart's, which all threads share, in each call: 16 threads wait
 * for it most of the time. They go to the driver with what they were given, whatever
 * context is current; where none is, no thread is sure (hooks_context.c). */
static inline bool streamed_is_sure(const void *entry, const struct gcp_code *code)
{
	return __builtin_expect(gcp_thread.runtime_streamed ==
				    atomic_load_explicit(&gcp_contexts_generation,
							 memory_order_acquire),
				1) &&
	       code_is(entry, GCP_ENTRY_CODE) && code_is(code->at, code->bytes);
}

static int streamed_alloc(const struct gcp_runtime_streamed *real, void **ret_ptr,
			  size_t bytes, CUstream stream)
{
	int result;

	if (!real->alloc)
		return GCP_CUDART_NO_SYMBOL;
	gcp_thread.runtime_streaming = true;
	result = real->alloc(ret_ptr, bytes, stream);
	gcp_thread.runtime_streaming = false;
	gcp_thread.runtime_refused = 0;
	return result;
}

static int streamed_free(const struct gcp_runtime_streamed *real, void *ptr,
			 CUstream stream)
{
	int result;

	if (!real->free)
		return GCP_CUDART_NO_SYMBOL;
	gcp_thread.runtime_streaming = true;
	result = real->free(ptr, stream);
	gcp_thread.runtime_streaming = false;
	return result;
}

/* suffix: of the names of functions for the per-thread default stream. */
#define GCP_STREAMED(suffix, per_thread)                                               \
	static inline int runtime_fast_cudaMallocAsync##suffix(                        \
	    const struct gcp_runtime *runtime, void **ret_ptr, size_t bytes,           \
	    CUstream stream)                                                           \
	{                                                                              \
		if (!streamed_is_sure(                                                 \
			(const void *)(uintptr_t)gcp_entry_cuMemAllocAsync##suffix,    \
			&runtime->streamed##suffix.alloc_code))                        \
			return -1;                                                     \
		return gcp_async_short_alloc(ret_ptr, bytes,                           \
					     gcp_stream_named(stream, per_thread));    \
	}                                                                              \
	static inline int runtime_fast_cudaFreeAsync##suffix(                          \
	    const struct gcp_runtime *runtime, void *ptr, CUstream stream)             \
	{                                                                              \
		if (!streamed_is_sure(                                                 \
			(const void *)(uintptr_t)gcp_entry_cuMemFreeAsync##suffix,     \
			&runtime->streamed##suffix.free_code))                         \
			return -1;                                                     \
		return gcp_async_short_free(ptr,                                       \
					    gcp_stream_named(stream, per_thread));     \
	}                                                                              \
	static int runtime_cudaMallocAsync##suffix(const struct gcp_runtime *real,     \
						   void **ret_ptr, size_t bytes,       \
						   CUstream stream)                    \
	{                                                                              \
		return streamed_alloc(&real->streamed##suffix, ret_ptr, bytes,         \
				      stream);                                         \
	}                                                                              \
	static int runtime_cudaFreeAsync##suffix(const struct gcp_runtime *real,       \
						 void *ptr, CUstream stream)           \
	{                                                                              \
		return streamed_free(&real->streamed##suffix, ptr, stream);            \
	}
GCP_STREAMED(, false)
GCP_STREAMED(_ptsz, true)

/* --- the short cut of calls that are observed ------------------------------------- */

/* Whether the thread would be sure, if nothing observed. */
static bool runtime_is_observed(void)
{
	return gcp_process.observer &&
	       gcp_thread.runtime_observed ==
		   atomic_load_explicit(&gcp_contexts_generation, memory_order_acquire);
}

static int runtime_observed_cudaMalloc(const struct gcp_runtime *real, void **ret_ptr,
				       size_t bytes)
{
	int saved = errno, result;

	if (!ret_ptr || !bytes || !runtime_is_observed() || malloc_is_patched(real))
		return -1;
	result = runtime_alloc(gcp_thread_pool(), ret_ptr, bytes);
	errno = saved; /* instruments leave that to the entries */
	return result;
}

static int runtime_observed_cudaFree(const struct gcp_runtime *real, void *ptr)
{
	gcp_addr addr = (gcp_addr)(uintptr_t)ptr;
	struct gcp_block_info info;
	int saved = errno, result;

	if (!ptr || !runtime_is_observed() || free_is_patched(real))
		return -1;
	/* A wrong free goes through cudart to our cuMemFree, and is noted there alone.
	 */
	if (gcp_pools_held(gcp_process.pools, addr, &info) != 0)
		return -1;
	result = gcp_memory_free(addr);
	errno = saved;
	return result;
}

/* --- the long way --------------------------------------------------------- */

static int runtime_cudaMalloc(const struct gcp_runtime *real, void **ret_ptr,
			      size_t bytes)
{
	int result = runtime_observed_cudaMalloc(real, ret_ptr, bytes);

	if (result >= 0)
		return result;
	gcp_thread.runtime_confirmed = 0;
	gcp_thread.runtime_inside = true;
	result = real->cudaMalloc(ret_ptr, bytes);
	gcp_thread.runtime_inside = false;
	gcp_thread.runtime_refused = 0;
	if (result != GCP_CUDART_SUCCESS)
		gcp_thread.runtime_confirmed = 0;
	if (gcp_process
		.observer) { /* the short cut is not for calls that are observed */
		gcp_thread.runtime_observed = gcp_thread.runtime_confirmed;
		gcp_thread.runtime_confirmed = 0;
	}
	return result;
}

static int runtime_cudaFree(const struct gcp_runtime *real, void *ptr)
{
	int result = runtime_observed_cudaFree(real, ptr);

	return result >= 0 ? result : real->cudaFree(ptr);
}

static int runtime_cudaSetDevice(const struct gcp_runtime *real, int device)
{
	gcp_thread.runtime_confirmed = 0;
	gcp_thread.runtime_observed = 0;
	gcp_thread.runtime_streamed = 0;
	return real->cudaSetDevice(device);
}

/* --- exports ---------------------------------------------------------------------- */

#define GCP_X(tag, version, name, parameters, arguments)                               \
	static __attribute__((noinline)) int tag##_long_##name parameters              \
	{                                                                              \
		const struct gcp_runtime *real =                                       \
		    runtime_get(&tag, &tag##_filled, #version);                        \
                                                                                       \
		return real ? runtime_##name(real, GCP_ARGUMENTS arguments)            \
			    : GCP_CUDART_UNLOADING;                                    \
	}                                                                              \
	int gcp_entry_##tag##_##name parameters                                        \
	{                                                                              \
		int result = runtime_fast_##name(&tag, GCP_ARGUMENTS arguments);       \
                                                                                       \
		if (__builtin_expect(result >= 0, 1))                                  \
			return result;                                                 \
		return tag##_long_##name arguments;                                    \
	}
#define GCP_ARGUMENTS(...) __VA_ARGS__
#define GCP_V(tag, version)                                                            \
	static struct gcp_runtime tag = GCP_NO_RUNTIME;                                \
	static atomic_bool tag##_filled;                                               \
	GCP_RUNTIME_HOOKS(GCP_X, tag, version)
GCP_RUNTIMES(GCP_V)
