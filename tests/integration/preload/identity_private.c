/* SPDX-License-Identifier: MIT */
/*
 * identity_private.c - the private dependency of identity_local.
 */
const char *gcpt_private(void);
const char *gcpt_private_anchor(void);

const char *gcpt_private(void)
{
	return "the private one";
}

/* Called directly, so that the library is linked for certain. */
const char *gcpt_private_anchor(void)
{
	return "not found";
}
