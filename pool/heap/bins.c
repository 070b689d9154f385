/* SPDX-License-Identifier: MIT */
/*
 * bins.c - blocks of mapped segments by how many chunks each has, so that one of about
 * the right size is found in a few steps, however many there are.
 *
 * Called by tree.c and vmm_space.c with pool->lock held. Up to three chunks each count
 * has a bin of its own; then there are four bins for each power of two.
 */
#include "block.h"

int gcp_bin_of(uint64_t chunks)
{
	int power, bin;

	assert(chunks > 0); /* B8 */
	power = 63 - __builtin_clzll(chunks);
	if (chunks < 4)
		return (int)chunks - 1;
	bin = 3 + (power - 2) * 4 + (int)(chunks >> (power - 2) & 3);
	return bin < GCP_BINS ? bin : GCP_BINS - 1;
}

void gcp_bins_insert(struct gcp_bins *bins, struct gcp_block *block, uint64_t chunks)
{
	gcp_assert_held(GCP_RANK_POOL);
	LIST_INSERT_HEAD(&bins->bins[gcp_bin_of(chunks)], block, bin);
}

struct gcp_block *gcp_bins_next(const struct gcp_bins *bins, int *bin, int step,
				struct gcp_block *block)
{
	if (*bin < 0)
		return NULL;
	block = block ? LIST_NEXT(block, bin) : LIST_FIRST(&bins->bins[*bin]);
	while (!block && *bin + step >= 0 && *bin + step < GCP_BINS)
		block = LIST_FIRST(&bins->bins[ *bin += step]);
	return block;
}
