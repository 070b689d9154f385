/* SPDX-License-Identifier: MIT */
/*
 * options_nearest.c - which option, or which word of a choice, may have been meant by a
 * word that is neither. Called by options.c; nothing but its arguments is touched.
 */
#include <string.h>
#include <strings.h>

#include "options.h"

enum { WORD_MAX = 40 };

static int lower(char letter)
{
	return letter >= 'A' && letter <= 'Z' ? letter | 0x20 : letter;
}

/* Letters to insert, delete, change or swap with their neighbour, to make one
 * word the other. Words are cut at WORD_MAX. */
static unsigned int distance(const char *a, size_t a_length, const char *b,
			     size_t b_length)
{
	unsigned int cost[WORD_MAX + 1][WORD_MAX + 1];

	a_length = a_length > WORD_MAX ? WORD_MAX : a_length;
	b_length = b_length > WORD_MAX ? WORD_MAX : b_length;
	for (size_t i = 0; i <= a_length; i++)
		for (size_t j = 0; j <= b_length; j++) {
			unsigned int best = (unsigned int)(i + j);

			if (i > 0 && j > 0) {
				best = cost[i - 1][j - 1] +
				       (lower(a[i - 1]) != lower(b[j - 1]));
				if (cost[i - 1][j] + 1 < best)
					best = cost[i - 1][j] + 1;
				if (cost[i][j - 1] + 1 < best)
					best = cost[i][j - 1] + 1;
			}
			if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
			    lower(a[i - 2]) == lower(b[j - 1]) &&
			    cost[i - 2][j - 2] + 1 < best)
				best = cost[i - 2][j - 2] + 1;
			cost[i][j] = best;
		}
	return cost[a_length][b_length];
}

/* Whether one word may be meant by the other: a third of its letters may be wrong, or
 * one is how the other begins. */
static bool is_near(const char *word, size_t length, size_t known_length,
		    unsigned int far, const char *known)
{
	size_t less = length < known_length ? length : known_length;

	return far * 3 <= length || (less >= 3 && strncasecmp(word, known, less) == 0);
}

/* The option of the nearest name, of which `name` has the prefix; NULL: none is near.
 */
const char *gcp_option_nearest_name(const char *name, size_t length)
{
	enum { PREFIX = 7 }; /* GCPOOL_ */
	const char *nearest = NULL;
	unsigned int least = UINT32_MAX;

	for (size_t i = 0; i < gcp_option_count && least > 0; i++) {
		const char *known = gcp_option_table[i].name;
		size_t known_length = strlen(known);
		unsigned int far = distance(name, length, known, known_length);

		if (far < least &&
		    is_near(name + PREFIX, length - PREFIX, known_length - PREFIX, far,
			    known + PREFIX)) {
			least = far;
			nearest = known;
		}
	}
	return nearest;
}

void gcp_option_nearest_word(struct gcp_text *text, const char *words,
			     const char *value)
{
	const char *nearest = NULL;
	unsigned int least = UINT32_MAX;
	size_t value_length = strlen(value);

	for (const char *word = words;; word++) {
		size_t length = strcspn(word, "|");
		unsigned int far = distance(value, value_length, word, length);

		if (far < least && is_near(value, value_length, length, far, word)) {
			least = far;
			nearest = word;
		}
		word += length;
		if (!*word)
			break;
	}
	if (nearest)
		gcp_text_add(text, ", the nearest is %.*s", (int)strcspn(nearest, "|"),
			     nearest);
}
