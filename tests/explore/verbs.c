/* SPDX-License-Identifier: MIT */
/*
 * verbs.c - stands for libibverbs: by its name the library knows that a network card
 * may write into memory. Loaded by the explorer in the middle of a history.
 */
__attribute__((visibility("default"))) int verbs_of_no_program(void);

int verbs_of_no_program(void)
{
	return 0;
}
