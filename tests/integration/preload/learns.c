/* SPDX-License-Identifier: MIT */
/*
 * learns.c - libraries that want to learn of every free see as many as with plain CUDA:
 * those that patch the code of cuMemFree, as UCX does, and those that wrap cudaFree.
 *
 *   learns SCENARIO    plays one; 0: all is as with plain CUDA
 *
 * Needs: x86_64 cudart wrapper
 */
#include "scenarios.h"

#include <dlfcn.h>
#include <sys/mman.h>

int cudaMalloc(void **ret_ptr, size_t bytes);
int cudaFree(void *p);
int cudaSetDevice(int device);
#ifdef GCPT_WRAPPED
void user_turns(int count); /* learns_user.c */
#else
static void user_turns(int count)
{
}
#endif

enum { BLOCKS = 50 };

/* --- patches ---------------------------------------------------------------------- */

/* As a library does that cannot move the instructions it overwrites: puts them back
 * for the time of a call. */
struct patch {
	unsigned char *code;
	unsigned char was[14], jump[14];
	long seen;
};
static struct patch driver_patch, runtime_patch;

static void code_set(const struct patch *patch, const unsigned char *bytes)
{
	memcpy(patch->code, bytes, sizeof(patch->was));
	__builtin___clear_cache((char *)patch->code, (char *)patch->code + 14);
}

static int patched_call(struct patch *patch, uintptr_t argument, uintptr_t stream)
{
	int result;

	patch->seen += argument != 0;
	code_set(patch, patch->was);
	result =
	    ((int (*)(uintptr_t, uintptr_t))(uintptr_t)patch->code)(argument, stream);
	code_set(patch, patch->jump);
	return result;
}

/* Of functions of one argument or two. */
static int driver_patched(uintptr_t argument, uintptr_t stream)
{
	return patched_call(&driver_patch, argument, stream);
}

static int runtime_patched(uintptr_t argument, uintptr_t stream)
{
	return patched_call(&runtime_patch, argument, stream);
}

/* jmp *(%rip), and the address behind it. */
static void patch_install(struct patch *patch, const char *name,
			  int (*hook)(uintptr_t, uintptr_t))
{
	static const unsigned char jump[6] = {0xff, 0x25};
	uintptr_t page;

	patch->code = dlsym(RTLD_DEFAULT, name);
	if (!patch->code)
		exit(2);
	page = (uintptr_t)patch->code & ~(uintptr_t)4095;
	if (mprotect((void *)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC) != 0)
		exit(77);
	memcpy(patch->was, patch->code, sizeof(patch->was));
	memcpy(patch->jump, jump, sizeof(jump));
	memcpy(patch->jump + 6, (void *)&hook, sizeof(hook));
	code_set(patch, patch->jump);
}

/* --- frees ------------------------------------------------------------------------ */

static void runtime_turns(void)
{
	void *blocks[BLOCKS];

	for (int i = 0; i < BLOCKS; i++)
		must(cudaMalloc(&blocks[i], (size_t)(i + 1) << 12) == 0, "cudaMalloc");
	for (int i = 0; i < BLOCKS; i++)
		must(cudaFree(blocks[i]) == 0, "cudaFree");
}

static void driver_turns(void)
{
	CUdeviceptr blocks[BLOCKS];

	(void)primary();
	for (int i = 0; i < BLOCKS; i++)
		blocks[i] = allocated((size_t)(i + 1) << 12);
	for (int i = 0; i < BLOCKS; i++)
		OK(cuMemFree(blocks[i]));
}

static void warm_up(void)
{
	must(cudaSetDevice(0) == 0, "cudaSetDevice");
	runtime_turns();
	runtime_turns();
}

/* --- scenarios -------------------------------------------------------------------- */

SCENARIO(patched_driver_function)
{
	warm_up();
	patch_install(&driver_patch, "cuMemFree_v2", driver_patched);
	runtime_turns();
	must(driver_patch.seen == BLOCKS, "frees by the runtime pass the patch by");
	driver_turns();
	must(driver_patch.seen == 2 * BLOCKS, "frees by the driver pass the patch by");
}

SCENARIO(patched_runtime_function)
{
	warm_up();
	patch_install(&runtime_patch, "cudaFree", runtime_patched);
	runtime_turns();
	must(runtime_patch.seen == BLOCKS, "frees pass the patch by");
}

/* The wrapper and its user are there where this program is linked with them. */
SCENARIO(wrapped_runtime_function, "FORM=wrapped")
{
	const long *saw = dlsym(RTLD_DEFAULT, "wrapper_saw");

	must(saw != NULL, "no wrapper");
	must(cudaSetDevice(0) == 0, "cudaSetDevice");
	user_turns(BLOCKS);
	must(saw && *saw == BLOCKS, "frees pass the wrapper by");
}

/* An entry can be patched by code that knows few instructions: pushes, moves of
 * numbers. */
SCENARIO(entries_begin_with_what_can_be_moved)
{
	static const char *const names[] = {"cuMemFree_v2", "cuMemAlloc_v2",
					    "cuMemFreeAsync", "cuMemFreeHost"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const unsigned char *code = dlsym(RTLD_DEFAULT, names[i]);

		for (int at = 0; code && at < 13; at += 5)
			must(code[at] == 0xb8, names[i]);
	}
}
