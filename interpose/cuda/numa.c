/* SPDX-License-Identifier: MIT */
/*
 * numa.c - see numa.h.
 *
 * A program that stages through pinned memory may have bound its threads to the
 * processor next to the GPU (numactl, sched_setaffinity). A cache that hands memory of
 * one node to a thread of another loses what that was for. So the node of the processor
 * that the thread runs on is part of a block's kind.
 */
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../pool/pool.h"
#include "../base/process_identity.h"
#include "numa.h"

enum { CPUS_MAX = 4096 };

enum nodes { NODES_UNKNOWN, NODES_ONE, NODES_SEVERAL };

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
	if (syscall(SYS_getcpu, &cpu, &node, NULL) != 0)
		return 0;
	if (cpu < CPUS_MAX)
		places[cpu] = (uint16_t)(node + 1);
	return node + 1;
}

uint32_t gcp_numa_place(void)
{
	static _Atomic(enum nodes) nodes;
	enum nodes known = atomic_load_explicit(&nodes, memory_order_relaxed);
	GCP_KEEP_ERRNO;

	if (known == NODES_UNKNOWN) {
		known = nodes_read();
		atomic_store(&nodes, known);
	}
	return known == NODES_ONE ? 0 : place_of_cpu();
}
