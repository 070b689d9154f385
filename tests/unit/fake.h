/* SPDX-License-Identifier: MIT */
/*
 * fake.h - a driver for unit tests: the table of functions of pool/driver_table.h
 * over counters, so that memory, time and failure are the test's to decide.
 *
 * Work is a number: fake_submit() returns the next one. The device has done
 * all work <= done; work that is submitted after a barrier was set does not
 * start before all work <= barrier is done.
 */
#ifndef GCP_TESTS_FAKE_H
#define GCP_TESTS_FAKE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "../../pool/check/check.h"
#include "../../capture/capture.h"

/* Functions of a driver, and setups of tests, seldom need all that they are given. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

struct fake {
	uint64_t memory_limit, memory_used; /* bytes */
	uint64_t next_addr;
	uint64_t submitted, done, barrier; /* work */
	uint64_t capturing;                /* streams that capture */
	uint64_t violations;               /* calls that a capture forbids */
	uint64_t allocs, frees, records, orders, queries, waits, trims;
	uint64_t fences;                 /* there are, of one context each */
	int fence_result;                /* what fence_query gives, if not 0 */
	int record_result, order_result; /* the same */
	uint64_t releases;               /* calls of mem_release */
	bool unprepared;                 /* mem_release_prepare fails */
	bool stuck;                      /* work waits for the host's next step */
	bool third_party, several;       /* contexts */
	uint64_t fail_at, fail_code;     /* the fail_at-th driver call fails */
	uint64_t calls;
	bool fail_on; /* and all later ones */
	/* Virtual memory: calls, and what happens before addresses are unmapped. */
	uint64_t reserves, creates, maps, opens, unmaps;
	uint64_t addresses; /* bytes set aside */
	void (*unmapping)(gcp_addr addr, uint64_t bytes);
};
extern struct fake fake;

void fake_reset(void);
/* Runs it in another thread, to the end. */
void fake_elsewhere(void *(*run)(void *arg), void *arg);
struct gcp_driver fake_driver(void);
void fake_fill_vmm(struct gcp_driver *driver);
/* The setup of a test: fake_reset. */
int fake_setup(void **state);
void fake_reset_vmm(void);
/* Which byte of physical memory is behind `addr`, which must be mapped and open:
 * two addresses may share it. For other memory, `addr` itself. */
uint64_t fake_physical(gcp_addr addr);
/* The malloc, calloc or mmap number `at` from now on gives nothing, and all later ones
 * if `onwards`; 0: none. */
void fake_fail_memory(unsigned at, bool onwards);
bool fake_memory_failed(void); /* since then */
/* How many bytes were given back by munmap. */
uint64_t fake_unmapped(void);
void fake_lock(void);
void fake_unlock(void);
/* A call of the driver begins, which is counted: with fake_lock held, 0 or the code
 * that it is to fail with. It ends with this result. */
int fake_begin(uint64_t *count);
int fake_end(int result);
uint64_t fake_submit(void);

/* Time passes. Otherwise each look at the clock is a nanosecond. */
void fake_pass(uint64_t ns);
/* Whether work submitted now cannot run while `work` still does. */
bool fake_is_ordered(uint64_t work);

#define MIB (1ull << 20)

#define FAKE_CTX       ((void *)0x1000)
#define FAKE_OTHER_CTX ((void *)0x2000) /* the second one of fake_pinned.h */
/* Mapped memory, each free in an epoch of its own, and no cache of threads. */
struct gcp_config fake_mapped_config(void);

/* The pools of the test over the fake driver, or one made of it, and their pool of
 * FAKE_CTX on device 0. config: NULL for the defaults. */
extern struct gcp_pools *pools;
extern struct gcp_pool *pool;
void fake_open(const struct gcp_config *config);
void fake_open_over(const struct gcp_config *config, const struct gcp_driver *driver);
/* The setup of a test: fake_reset, and pools with the defaults. */
int fake_setup_open(void **state);
/* The teardown: the invariants hold; then everything is destroyed. */
int fake_close(void **state);

gcp_addr must_alloc(struct gcp_pool *from, uint64_t bytes);
void must_free(gcp_addr addr);
void must_be_sound(void);
struct gcp_stats must_stats(void);

#endif
