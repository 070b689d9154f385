/* SPDX-License-Identifier: MIT */
/*
 * touch.c - see touch.h. The functions are those of gcpsim.h, found where the
 * simulated libcuda.so.1 is loaded.
 */
#include <dlfcn.h>
#include <stdatomic.h>

#include "touch.h"

typedef void touch_fn(const void *p, size_t bytes);

/* dlopen gives the libcuda that is there, however it came. */
static void *find(const char *name)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	return library ? dlsym(library, name) : NULL;
}

static void touch(_Atomic(void *) *known, const char *name, const void *p, size_t bytes)
{
	static char nothing;
	void *found = atomic_load(known);
	touch_fn *fn;

	if (!found) {
		found = find(name);
		atomic_store(known, found ? found : &nothing);
	}
	if (!found || found == &nothing)
		return;
	*(void **)&fn = found;
	fn(p, bytes);
}

void gcpt_host_writes(const void *p, size_t bytes)
{
	static _Atomic(void *) known;

	touch(&known, "gcpsim_host_writes", p, bytes);
}

void gcpt_host_reads(const void *p, size_t bytes)
{
	static _Atomic(void *) known;

	touch(&known, "gcpsim_host_reads", p, bytes);
}
