/* SPDX-License-Identifier: MIT */
/*
 * gate.c - see gate.h.
 */
#include "../base/clock.h"
#include "gate.h"

enum { PAUSE_NS = 50 * 1000 };

struct gcp_gate gcp_gate;
const _Atomic uint32_t gcp_always = 1;

bool gcp_gate_try_slow(void)
{
	assert(gcp_thread.inside == 1);
	if (!gcp_thread.exit_registered)
		gcp_gate.begins();
	atomic_fetch_add(&gcp_gate.inside, 1);
	if (!atomic_load(&gcp_gate.closed)) /* Z5 */
		return true;
	atomic_fetch_sub(&gcp_gate.inside, 1);
	gcp_thread.inside = 0;
	return false;
}

int gcp_gate_enter_slow(void)
{
	while (!gcp_gate_try_slow()) {
		int result = gcp_gate.wait();

		if (result != 0)
			return result;
		gcp_thread.inside = 1;
	}
	return 0;
}

/* It is named first, so that the process does not fall asleep any more. The call has no
 * error to give: it waits for memory. */
void gcp_gate_unknown(const char *name)
{
	atomic_store(&gcp_gate.unknown, name);
	while (gcp_gate_enter() != 0 && !atomic_load(&gcp_gate.ends))
		gcp_sleep(PAUSE_NS);
	gcp_gate_leave();
}

bool gcp_gate_close(uint64_t until)
{
	assert(gcp_thread.inside == 0);
	atomic_store(&gcp_gate.closed, true);
	while (atomic_load(&gcp_gate.inside) > 0) {
		if (gcp_clock_ns() >= until || atomic_load(&gcp_gate.ends)) {
			atomic_store(&gcp_gate.closed, false);
			return false;
		}
		gcp_sleep(PAUSE_NS);
	}
	return true;
}
