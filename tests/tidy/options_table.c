/* SPDX-License-Identifier: MIT */
/*
 * options_table.c - prints the table of options in Markdown: docs/options.md holds
 * exactly this, and a test compares them.
 */
#include <stdio.h>

#include "../../interpose/base/options.h"

/* A | inside a cell would end it. */
static void cell_print(const char *text)
{
	for (; *text; text++)
		printf(*text == '|' ? "\\%c" : "%c", *text);
}

int main(void)
{
	static struct gcp_options defaults;

	gcp_options_default(&defaults);
	puts("| variable | values | default | meaning |\n|---|---|---|---|");
	for (size_t i = 0; i < gcp_option_count; i++) {
		const struct gcp_option *option = &gcp_option_table[i];
		GCP_TEXT(text, 64);

		gcp_option_show_value(option, &defaults, &text);
		printf("| `%s` | ", option->name);
		cell_print(option->values);
		printf(" | %s | ", text.bytes);
		cell_print(option->meaning);
		puts(" |");
	}
	return 0;
}
