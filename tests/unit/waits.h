/* SPDX-License-Identifier: MIT */
/*
 * waits.h - pools on a device that is soon full, whose work ends only when the host
 * goes on. Included once by each program.
 */
#ifndef GCP_TESTS_WAITS_H
#define GCP_TESTS_WAITS_H

#include "fake.h"
#include "cases.h"

static bool vmm;

static int ordinary(void **state)
{
	vmm = false;
	return fake_setup(state);
}

static int mapped(void **state)
{
	vmm = true;
	return fake_setup(state);
}

/* Opens pools on a device of so much memory. */
static void open_of(uint64_t memory)
{
	struct gcp_config config;

	if (vmm)
		gcp_config_default_mapped(&config);
	else
		gcp_config_default(&config);
	config.backend = vmm ? GCP_BACKEND_MAPPED : GCP_BACKEND_SEGMENTS;
	fake.memory_limit = memory;
	fake_open(&config);
}

/* Work that ends only when the host goes on. */
static uint64_t stand(void)
{
	fake.stuck = true;
	return fake_submit();
}

#define TEST(name) CASE(name, ordinary, fake_close)
/* ... and once more with mapped memory. */
#define TEST_BOTH(name) CASE_TOO(name, mapped) TEST(name)

#endif
