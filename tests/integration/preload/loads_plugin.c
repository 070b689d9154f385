/* SPDX-License-Identifier: MIT */
/*
 * loads_plugin.c - the library that loads.c loads: its constructor calls CUDA, after
 * another thread has had time to do so.
 */
#include <unistd.h>

#include "loads.h"

__attribute__((constructor)) static void begin(void)
{
	bool good;

	loads_step = 1;
	usleep(300 * 1000);
#ifdef LOADS_RUNTIME
	good = cudaSetDevice(0) == 0;
#else
	good = loads_asks(dlopen("libcuda.so.1", RTLD_NOW));
#endif
	if (good)
		loads_step = 2;
}
