/* SPDX-License-Identifier: MIT */
/*
 * conform_sections.h - sections of conform_apart.h that list themselves, and the main
 * that plays them in the order of the file.
 */
#ifndef CONFORM_SECTIONS_H
#define CONFORM_SECTIONS_H

#include "conform_apart.h"

static struct {
	const char *title;
	void (*play)(void);
} sections[64];
static int section_count;

#define SECTION(name)                                                                  \
	static void name(void);                                                        \
	__attribute__((constructor)) static void name##_is_listed(void)                \
	{                                                                              \
		sections[section_count].title = #name;                                 \
		sections[section_count++].play = name;                                 \
	}                                                                              \
	static void name(void)

/* A function of one call, for sections that are given one. */
#define CALL(name, call)                                                               \
	static CUresult name(void)                                                     \
	{                                                                              \
		return call;                                                           \
	}

int main(int argc, char **argv)
{
	apart_init(argc, argv);
	for (int i = 0; i < section_count; i++)
		apart(sections[i].title, sections[i].play);
	return 0;
}

#endif
