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
	int power = 63 - __builtin_clzll(chunks), bin;

	if (chunks < 4)
		return (int)chunks - 1;
	bin = 3 + (power - 2) * 4 + (int)(chunks >> (power - 2) & 3);
	return bin < GCP_BINS ? bin : GCP_BINS - 1;
}

void gcp_bins_insert(struct gcp_bins *bins, struct gcp_block *block, uint64_t chunks)
{
	int bin = gcp_bin_of(chunks);

	gcp_assert_held(GCP_RANK_POOL);
	LIST_INSERT_HEAD(&bins->bins[bin], block, bin);
	bins->used[bin / 64] |= UINT64_C(1) << bin % 64;
}

void gcp_bins_remove(struct gcp_bins *bins, struct gcp_block *block, uint64_t chunks)
{
	int bin = gcp_bin_of(chunks);

	gcp_assert_held(GCP_RANK_POOL);
	LIST_REMOVE(block, bin);
	if (LIST_EMPTY(&bins->bins[bin]))
		bins->used[bin / 64] &= ~(UINT64_C(1) << bin % 64);
}

int gcp_bins_from(const struct gcp_bins *bins, int bin)
{
	for (int word = bin / 64; word < GCP_BINS / 64; word++) {
		uint64_t used = bins->used[word];

		if (word == bin / 64)
			used &= ~UINT64_C(0) << bin % 64;
		if (used)
			return word * 64 + __builtin_ctzll(used);
	}
	return -1;
}

int gcp_bins_down_from(const struct gcp_bins *bins, int bin)
{
	if (bin < 0)
		return -1;
	for (int word = bin / 64; word >= 0; word--) {
		uint64_t used = bins->used[word];

		if (word == bin / 64)
			used &= ~UINT64_C(0) >> (63 - bin % 64);
		if (used)
			return word * 64 + 63 - __builtin_clzll(used);
	}
	return -1;
}
