/* SPDX-License-Identifier: MIT */
/*
 * loads.c - one thread loads a library whose constructor calls CUDA, while another
 * one calls CUDA for the first time. The loader holds a lock of its own as long as the
 * constructor runs.
 *
 *   loads LIBRARY    0: both came through; else the program hangs, and ends by a signal
 */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "loads.h"

atomic_int loads_step;

static void *load(void *path)
{
	if (!dlopen(path, RTLD_NOW))
		puts(dlerror());
	return NULL;
}

static bool call(void *driver)
{
#ifdef LOADS_RUNTIME
	void *p;

	(void)driver;
	return cudaMalloc(&p, 1 << 20) == 0;
#else
	return loads_asks(driver);
#endif
}

int main(int argc, char **argv)
{
	pthread_t thread;
	void *driver = NULL;
	bool good = true;

	if (argc != 2)
		return 2;
	alarm(60);
#ifdef LOADS_RUNTIME
	int count;

	good = cudaGetDeviceCount(&count) == 0; /* it has its driver by now */
#else
	driver = dlopen("libcuda.so.1", RTLD_NOW);
#endif
#ifdef LOADS_MEMORY
	CUcontext ctx; /* the library knows the driver's functions by now */

	good = cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&ctx, 0) == 0;
#endif
	pthread_create(&thread, NULL, load, argv[1]);
	while (loads_step == 0)
		usleep(1000);
	good = call(driver) && good;
	pthread_join(thread, NULL);
	printf("%s\n", good && loads_step == 2 ? "both came through" : "WRONG");
	return good && loads_step == 2 ? 0 : 1;
}
