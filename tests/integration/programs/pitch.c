/* SPDX-License-Identifier: MIT */
/*
 * pitch.c - the pitch that a program is given for many widths: part of what it
 * computes, so it must not change under the library.
 *
 * Styles: static shared linked dlsym ptsz
 * Tried: everywhere
 * Run: transcript.py @
 */

#include "api.h"

static void one(size_t width, size_t height)
{
	size_t pitch = 0;
	void *p = NULL;
	int code = gcpt_malloc_pitch(&p, &pitch, width, height);

	printf("pitch: %zu x %zu: code %d", width, height, code);
	if (!code)
		printf(", pitch %zu, aligned to 512: %s", pitch,
		       (uintptr_t)p % 512 ? "no" : "yes");
	printf("\n");
	if (!code)
		GCPT_OK(gcpt_free(p));
	gcpt_last_error();
}

int main(void)
{
	static const size_t heights[] = {1, 3, 64, 1000};

	GCPT_OK(gcpt_use(0));
	for (size_t width = 1; width < 100000; width += width / 3 + 1)
		one(width, heights[width % 4]);
	for (size_t width = 4; width <= 1 << 20; width *= 2) {
		one(width - 1, 2);
		one(width, 2);
		one(width + 1, 2);
	}
	one((size_t)1 << 42, 4);
	return 0;
}
