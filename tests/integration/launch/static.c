/* SPDX-License-Identifier: MIT */
/*
 * static.c - a program without a loader: launch.py runs it.
 */
int main(void)
{
	return 0;
}
