/* SPDX-License-Identifier: MIT */
/*
 * identity.c - prints what dlsym answers to callers of every kind: the main
 * program, a library that wraps a function of the one behind it (RTLD_NEXT), a
 * library with a private scope (RTLD_LOCAL). The transcript must be the same
 * with and without the library under test. No CUDA is loaded, so CUDA's names
 * must be unknown.
 */
#include <dlfcn.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef const char *(*answer_fn)(void);

static const char *error_text(void)
{
	const char *text = dlerror();

	return text ? text : "(none)";
}

static void names(void)
{
	static const char *const cuda[] = {
	    "cuMemAlloc_v2",
	    "cuMemFree_v2",
	    "cuGetProcAddress",
	    "cuGetProcAddress_v2",
	    "cuInit",
	    "cudaMalloc",
	    "cudaFree",
	    "cuMemAlloc",
	    "cuMemAlloc_v3",
	    "cuMem",
	    "cu",
	    "",
	};

	for (size_t i = 0; i < sizeof(cuda) / sizeof(*cuda); i++) {
		printf("RTLD_DEFAULT %s: %s", cuda[i],
		       dlsym(RTLD_DEFAULT, cuda[i]) ? "found" : "NULL");
		printf("; %s\n", error_text());
		/* Before 2.36 glibc looks for the next symbol as for one that a program
		 * is linked with, and finds the entries of the library: see
		 * tests/systems/tried.md. */
		if (strverscmp(gnu_get_libc_version(), "2.36") < 0)
			continue;
		printf("RTLD_NEXT %s: %s", cuda[i],
		       dlsym(RTLD_NEXT, cuda[i]) ? "found" : "NULL");
		printf("; %s\n", error_text());
	}
}

static void ordinary(void)
{
	static const char *const known[] = {"puts", "malloc", "printf", "dlopen"};
	void *libc = dlopen("libc.so.6", RTLD_NOW);
	/* Where dlsym was before glibc 2.34. */
	void *own = dlsym(libc, "dlsym") ? libc : dlopen("libdl.so.2", RTLD_NOW);

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		printf("%s: default and libc agree: %s\n", known[i],
		       dlsym(RTLD_DEFAULT, known[i]) == dlsym(libc, known[i]) ? "yes"
									      : "no");
	printf("dlsym(\"dlsym\") works: %s\n",
	       ((void *(*)(void *, const char *))dlsym(own, "dlsym"))(libc, "puts") ==
		       dlsym(libc, "puts")
		   ? "yes"
		   : "no");
}

/* An error stays until it is asked for, and a good call takes it away. */
static void errors(void)
{
	dlsym(RTLD_DEFAULT, "gcpt_no_such_symbol");
	printf("after a miss: %s\n", error_text());
	printf("asked again: %s\n", error_text());
	dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
	printf("after a miss of CUDA's: %s\n", error_text());
	dlsym(RTLD_DEFAULT, "gcpt_no_such_symbol");
	dlsym(RTLD_DEFAULT, "puts");
	printf("after a miss and a hit: %s\n", error_text());
	errno = 4711;
	dlsym(RTLD_DEFAULT, "puts");
	dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
	printf("errno kept: %s\n", errno == 4711 ? "yes" : "no");
	dlerror();
}

static void *open_or_die(const char *directory, const char *name, int flags)
{
	char path[4096];
	void *library;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	library = dlopen(path, RTLD_NOW | flags);
	if (!library) {
		printf("cannot open %s: %s\n", name, dlerror());
		exit(2);
	}
	return library;
}

static void ask(void *library, const char *question)
{
	answer_fn fn = (answer_fn)dlsym(library, question);

	printf("%s: %s\n", question, fn ? fn() : "missing");
}

int main(int argc, char **argv)
{
	void *outer, *local;

	if (argc < 2)
		return 2;
	names();
	ordinary();
	errors();
	/* outer wraps inner's gcpt_shadow and reaches it with RTLD_NEXT. */
	outer = open_or_die(argv[1], "libidentity_outer.so", RTLD_GLOBAL);
	ask(outer, "gcpt_shadow");
	ask(outer, "gcpt_outer_next_malloc");
	/* local finds its private dependency through RTLD_DEFAULT, main does not. */
	local = open_or_die(argv[1], "libidentity_local.so", RTLD_LOCAL);
	ask(local, "gcpt_local_default");
	ask(local, "gcpt_local_cuda");
	printf("main sees local's private symbol: %s\n",
	       dlsym(RTLD_DEFAULT, "gcpt_private") ? "yes" : "no");
	error_text();
	/* A library's own function with one of CUDA's names stays its own. */
	ask(local, "cudaMalloc");
	ask(local, "cuMemAlloc_v2");
	dlclose(local);
	return 0;
}
