/* SPDX-License-Identifier: MIT */
/*
 * options_show.c - options as people read them: gcpool --options, complaints, the table
 * of docs/options.md. Writes into the caller's text and nowhere else.
 */
#include <string.h>

#include "../gcpool.h"
#include "options.h"

void gcp_option_show_value(const struct gcp_option *option,
			   const struct gcp_options *options, struct gcp_text *text)
{
	const char *field = (const char *)options + option->offset;
	const char *given = options->given[option - gcp_option_table];
	const char *words = option->values;
	uint64_t index = 0;

	if (option->type == GCP_OPTION_TEXT) {
		gcp_text_add(text, "%s", field[0] ? field : option->nothing);
		return;
	}
	if (option->type != GCP_OPTION_CHOICE) {
		gcp_text_add(text, "%s", given[0] ? given : option->standard);
		return;
	}
	memcpy(&index, field, option->size);
	while (index-- > 0)
		words += strcspn(words, "|") + 1;
	gcp_text_add(text, "%.*s", (int)strcspn(words, "|"), words);
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
		gcp_text_add(text, "%c %-23s  %-8s  %s\n      [%s]\n      %s\n",
			     strcmp(standard.bytes, now.bytes) != 0 ? '*' : ' ',
			     option->name, standard.bytes, now.bytes, option->values,
			     option->meaning);
	}
}
