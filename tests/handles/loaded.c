/* SPDX-License-Identifier: MIT */
/*
 * loaded.c - the functions as a program finds them that loads the libraries.
 */
#include "program.h"

void sort_reach(struct sort *sort, int index)
{
	(void)index;
	loaded_reach(sort);
}
