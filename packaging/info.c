/*
 * info.c - gcpool-info: what `gcpool --version` and `gcpool --options` print.
 *
 * Installed beside the library, which says itself which version it is. The table of
 * options is linked in, with the reader that the library uses: the values shown are
 * those that a program started with this environment would get, and wrong ones get
 * the same messages. Calls no CUDA.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../interpose/options.h"

enum { EXIT_WRONG = 2, OPTIONS_BYTES = 32768 };

static int version_print(const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	int (*version)(void) = NULL;
	int number;

	if (library)
		*(void **)&version = dlsym(library, "gcpool_version");
	if (!version) {
		fprintf(stderr, "gcpool: '%s' is not libgcpool: %s\n", path, dlerror());
		return EXIT_WRONG;
	}
	number = version();
	printf("libgcpool %d.%d.%d (%s)\n", number / 10000, number / 100 % 100,
	       number % 100, path);
	return 0;
}

static int options_print(void)
{
	static char bytes[OPTIONS_BYTES];
	static struct gcp_options options;
	struct gcp_text text;

	/* The table comes once, on stdout, also where the environment asks for it. */
	unsetenv("GCPOOL_HELP");
	gcp_options_read(&options);
	gcp_text_init(&text, bytes, sizeof(bytes));
	gcp_options_show(&options, &text);
	gcp_text_write(&text, STDOUT_FILENO);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "version") == 0)
		return version_print(argv[2]);
	if (argc == 2 && strcmp(argv[1], "options") == 0)
		return options_print();
	fputs("gcpool-info: used by gcpool --version and gcpool --options\n", stderr);
	return EXIT_WRONG;
}
