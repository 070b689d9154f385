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
#include <string.h>
#include "../cuda/gate.h"
#include "hooks.h"
#include "../process/calling_thread.h"
#include "hooks_memory.h"
#include "../cuda/streams.h"

/* cudaError_t of which no header is included here. */
enum { GCP_CUDART_SUCCESS = 0, GCP_CUDART_UNLOADING = 4, GCP_CUDART_NO_SYMBOL = 500 };

#define RUNTIME_INDEX(tag, version, name, parameters, arguments) RUNTIME_##name,
enum { GCP_RUNTIME_HOOKS(RUNTIME_INDEX, , ) RUNTIME_FUNCTIONS };
#define RUNTIME_TYPE(tag, version, name, parameters, arguments)                        \
	typedef int runtime_##name##_fn parameters;
GCP_RUNTIME_HOOKS(RUNTIME_TYPE, , )

struct gcp_runtime {
	/* Each function, and what its code begins with while no library has patched it.
	 * never equal: there is none, or no short cut */
	struct gcp_code {
		const void *at;
		uint64_t bytes;
	} code[RUNTIME_FUNCTIONS];
};

static const uint64_t no_code;
#define GCP_NO_RUNTIME                                                                 \
	{                                                                              \
		.code = { [0 ... RUNTIME_FUNCTIONS - 1] = {&no_code, 1} }              \
	}
