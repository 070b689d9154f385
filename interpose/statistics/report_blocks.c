/* SPDX-License-Identifier: MIT */
/*
 * report_blocks.c - what the report says of single blocks: how many there are of each
 * size class, and those that the program has not freed. See report.h.
 *
 * The blocks are counted when the report is made: allocations and frees count nothing
 * for it.
 */
#include <string.h>

#include "report.h"
#include "writer.h"

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

/* --- the report ---------------------------------------------------------------- */

static void row_write(struct gcp_writer *writer, const struct size_row *row)
{
	gcp_assert_held(GCP_RANK_SURVEY);
	gcp_write_line(writer, NULL, '{');
	gcp_write_number(writer, "bytes", "", row->bytes);
	if (writer->json || row->beyond)
		gcp_write_raw(writer, "beyond_classes", row->beyond ? "true" : "false");
	gcp_write_number(writer, "held", "", row->used);
	gcp_write_number(writer, "requested_bytes", "", row->used_bytes);
	gcp_write_number(writer, "free", "", row->unused);
	gcp_write_close(writer, '}');
}

static void unfreed_write(struct gcp_writer *writer)
{
	gcp_assert_held(GCP_RANK_SURVEY);
	if (!writer->json && survey.used == 0)
		return;
	gcp_write_line(writer, "unfreed", '{');
	gcp_write_number(writer, "blocks", "", survey.used);
	gcp_write_number(writer, "bytes", "", survey.used_bytes);
	gcp_write_open(writer, "largest", '[');
	for (size_t i = 0; i < survey.largest_count; i++) {
		GCP_TEXT(text, 24);

		gcp_text_add(&text, "0x%llx",
			     (unsigned long long)survey.largest[i].addr);
		gcp_write_open(writer, NULL, '{');
		gcp_write_string(writer, "address", text.bytes);
		gcp_write_number(writer, "bytes", "", survey.largest[i].requested);
		gcp_write_close(writer, '}');
	}
	gcp_write_close(writer, ']');
	gcp_write_close(writer, '}');
}

void gcp_report_blocks(struct gcp_writer *writer, const struct gcp_report *report,
		       int device)
{
	GCP_LOCKED(&survey_lock);
	survey_make(report, device);
	gcp_write_open(writer, "size_classes", '[');
	gcp_write_title(writer, "  blocks by size class", "");
	for (size_t i = 0; i < survey.count; i++)
		row_write(writer, &survey.rows[i]);
	gcp_write_close(writer, ']');
	unfreed_write(writer);
}
