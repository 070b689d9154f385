/* SPDX-License-Identifier: MIT */
/*
 * options.c - how the environment fills the options. The table of them stands in
 * options_table.c, how they are shown in options_show.c.
 */
#include <string.h>
#include <strings.h>
#include <sys/auxv.h>
#include <unistd.h>
#include "../gcpool.h"
#include "options.h"

/* --- one value ----------------------------------------------------------------- */

/* The first `length` letters of `value` among words with | between, in any case of
 * letters: the index. */
static int word_find_part(const char *words, const char *value, size_t length)
{
	for (int index = 0;; index++) {
		size_t next = strcspn(words, "|");

		if (next == length && strncasecmp(words, value, length) == 0)
			return index;
		if (!words[next])
			return -1;
		words += next + 1;
	}
}

static int word_find(const char *words, const char *value)
{
	return word_find_part(words, value, strlen(value));
}

/* 0: off, 1: on, -1: it is neither. */
static int switch_find(const char *value)
{
	int word = word_find("0|1|no|yes|off|on|false|true", value);

	return word < 0 ? word : word % 2;
}

/* A choice can be switched if one of its words is "off" or "0". */
static int choice_find(const struct gcp_option *option, const char *value)
{
	int word = word_find(option->values, value), on = switch_find(value);

	if (word >= 0 || on < 0)
		return word;
	if (on)
		return option->on[0] ? word_find(option->values, option->on) : -1;
	word = word_find(option->values, "off");
	return word < 0 ? word_find(option->values, "0") : word;
}

/* The number that the digits and a fraction say; moves *next behind it. Sizes are
 * below 2^53, which a double holds. */
static bool digits_parse(const char **next, double *ret_number)
{
	double part = 1;

	*ret_number = 0;
	if (**next < '0' || **next > '9')
		return false;
	for (; **next >= '0' && **next <= '9'; ++*next)
		*ret_number = *ret_number * 10 + (**next - '0');
	if (**next == '.' && (*next)[1] >= '0' && (*next)[1] <= '9')
		for (++*next; **next >= '0' && **next <= '9'; ++*next)
			*ret_number += (part /= 10) * (**next - '0');
	return true;
}

/* The power of two that K, M, G or T stands for (KiB and KB mean the same); moves
 * *next behind it. */
static int suffix_parse(const char **next)
{
	static const char suffixes[] = "kmgt";
	const char *suffix = **next ? strchr(suffixes, **next | 0x20) : NULL;

	if (!suffix)
		return 0;
	++*next;
	*next += **next == 'i';
	*next += **next == 'B' || **next == 'b';
	return 10 * (int)(suffix - suffixes + 1);
}

/* The next number of an option's bounds; moves *next behind it. 0: there is none. */
static double bound_next(const char **next)
{
	double number;

	(void)digits_parse(next, &number);
	number *= (double)(UINT64_C(1) << suffix_parse(next));
	*next += strspn(*next, " toby");
	return number;
}

/* A count, or bytes: a fraction of K, M, G or T is cut to whole bytes. */
static bool number_parse(const struct gcp_option *option, const char *value,
			 uint64_t *ret_number)
{
	const char *bounds = option->values;
	double min = bound_next(&bounds), max = bound_next(&bounds), number;
	uint64_t multiple = (uint64_t)bound_next(&bounds);
	int shift = 0;

	if (!digits_parse(&value, &number))
		return false;
	if (option->type != GCP_OPTION_COUNT)
		shift = suffix_parse(&value);
	number *= (double)(UINT64_C(1) << shift);
	if (*value || number < min || number > max)
		return false;
	*ret_number = (uint64_t)number;
	return (shift > 0 || (double)*ret_number == number) &&
	       *ret_number % (multiple ? multiple : 1) == 0;
}

uint64_t gcp_host_memory(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);

	return pages > 0 && bytes > 0 ? (uint64_t)pages * (uint64_t)bytes : 0;
}

