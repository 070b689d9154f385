/* SPDX-License-Identifier: MIT */
/*
 * identity_inner.c - what identity_outer wraps.
 */
const char *gcpt_inner(void);
const char *gcpt_shadow(void);

const char *gcpt_shadow(void)
{
	return "the inner one";
}

/* Called directly, so that the libraries are linked for certain. */
const char *gcpt_inner(void)
{
	return "nothing behind";
}
