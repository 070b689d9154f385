/* SPDX-License-Identifier: MIT */
/*
 * gate.h - calls of the program wait here while the process is asleep (sleep.c).
 *
 * Only where the process may sleep (GCPOOL_WAKE): then each call that submits work, or
 * has to do with memory, goes through its hook, and is counted while it is under way.
 *
 *      call                            thread that closes the gate
 *      inside++                        closed = true
 *      closed? inside--, wait, again   wait until nothing is inside
 *
 * Each writes before it reads, so at least one of the two sees the other.
 */
#ifndef GCP_INTERPOSE_GATE_H
#define GCP_INTERPOSE_GATE_H

#include "../base/process.h"

/* GCPOOL_WAKE: what wakes the process, besides `gcpool ctl` and gcpool_wake. */
enum gcp_wake {
	GCP_WAKE_OFF,  /* it does not sleep */
	GCP_WAKE_AUTO, /* the next call */
	GCP_WAKE_MANUAL,
};

/* Never 0: what gcp_process.alloc_asks points to while calls are observed, and
 * gcp_watch.submissions where there is a gate. */
extern const _Atomic uint32_t gcp_always __attribute__((visibility("hidden")));

struct gcp_gate {
	/* NULL: the process does not sleep, and no call is counted. Else it opens the
	 * gate, or waits a while. An error, and the gate stays closed. Set before the
	 * first allocation. */
	int (*wait)(void);
	void (*begins)(void); /* the thread's end is to be noticed */
	/* A block is freed: noted, for the wake. False: it is not noted, and the call
	 * waits as others do. */
	bool (*free_later)(CUdeviceptr addr);
	/* The process does: no call waits any more. */
	atomic_bool ends;
	atomic_bool closed;
	atomic_bool asleep;      /* and closed; written under sleep.c's lock */
	_Atomic uint32_t inside; /* calls under way */
	_Atomic uint64_t kept;   /* bytes that the host keeps while asleep */
	/* One that was called, whose end cannot be seen; NULL: there was none. */
	const char *_Atomic unknown;
};

extern struct gcp_gate gcp_gate __attribute__((visibility("hidden")));

bool gcp_gate_try_slow(void);
int gcp_gate_enter_slow(void);

/* A call begins. Calls inside others pass. 0; else the call ends with that error. */
static inline int gcp_gate_enter(void)
{
	if (!gcp_gate.wait || gcp_thread.inside++ > 0)
		return 0;
	return gcp_gate_enter_slow();
}

/* The same without a wait. False: the gate is closed. */
static inline bool gcp_gate_try(void)
{
	return !gcp_gate.wait || gcp_thread.inside++ > 0 || gcp_gate_try_slow();
}

static inline void gcp_gate_leave(void)
{
	if (gcp_thread.inside == 0 || --gcp_thread.inside > 0)
		return; /* it began before the gate was needed; it is inside another */
	assert(!atomic_load(&gcp_gate.asleep)); /* Z1 */
	atomic_fetch_sub(&gcp_gate.inside, 1);
}

/* A function is called that the library does not know; or, unseen, may be. */
void gcp_gate_unknown(const char *name);

/* Closes it, and waits for calls under way. False, and it is open: they have not ended
 * by `until` (gcp_clock_ns). */
bool gcp_gate_close(uint64_t until);

/* The thread has been cancelled in a call. */
static inline void gcp_gate_thread_ends(void)
{
	if (gcp_thread.inside > 0)
		atomic_fetch_sub(&gcp_gate.inside, 1);
	gcp_thread.inside = 0;
}

/* To the end of the function, which returns `answer` where the gate stays closed. */
#define GCP_GATED_OR(answer)                                                           \
	bool gated __attribute__((cleanup(gcp_gate_end))) = gcp_gate_enter() == 0;     \
	if (!gated)                                                                    \
	return answer
static inline void gcp_gate_end(const bool *gated)
{
	if (*gated)
		gcp_gate_leave();
}

#endif
