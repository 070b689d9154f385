/* SPDX-License-Identifier: MIT */
/*
 * excuses.c - counts where the library differs from plain CUDA and may: excuses.h. One
 * row can be taken away (`explore --without NAME`): then a use of it is a failure, and
 * a history that has one shows that the row is needed.
 */
#include "explore.h"

#include <unistd.h>

static const char *const names[EXCUSES] = {
#define EXCUSES_ROW(name, text, reason) text,
    EXPLORE_EXCUSES(EXCUSES_ROW)};

static enum excuse without = EXCUSES; /* none */

const char *excuse_name(enum excuse excuse)
{
	return names[excuse];
}

bool excuse_take_away(const char *name)
{
	for (unsigned i = 0; i < EXCUSES; i++)
		if (strcmp(names[i], name) == 0)
			without = (enum excuse)i;
	return without != EXCUSES;
}

bool excuse_is_there(enum excuse excuse)
{
	return excuse != without;
}

bool excused(enum excuse excuse)
{
	outcome->excused[excuse]++;
	if (excuse_is_there(excuse))
		return true;
	snprintf(outcome->why, sizeof(outcome->why), "the excuse '%s' is used",
		 names[excuse]);
	outcome->failed = 1;
	_exit(1);
}
