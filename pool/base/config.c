/* SPDX-License-Identifier: MIT */
/*
 * config.c - defaults of the pool's configuration, and the size classes that follow
 * from it.
 *
 * A class is a size that requests are rounded up to, so that a freed block
 * fits the next request of about that size. Between two powers of two lie
 * class_steps classes of equal distance, each a multiple of 512 bytes.
 */
#include "../pool_types.h"

#include <stdlib.h>

void gcp_config_default(struct gcp_config *config)
{
	*config = (struct gcp_config){
	    .class_steps = 8,
	    .class_min = 512,
	    .class_max = 1 << 20,
	    .window_bytes = 56 << 20,
	    .window_blocks = 1024,
	    .epoch_blocks = 256,
	    .thread_cache_bytes = 32 << 20,
	    .cache_limit = GCP_LIMIT_NONE,
	    .quota = GCP_LIMIT_NONE,
	    .backend = GCP_BACKEND_SEGMENTS,
	    .decay_ms = 10 * 1000,
	    .pinned = true,
	    .pinned_window = 256 << 20,
	    .pinned_cache_limit = GCP_LIMIT_NONE,
	    .pinned_quota = GCP_LIMIT_NONE,
	};
}

int gcp_classes_init(struct gcp_classes *classes, const struct gcp_config *config)
{
	uint64_t size = config->class_min, units;
	uint32_t class = 0;

	classes->count = 0;
	while (size < config->class_max && classes->count < GCP_CLASSES_MAX - 1) {
		uint64_t power = 1ull << (63 - __builtin_clzll(size));
		uint64_t step = power / config->class_steps;

		classes->sizes[classes->count++] = size;
		if (step < GCP_UNIT)
			step = GCP_UNIT;
		size = gcp_round_up(size + step, GCP_UNIT);
	}
	classes->sizes[classes->count++] = config->class_max;
	classes->largest = classes->sizes[classes->count - 1];
	units = classes->largest / GCP_UNIT;
	classes->of_units = malloc((units + 1) * sizeof(classes->of_units[0]));
	if (!classes->of_units)
		return -ENOMEM;
	for (uint64_t unit = 0; unit <= units; unit++) {
		if (unit * GCP_UNIT > classes->sizes[class])
			class ++;
		classes->of_units[unit] = (uint16_t) class;
	}
	return 0;
}
