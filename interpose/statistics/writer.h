/* SPDX-License-Identifier: MIT */
/*
 * writer.h - one description of a report, written as JSON or as text. Called by the
 * files of this folder; nothing here locks or allocates.
 *
 *   JSON   one object on one line
 *   text   a line for each member; zeros are left out. A member with
 *          several figures is a line of "name=value, name=value".
 */
#ifndef GCP_INTERPOSE_WRITER_H
#define GCP_INTERPOSE_WRITER_H

#include "../base/log.h"

/* Names of the figures of a row, and an empty one. In text what is called bytes, or is
 * in a row of bytes, is shown with its unit. */
typedef const char gcp_columns[][12];

struct gcp_writer {
	struct gcp_text *text;
	bool json;
	bool comma;        /* before the next member */
	bool line;         /* text: one is open, */
	bool bytes;        /* a row of bytes */
	const char *title; /* text: written before the next member */
};

/* Member `name`, NULL in an array: an object ('{') or array ('['). In text nothing is
 * written. */
void gcp_write_open(struct gcp_writer *writer, const char *name, char bracket);
/* The same as a line of the text, in which nothing else is opened. */
void gcp_write_line(struct gcp_writer *writer, const char *name, char bracket);
void gcp_write_close(struct gcp_writer *writer, char bracket);

/* In text alone: a line before the members that follow, if there are some before
 * gcp_write_close. */
void gcp_write_title(struct gcp_writer *writer, const char *title);

/* An object of numbers. */
void gcp_write_row(struct gcp_writer *writer, const char *name, gcp_columns columns,
		   const uint64_t *values);
void gcp_write_number(struct gcp_writer *writer, const char *name, uint64_t value);
/* Nothing if the string is empty. What is not UTF-8 becomes the replacement character,
 * and in text what a terminal obeys a "?". */
void gcp_write_string(struct gcp_writer *writer, const char *name, const char *value);
/* A value that is written as it stands. */
void gcp_write_raw(struct gcp_writer *writer, const char *name, const char *value);

#endif
