/* SPDX-License-Identifier: MIT */
/*
 * test_pace.c - programs that do the same again and again hold little more than they
 * need, whatever their pace. The device runs one kernel after the other, each for as
 * long.
 */
#include "fake.h"
#include "../../pool/pool_types.h"
#include "cases.h"

#define TEST(name) CASE(name, reset, NULL)

#define MIB (1ull << 20)

enum {
	KERNEL_NS = 14000,
	MAP_NS = 22000,        /* cuMemSetAccess, cuMemUnmap: measured on an H200 */
	PAUSE_NS = 200 * 1000, /* between the program's steps */
	KERNELS = 1 << 16,
};

static struct {
	uint64_t now, launch_ns, kernel_ns;
	uint64_t ends[KERNELS]; /* ns; of the work of that number */
	struct gcp_pools *pools;
} program;

static int reset(void **state)
{
	(void)state;
	fake_reset();
	memset(&program, 0, sizeof(program));
	fake.map_ns = MAP_NS;
	return 0;
}

static void begin(uint64_t launch_ns)
{
	struct gcp_config config;

	gcp_config_default_mapped(&config);
	program.pools = fake_pools(&config);
	program.launch_ns = launch_ns;
	program.kernel_ns = KERNEL_NS;
}

static void end(void)
{
	fake.done = fake.submitted;
	fake_finish(program.pools);
}

/* What is done by now. */
static void look(void)
{
	uint64_t now = program.pools->driver.clock_ns();

	while (fake.done < fake.submitted && program.ends[fake.done + 1] <= now)
		fake.done++;
}

static void launch(void)
{
	fake_pass(program.launch_ns);
	uint64_t now = program.pools->driver.clock_ns(), work = fake_submit();
	uint64_t before = work > 1 ? program.ends[work - 1] : 0;

	assert_true(work < KERNELS);
	program.ends[work] = (before > now ? before : now) + program.kernel_ns;
	gcp_pools_stream_used(program.pools, 0x5000);
	look();
}

static void drop(gcp_addr addr)
{
	look();
	must_free(program.pools, addr);
}

static gcp_addr array(uint64_t bytes)
{
	look();
	gcp_addr addr = must_alloc(fake_pool(program.pools), bytes);
	launch();
	return addr;
}

/* --- the steps of tests/gpu/cupy_steps.py ---------------------------------- */

enum { ARRAY = 4 << 20, ARRAYS_AT_ONCE = 6 };

/* c = a * b + a - b / 3; d = sqrt(abs(c)) + sum(c); a + d * f, b - d * f. */
static void step(gcp_addr *ret_a, gcp_addr *ret_b)
{
	gcp_addr product = array(ARRAY), sum = array(ARRAY);
	drop(product);
	gcp_addr third = array(ARRAY), c = array(ARRAY);
	drop(sum);
	drop(third);
	gcp_addr size = array(ARRAY), root = array(ARRAY);
	drop(size);
	gcp_addr sums = array(4096), d = array(ARRAY);
	drop(root);
	drop(sums);
	product = array(ARRAY);
	*ret_a = array(ARRAY);
	drop(product);
	product = array(ARRAY);
	*ret_b = array(ARRAY);
	drop(product);
	drop(c);
	drop(d);
}

static void steps(int count, uint64_t pause_ns)
{
	gcp_addr a = array(ARRAY), b = array(ARRAY), next_a, next_b;

	for (int i = 0; i < count; i++) {
		fake_pass(pause_ns);
		step(&next_a, &next_b);
		drop(a);
		drop(b);
		a = next_a;
		b = next_b;
	}
	drop(a);
	drop(b);
}

/* What there is serves it, as before. */
TEST(a_full_device_serves_the_program)
{
	fake.memory_limit = ARRAYS_AT_ONCE * ARRAY + 4 * MIB;
	begin(9000);
	steps(100, PAUSE_NS);
	assert_int_equal(fake.memory_used, fake.memory_limit);
	end();
}

/* --- the solver of tests/integration/programs -------------------------------- */

static void level(uint64_t bytes, int more)
{
	gcp_addr residual = array(bytes);

	if (more > 0) {
		gcp_addr coarse = array(bytes / 2);
		level(bytes / 2, more - 1);
		drop(coarse);
	}
	gcp_addr correction = array(bytes);
	drop(correction);
	drop(residual);
}

/* 16 MiB in use, and 16 more, whatever the pace: what a thread frees and keeps fills an
 * epoch as well as what it does not keep. */
TEST(a_small_program_holds_little_more_than_it_uses)
{
	static const uint64_t paces_ns[] = {100, 200, 300, 500, 1000, 4000};

	for (size_t i = 0; i < sizeof(paces_ns) / sizeof(paces_ns[0]); i++) {
		reset(state);
		begin(paces_ns[i]);
		gcp_addr x = array(4 * MIB);
		for (int turn = 0; turn < 200; turn++)
			level(4 * MIB, 8);
		assert_true(fake.memory_used <= 32 * MIB);
		drop(x);
		end();
	}
}

/* A malloc, a kernel and a free, again and again: epochs grow until they cost little,
 * and do not shrink where they would cost much again. */
static uint64_t fences_of_a_loop(uint64_t bytes)
{
	enum { FIRST = 3000, TURNS = 16000 };

	begin(4400);
	program.kernel_ns = 4000;
	for (int i = 0; i < FIRST; i++)
		drop(array(bytes));
	uint64_t before = fake.records;
	for (int i = 0; i < TURNS; i++)
		drop(array(bytes));
	return fake.records - before;
}

TEST(epochs_of_a_loop_keep_their_size)
{
	assert_true(fences_of_a_loop(64 << 10) <= 16000 / 32 + 1);
	assert_true(fake.memory_used <= 4 * MIB);
	end();
	(void)reset(state);
	assert_true(fences_of_a_loop(256 << 10) <= 16000 / 32 + 1);
	assert_true(fake.memory_used <= 8 * MIB);
	end();
}
