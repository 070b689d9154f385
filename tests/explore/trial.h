/* SPDX-License-Identifier: MIT */
/*
 * trial.h - histories in children of their own: see trial.c. For main.c.
 */
#ifndef EXPLORE_TRIAL_H
#define EXPLORE_TRIAL_H

#include "explore.h"

struct trial {
	bool plain, leak, verbose;
	unsigned seconds; /* that a step may take */
	struct fault fault;
};

void trial_init(void);
/* Plays one history in a child; true: all was well. `kept`: NULL, or which of
 * its operations are played. The outcome is in *outcome. */
bool trial_run(const struct trial *trial, const struct setting *setting,
	       const struct history *history, const uint8_t *kept);
/* As few operations as possible that still fail. */
void trial_shrink(const struct trial *trial, const struct setting *setting,
		  const struct history *history, uint8_t *kept);

/* What was played, and how much of it failed. */
struct played {
	uint64_t histories, steps, failures, sleeps;
	uint64_t excused[EXCUSES];
};

/* Adds what the latest trial was excused. */
void played_excuses(struct played *played);

/* faults.c: every call that can fail, in turn; adds to *played. */
void faults_run(const struct trial *trial, const struct setting *setting,
		const struct history *history, struct played *played);
/* NAME:AT[+]:CODE */
bool fault_parse(const char *text, struct fault *ret_fault);

#endif
