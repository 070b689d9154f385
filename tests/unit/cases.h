/* SPDX-License-Identifier: MIT */
/*
 * cases.h - tests that list themselves, and the main that runs them with cmocka.
 *
 *   CASE(a_sentence, setup, teardown) { ... }    a test; NULL: no such function
 */
#ifndef GCP_TESTS_CASES_H
#define GCP_TESTS_CASES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "../several.h"

/* Each call must be good. */
#define OK(...)      SEVERAL(OK_ONE, __VA_ARGS__)
#define OK_ONE(call) assert_int_equal((call), 0)

enum { CASES_MAX = 200 };

static struct CMUnitTest case_table[CASES_MAX];
static size_t case_count;

#define CASE(name_, setup_, teardown_)                                                 \
	static void name_(void **state);                                               \
	__attribute__((constructor)) static void name_##_is_listed(void)               \
	{                                                                              \
		case_table[case_count++] =                                             \
		    (struct CMUnitTest)cmocka_unit_test_setup_teardown(name_, setup_,  \
								       teardown_);     \
	}                                                                              \
	static void name_(void **state __attribute__((unused)))

/* Before CASE(name, ...): the test runs once more, behind another setup. */
#define CASE_TOO(name_, setup_)                                                        \
	static void name_(void **state);                                               \
	__attribute__((constructor)) static void name_##_is_listed_too(void)           \
	{                                                                              \
		case_table[case_count++] = (struct CMUnitTest){                        \
		    #name_ " (" #setup_ ")", name_, setup_, NULL, NULL};               \
	}

int main(void)
{
	return _cmocka_run_group_tests("tests", case_table, case_count, NULL, NULL);
}

#endif
