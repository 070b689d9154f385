/* SPDX-License-Identifier: MIT */
/*
 * info.c - gcpool-info: what `gcpool --version` and `gcpool --options` print. Loads the
 * library and asks it, in a process of its own that does not use CUDA.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_WRONG = 2 };

/* The address of a function of the library, or NULL. */
static void *function_find(const char *path, const char *name)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	void *function = library ? dlsym(library, name) : NULL;

	if (!function)
		fprintf(stderr, "gcpool: '%s' is not libgcpool: %s\n", path, dlerror());
	return function;
}

static int version_print(const char *path)
{
	const char *(*commit)(void);
	int (*version)(void);
	int number;

	*(void **)&version = function_find(path, "gcpool_version");
	*(void **)&commit = version ? function_find(path, "gcpool_commit") : NULL;
	if (!commit)
		return EXIT_WRONG;
	number = version();
	printf("libgcpool %d.%d.%d", number / 10000, number / 100 % 100, number % 100);
	if (commit()[0])
		printf(" (%s)", commit());
	printf(", %s\n", path);
	return 0;
}

static int options_print(const char *path)
{
	int (*print)(int);

	*(void **)&print = function_find(path, "gcpool_print_options");
	/* Some variable may be wrong, which the library has said. */
	return print && print(STDOUT_FILENO) == 0 ? 0 : EXIT_WRONG;
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "version") == 0)
		return version_print(argv[2]);
	if (argc == 3 && strcmp(argv[1], "options") == 0)
		return options_print(argv[2]);
	fputs("gcpool-info: used by gcpool --version and gcpool --options\n", stderr);
	return EXIT_WRONG;
}
