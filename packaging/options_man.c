/* SPDX-License-Identifier: MIT */
/*
 * options_man.c - prints the manual page of the options: copies the page named by its
 * argument, with the table of options of the library in place of the line @OPTIONS@,
 * and the version for @VERSION@. Runs while libgcpool is built, on the machine that
 * builds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../interpose/gcpool.h"
#include "../interpose/base/options.h"

/* A backslash, a hyphen and a leading dot or quote mean something to roff. */
static void roff_print(const char *text)
{
	if (*text == '.' || *text == '\'')
		fputs("\\&", stdout);
	for (; *text; text++) {
		if (*text == '-')
			fputs("\\-", stdout);
		else if (*text == '\\')
			fputs("\\e", stdout);
		else
			putchar(*text);
	}
}

static void option_print(const struct gcp_option *option,
			 const struct gcp_options *defaults)
{
	GCP_TEXT(text, 64);

	gcp_option_show_value(option, defaults, &text);
	printf(".TP\n.BR %s = \"", option->name);
	roff_print(option->values);
	puts("\"");
	roff_print(option->meaning);
	fputs(".\nDefault: ", stdout);
	roff_print(text.bytes);
	puts(".");
}

static void options_print(void)
{
	static struct gcp_options defaults;

	gcp_options_default(&defaults);
	for (size_t i = 0; i < gcp_option_count; i++)
		option_print(&gcp_option_table[i], &defaults);
}

static void line_print(const char *line)
{
	static const char version[] = "@VERSION@";
	const char *found = strstr(line, version);

	if (strcmp(line, "@OPTIONS@\n") == 0)
		options_print();
	else if (found)
		printf("%.*s%s%s", (int)(found - line), line, GCPOOL_VERSION_STRING,
		       found + strlen(version));
	else
		fputs(line, stdout);
}

int main(int argc, char **argv)
{
	FILE *page = argc == 2 ? fopen(argv[1], "r") : NULL;
	char line[512];

	if (!page) {
		fputs("options_man: needs the page to copy\n", stderr);
		return EXIT_FAILURE;
	}
	while (fgets(line, sizeof(line), page))
		line_print(line);
	return fclose(page) || fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}
