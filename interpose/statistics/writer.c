/* SPDX-License-Identifier: MIT */
/*
 * writer.c - see writer.h.
 */
#include <assert.h>
#include <string.h>

#include "writer.h"

static bool ends_with(const char *name, const char *end)
{
	size_t length = strlen(name), own = strlen(end);

	return length >= own && strcmp(name + length - own, end) == 0;
}

/* What comes before a value. */
static void member_begin(struct gcp_writer *writer, const char *name)
{
	struct gcp_text *text = writer->text;

	if (writer->title)
		gcp_text_add(text, "%s\n", writer->title);
	writer->title = NULL;
	if (writer->json)
		gcp_text_add(text, name ? "%s\"%s\": " : "%s",
			     writer->comma ? ", " : "", name);
	else if (writer->line)
		gcp_text_add(text, name ? "%s%s=" : "%s", writer->comma ? ", " : "",
			     name);
	else
		gcp_text_add(text, "  %-22s ", name ? name : "");
	writer->comma = true;
}

static void member_end(struct gcp_writer *writer)
{
	if (!writer->json && !writer->line)
		gcp_text_add(writer->text, "\n");
}

void gcp_write_open(struct gcp_writer *writer, const char *name, char bracket)
{
	assert(!writer->line && (bracket == '{' || bracket == '['));
	if (!writer->json)
		return;
	member_begin(writer, name);
	gcp_text_add(writer->text, "%c", bracket);
	writer->comma = false;
}

void gcp_write_line(struct gcp_writer *writer, const char *name, char bracket)
{
	gcp_write_open(writer, name, bracket);
	if (writer->json)
		return;
	member_begin(writer, name);
	writer->line = true;
	writer->comma = false;
}

void gcp_write_close(struct gcp_writer *writer, char bracket)
{
	assert(bracket == '}' || bracket == ']');
	writer->comma = true;
	if (writer->json)
		gcp_text_add(writer->text, "%c", bracket);
	else if (writer->line)
		gcp_text_add(writer->text, "\n");
	else
		writer->title = NULL;
	writer->line = false;
}

void gcp_write_title(struct gcp_writer *writer, const char *title)
{
	assert(!writer->line);
	writer->title = writer->json ? NULL : title;
}

void gcp_write_row(struct gcp_writer *writer, const char *name, gcp_columns columns,
		   const uint64_t *values)
{
	bool any = writer->json;

	assert(!writer->line && *columns[0]);
	for (int i = 0; *columns[i]; i++)
		any |= values[i] != 0;
	if (!any)
		return;
	gcp_write_line(writer, name, '{');
	writer->bytes = ends_with(name, "bytes");
	for (int i = 0; *columns[i]; i++)
		gcp_write_number(writer, columns[i], values[i]);
	writer->bytes = false;
	gcp_write_close(writer, '}');
}

void gcp_write_number(struct gcp_writer *writer, const char *name, uint64_t value)
{
	struct gcp_text *text = writer->text;

	if (!writer->json && !value)
		return;
	member_begin(writer, name);
	if (!writer->json && (writer->bytes || ends_with(name, "bytes")))
		gcp_text_add_bytes(text, "", value);
	else
		gcp_text_add(text, "%llu", (unsigned long long)value);
	member_end(writer);
}

void gcp_write_raw(struct gcp_writer *writer, const char *name, const char *value)
{
	member_begin(writer, name);
	gcp_text_add(writer->text, "%s", value);
	member_end(writer);
}

/* --- strings ------------------------------------------------------------------- */

/* Bytes of the character of UTF-8 that begins there; 0: none does. */
static int character_bytes(const char *string)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	unsigned char first = (unsigned char)*string;
	int bytes = __builtin_clz(~((uint32_t)first << 24)); /* its leading ones */
	uint32_t number = first & (0x7fu >> bytes);

	if (bytes == 0)
		return 1;
	if (bytes == 1 || bytes > 4)
		return 0;
	for (int i = 1; i < bytes; i++) {
		unsigned char next = (unsigned char)string[i];

		if (next >> 6 != 2)
			return 0;
		number = number << 6 | (next & 0x3f);
	}
	if (number < least[bytes] || number > 0x10ffff || number >> 11 == 0x1b)
		return 0; /* longer than it need be; none; a half of UTF-16 */
	return bytes;
}

static void string_json(struct gcp_text *text, const char *string)
{
	gcp_text_add(text, "\"");
	for (int bytes; *string; string += bytes ? bytes : 1) {
		unsigned char byte = (unsigned char)*string;

		bytes = character_bytes(string);
		if (bytes == 0)
			gcp_text_add(text, "\\ufffd");
		else if (byte == '"' || byte == '\\')
			gcp_text_add(text, "\\%c", byte);
		else if (byte < 0x20)
			gcp_text_add(text, "\\u%04x", byte);
		else
			gcp_text_add(text, "%.*s", bytes, string);
	}
	gcp_text_add(text, "\"");
}

void gcp_write_string(struct gcp_writer *writer, const char *name, const char *value)
{
	size_t before;

	if (!*value)
		return;
	member_begin(writer, name);
	before = writer->text->length;
	if (writer->json) {
		string_json(writer->text, value);
	} else {
		gcp_text_add(writer->text, "%s", value);
		gcp_text_mask(writer->text, before);
	}
	member_end(writer);
}
