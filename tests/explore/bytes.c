/* SPDX-License-Identifier: MIT */
/*
 * bytes.c - see draw.h. Everything that is drawn goes through here, so that what a
 * seed gives can be written down as bytes and played again from them.
 */
#include "explore.h"

#include <errno.h>

enum { SEED_BYTES = 8, FILE_MAX = 1 << 20, MORE = 0x5eed };

/* Of the parts before the history. */
static size_t part_bytes(unsigned part)
{
	static const size_t bytes[DRAW_HISTORY] = {
	    [DRAW_SETTING] = 24,      [DRAW_ENVIRONMENT] = 64,
	    [DRAW_MORE_SETTING] = 16, [DRAW_MORE_ENVIRONMENT] = 48,
	    [DRAW_DRIVER] = 8,
	};

	return bytes[part];
}

/* --- choices --- */

static unsigned width_of(uint64_t below)
{
	unsigned width = 0;

	for (uint64_t last = below - 1; last > 0; last >>= 8)
		width++;
	return width;
}

static uint64_t choice_read(struct draw *draw, unsigned width)
{
	uint64_t choice = 0;

	for (unsigned i = 0; i < width && draw->left > 0; i++, draw->left--)
		choice |= (uint64_t)*draw->bytes++ << 8 * i;
	return choice;
}

static void choice_note(struct record *record, uint64_t choice, unsigned width)
{
	for (unsigned i = 0; i < width; i++, record->count++)
		if (record->count < record->room)
			record->bytes[record->count] = (uint8_t)(choice >> 8 * i);
}

uint64_t draw_below(struct draw *draw, uint64_t below)
{
	unsigned width = width_of(below);
	uint64_t choice = draw->bytes ? choice_read(draw, width) : draw_next(draw);

	choice %= below;
	if (draw->record)
		choice_note(draw->record, choice, width);
	return choice;
}

/* --- sources --- */

static uint64_t state_of(uint64_t seed, enum draw_part part)
{
	seed = seed_drawn(seed);
	if (part == DRAW_HISTORY)
		return seed;
	if (part == DRAW_ENVIRONMENT || part == DRAW_MORE_ENVIRONMENT)
		seed = ~seed;
	if (part >= DRAW_MORE_SETTING)
		seed ^= MORE;
	if (part == DRAW_DRIVER)
		seed += MORE;
	return seed * 0xD1342543DE82EF95ull + 17;
}

struct draw draw_open(const struct source *source, enum draw_part part)
{
	struct draw draw = {.state = state_of(source->seed, part)};
	size_t from = SEED_BYTES;

	draw_next(&draw);
	if (source->records)
		draw.record = &source->records[part];
	if (!source->bytes)
		return draw;
	for (unsigned i = 0; i < part; i++)
		from += part_bytes(i);
	if (from > source->count)
		from = source->count;
	draw.bytes = source->bytes + from;
	draw.left = source->count - from;
	if (part != DRAW_HISTORY && draw.left > part_bytes(part))
		draw.left = part_bytes(part);
	return draw;
}

struct source source_of_bytes(const uint8_t *bytes, size_t count)
{
	struct source source = {.bytes = bytes, .count = count};
	struct draw seed = {.bytes = bytes, .left = count};

	source.seed = choice_read(&seed, SEED_BYTES);
	return source;
}

bool source_read(struct source *ret_source, const char *path)
{
	FILE *file = fopen(path, "rb");
	uint8_t *bytes;
	size_t count;

	if (!file)
		return false;
	bytes = malloc(FILE_MAX);
	count = bytes ? fread(bytes, 1, FILE_MAX, file) : 0;
	fclose(file);
	if (!bytes)
		return false;
	*ret_source = source_of_bytes(bytes, count);
	ret_source->path = path;
	return true;
}

const char *source_name(const struct source *source)
{
	static char name[512];

	if (source->frozen)
		snprintf(name, sizeof(name), "--frozen %s", source->path);
	else if (source->bytes)
		snprintf(name, sizeof(name), "--bytes %s",
			 source->path ? source->path : "(a fuzzer's)");
	else
		snprintf(name, sizeof(name), "--seed 0x%lx", source->seed);
	return name;
}

/* --- saving --- */

static bool write_all(const uint8_t *bytes, size_t count, uint64_t seed,
		      const char *dir)
{
	char path[4096];
	FILE *file;
	bool good;

	snprintf(path, sizeof(path), "%s/%lx", dir, seed);
	file = fopen(path, "wb");
	if (!file)
		return false;
	good = fwrite(bytes, 1, count, file) == count;
	return fclose(file) == 0 && good;
}

/* What the source gives, without playing it. */
static void draw_all(const struct source *source, struct setting *ret_setting,
		     struct history *ret_history)
{
	setting_draw(ret_setting, source);
	setting_apply(ret_setting, NULL);
	history_draw(ret_history, ret_setting);
}

/* Seed, then the parts where draw_open looks for them. */
static size_t lay_out(uint64_t seed, uint8_t *bytes, struct record *records)
{
	size_t at = SEED_BYTES;

	for (unsigned i = 0; i < SEED_BYTES; i++)
		bytes[i] = (uint8_t)(seed >> 8 * i);
	for (unsigned part = 0; part < DRAW_HISTORY; part++) {
		records[part] = (struct record){bytes + at, 0, part_bytes(part)};
		at += records[part].room;
	}
	records[DRAW_HISTORY] = (struct record){bytes + at, 0, FILE_MAX - at};
	return at;
}

const char *source_save(uint64_t seed, const char *dir)
{
	static struct history drawn, decoded;
	static uint8_t bytes[FILE_MAX];
	struct record records[DRAW_PARTS];
	struct source source = {.seed = seed, .records = records}, again;
	struct setting setting;
	size_t count = lay_out(seed, bytes, records);

	memset(bytes + SEED_BYTES, 0, count - SEED_BYTES);
	draw_all(&source, &setting, &drawn);
	for (unsigned part = 0; part < DRAW_PARTS; part++)
		if (records[part].count > records[part].room)
			return "its choices take more bytes than a part has";
	count += records[DRAW_HISTORY].count;
	again = source_of_bytes(bytes, count);
	draw_all(&again, &setting, &decoded);
	if (memcmp(&drawn, &decoded, sizeof(drawn)) != 0)
		return "its bytes give another history";
	return write_all(bytes, count, seed, dir) ? NULL : strerror(errno);
}
