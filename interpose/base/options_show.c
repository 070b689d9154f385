/* SPDX-License-Identifier: MIT */
/*
 * options_show.c - options as people read them: gcpool --options, complaints, the table
 * of docs/options.md. Writes into the caller's text and nowhere else.
 */
#include <string.h>

#include "../gcpool.h"
#include "options.h"

static void choice_show(const char *choices, uint64_t index, struct gcp_text *text)
{
	while (index-- > 0)
		choices += strcspn(choices, "|") + 1;
	gcp_text_add(text, "%.*s", (int)strcspn(choices, "|"), choices);
}

static void set_show(const struct gcp_option *option, uint64_t bits,
		     struct gcp_text *text)
{
	const char *between = "";

	if (bits == 0)
		gcp_text_add(text, "%s", option->nothing);
	for (uint64_t i = 0; bits >> i; i++)
		if (bits >> i & 1) {
			gcp_text_add(text, "%s", between);
			choice_show(option->choices, i, text);
			between = ",";
		}
}

/* With the largest suffix that keeps it exact. */
static void bytes_show(uint64_t bytes, struct gcp_text *text)
{
	static const char suffixes[] = "\0KMGT";
	size_t i = 0;

	for (; bytes > 0 && bytes % 1024 == 0 && i < 4; i++)
		bytes /= 1024;
	gcp_text_add(text, "%llu%.*s", (unsigned long long)bytes, i > 0, &suffixes[i]);
}

static void limit_show(uint64_t limit, struct gcp_text *text)
{
	unsigned int hundredths = (unsigned int)(limit - GCP_LIMIT_SHARES);

	if (limit == GCP_LIMIT_NONE)
		gcp_text_add(text, "none");
	else if (limit < GCP_LIMIT_SHARES)
		bytes_show(limit, text);
	else if (hundredths % 100 == 0)
		gcp_text_add(text, "%u%%", hundredths / 100);
	else
		gcp_text_add(text, "%u.%02u%%", hundredths / 100, hundredths % 100);
}

void gcp_option_show_value(const struct gcp_option *option,
			   const struct gcp_options *options, struct gcp_text *text)
{
	const char *field = (const char *)options + option->offset;
	uint64_t number = 0;

	if (option->size <= sizeof(number))
		memcpy(&number, field, option->size);
	switch (option->type) {
	case GCP_OPTION_CHOICE:
		choice_show(option->choices, number, text);
		return;
	case GCP_OPTION_COUNT:
	case GCP_OPTION_BYTES:
		if (number == 0 && option->nothing[0])
			gcp_text_add(text, "%s", option->nothing);
		else if (option->type == GCP_OPTION_COUNT)
			gcp_text_add(text, "%llu", (unsigned long long)number);
		else
			bytes_show(number, text);
		return;
	case GCP_OPTION_LIMIT:
		limit_show(number, text);
		return;
	case GCP_OPTION_SET:
		set_show(option, number, text);
		return;
	case GCP_OPTION_TEXT:
		gcp_text_add(text, "%s", field[0] ? field : option->nothing);
		return;
	}
}

void gcp_option_show_bounds(const struct gcp_option *option, struct gcp_text *text)
{
	switch (option->type) {
	case GCP_OPTION_CHOICE:
		gcp_text_add(text, "%s", option->choices);
		return;
	case GCP_OPTION_SET:
		gcp_text_add(text, "some of %s, or all", option->choices);
		return;
	case GCP_OPTION_COUNT:
		gcp_text_add(text, "%llu to %llu", (unsigned long long)option->min,
			     (unsigned long long)option->max);
		return;
	case GCP_OPTION_BYTES:
	case GCP_OPTION_LIMIT:
		break;
	case GCP_OPTION_TEXT:
		gcp_text_add(text, "a path");
		return;
	}
	bytes_show(option->min, text);
	gcp_text_add(text, " to ");
	bytes_show(option->max, text);
	if (option->multiple) {
		gcp_text_add(text, " by ");
		bytes_show(option->multiple, text);
	}
	if (option->type == GCP_OPTION_LIMIT)
		gcp_text_add(text, ", N%%, none");
}

/* --- the table of options ----------------------------------------------------- */

enum { CELL_MAX = 60 };

void gcp_options_show(const struct gcp_options *options, struct gcp_text *text)
{
	struct gcp_options defaults;

	gcp_options_default(&defaults);
	gcp_text_add(text,
		     "libgcpool %s: options are environment variables. Sizes take K, "
		     "M, G or T, as in 1.5G;\nlimits N%% of the memory there is, or "
		     "none. * is not the default.\n\n  %-23s  %-8s  %s\n",
		     GCPOOL_VERSION_STRING, "NAME", "DEFAULT", "NOW");
	for (size_t i = 0; i < gcp_option_count; i++) {
		const struct gcp_option *option = &gcp_option_table[i];

		GCP_TEXT(standard, CELL_MAX);
		GCP_TEXT(now, CELL_MAX);

		gcp_option_show_value(option, &defaults, &standard);
		gcp_option_show_value(option, options, &now);
		gcp_text_add(text, "%c %-23s  %-8s  %s\n      [",
			     strcmp(standard.bytes, now.bytes) != 0 ? '*' : ' ',
			     option->name, standard.bytes, now.bytes);
		gcp_option_show_bounds(option, text);
		gcp_text_add(text, "]\n      %s\n", option->meaning);
	}
}
