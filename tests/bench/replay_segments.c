/* SPDX-License-Identifier: MIT */
/*
 * replay_segments.c - see replay_segments.h. Looks into the pool's structures, as
 * only tests do.
 */
#include "replay_segments.h"

#include <stdio.h>

#include "../../pool/pool_types.h"

enum { SEEN_MAX = 4096 };

static struct seen {
	uint64_t number, size, kind;
	uint64_t bytes[GCP_BLOCK_MOVING + 1]; /* by state */
	uint64_t largest;                     /* free block */
	uint32_t blocks;
} seen[SEEN_MAX];
static size_t seen_count;
static uint64_t asked;

static void look_at(const struct gcp_segment *segment)
{
	struct seen *now = &seen[seen_count++];

	*now = (struct seen){
	    .number = segment->number,
	    .size = segment->size,
	    .kind = segment->kind,
	};
	for (struct gcp_block *block = segment->first; block; block = block->upper) {
		enum gcp_block_state state = atomic_load(&block->state);

		now->bytes[state] += block->size;
		now->blocks++;
		if (state == GCP_BLOCK_FREE && now->largest < block->size)
			now->largest = block->size;
	}
}

void segments_look(struct gcp_pool *pool, uint64_t bytes)
{
	struct gcp_segment *segment;

	asked = bytes;
	seen_count = 0;
	pthread_mutex_lock(&pool->lock);
	TAILQ_FOREACH (segment, &pool->common.segments, link)
		if (seen_count < SEEN_MAX)
			look_at(segment);
	pthread_mutex_unlock(&pool->lock);
}

static double mib(uint64_t bytes)
{
	return (double)bytes / (1 << 20);
}

static void seen_print(const struct seen *one)
{
	static const char *const kinds[] = {"slab", "large", "huge"};

	printf("  %6lu %-6s %9.1f %9.1f %9.1f %9.1f %9.1f %9.1f %7u\n", one->number,
	       kinds[one->kind], mib(one->size), mib(one->bytes[GCP_BLOCK_USED]),
	       mib(one->bytes[GCP_BLOCK_CACHED]), mib(one->bytes[GCP_BLOCK_PENDING]),
	       mib(one->bytes[GCP_BLOCK_FREE]), mib(one->largest), one->blocks);
}

void segments_print(void)
{
	uint64_t sizes[GCP_KINDS] = {0}, free[GCP_KINDS] = {0};

	printf("  segments when a new one of %.1f MiB was the peak; MiB:\n",
	       mib(asked));
	printf("  %6s %-6s %9s %9s %9s %9s %9s %9s %7s\n", "number", "kind", "size",
	       "used", "cached", "pending", "free", "largest", "blocks");
	for (size_t i = 0; i < seen_count; i++) {
		sizes[seen[i].kind] += seen[i].size;
		free[seen[i].kind] += seen[i].bytes[GCP_BLOCK_FREE];
		if (seen[i].kind != GCP_KIND_SLAB)
			seen_print(&seen[i]);
	}
	printf("  slab %.1f, large %.1f (%.1f free), huge %.1f (%.1f free)\n",
	       mib(sizes[GCP_KIND_SLAB]), mib(sizes[GCP_KIND_LARGE]),
	       mib(free[GCP_KIND_LARGE]), mib(sizes[GCP_KIND_HUGE]),
	       mib(free[GCP_KIND_HUGE]));
}