#define GCP_REAL(runtime, name)                                                        \
	((runtime_##name##_fn *)(uintptr_t)(runtime)->code[RUNTIME_##name].at)

/* --- the real cudarts ------------------------------------------------------------ */

/* What the code at `function` begins with, and must begin with later, too. Code that
 * jumps away at once is patched already. */
static void code_remember(const void *function, struct gcp_code *ret_code)
{
	uint64_t bytes;

	assert(function);
	memcpy(&bytes, function, sizeof(bytes));
	*ret_code = (struct gcp_code){function, gcp_code_jumps(bytes) ? ~bytes : bytes};
}

/* Stream-ordered memory is not there before CUDA 11.2. */
static bool runtime_fill(struct gcp_runtime *runtime, const struct gcp_elf *elf)
{
#define RUNTIME_NAME(tag, version, name, parameters, arguments) #name,
	static const char names[][24] = {GCP_RUNTIME_HOOKS(RUNTIME_NAME, , )};
	*runtime = (struct gcp_runtime)GCP_NO_RUNTIME;
	for (int i = 0; i < RUNTIME_FUNCTIONS; i++) {
		const void *function = gcp_elf_symbol(elf, names[i]);

		if (function)
			code_remember(function, &runtime->code[i]);
		else if (i <= RUNTIME_cudaSetDevice)
			return false;
	}
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
	GCP_KEEP_ERRNO;

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
	return atomic_load(filled) ? runtime : NULL;
}

/* --- the short cut ---------------------------------------------------------------- */

/* Sure is said only while pooling, and by a thread whose end is watched; a fork
 * changes the generation. So this is all that has to be asked. */
static inline bool runtime_confirmed(void)
{
	return __builtin_expect(gcp_thread.runtime_confirmed == gcp_contexts_now(), 1);
}

/* Returns true if neither the code of the function nor that of the entry that it comes
 * back through is as it was. Without a lock: a thread that fills the runtime first
 * makes it so for others, which may see that late and go the long way. */
static inline bool code_is_patched(const struct gcp_code *code, const void *entry)
{
	return __builtin_expect(*(const volatile uint64_t *)entry != GCP_ENTRY_CODE ||
				    *(const volatile uint64_t *)code->at != code->bytes,
				0);
}
#define GCP_PATCHED(runtime, name, entry)                                              \
	code_is_patched(&(runtime)->code[RUNTIME_##name],                              \
			(const void *)(uintptr_t)gcp_entry_##entry)

/* The short cuts, in each entry. < 0: the real function is needed. */
#define GCP_SHORT static inline __attribute__((always_inline)) int

/* A refusal is the driver's to tell the runtime, which keeps it as its last error. */
GCP_SHORT runtime_fast_cudaMalloc(const struct gcp_runtime *runtime, void **ret_ptr,
				  size_t bytes)
{
	struct gcp_pool *pool;
	gcp_addr addr;
	int result;

	if (!ret_ptr || !bytes || !runtime_confirmed() ||
	    GCP_PATCHED(runtime, cudaMalloc, cuMemAlloc_v2))
		return -1;
	assert(gcp_process_pooling());
	pool = gcp_thread_pool_confirmed();
	result = pool ? gcp_memory_alloc(pool, bytes, &addr) : -1;
	if (__builtin_expect(result != 0, 0)) {
		gcp_thread.runtime_refused = result > 0 ? result : 0;
		return -1;
	}
	*ret_ptr = (void *)(uintptr_t)addr;
	return GCP_CUDART_SUCCESS;
}

/* A sticky device error has the same number in both layers, and whatever the
 * program calls next reports it again. */
GCP_SHORT runtime_fast_cudaFree(const struct gcp_runtime *runtime, void *ptr)
{
	if (!ptr || !runtime_confirmed() ||
	    GCP_PATCHED(runtime, cudaFree, cuMemFree_v2))
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
static inline bool runtime_streamed(void)
{
	return __builtin_expect(gcp_thread.runtime_streamed == gcp_contexts_now(), 1);
}

/* The short cut of a function, and its long way. */
#define GCP_STREAMED(name, entry, short_cut, per_thread, parameters, ...)              \
	GCP_SHORT runtime_fast_##name(const struct gcp_runtime *runtime,               \
				      GCP_ARGUMENTS parameters)                        \
	{                                                                              \
		return runtime_streamed() && !GCP_PATCHED(runtime, name, entry)        \
			   ? short_cut(__VA_ARGS__,                                    \
				       gcp_stream_named(stream, per_thread))           \
			   : -1;                                                       \
	}                                                                              \
	static int runtime_##name(const struct gcp_runtime *real,                      \
				  GCP_ARGUMENTS parameters)                            \
	{                                                                              \
		int result = GCP_CUDART_NO_SYMBOL;                                     \
                                                                                       \
		if (real->code[RUNTIME_##name].at == &no_code)                         \
			return result;                                                 \
		gcp_thread.runtime_streaming = true;                                   \
		result = GCP_REAL(real, name)(__VA_ARGS__, stream);                    \
		gcp_thread.runtime_streaming = false;                                  \
		gcp_thread.runtime_refused = 0;                                        \
		return result;                                                         \
	}
#define GCP_ARGUMENTS(...) __VA_ARGS__
#define GCP_ALLOC          (void **ret_ptr, size_t bytes, CUstream stream)
#define GCP_FREE           (void *ptr, CUstream stream)
GCP_STREAMED(cudaMallocAsync, cuMemAllocAsync, gcp_async_short_alloc, false, GCP_ALLOC,
	     ret_ptr, bytes)
GCP_STREAMED(cudaMallocAsync_ptsz, cuMemAllocAsync_ptsz, gcp_async_short_alloc, true,
	     GCP_ALLOC, ret_ptr, bytes)
GCP_STREAMED(cudaFreeAsync, cuMemFreeAsync, gcp_async_short_free, false, GCP_FREE, ptr)
GCP_STREAMED(cudaFreeAsync_ptsz, cuMemFreeAsync_ptsz, gcp_async_short_free, true,
	     GCP_FREE, ptr)

/* --- the long way --------------------------------------------------------- */

static int runtime_cudaMalloc(const struct gcp_runtime *real, void **ret_ptr,
			      size_t bytes)
{
	int result;

	gcp_thread.runtime_confirmed = 0;
	gcp_thread.runtime_inside = true;
	result = GCP_REAL(real, cudaMalloc)(ret_ptr, bytes);
	gcp_thread.runtime_inside = false;
	gcp_thread.runtime_refused = 0;
	/* The short cut is not for calls that are observed, or that pass a gate. */
	if (result != GCP_CUDART_SUCCESS || gcp_process.observer || gcp_gate.wait)
		gcp_thread.runtime_confirmed = 0;
	return result;
}

static int runtime_cudaFree(const struct gcp_runtime *real, void *ptr)
{
	return GCP_REAL(real, cudaFree)(ptr);
}

static int runtime_cudaSetDevice(const struct gcp_runtime *real, int device)
{
	gcp_thread.runtime_confirmed = 0;
	gcp_thread.runtime_streamed = 0;
	return GCP_REAL(real, cudaSetDevice)(device);
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
#define GCP_V(tag, version)                                                            \
	static struct gcp_runtime tag = GCP_NO_RUNTIME;                                \
	static atomic_bool tag##_filled;                                               \
	GCP_RUNTIME_HOOKS(GCP_X, tag, version)
GCP_RUNTIMES(GCP_V)
