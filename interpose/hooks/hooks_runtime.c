/* SPDX-License-Identifier: MIT */
/*
 * hooks_runtime.c - the short cut for programs linked with a shared libcudart: it saves
 * cudart's own cost of cudaMalloc, cudaFree, cudaMallocAsync and cudaFreeAsync.
 *
 * Only a sure thing is done here. A thread is sure after the real cudaMalloc, or one of
 * stream-ordered memory, has come through to the driver's hook once, for then the
 * current context is the one that cudart means; cudaSetDevice and anything that changes
 * a context end that, and so does the lack of one. All else (no context yet, NULL, size
 * 0, memory that is not ours, every error) goes to the real function, which comes back
 * through the driver's hooks, so that cudart's state and cudaGetLastError are as
 * without us.
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

struct gcp_runtime {
	const char *version;
	atomic_bool filled;
	/* Each function, and what its code begins with while no library has patched it.
	 * never equal: there is none, or no short cut */
	struct gcp_code {
		const void *at;
		uint64_t bytes;
	} code[RUNTIME_FUNCTIONS];
};

static const uint64_t no_code;

/* --- the real cudarts ------------------------------------------------------------ */

/* What the code of each function begins with, and must begin with later, too. Code that
 * jumps away at once is patched already. Stream-ordered memory is not there before CUDA
 * 11.2. */
static bool runtime_fill(struct gcp_code *code, const struct gcp_elf *elf)
{
#define RUNTIME_NAME(tag, version, name, parameters, arguments) #name,
	static const char names[][24] = {GCP_RUNTIME_HOOKS(RUNTIME_NAME, , )};
	for (int i = 0; i < RUNTIME_FUNCTIONS; i++) {
		const void *function = gcp_elf_symbol(elf, names[i]);
		uint64_t bytes;

		code[i] = (struct gcp_code){&no_code, 1};
		if (!function && i <= RUNTIME_cudaSetDevice)
			return false;
		if (!function)
			continue;
		memcpy(&bytes, function, sizeof(bytes));
		code[i] =
		    (struct gcp_code){function, gcp_code_jumps(bytes) ? ~bytes : bytes};
	}
	return true;
}

/* Filled once, under runtime_lock. False: there is no such cudart. The loader is asked
 * without that lock: it has one of its own, and holds it while the constructors of a
 * library run, which may come here. */
static bool runtime_get(struct gcp_runtime *runtime)
{
	struct gcp_code code[RUNTIME_FUNCTIONS];
	struct gcp_elf elf;
	GCP_KEEP_ERRNO;

	if (atomic_load_explicit(&runtime->filled, memory_order_acquire))
		return true;
	if (!gcp_elf_find(runtime->version, &elf) || !gcp_elf_pin(&elf) ||
	    !runtime_fill(code, &elf))
		return atomic_load(&runtime->filled);
	GCP_LOCKED(&gcp_process.runtime_lock);
	if (!atomic_load_explicit(&runtime->filled, memory_order_relaxed))
		memcpy(runtime->code, code, sizeof(code));
	atomic_store_explicit(&runtime->filled, true, memory_order_release);
	return true;
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

GCP_SHORT runtime_fast_cudaMalloc(const struct gcp_runtime *runtime, void **ret_ptr,
				  size_t bytes)
{
	struct gcp_pool *pool;
	int result;

	if (!ret_ptr || !bytes || !runtime_confirmed() ||
	    GCP_PATCHED(runtime, cudaMalloc, cuMemAlloc_v2))
		return -1;
	assert(gcp_process_pooling());
	pool = gcp_thread_pool();
	result = pool ? gcp_memory_try(pool, bytes, (gcp_addr *)ret_ptr) : -1;
	return __builtin_expect(result != GCP_CUDART_SUCCESS, 0)
		   ? gcp_memory_refused(result)
		   : result;
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
#define GCP_STREAMED(name, entry, short_cut, per_thread, parameters, ...)              \
	GCP_SHORT runtime_fast_##name(const struct gcp_runtime *runtime,               \
				      GCP_ARGUMENTS parameters)                        \
	{                                                                              \
		return runtime_confirmed() && !GCP_PATCHED(runtime, name, entry)       \
			   ? short_cut(__VA_ARGS__,                                    \
				       gcp_stream_named(stream, per_thread))           \
			   : -1;                                                       \
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

/* Integers and pointers, as gcp_words_call. The short cut is not for calls that are
 * observed, or that pass a gate. */
static __attribute__((noinline)) int runtime_long(struct gcp_runtime *runtime,
						  int function, uint64_t a, uint64_t b,
						  uint64_t c)
{
	bool allocates = function == RUNTIME_cudaMalloc;
	bool sets = function == RUNTIME_cudaSetDevice;
	int (*call)(uint64_t, uint64_t, uint64_t), result;

	assert(function >= 0 && function < RUNTIME_FUNCTIONS);
	if (!runtime_get(runtime))
		return GCP_CUDART_UNLOADING;
	if (runtime->code[function].at == &no_code)
		return GCP_CUDART_NO_SYMBOL;
	*(const void **)&call = runtime->code[function].at;
	if (allocates || sets)
		gcp_thread.runtime_confirmed = 0;
	gcp_thread.runtime_inside = !sets && function != RUNTIME_cudaFree;
	result = call(a, b, c);
	gcp_thread.runtime_inside = false;
	gcp_thread.runtime_refused = 0;
	if ((allocates && result != GCP_CUDART_SUCCESS) || gcp_process.observer ||
	    gcp_gate.wait)
		gcp_thread.runtime_confirmed = 0;
	return result;
}

/* --- exports ---------------------------------------------------------------------- */

#define GCP_WORDS(...)             GCP_WORDS_OF(__VA_ARGS__, 0, 0, 0)
#define GCP_WORDS_OF(a, b, c, ...) (uintptr_t)(a), (uintptr_t)(b), (uintptr_t)(c)
#define GCP_X(tag, version, name, parameters, arguments)                               \
	int gcp_entry_##tag##_##name parameters                                        \
	{                                                                              \
		int result = runtime_fast_##name(&tag, GCP_ARGUMENTS arguments);       \
                                                                                       \
		return __builtin_expect(result >= 0, 1)                                \
			   ? result                                                    \
			   : runtime_long(&tag, RUNTIME_##name, GCP_WORDS arguments);  \
	}
#define GCP_V(tag, version)                                                            \
	static struct gcp_runtime tag = {                                              \
	    #version, .code = {[0 ... RUNTIME_FUNCTIONS - 1] = {&no_code, 1}}};        \
	GCP_RUNTIME_HOOKS(GCP_X, tag, version)
GCP_RUNTIMES(GCP_V)
