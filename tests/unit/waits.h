/* SPDX-License-Identifier: MIT */
/*
 * waits.h - pools on a device that is soon full, whose work ends only when the host
 * goes on. Included once by each program.
 */
#ifndef GCP_TESTS_WAITS_H
#define GCP_TESTS_WAITS_H

#include "fake.h"
#include "cases.h"

#define MIB (1ull << 20)

static bool vmm;

static __attribute__((unused)) int ordinary(void **state)
{
	(void)state;
	vmm = false;
	fake_reset();
	return 0;
}

static __attribute__((unused)) int mapped(void **state)
{
	ordinary(state);
	vmm = true;
	return 0;
}

static __attribute__((unused)) struct gcp_config config_of_backend(void)
{
	struct gcp_config config;

	if (vmm)
		gcp_config_default_mapped(&config);
	else
		gcp_config_default(&config);
	config.backend = vmm ? GCP_BACKEND_MAPPED : GCP_BACKEND_SEGMENTS;
	return config;
}

static __attribute__((unused)) struct gcp_pools *pools_of(uint64_t memory)
{
	struct gcp_config config = config_of_backend();

	fake.memory_limit = memory;
	return fake_pools(&config);
}

/* Work that ends only when the host goes on. */
static __attribute__((unused)) uint64_t stand(void)
{
	fake.stuck = true;
	return fake_submit();
}

static __attribute__((unused)) void must_be_out(struct gcp_pool *pool, uint64_t bytes)
{
	gcp_addr addr;

	assert_int_equal(gcp_pool_alloc(pool, bytes, &addr), GCP_CUDA_OUT_OF_MEMORY);
}

static __attribute__((unused)) uint64_t memory_of_limit(int device)
{
	(void)device;
	return fake.memory_limit;
}

#define TEST(name) CASE(name, ordinary, NULL)
/* ... and once more with mapped memory. */
#define TEST_BOTH(name) CASE_TOO(name, mapped) TEST(name)

#endif