/* A share of the device's memory stays one: which device, the pool knows. */
static bool share_parse(const struct gcp_option *option, const char *value,
			uint64_t *ret_limit)
{
	uint64_t hundredths;
	double number;

	if (!digits_parse(&value, &number) || strcmp(value, "%") != 0 || number > 100)
		return false;
	hundredths = (uint64_t)(number * 100 + 0.5);
	if (option->of_host)
		*ret_limit = gcp_host_memory() / 10000 * hundredths;
	else
		*ret_limit = hundredths ? GCP_LIMIT_SHARES + hundredths : 0;
	return *ret_limit > 0 || option->values[0] == '0';
}

static bool limit_parse(const struct gcp_option *option, const char *value,
			uint64_t *ret_limit)
{
	if (word_find("none|unlimited|no limit", value) >= 0) {
		*ret_limit = GCP_LIMIT_NONE;
		return true;
	}
	if (strchr(value, '%'))
		return share_parse(option, value, ret_limit);
	return number_parse(option, value, ret_limit);
}

static bool set_parse(const struct gcp_option *option, const char *value,
		      uint64_t *ret_bits)
{
	int all = word_find(option->values, "all");
	uint64_t bits = 0;

	if (switch_find(value) == 0) { /* off */
		*ret_bits = 0;
		return true;
	}
	for (;; value++) {
		size_t length = strcspn(value, ",");
		int word = word_find_part(option->values, value, length);

		if (word < 0)
			return false;
		bits |= (UINT64_C(1) << word) - (word == all);
		value += length;
		if (!*value)
			break;
	}
	*ret_bits = bits;
	return true;
}

/* Reads the value of an option that is not text. Returns false if it is wrong. */
static bool value_number(const struct gcp_option *option, const char *value,
			 uint64_t *ret_number)
{
	int word;

	switch (option->type) {
	case GCP_OPTION_LIMIT:
		return limit_parse(option, value, ret_number);
	case GCP_OPTION_SET:
		return set_parse(option, value, ret_number);
	case GCP_OPTION_CHOICE:
		word = choice_find(option, value);
		*ret_number = (uint64_t)word;
		return word >= 0;
	default:
		*ret_number = 0;
		return (option->nothing[0] &&
			strcasecmp(option->nothing, value) == 0) ||
		       number_parse(option, value, ret_number);
	}
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	       "value_parse copies the low bytes of a number into a smaller field");

/* Leaves *options as it is when the value is wrong. */
static bool value_parse(const struct gcp_option *option, const char *value,
			struct gcp_options *options)
{
	char *field = (char *)options + option->offset;
	bool text = option->type == GCP_OPTION_TEXT;
	char *given = options->given[option - gcp_option_table];
	uint64_t number;

	if (text ? strlen(value) >= option->size
		 : !value_number(option, value, &number))
		return false;
	if (text)
		strcpy(field, value);
	else
		memcpy(field, &number, option->size);
	strncpy(given, value, sizeof(options->given[0]) - 1);
	return true;
}

/* --- complaints ---------------------------------------------------------------- */

struct parse {
	struct gcp_options *options;
	void (*complain)(void *arg, const char *sentence, const char *instead);
	void *arg;
	int wrong; /* variables */
};

static void complaint_add(struct parse *parse, struct gcp_text *text,
			  const char *instead)
{
	if (parse->complain)
		parse->complain(parse->arg, text->bytes, instead);
	parse->wrong++;
}

static void value_complain(struct parse *parse, const struct gcp_option *option,
			   const char *value)
{
	struct gcp_options defaults;
	GCP_TEXT(instead, 160);
	GCP_TEXT(text, GCP_LINE_MAX);

	gcp_options_default(&defaults);
	gcp_text_add(&instead, "using the default (");
	gcp_option_show_value(option, &defaults, &instead);
	gcp_text_add(&instead, ")");
	gcp_text_add(&text, "%s=%.100s is wrong, it must be %s", option->name, value,
		     option->values);
	complaint_add(parse, &text, instead.bytes);
}

