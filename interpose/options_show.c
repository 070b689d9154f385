/* SPDX-License-Identifier: MIT */
/*
 * options_show.c - options as people read them: GCPOOL_HELP, complaints, and
 * the table of the README. Writes into the caller's text and nowhere else.
 */
#include <string.h>

#include "gcpool.h"
#include "options.h"

static void choice_show(const char *choices, uint64_t index, struct gcp_text *text);
static void bytes_show(uint64_t bytes, struct gcp_text *text);

void gcp_option_show_value(const struct gcp_option *option,
			   const struct gcp_options *options, struct gcp_text *text)
{
	const char *field = (const char *)options + option->offset;
	const struct gcp_config *config = &options->pool;
	uint64_t number = 0;

	if (option->size <= sizeof(number))
		memcpy(&number, field, option->size);
	switch (option->type) {
	case GCP_OPTION_CHOICE:
		choice_show(option->choices, number, text);
		return;
	case GCP_OPTION_BOOL:
		gcp_text_add(text, "%s", number ? "1" : "0");
		return;
	case GCP_OPTION_COUNT:
		gcp_text_add(text, "%llu", (unsigned long long)number);
		return;
	case GCP_OPTION_BYTES:
		if (number == 0 && option->nothing)
			gcp_text_add(text, "%s", option->nothing);
		else
			bytes_show(number, text);
		return;
	case GCP_OPTION_SIZES:
		for (uint32_t i = 0; i < config->class_list_count; i++) {
			gcp_text_add(text, "%s", i ? "," : "");
			bytes_show(config->class_list[i], text);
		}
		if (config->class_list_count == 0)
			gcp_text_add(text, "%s", option->nothing);
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
	case GCP_OPTION_BOOL:
		gcp_text_add(text, "0|1");
		return;
	case GCP_OPTION_COUNT:
		gcp_text_add(text, "%llu to %llu", (unsigned long long)option->min,
			     (unsigned long long)option->max);
		return;
	case GCP_OPTION_SIZES:
		gcp_text_add(text, "SIZE,SIZE,... of ");
		break;
	case GCP_OPTION_BYTES:
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
}

void gcp_options_show(const struct gcp_options *options, struct gcp_text *text)
{
	struct gcp_options defaults;
	char cells[3][64];
	struct gcp_text cell;

	gcp_options_default(&defaults);
	gcp_text_add(
	    text,
	    "libgcpool %s: options are environment variables, sizes take K, M, "
	    "G or T\n\n  %-21s %-9s %-9s %-34s %s\n",
	    GCPOOL_VERSION_STRING, "NAME", "DEFAULT", "NOW", "VALUES", "MEANING");
	for (size_t i = 0; i < gcp_option_count; i++) {
		const struct gcp_option *option = &gcp_option_table[i];

		gcp_text_init(&cell, cells[0], sizeof(cells[0]));
		gcp_option_show_value(option, &defaults, &cell);
		gcp_text_init(&cell, cells[1], sizeof(cells[1]));
		gcp_option_show_value(option, options, &cell);
		gcp_text_init(&cell, cells[2], sizeof(cells[2]));
		gcp_option_show_bounds(option, &cell);
		gcp_text_add(text, "%c %-21s %-9s %-9s %-34s %s\n",
			     strcmp(cells[0], cells[1]) ? '*' : ' ', option->name,
			     cells[0], cells[1], cells[2], option->meaning);
	}
}

static void choice_show(const char *choices, uint64_t index, struct gcp_text *text)
{
	while (index-- > 0)
		choices += strcspn(choices, "|") + 1;
	gcp_text_add(text, "%.*s", (int)strcspn(choices, "|"), choices);
}

/* With the largest suffix that keeps it exact. */
static void bytes_show(uint64_t bytes, struct gcp_text *text)
{
	static const char suffixes[] = "\0KMGT";
	size_t i = 0;

	while (bytes > 0 && bytes % 1024 == 0 && i < 4) {
		bytes /= 1024;
		i++;
	}
	gcp_text_add(text, "%llu%.*s", (unsigned long long)bytes, i > 0, &suffixes[i]);
}
