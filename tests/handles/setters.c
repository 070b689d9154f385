/* SPDX-License-Identifier: MIT */
/*
 * setters.c - which exported functions look like setters and are not in the table.
 *
 *   setters KIND < names     one name a line; prints those that are not known, and
 *                            getters or setters of the table without their other half
 */
#include <stdio.h>
#include <string.h>

#include "../../interpose/handles/handles_table.h"

enum { NAMES_MAX = 1 << 16, NAME_BYTES = 128 };

static char names[NAMES_MAX][NAME_BYTES];
static int count;

static bool listed(const char *name)
{
	for (int i = 0; i < count; i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return false;
}

static void report(const struct gcp_handle_kind *kind)
{
	for (int i = 0; i < count; i++)
		if (gcp_handle_setter_unknown(kind, names[i]))
			printf("unknown %s\n", names[i]);
	for (int i = 0; i < GCP_HANDLE_SETTINGS_MAX && kind->settings[i].setter; i++) {
		const struct gcp_handle_setting *setting = &kind->settings[i];
		bool get = listed(setting->getter), set = listed(setting->setter);

		if (get != set || (setting->required && !get))
			printf("missing %s\n", get ? setting->setter : setting->getter);
		printf("%s %s\n", get && set ? "has" : "lacks", setting->setter);
	}
}

int main(int argc, char **argv)
{
	while (count < NAMES_MAX && fgets(names[count], NAME_BYTES, stdin))
		names[count][strcspn(names[count], "@\n")] = 0, count++;
	for (int i = 0; argc == 2 && i < GCP_HANDLE_KINDS; i++) {
		if (strcmp(gcp_handle_kinds[i].name, argv[1]) == 0) {
			report(&gcp_handle_kinds[i]);
			return 0;
		}
	}
	return 2;
}
