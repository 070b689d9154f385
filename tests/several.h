/* SPDX-License-Identifier: MIT */
/*
 * several.h - SEVERAL(X, a, b, c) is X(a), X(b), X(c): for macros that take up to six
 * calls and judge one after the other.
 */
#ifndef GCP_TESTS_SEVERAL_H
#define GCP_TESTS_SEVERAL_H

#define SEVERAL_OF(a, b, c, d, e, f, all, ...) all
#define SEVERAL_1(X, a)                        X(a)
#define SEVERAL_2(X, a, ...)                   X(a), SEVERAL_1(X, __VA_ARGS__)
#define SEVERAL_3(X, a, ...)                   X(a), SEVERAL_2(X, __VA_ARGS__)
#define SEVERAL_4(X, a, ...)                   X(a), SEVERAL_3(X, __VA_ARGS__)
#define SEVERAL_5(X, a, ...)                   X(a), SEVERAL_4(X, __VA_ARGS__)
#define SEVERAL_6(X, a, ...)                   X(a), SEVERAL_5(X, __VA_ARGS__)
#define SEVERAL(X, ...)                                                                \
	SEVERAL_OF(__VA_ARGS__, SEVERAL_6, SEVERAL_5, SEVERAL_4, SEVERAL_3, SEVERAL_2, \
		   SEVERAL_1)                                                          \
	(X, __VA_ARGS__)

#endif
