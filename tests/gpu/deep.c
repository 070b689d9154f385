/* SPDX-License-Identifier: MIT */
/*
 * deep.c - a plugin whose calls of CUDA do not pass through a preloaded library, for
 * tests/gpu/inside.py. Built twice: the plugin with -DPLUGIN, and the program, which
 * loads it with RTLD_DEEPBIND.
 *
 *   deep frees PLUGIN      the plugin frees blocks of the program, and the program one
 *                          of the plugin's; wants mapped memory (GCPOOL_BACKEND=vmm):
 *                          at the start of a segment CUDA would free all of it
 *   deep releases PLUGIN   the plugin releases a reference of the primary context, so
 *                          that it ends before the library expects that
 *
 * Prints a line. Exit code: 0 all as wanted, 1 not, 2 a call failed.
 */
#include <cuda.h>

#ifdef PLUGIN

CUresult plugin_alloc(CUdeviceptr *addr, size_t bytes);
CUresult plugin_free(CUdeviceptr addr);
CUresult plugin_release(void);

CUresult plugin_alloc(CUdeviceptr *addr, size_t bytes)
{
	return cuMemAlloc(addr, bytes);
}

CUresult plugin_free(CUdeviceptr addr)
{
	return cuMemFree(addr);
}

CUresult plugin_release(void)
{
	return cuDevicePrimaryCtxRelease(0);
}

#else

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 8, TURNS = 3, WORDS = 3 << 18 };

static CUresult (*plugin_alloc)(CUdeviceptr *addr, size_t bytes);
static CUresult (*plugin_free)(CUdeviceptr addr);
static CUresult (*plugin_release)(void);

static void demand(CUresult code, const char *what)
{
	if (code == CUDA_SUCCESS)
		return;
	printf("%s: code %d\n", what, (int)code);
	exit(2);
}

static void load(const char *path)
{
	void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);

	if (!plugin) {
		puts(dlerror());
		exit(2);
	}
	*(void **)&plugin_alloc = dlsym(plugin, "plugin_alloc");
	*(void **)&plugin_free = dlsym(plugin, "plugin_free");
	*(void **)&plugin_release = dlsym(plugin, "plugin_release");
}

static void primary(void)
{
	CUcontext context;

	demand(cuDevicePrimaryCtxRetain(&context, 0), "retain");
	demand(cuCtxSetCurrent(context), "set current");
}

static CUdeviceptr allocated(void)
{
	CUdeviceptr p;

	demand(cuMemAlloc(&p, WORDS * 4), "alloc");
	return p;
}

/* How many words of the block are not what was just written there. */
static unsigned wrong_words(CUdeviceptr p, uint32_t value)
{
	static uint32_t words[WORDS];
	unsigned wrong = 0;

	demand(cuMemsetD32(p, value, WORDS), "set");
	demand(cuMemcpyDtoH(words, p, sizeof(words)), "copy");
	for (unsigned i = 0; i < WORDS; i++)
		wrong += words[i] != value;
	return wrong;
}

static int frees(void)
{
	unsigned refused = 0, wrong = 0;
	CUdeviceptr blocks[BLOCKS], p;

	for (unsigned i = 0; i < BLOCKS; i++)
		blocks[i] = allocated();
	for (unsigned i = 0; i < BLOCKS; i++)
		refused += plugin_free(blocks[i]) == CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < BLOCKS; i++) {
		wrong += wrong_words(blocks[i], i + 1);
		demand(cuMemFree(blocks[i]), "free");
	}
	demand(plugin_alloc(&p, WORDS * 4), "the plugin's alloc");
	wrong += wrong_words(p, BLOCKS);
	demand(cuMemFree(p), "free of the plugin's block");
	refused += plugin_free(p) == CUDA_ERROR_INVALID_VALUE;
	printf("frees of the plugin refused: %u of %u, wrong words: %u\n", refused,
	       BLOCKS + 1, wrong);
	return refused != BLOCKS + 1 || wrong;
}

static int releases(void)
{
	unsigned wrong = 0;

	for (unsigned i = 0; i < TURNS; i++) {
		CUdeviceptr p;

		primary();
		p = allocated();
		wrong += wrong_words(p, i + 1);
		demand(cuMemFree(p), "free");
		demand(plugin_release(), "the plugin's release");
		demand(cuDevicePrimaryCtxRelease(0), "release");
		primary();
		wrong += wrong_words(allocated(), i + 1);
	}
	printf("contexts that ended unseen: %d, wrong words: %u\n", TURNS, wrong);
	return wrong != 0;
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	load(argv[2]);
	if (!plugin_alloc || !plugin_free || !plugin_release)
		return 2;
	demand(cuInit(0), "init");
	primary();
	return strcmp(argv[1], "frees") == 0 ? frees() : releases();
}

#endif
