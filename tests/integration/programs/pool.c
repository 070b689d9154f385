/* SPDX-License-Identifier: MIT */
/*
 * pool.c - see pool.h.
 */
#include <dlfcn.h>
#include <unistd.h>

#include "api.h"
#include "pool.h"

bool gcpt_pool_stats(struct gcpool_stats *ret_stats)
{
	int (*get)(int, struct gcpool_stats *, size_t) =
	    (int (*)(int, struct gcpool_stats *, size_t))dlsym(RTLD_DEFAULT,
							       "gcpool_get_stats");

	return get && !get(0, ret_stats, sizeof(*ret_stats));
}

uint64_t gcpt_private_bytes(void)
{
	struct gcpool_stats stats;

	return gcpt_pool_stats(&stats) ? stats.private_bytes.current : 0;
}

bool gcpt_private_wait(uint64_t bytes)
{
	for (int i = 0; i < 10000; i++) {
		void *p;

		GCPT_OK(gcpt_sync(), gcpt_malloc(&p, 512), gcpt_free(p));
		if (gcpt_private_bytes() <= bytes)
			return true;
		usleep(2000);
	}
	return false;
}

bool gcpt_pool_trim(uint64_t *ret_bytes)
{
	uint64_t (*trim)(int, uint64_t) =
	    (uint64_t(*)(int, uint64_t))dlsym(RTLD_DEFAULT, "gcpool_trim");

	if (!trim)
		return false;
	*ret_bytes = trim(0, 0);
	return true;
}
