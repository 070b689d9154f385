/* SPDX-License-Identifier: MIT */
/*
 * deep.c - a plugin whose calls of CUDA do not pass through a preloaded library, for
 * tests/gpu/inside.py. Built twice: the plugin with -DPLUGIN, and the program, which
 * loads it with RTLD_DEEPBIND.
 *
 *   deep frees PLUGIN      the plugin frees blocks of the program, and the program one
 *                          of the plugin's
 *   deep gives PLUGIN      the plugin frees blocks that the program has given to it,
 * with allocations of their own (GCPOOL_BACKEND=segments), beside blocks that it keeps
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

enum { BLOCKS = 32, TURNS = 3, WORDS = 3 << 18, GIVEN = 40, GIVEN_BYTES = 64 << 20 };

/* In words. */
static const unsigned sizes[] = {128, 25 << 10, 1 << 18, WORDS};

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

static unsigned size_of(unsigned i)
{
	return sizes[i % (sizeof(sizes) / sizeof(*sizes))];
}

static CUdeviceptr allocated(unsigned words)
{
	CUdeviceptr p;

	demand(cuMemAlloc(&p, words * 4), "alloc");
	return p;
}

/* How many words of the block are not what was written there. */
static unsigned differ(CUdeviceptr p, unsigned count, uint32_t value)
{
	static uint32_t words[WORDS];
	unsigned wrong = 0;

	demand(cuMemcpyDtoH(words, p, count * 4), "copy");
	for (unsigned i = 0; i < count; i++)
		wrong += words[i] != value;
	return wrong;
}

static unsigned wrong_words(CUdeviceptr p, uint32_t value)
{
	demand(cuMemsetD32(p, value, WORDS), "set");
	return differ(p, WORDS, value);
}

static void fill(CUdeviceptr *blocks)
{
	for (unsigned i = 0; i < BLOCKS; i++) {
		blocks[i] = allocated(size_of(i));
		demand(cuMemsetD32(blocks[i], i + 1, size_of(i)), "set");
	}
}

static unsigned check_and_free(const CUdeviceptr *blocks)
{
	unsigned wrong = 0;

	for (unsigned i = 0; i < BLOCKS; i++) {
		wrong += differ(blocks[i], size_of(i), i + 1);
		demand(cuMemFree(blocks[i]), "free");
	}
	return wrong;
}

static int frees(void)
{
	unsigned refused = 0, wrong = 0;
	CUdeviceptr blocks[BLOCKS], p;

	fill(blocks);
	for (unsigned i = 0; i < BLOCKS; i++)
		refused += plugin_free(blocks[i]) == CUDA_ERROR_INVALID_VALUE;
	wrong += check_and_free(blocks);
	demand(plugin_alloc(&p, WORDS * 4), "the plugin's alloc");
	wrong += wrong_words(p, BLOCKS);
	demand(cuMemFree(p), "free of the plugin's block");
	refused += plugin_free(p) == CUDA_ERROR_INVALID_VALUE;
	printf("frees of the plugin refused: %u of %u, wrong words: %u\n", refused,
	       BLOCKS + 1, wrong);
	return refused != BLOCKS + 1 || wrong;
}

/* What is freed is the device's. */
static int gives(void)
{
	size_t least = SIZE_MAX, most = 0, given, all;
	unsigned freed = 0, wrong = 0;
	CUdeviceptr blocks[BLOCKS], p;

	fill(blocks);
	for (unsigned i = 0; i < GIVEN; i++) {
		p = allocated(GIVEN_BYTES / 4);
		demand(cuMemsetD32(p, i, GIVEN_BYTES / 4), "set");
		wrong += differ(p + GIVEN_BYTES - WORDS * 4, WORDS, i);
		freed += plugin_free(p) == CUDA_SUCCESS;
		demand(cuMemGetInfo(&given, &all), "memory");
		least = given < least ? given : least;
		most = given > most ? given : most;
	}
	wrong += check_and_free(blocks);
	printf("frees of the plugin: %u of %u, free memory differs by %zu MiB, wrong "
	       "words: "
	       "%u\n",
	       freed, GIVEN, (most - least) >> 20, wrong);
	return freed != GIVEN || wrong || most - least > GIVEN_BYTES;
}

static int releases(void)
{
	unsigned wrong = 0;

	for (unsigned i = 0; i < TURNS; i++) {
		CUdeviceptr p;

		primary();
		p = allocated(WORDS);
		wrong += wrong_words(p, i + 1);
		demand(cuMemFree(p), "free");
		demand(plugin_release(), "the plugin's release");
		demand(cuDevicePrimaryCtxRelease(0), "release");
		primary();
		wrong += wrong_words(allocated(WORDS), i + 1);
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
	if (strcmp(argv[1], "gives") == 0)
		return gives();
	return strcmp(argv[1], "frees") == 0 ? frees() : releases();
}

#endif
