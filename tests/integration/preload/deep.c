/* SPDX-License-Identifier: MIT */
/*
 * deep.c - a plugin that is loaded with RTLD_DEEPBIND frees blocks of the program, and
 * the program the plugin's; and it releases a context.
 *
 *   GCPT_PLUGIN=FILE deep SCENARIO    0: no memory but that is gone
 *
 * Needs: plugin
 */
#include "scenarios.h"

#include <dlfcn.h>

static CUresult (*plugin_alloc)(CUdeviceptr *addr, size_t bytes);
static CUresult (*plugin_free)(CUdeviceptr addr);
static CUresult (*plugin_release)(void);

static bool load(const char *path)
{
	void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);

	if (!plugin) {
		puts(dlerror());
		return false;
	}
	*(void **)&plugin_alloc = dlsym(plugin, "plugin_alloc");
	*(void **)&plugin_free = dlsym(plugin, "plugin_free");
	*(void **)&plugin_release = dlsym(plugin, "plugin_release");
	return plugin_alloc && plugin_free && plugin_release;
}

/* Ordinary memory: what has an allocation of its own is freed, as on plain CUDA, and
 * nothing else. */
SCENARIO(a_deep_bound_plugin_frees_segments, "GCPOOL_BACKEND=segments")
{
	static const size_t sizes[] = {512, 100 << 10, 2 * MIB, 3 * MIB};
	CUdeviceptr blocks[4][24], p;

	must(load(getenv("GCPT_PLUGIN")), "no plugin");
	(void)primary();
	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 24; j++)
			blocks[i][j] = allocated(sizes[i]);
	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 24; j++)
			must(plugin_free(blocks[i][j]) == CUDA_ERROR_INVALID_VALUE,
			     "CUDA frees a block that shares its memory");
	for (int i = 0; i < 4; i++) {
		p = allocated(64 * MIB);
		OK(cuMemsetD8(p, 1, 64 * MIB));
		OK(cuCtxSynchronize());
		OK(plugin_free(p));
	}
	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 24; j++) {
			OK(cuMemsetD8(blocks[i][j], 1, sizes[i]));
			OK(cuCtxSynchronize());
			OK(cuMemFree(blocks[i][j]));
		}
	must(gcpsim_faults() == 0, "memory that is gone");
}
