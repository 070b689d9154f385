/* SPDX-License-Identifier: MIT */
/*
 * trial.c - each history in a child of its own, so that crashes and hangs are
 * findings like others and nothing is left from one to the next. This process
 * makes no CUDA call: the child starts as a program does.
 */
#include "trial.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SHRINK_SECONDS = 20 };

struct outcome *outcome;

void trial_init(void)
{
	outcome = mmap(NULL, sizeof(*outcome), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (outcome == MAP_FAILED) {
		fputs("explore: no memory to share with children\n", stderr);
		exit(2);
	}
}

/* Each call of the program that finds no memory may look for two seconds, and one that
 * wakes the process copies all it has. */
static unsigned limit_of(const struct trial *trial)
{
	enum { CALLS_WITHOUT_MEMORY = 8 };
	bool short_of_memory = trial->fault.name && trial->fault.onwards &&
			       trial->fault.code == CUDA_ERROR_OUT_OF_MEMORY;

	return trial->seconds *
	       (short_of_memory || setting_sleeps ? CALLS_WITHOUT_MEMORY : 1);
}

static void child(const struct trial *trial, const struct setting *setting,
		  const struct history *history, const uint8_t *kept)
{
	struct setting mine = *setting;

	mine.count &= !trial->plain;
	mine.plain = trial->plain || mine.count;
	mine.leak = trial->leak;
	if (mine.leak)
		mine.memory = 64ull << 30;
	mine.fault = trial->fault.name ? &trial->fault : NULL;
	setting_apply(&mine, trial->verbose ? stdout : NULL);
	fault_start(&trial->fault);
	setenv("GCPSIM_QUIET", trial->verbose ? "0" : "1", 1);
	mine.step_s = limit_of(trial);
	alarm(mine.step_s);
	play(&mine, history, kept);
	outcome->done = 1;
	/* Some programs end by exit, with all that runs there, and those where the
	 * library has a thread, which ends there; for coverage, which is written
	 * there, all do. */
	if (setting->seed % 4 == 0 || setting->host_thread || getenv("EXPLORE_EXIT"))
		exit(0);
	_exit(0);
}

static void judge(int status)
{
	if (outcome->failed)
		return;
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		snprintf(outcome->why, sizeof(outcome->why), "hangs");
	else if (WIFSIGNALED(status))
		snprintf(outcome->why, sizeof(outcome->why), "killed by signal %d%s",
			 WTERMSIG(status), outcome->done ? " at its end" : "");
	else if (status != 0 || !outcome->done)
		snprintf(outcome->why, sizeof(outcome->why), "exit status %d",
			 WEXITSTATUS(status));
	else
		return;
	outcome->failed = 1;
}

static bool child_wait(pid_t pid, int *ret_status)
{
	pid_t got;

	do
		got = waitpid(pid, ret_status, 0);
	while (got < 0 && errno == EINTR);
	return got == pid;
}

void played_excuses(struct played *played)
{
	played->sleeps += outcome->sleeps;
	for (unsigned i = 0; i < EXCUSES; i++)
		__atomic_add_fetch(&played->excused[i], outcome->excused[i],
				   __ATOMIC_RELAXED);
}

bool trial_run(const struct trial *trial, const struct setting *setting,
	       const struct history *history, const uint8_t *kept)
{
	int status = 0;
	pid_t pid;

	memset(outcome, 0, sizeof(*outcome));
	pid = fork();
	if (pid == 0)
		child(trial, setting, history, kept);
	if (pid < 0 || !child_wait(pid, &status)) {
		fputs("explore: cannot fork\n", stderr);
		exit(2);
	}
	judge(status);
	return !outcome->failed;
}

/* --- shrinking ---------------------------------------------------------------- */

/* Drops the operations in [from, to) if it fails without them too. */
static bool leave_out(const struct trial *trial, const struct setting *setting,
		      const struct history *history, uint8_t *kept, uint32_t from,
		      uint32_t to)
{
	uint8_t tried[OPS_MAX];

	memcpy(tried, kept, sizeof(tried));
	memset(tried + from, 0, to - from);
	if (memcmp(tried, kept, sizeof(tried)) == 0 ||
	    trial_run(trial, setting, history, tried))
		return false;
	memcpy(kept, tried, sizeof(tried));
	return true;
}

void trial_shrink(const struct trial *trial, const struct setting *setting,
		  const struct history *history, uint8_t *kept)
{
	uint32_t step = history->count, chunk = history->count / 2;
	struct trial quick = *trial;
	time_t until = time(NULL) + SHRINK_SECONDS;
	bool progress = true;

	if (quick.seconds > 2) /* what hangs, hangs each time */
		quick.seconds = 2;

	if (outcome->step < history->count)
		step = outcome->step + 1;
	leave_out(&quick, setting, history, kept, step, history->count);
	while (chunk > 0 && time(NULL) < until) {
		progress = false;
		for (uint32_t from = 0; from < history->count; from += chunk) {
			uint32_t to = from + chunk;

			if (to > history->count)
				to = history->count;
			if (time(NULL) < until)
				progress |=
				    leave_out(&quick, setting, history, kept, from, to);
		}
		if (!progress || chunk > 1)
			chunk = chunk == 1 ? 0 : chunk / 2;
	}
	trial_run(&quick, setting, history, kept);
}
