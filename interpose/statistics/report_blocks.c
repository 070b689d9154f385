/* SPDX-License-Identifier: MIT */
/*
 * report_blocks.c - what the report says of single blocks: how many there are of each
 * size class, and those that the program has not freed. See report.h.
 *
 * The blocks are counted when the report is made: allocations and frees count nothing
 * for it.
 */
#include <pthread.h>
#include <string.h>

#include "report.h"

#define ULL(number) ((unsigned long long)(number))

enum {
	ROWS_MAX = 1024, /* of classes and, beyond them, powers of two */
	LARGEST_MAX = 5,
};

/* Blocks of one size class; beyond all classes, from `bytes` to twice as much. */
struct size_row {
	uint64_t bytes;
	bool beyond;
	uint64_t used, used_bytes; /* held by the program; bytes asked for */
	uint64_t unused;           /* free, ready or not */
};

static struct gcp_mutex survey_lock = GCP_MUTEX(GCP_RANK_SURVEY); /* for the next */
static struct {
	struct size_row rows[ROWS_MAX];
	size_t count;
	uint64_t used, used_bytes;
	struct gcp_block_view largest[LARGEST_MAX]; /* used, largest first */
	size_t largest_count;
} survey;

/* --- counting -------------------------------------------------------------------- */

/* The rows are in the order of their sizes. NULL: there is no room. */
static struct size_row *row_find(uint64_t bytes, bool beyond)
{
	gcp_assert_held(GCP_RANK_SURVEY);
	size_t low = 0, high = survey.count;

	while (low < high) {
		size_t middle = (low + high) / 2;
		const struct size_row *row = &survey.rows[middle];

		if (row->beyond < beyond ||
		    (row->beyond == beyond && row->bytes < bytes))
			low = middle + 1;
		else
			high = middle;
	}
	if (low < survey.count && survey.rows[low].bytes == bytes &&
	    survey.rows[low].beyond == beyond)
		return &survey.rows[low];
	if (survey.count == ROWS_MAX)
		return NULL;
	memmove(&survey.rows[low + 1], &survey.rows[low],
		(survey.count - low) * sizeof(survey.rows[0]));
	survey.rows[low] = (struct size_row){.bytes = bytes, .beyond = beyond};
	survey.count++;
	return &survey.rows[low];
}

static void largest_note(const struct gcp_block_view *block)
{
	gcp_assert_held(GCP_RANK_SURVEY);
	size_t at = survey.largest_count;

	while (at > 0 && survey.largest[at - 1].requested < block->requested)
		at--;
	if (at == LARGEST_MAX)
		return;
	if (survey.largest_count < LARGEST_MAX)
		survey.largest_count++;
	memmove(&survey.largest[at + 1], &survey.largest[at],
		(survey.largest_count - at - 1) * sizeof(survey.largest[0]));
	survey.largest[at] = *block;
}

static void block_count(void *arg, const struct gcp_block_view *block)
{
	gcp_assert_held(GCP_RANK_SURVEY);
	uint64_t bytes = block->class_size;
	struct size_row *row;

	(void)arg;
	if (block->used) {
		survey.used++;
		survey.used_bytes += block->requested;
		largest_note(block);
	} else if (!bytes) {
		return; /* free room, of no size in particular */
	}
	if (!bytes && block->size)
		bytes = 1ull << (63 - __builtin_clzll(block->size));
	row = row_find(bytes, block->class_size == 0);
	if (!row)
		return;
	row->used += block->used;
	row->used_bytes += block->used ? block->requested : 0;
	row->unused += !block->used;
}

static void survey_make(const struct gcp_report *report, int device)
{
	gcp_assert_held(GCP_RANK_SURVEY);
	survey.count = survey.largest_count = 0;
	survey.used = survey.used_bytes = 0;
	if (report->pools)
		gcp_pools_blocks(report->pools, device, block_count, NULL);
}

/* --- text ---------------------------------------------------------------------- */

static void rows_text(struct gcp_text *text)
{
	gcp_assert_held(GCP_RANK_SURVEY);
	struct gcp_text size, bytes;
	char size_cell[32], bytes_cell[32];

	gcp_text_add(text, "  %-20s %10s %12s %10s\n", "blocks by size class", "held",
		     "asked for", "free");
	for (size_t i = 0; i < survey.count; i++) {
		const struct size_row *row = &survey.rows[i];

		gcp_text_init(&size, size_cell, sizeof(size_cell));
		gcp_text_add_bytes(&size, row->bytes);
		if (row->beyond)
			gcp_text_add(&size, " and more");
		gcp_text_init(&bytes, bytes_cell, sizeof(bytes_cell));
		gcp_text_add_bytes(&bytes, row->used_bytes);
		gcp_text_add(text, "    %-18s %10llu %12s %10llu\n", size_cell,
			     ULL(row->used), bytes_cell, ULL(row->unused));
	}
}

static void unfreed_text(const struct gcp_report *report, struct gcp_text *text)
{
	gcp_assert_held(GCP_RANK_SURVEY);
	gcp_text_add(text, "  %s: %llu block%s, ",
		     report->under_way ? "not freed yet" : "never freed",
		     ULL(survey.used), survey.used == 1 ? "" : "s");
	gcp_text_add_bytes(text, survey.used_bytes);
	for (size_t i = 0; i < survey.largest_count; i++) {
		gcp_text_add(text, "%s 0x%llx ",
			     i ? "," : "; the largest:", ULL(survey.largest[i].addr));
		gcp_text_add_bytes(text, survey.largest[i].requested);
	}
	gcp_text_add(text, "\n");
}

void gcp_report_blocks_text(const struct gcp_report *report, int device,
			    struct gcp_text *text)
{
	gcp_mutex_lock(&survey_lock);
	survey_make(report, device);
	if (report->pools && survey.count > 0)
		rows_text(text);
	if (survey.used > 0)
		unfreed_text(report, text);
	gcp_mutex_unlock(&survey_lock);
}

/* --- JSON ---------------------------------------------------------------------- */

void gcp_report_blocks_json(const struct gcp_report *report, int device,
			    struct gcp_text *text)
{
	gcp_mutex_lock(&survey_lock);
	survey_make(report, device);
	gcp_text_add(text, ", \"size_classes\": [");
	for (size_t i = 0; i < survey.count && report->pools; i++) {
		const struct size_row *row = &survey.rows[i];

		gcp_text_add(text,
			     "%s{\"bytes\": %llu, \"beyond_classes\": %s, \"held\": "
			     "%llu, \"requested_bytes\": %llu, \"free\": %llu}",
			     i ? ", " : "", ULL(row->bytes),
			     row->beyond ? "true" : "false", ULL(row->used),
			     ULL(row->used_bytes), ULL(row->unused));
	}
	gcp_text_add(text,
		     "], \"unfreed\": {\"blocks\": %llu, \"bytes\": %llu, "
		     "\"largest\": [",
		     ULL(survey.used), ULL(survey.used_bytes));
	for (size_t i = 0; i < survey.largest_count; i++)
		gcp_text_add(text, "%s{\"address\": \"0x%llx\", \"bytes\": %llu}",
			     i ? ", " : "", ULL(survey.largest[i].addr),
			     ULL(survey.largest[i].requested));
	gcp_text_add(text, "]}");
	gcp_mutex_unlock(&survey_lock);
}
