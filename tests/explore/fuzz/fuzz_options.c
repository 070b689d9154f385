/* SPDX-License-Identifier: MIT */
/*
 * fuzz_options.c - a fuzzer of the options: any environment is read without harm,
 * what comes out is a configuration that the pool takes, each complaint is counted,
 * and what is shown can be read again.
 *
 * The input is an environment: one NAME=VALUE a line.
 */
#include "../../../interpose/base/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINES_MAX = 64, SHOWN_MAX = 64 };

static void must(bool good, const char *words)
{
	if (good)
		return;
	fprintf(stderr, "fuzz_options: %s\n", words);
	abort();
}

static void complain(void *arg, const char *sentence, const char *instead)
{
	must(sentence[0] && strlen(sentence) + strlen(instead) < GCP_LINE_MAX,
	     "a complaint is no line");
	++*(int *)arg;
}

static bool is_shown(const struct gcp_option *option, const struct gcp_options *options,
		     const char *value)
{
	struct gcp_text text;
	char shown[8000];

	gcp_text_init(&text, shown, sizeof(shown));
	gcp_option_show_value(option, options, &text);
	return strcmp(value, shown) == 0;
}

/* What is shown of `options`, as an environment, gives the same options. */
static void show_and_read(const struct gcp_options *options)
{
	static char lines[SHOWN_MAX][8192];
	const struct gcp_option *shown[SHOWN_MAX];
	char *environment[SHOWN_MAX + 1] = {NULL};
	static struct gcp_options again, defaults;
	char *nothing[] = {NULL};
	int count = 0, complaints = 0;

	must(gcp_option_all_count <= SHOWN_MAX, "more options than there is room for");
	gcp_options_parse(&defaults, nothing, complain, &complaints);
	for (size_t i = 0; i < gcp_option_all_count; i++) {
		const struct gcp_option *option = &gcp_option_table[i];
		struct gcp_text text;
		char value[8000];

		gcp_text_init(&text, value, sizeof(value));
		gcp_option_show_value(option, options, &text);
		/* Some defaults are words that say how a value comes about. */
		if (text.cut || is_shown(option, &defaults, value))
			continue;
		snprintf(lines[count], sizeof(lines[count]), "%s=%s", option->name,
			 value);
		environment[count] = lines[count];
		shown[count++] = option;
	}
	gcp_options_parse(&again, environment, complain, &complaints);
	must(complaints == 0, "what is shown cannot be read");
	for (int i = 0; i < count; i++)
		must(is_shown(shown[i], &again, strchr(lines[i], '=') + 1),
		     "what is shown means something else");
	must(again.mode == options->mode && again.stats == options->stats,
	     "a choice that is shown means something else");
}

static void read_and_check(char *const *environment)
{
	static struct gcp_options options;
	int complaints = 0, wrong;
	const char *why;

	wrong = gcp_options_parse(&options, environment, complain, &complaints);
	must(wrong == complaints, "a complaint is not counted");
	must(gcp_config_check(&options.pool, &why) == 0, "the pool would not take it");
	show_and_read(&options);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), *environment[LINES_MAX + 1] = {NULL},
	     *rest = text;

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = 0;
	for (int i = 0; i < LINES_MAX && rest; i++)
		environment[i] = strsep(&rest, "\n");
	read_and_check(environment);
	free(text);
	return 0;
}
