/* SPDX-License-Identifier: MIT */
/*
 * spy.c - a library to preload that counts which driver calls the CUDA runtime
 * makes through the pointers it looked up, and prints the counts at exit. Shows
 * what a hook will see. Not part of the tests' verdicts.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <cuda.h>

typedef void *(*dlsym_fn)(void *, const char *);
typedef CUresult (*look_up_fn)(const char *, void **, int, cuuint64_t,
			       CUdriverProcAddressQueryResult *);

void *dlsym(void *handle, const char *name);

static look_up_fn real_look_up;

#define SPIED(X)                                                                       \
	X(cuDevicePrimaryCtxRetain, (CUcontext * c, CUdevice d), (c, d))               \
	X(cuDevicePrimaryCtxRelease, (CUdevice d), (d))                                \
	X(cuDevicePrimaryCtxReset, (CUdevice d), (d))                                  \
	X(cuCtxSetCurrent, (CUcontext c), (c))                                         \
	X(cuCtxGetCurrent, (CUcontext * c), (c))                                       \
	X(cuCtxPushCurrent, (CUcontext c), (c))                                        \
	X(cuCtxPopCurrent, (CUcontext * c), (c))                                       \
	X(cuCtxSynchronize, (void), ())                                                \
	X(cuMemAlloc, (CUdeviceptr * p, size_t n), (p, n))                             \
	X(cuMemFree, (CUdeviceptr p), (p))                                             \
	X(cuMemAllocPitch,                                                             \
	  (CUdeviceptr * p, size_t * pitch, size_t w, size_t h, unsigned e),           \
	  (p, pitch, w, h, e))                                                         \
	X(cuMemGetInfo, (size_t * a, size_t * b), (a, b))                              \
	X(cuStreamCreate, (CUstream * s, unsigned f), (s, f))                          \
	X(cuStreamDestroy, (CUstream s), (s))

#define X(name, parameters, arguments)                                                 \
	static CUresult(*real_##name) parameters;                                      \
	static unsigned long count_##name;                                             \
	static CUresult spy_##name parameters                                          \
	{                                                                              \
		__atomic_fetch_add(&count_##name, 1, __ATOMIC_RELAXED);                \
		return real_##name arguments;                                          \
	}
SPIED(X)
#undef X

static CUresult spy_look_up(const char *name, void **p, int version, cuuint64_t flags,
			    CUdriverProcAddressQueryResult *status)
{
	CUresult result = real_look_up(name, p, version, flags, status);

	if (result || !p || !*p)
		return result;
#define X(spied, parameters, arguments)                                                \
	if (!strcmp(name, #spied)) {                                                   \
		printf("spy: asked for %s, version %d, flags %llu\n", name, version,   \
		       (unsigned long long)flags);                                     \
		if (!real_##spied)                                                     \
			real_##spied = (CUresult(*) parameters) * p;                   \
		if ((void *)real_##spied == *p)                                        \
			*p = (void *)spy_##spied;                                      \
	}
	SPIED(X)
#undef X
	return result;
}

void *dlsym(void *handle, const char *name)
{
	static dlsym_fn real;
	void *found;

	if (!real)
		real = (dlsym_fn)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
	if (!real)
		return NULL;
	found = real(handle, name);
	if (found && !strcmp(name, "cuGetProcAddress_v2")) {
		real_look_up = (look_up_fn)found;
		return (void *)spy_look_up;
	}
	return found;
}

__attribute__((destructor)) static void spy_report(void)
{
#define X(name, parameters, arguments)                                                 \
	printf("spy: %s called %lu times\n", #name, count_##name);
	SPIED(X)
#undef X
}
