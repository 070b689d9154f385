/* SPDX-License-Identifier: MIT */
/*
 * frozen.c - histories written down as they were drawn: settings by their names, the
 * environment as a shell has it, operations by theirs. No change of the generator
 * alters them, as it alters what a seed gives.
 *
 *   # what it found
 *   seed 0x1b52
 *   fault malloc:1+:2
 *   threads 2
 *   environment GCPOOL_STRICT=1 GCPSIM_SPEED=never
 *   ALLOC 0 3 0 0 1 0 5242880
 *
 * An operation's numbers: thread, a, b, c, how, value, bytes. What is left out is 0.
 */
#include "trial.h"

#include <errno.h>
#include <inttypes.h>

#define NUMBERS(X)                                                                     \
	X(threads)                                                                     \
	X(devices)                                                                     \
	X(driver_version)                                                              \
	X(memory)                                                                      \
	X(memory_small)                                                                \
	X(large)                                                                       \
	X(cache_limit)                                                                 \
	X(vmm)                                                                         \
	X(completed)                                                                   \
	X(tight)                                                                       \
	X(quota)                                                                       \
	X(spill)                                                                       \
	X(host_memory)                                                                 \
	X(host_quota)                                                                  \
	X(host_thread)                                                                 \
	X(count)                                                                       \
	X(filter)                                                                      \
	X(share)                                                                       \
	X(early)                                                                       \
	X(sleep)                                                                       \
	X(exit_with_memory)

enum { LINE_MAX_BYTES = 8192 };

/* --- writing --- */

static void numbers_write(FILE *file, const struct setting *setting)
{
#define NUMBERS_ROW(name)                                                              \
	if (setting->name)                                                             \
		fprintf(file, #name " %" PRIu64 "\n", (uint64_t)setting->name);
	NUMBERS(NUMBERS_ROW)
}

static void ops_write(FILE *file, const struct history *history)
{
	for (uint32_t i = 0; i < history->count; i++) {
		const struct op *op = &history->ops[i];

		fprintf(file, "%s %u %u %u %u %u %u %" PRIu64 "\n", op_name(op->kind),
			op->thread, op->a, op->b, op->c, op->how, op->value, op->bytes);
	}
}

bool frozen_write(FILE *file, const struct source *source, const char *fault)
{
	static struct history history;
	struct setting setting;

	setting_draw(&setting, source);
	history_draw(&history, &setting);
	fprintf(file, "#\nseed 0x%" PRIx64 "\n", setting.seed);
	if (fault)
		fprintf(file, "fault %s\n", fault);
	numbers_write(file, &setting);
	fputs("environment", file);
	setting_apply(&setting, file);
	ops_write(file, &history);
	return fflush(file) == 0;
}

/* --- reading --- */

static bool number_read(struct setting *setting, const char *name, uint64_t number)
{
#define NUMBERS_CELL(field)                                                            \
	if (strcmp(name, #field) == 0) {                                               \
		setting->field = (__typeof__(setting->field))number;                   \
		return true;                                                           \
	}
	NUMBERS(NUMBERS_CELL)
	return false;
}

static bool op_read(struct history *history, const char *name, const char *rest)
{
	struct op *op = &history->ops[history->count];
	unsigned kind = 0;

	while (kind < OP_KINDS && strcmp(op_name(kind), name) != 0)
		kind++;
	if (kind == OP_KINDS || history->count++ == OPS_MAX)
		return false;
	op->kind = (uint8_t)kind;
	return sscanf(rest,
		      "%" SCNu8 "%" SCNu8 "%" SCNu8 "%" SCNu8 "%" SCNu8 "%" SCNu32
		      "%" SCNu64,
		      &op->thread, &op->a, &op->b, &op->c, &op->how, &op->value,
		      &op->bytes) == 7;
}

static bool line_read(struct frozen *frozen, const char *name, const char *rest)
{
	if (*name == '#')
		return true;
	if (strcmp(name, "seed") == 0)
		frozen->history.seed = frozen->setting.seed = strtoull(rest, NULL, 0);
	else if (strcmp(name, "fault") == 0)
		return fault_parse(rest, &frozen->fault);
	else if (strcmp(name, "environment") == 0)
		return (frozen->environment = strdup(rest));
	else
		return number_read(&frozen->setting, name, strtoull(rest, NULL, 10)) ||
		       op_read(&frozen->history, name, rest);
	return true;
}

bool frozen_read(struct frozen *ret_frozen, const char *path)
{
	static char line[LINE_MAX_BYTES];
	FILE *file = fopen(path, "r");
	bool good = file;

	memset(ret_frozen, 0, sizeof(*ret_frozen));
	ret_frozen->environment = "";
	for (unsigned number = 1; good && fgets(line, sizeof(line), file); number++) {
		char *rest = line + strcspn(line, " \n");

		line[strcspn(line, "\n")] = 0;
		if (*rest)
			*rest++ = 0;
		good = line_read(ret_frozen, line, rest);
		if (!good)
			fprintf(stderr, "explore: %s:%u: what is %s?\n", path, number,
				line);
	}
	if (!file)
		fprintf(stderr, "explore: cannot read %s: %s\n", path, strerror(errno));
	else
		fclose(file);
	return good;
}

void frozen_environment(const struct frozen *frozen,
			void (*set)(const char *name, const char *value))
{
	char text[LINE_MAX_BYTES], *at = text;

	snprintf(text, sizeof(text), "%s", frozen->environment);
	for (char *word; (word = strsep(&at, " "));) {
		char *value = strchr(word, '=');

		if (!value)
			continue;
		*value++ = 0;
		set(word, value);
	}
}
