/* SPDX-License-Identifier: MIT */
/*
 * late_tls.c - late_tls OTHER LIBRARY: opens OTHER, which takes most of the memory for
 * thread-local variables of libraries that are opened late (1,664 bytes in glibc), then
 * the library. Built as OTHER with -DTAKES=BYTES.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef TAKES

char *other_takes(void);
static __thread char taken[TAKES] __attribute__((tls_model("initial-exec")));

char *other_takes(void)
{
	return taken;
}

#else

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (!dlopen(realpath(argv[i], NULL), RTLD_NOW)) {
			fprintf(stderr, "%s\n", dlerror());
			return 1;
		}
	}
	return argc == 3 ? 0 : 2;
}

#endif
