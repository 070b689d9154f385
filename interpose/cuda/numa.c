/* SPDX-License-Identifier: MIT */
/*
 * numa.c - see numa.h.
 *
 * A program that stages through pinned memory may have bound its threads to the
 * processor next to the GPU (numactl, sched_setaffinity), or set a policy for what
 * they allocate (set_mempolicy). A cache that hands memory of one node to a thread
 * of another loses what that was for. So the place is part of a block's kind: the
 * policy of the thread if it has one, else the node of the processor that it runs on.
 *
 * Asking costs a system call for the policy (about 0.1 us) and none for the node;
 * where there is one node only, nothing. Where the policy may not be asked for
 * (containers without CAP_SYS_NICE), none can have been set either.
 */
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../pool/pool.h"
#include "../base/process_identity.h"
#include "numa.h"

enum {
	NODES_MAX = 1024,
	CPUS_MAX = 4096,
	NODE_WORDS = NODES_MAX / (8 * sizeof(unsigned long)),
	MPOL_DEFAULT = 0, /* linux/mempolicy.h, which not every machine has */
	MPOL_LOCAL = 4,
	MPOL_MODE = 0xff, /* without its flags */
};

enum nodes { NODES_UNKNOWN, NODES_ONE, NODES_SEVERAL, NODES_NO_POLICY };

static _Atomic(enum nodes) nodes;

/* "0" or "0-1,3"; there is no such file in a kernel without NUMA. */
static enum nodes nodes_read(void)
{
	char text[64];

	(void)gcp_file_read("/sys/devices/system/node/has_memory", text, sizeof(text));
	return strpbrk(text, "-,") ? NODES_SEVERAL : NODES_ONE;
}

/* Node + 1, remembered for each processor: glibc has no getcpu before 2.29, but
 * sched_getcpu, which is no system call. */
static uint32_t place_of_cpu(void)
{
	static _Atomic uint16_t places[CPUS_MAX];
	int here = sched_getcpu();
	unsigned int cpu, node = 0;

	if (here >= 0 && here < CPUS_MAX && places[here])
		return places[here];
	if (syscall(SYS_getcpu, &cpu, &node, NULL) != 0 || node >= NODES_MAX)
		return 0;
	if (cpu < CPUS_MAX)
		places[cpu] = (uint16_t)(node + 1);
	return node + 1;
}

/* A policy's mode and nodes as one number that is no node's. */
static uint32_t place_of_policy(int mode, const unsigned long *mask)
{
	uint64_t hash = (uint64_t)mode;

	for (size_t i = 0; i < NODE_WORDS; i++)
		hash = (hash ^ mask[i]) * 0x9E3779B97F4A7C15ull;
	return (uint32_t)(hash >> 32) | 1u << 31;
}

static uint32_t place_ask(void)
{
	unsigned long mask[NODE_WORDS] = {0};
	int mode = MPOL_DEFAULT;

	if (atomic_load_explicit(&nodes, memory_order_relaxed) == NODES_SEVERAL &&
	    syscall(SYS_get_mempolicy, &mode, mask, NODES_MAX, NULL, 0) != 0) {
		atomic_store(&nodes, NODES_NO_POLICY);
		mode = MPOL_DEFAULT;
	}
	if ((mode & MPOL_MODE) == MPOL_DEFAULT || (mode & MPOL_MODE) == MPOL_LOCAL)
		return place_of_cpu();
	return place_of_policy(mode, mask);
}

uint32_t gcp_numa_place(void)
{
	enum nodes known = atomic_load_explicit(&nodes, memory_order_relaxed);
	GCP_KEEP_ERRNO;

	if (known == NODES_ONE)
		return 0;
	if (known == NODES_UNKNOWN) {
		known = nodes_read();
		atomic_store(&nodes, known);
	}
	return known == NODES_ONE ? 0 : place_ask();
}
