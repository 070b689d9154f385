/* SPDX-License-Identifier: MIT */
/*
 * known_calls.c - which functions of the driver give the device no work, by their names
 * in known_calls.list: those of CUDA 13.0 and before, and what tells numbers of graphs
 * (13.1). Each stands for the versions of its function up to the one that it names. See
 * unknown_calls.h.
 */
#include <string.h>

#include "../base/log.h"
#include "unknown_calls.h"

/* The length of the name without what tells a version or the stream flavour, and that
 * version; 1: none is told. */
static size_t base_length(const char *name, uint64_t *ret_version)
{
	size_t length = strlen(name), end;

	if (length > 5 && (strcmp(name + length - 5, "_ptsz") == 0 ||
			   strcmp(name + length - 5, "_ptds") == 0))
		length -= 5;
	end = length;
	while (end > 0 && name[end - 1] >= '0' && name[end - 1] <= '9')
		end--;
	*ret_version = 1;
	if (end < length && end > 2 && name[end - 1] == 'v' && name[end - 2] == '_') {
		*ret_version = gcp_digits_read(name + end);
		length = end - 2;
	}
	return length;
}

bool gcp_known_call(const char *name)
{
	uint64_t version, latest;
	size_t length = base_length(name, &version);
	const char *at = gcp_known_calls;

	while ((at = strchr(at, '\n'))) {
		at++;
		if (strncmp(at, name, length) != 0)
			continue;
		if (at[length] == '\n')
			latest = 1;
		else if (at[length] == '_' && at[length + 1] == 'v')
			latest = gcp_digits_read(at + length + 2);
		else
			continue;
		return version <= latest;
	}
	return false;
}
