/* SPDX-License-Identifier: MIT */
/*
 * next.c - libraries of other people's that have functions of the same names as those
 * that the library hooks are called as with plain CUDA. Prints what they saw.
 *
 *   next_program replaced        a library in place of libcuda, which is not there
 *   next_program closed PLUGIN USER    a plugin wraps cudaFree and is closed; its user
 * goes on next_program dlsym           with next_dlsym.c preloaded: it is asked first
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int cuMemAlloc_v2(unsigned long long *ret_ptr, size_t bytes); /* next_replaces.c */
int cuMemFree_v2(unsigned long long ptr);

static int replaced(void)
{
	unsigned long long ptr = 0;
	int result = cuMemAlloc_v2(&ptr, 1000);

	printf("alloc %d, memory %s, free %d\n", result, ptr ? "there" : "missing",
	       cuMemFree_v2(ptr));
	return 0;
}

static int closed(const char *plugin_path, const char *user_path)
{
	void *plugin = dlopen(plugin_path, RTLD_NOW | RTLD_GLOBAL);
	void *user = dlopen(user_path, RTLD_LAZY | RTLD_LOCAL);
	long *saw;
	void (*turns)(int);

	if (!plugin || !user) {
		printf("%s\n", dlerror());
		return 2;
	}
	saw = dlsym(plugin, "wrapper_saw");
	*(void **)&turns = dlsym(user, "user_turns");
	turns(3);
	printf("the plugin saw %ld\n", *saw);
	dlclose(plugin);
	turns(3);
	printf("it goes on\n");
	return 0;
}

static int asked(void)
{
	const char *pending;

	printf("a name of its own: %s\n",
	       dlsym(RTLD_DEFAULT, "gcpt_of_next_dlsym") ? "found" : "NULL");
	printf("one of CUDA's: %s\n",
	       dlsym(RTLD_DEFAULT, "cuMemOfNextDlsym") ? "found" : "NULL");
	pending = dlerror();
	printf("error: %s\n", pending ? pending : "(none)");
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 4 && strcmp(argv[1], "closed") == 0)
		return closed(argv[2], argv[3]);
	if (argc == 2 && strcmp(argv[1], "replaced") == 0)
		return replaced();
	return argc == 2 && strcmp(argv[1], "dlsym") == 0 ? asked() : 2;
}
