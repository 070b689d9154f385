/*
 * host_keep.c - keeps: pinned blocks that captured graphs can address.
 *
 * A copy that was captured reads its pinned block at every launch of the graph, and
 * the program fills the block before each launch, by host code that no capture sees.
 * So the order of a graph proves nothing here: a block that was given out with a
 * keep is given to nobody else while the keep lives, not even to the same capture.
 *
 * capture/ has one keep for each graph pool, and surrenders it when the last graph
 * that could use it is gone. host->lock guards keeps and what they hold.
 */
#include "host_types.h"

#include <stdlib.h>

int gcp_host_keep_create(struct gcp_pools *pools, struct gcp_host_keep **ret_keep)
{
	int saved = errno;
	struct gcp_host_keep *keep = pools->host ? malloc(sizeof(*keep)) : NULL;

	errno = saved;
	if (!keep)
		return pools->host ? -ENOMEM : -ENOSYS;
	keep->host = pools->host;
	LIST_INIT(&keep->blocks);
	*ret_keep = keep;
	return 0;
}

void gcp_host_keep_add(struct gcp_host_keep *keep, struct gcp_host_block *block)
{
	struct gcp_host *host = keep->host;

	pthread_mutex_lock(&host->lock);
	LIST_INSERT_HEAD(&keep->blocks, block, kept);
	atomic_store(&block->keep, keep);
	pthread_mutex_unlock(&host->lock);
	gcp_host_gauge_add(&host->private_bytes, block->size);
	atomic_fetch_add_explicit(&host->kept_bytes, block->size, memory_order_relaxed);
}

void gcp_host_keep_forget(struct gcp_host_block *block)
{
	struct gcp_host_keep *keep = atomic_load(&block->keep);

	if (!keep)
		return;
	LIST_REMOVE(block, kept);
	atomic_store(&block->keep, NULL);
	gcp_host_gauge_sub(&keep->host->private_bytes, block->size);
	atomic_fetch_add_explicit(&keep->host->let_go_bytes, block->size,
				  memory_order_relaxed);
}

bool gcp_host_keep_put(struct gcp_host *host, struct gcp_host_block *block)
{
	bool kept;

	pthread_mutex_lock(&host->lock);
	kept = atomic_load(&block->keep) != NULL;
	if (kept) {
		block->rest = GCP_HOST_IN_KEEP;
		gcp_host_bucket_count_given(block);
	}
	pthread_mutex_unlock(&host->lock);
	return kept;
}

void gcp_host_keep_surrender(struct gcp_host_keep *keep)
{
	struct gcp_host_list list = TAILQ_HEAD_INITIALIZER(list);
	struct gcp_host_block *block;

	if (!keep)
		return;
	pthread_mutex_lock(&keep->host->lock);
	/* No launch is in flight any more, but work that the program submitted
	 * itself may still use what it has freed. */
	uint64_t page = gcp_host_pages_tag(keep->host);
	while ((block = LIST_FIRST(&keep->blocks))) {
		gcp_host_keep_forget(block);
		if (block->rest != GCP_HOST_IN_KEEP)
			continue; /* the program's: it follows when freed */
		block->rest = GCP_HOST_IN_HAND;
		block->page = page;
		TAILQ_INSERT_TAIL(&list, block, link);
	}
	pthread_mutex_unlock(&keep->host->lock);
	while ((block = TAILQ_FIRST(&list))) {
		TAILQ_REMOVE(&list, block, link);
		(void)gcp_host_pages_count(keep->host, block->size);
		gcp_host_bucket_put(block);
	}
	free(keep);
}
