/* SPDX-License-Identifier: MIT */
/*
 * bench_null.c - preloaded in the library's place: a driver whose cuMemAlloc and
 * cuMemFree cost nothing. What a malloc+free pair of a program linked with a static
 * cudart then costs is cudart's own; bench_paths.py tells what the library costs on
 * top of it. On NVIDIA's driver as well:
 *
 *   LD_PRELOAD=libbench_null.so loop-static --no-kernel --size 512 --iterations 1000000
 *
 * A cudart looks cuGetProcAddress_v2 up with dlsym, and everything else with that.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

typedef int look_up_fn(const char *symbol, void **ret_function, int version,
		       uint64_t flags, void *ret_status);

static look_up_fn *real_look_up;

static int null_alloc(unsigned long long *ret_ptr, size_t bytes)
{
	(void)bytes;
	*ret_ptr = 1ull << 40;
	return 0;
}

static int null_free(unsigned long long ptr)
{
	(void)ptr;
	return 0;
}

static int null_look_up(const char *symbol, void **ret_function, int version,
			uint64_t flags, void *ret_status)
{
	int result = real_look_up(symbol, ret_function, version, flags, ret_status);

	if (result == 0 && strcmp(symbol, "cuMemAlloc") == 0)
		*ret_function = (void *)null_alloc;
	else if (result == 0 && strcmp(symbol, "cuMemFree") == 0)
		*ret_function = (void *)null_free;
	return result;
}

__attribute__((visibility("default"))) void *dlsym(void *handle, const char *name)
{
	static void *(*real_dlsym)(void *handle, const char *name);
	void *found;

	if (!real_dlsym)
		*(void **)&real_dlsym = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
	found = real_dlsym(handle, name);
	if (!found || strcmp(name, "cuGetProcAddress_v2") != 0)
		return found;
	*(void **)&real_look_up = found;
	return (void *)null_look_up;
}
