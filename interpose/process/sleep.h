/* SPDX-License-Identifier: MIT */
/*
 * sleep.h - sleep and wake: the memory of the pools goes to the host, and comes back to
 * the same addresses. While the process is asleep calls wait at the gate (gate.h).
 */
#ifndef GCP_INTERPOSE_SLEEP_H
#define GCP_INTERPOSE_SLEEP_H

#include <stdint.h>

#include "../base/log.h"

/* With GCPOOL_WAKE: makes the gate. Before the first allocation, with start_lock. */
void gcp_sleep_start(void);
/* gcpool_sleep, gcpool_wake. `said` gets a sentence in each case. */
#define GCP_SLEEP_IN_FILE (UINT64_C(1) << 63) /* with timeout_ms: live.h */
int gcp_process_sleep(uint64_t timeout_ms, struct gcp_text *said);
int gcp_process_wake(uint64_t by_call, struct gcp_text *said);
/* Blocks on the host move to the device, if it has room (spill.h): calls are held, and
 * all work is done meanwhile. Only where the process may sleep. */
void gcp_process_unspill(void);
/* `by_call`, of the program: it does not wait once more where another one has waited in
 * vain. All else is a wake that was asked for. */
#define GCP_WAKE_BY_CALL UINT64_MAX

#endif
