/* SPDX-License-Identifier: MIT */
/*
 * statistics.h - the library's statistics, for programs of scenarios.h that are not
 * linked with it.
 */
#ifndef GCP_TESTS_STATISTICS_H
#define GCP_TESTS_STATISTICS_H

#include <dlfcn.h>

#include "../../../interpose/gcpool.h"
#include "scenarios.h"

/* Of device 0. */
static struct gcpool_stats stats(void)
{
	struct gcpool_stats found = {0};
	__typeof__(gcpool_get_stats) *get;

	*(void **)&get = dlsym(RTLD_DEFAULT, "gcpool_get_stats");
	must(get(0, &found, sizeof(found)) == 0, "no statistics");
	return found;
}

#endif