/* --- reading the environment --------------------------------------------------- */

/* NULL: there is no option of that name. */
static const struct gcp_option *option_find(const char *name, size_t length)
{
	for (size_t i = 0; i < gcp_option_all_count; i++)
		if (strlen(gcp_option_table[i].name) == length &&
		    strncmp(gcp_option_table[i].name, name, length) == 0)
			return &gcp_option_table[i];
	return NULL;
}

/* An empty value counts as none. */
static void variable_read(struct parse *parse, const char *variable)
{
	size_t length = strcspn(variable, "=");
	const struct gcp_option *option = option_find(variable, length);
	const char *value = variable + length + (variable[length] != 0);
	GCP_TEXT(text, GCP_LINE_MAX);

	if (strncmp(variable, "GCPOOL_", 7) != 0)
		return;
	if (option && *value && !value_parse(option, value, parse->options))
		value_complain(parse, option, value);
	if (option)
		return;
	gcp_text_add(&text, "%.*s is not an option", length > 100 ? 100 : (int)length,
		     variable);
	complaint_add(parse, &text, "ignoring it");
}

int gcp_options_parse(struct gcp_options *ret_options, char *const *environment,
		      void (*complain)(void *arg, const char *sentence,
				       const char *instead),
		      void *arg)
{
	struct parse parse = {ret_options, complain, arg, 0};
	size_t count = 0;

	gcp_options_default(ret_options);
	while (environment && environment[count])
		count++;
	while (count > 0) /* of two values the first counts, as for getenv */
		variable_read(&parse, environment[--count]);
	ret_options->live |= ret_options->control;
	ret_options->thread |= ret_options->live;
	if (ret_options->control && ret_options->wake == 0)
		ret_options->wake = 1; /* GCP_WAKE_AUTO */
	return parse.wrong;
}

static void complaint_say(void *arg, const char *sentence, const char *instead)
{
	const struct gcp_options *options = arg;

	if (options && options->strict)
		gcp_log(GCP_LOG_ERROR, "%s, stopping: GCPOOL_STRICT is set", sentence);
	else
		gcp_log(GCP_LOG_WARNING, "%s, %s", sentence, instead);
}

/* The proof that we are in the process: GCPOOL_LOG=info. */
static void presence_say(const struct gcp_options *options)
{
	GCP_TEXT(mode, 16);

	gcp_option_show_value(&gcp_option_table[0], options, &mode);
	gcp_log(GCP_LOG_INFO, "version %s%s%s%s is in %s, mode %s",
		GCPOOL_VERSION_STRING, gcp_commit[0] ? " (" : "", gcp_commit,
		gcp_commit[0] ? ")" : "", program_invocation_name, mode.bytes);
}

/* As secure_getenv does: a caller with fewer rights than the program decides nothing.
 */
static char *const *environment_of_user(void)
{
	return getauxval(AT_SECURE) ? NULL : environ;
}

int gcp_options_look(struct gcp_options *ret_options, bool says)
{
	return gcp_options_parse(ret_options, environment_of_user(),
				 says ? complaint_say : NULL, NULL);
}

int gcp_options_read(struct gcp_options *ret_options)
{
	struct gcp_options before; /* complaints depend on GCPOOL_STRICT */
	enum gcp_log_level level;
	int wrong;

	(void)gcp_options_look(&before, false);
	level = before.log_level;
	if (before.strict && level < GCP_LOG_ERROR)
		level = GCP_LOG_ERROR;
	gcp_log_setup(level, before.log_file);
	wrong = gcp_options_parse(ret_options, environment_of_user(), complaint_say,
				  &before);
	if (wrong > 0 && ret_options->strict)
		_exit(GCP_OPTIONS_EXIT);
	presence_say(ret_options);
	return wrong;
}
