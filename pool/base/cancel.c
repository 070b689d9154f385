/* SPDX-License-Identifier: MIT */
/*
 * cancel.c - see cancel.h. Any lock, or none, may be held.
 */
#include "cancel.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>

/* How often it is deferred, and the state before that. */
static __thread int deferred __attribute__((tls_model("initial-exec")));
static __thread int before __attribute__((tls_model("initial-exec")));

int gcp_cancel_defer(void)
{
	if (deferred++ == 0)
		(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	return before;
}

void gcp_cancel_restore(const int *state __attribute__((unused)))
{
	if (--deferred == 0)
		(void)pthread_setcancelstate(before, NULL);
}

/* The system call itself: nanosleep of libc is a cancellation point. */
void gcp_sleep(uint64_t ns)
{
	const struct timespec interval = {.tv_sec = (time_t)(ns / 1000000000),
					  .tv_nsec = (long)(ns % 1000000000)};
	GCP_KEEP_ERRNO;

	(void)syscall(SYS_nanosleep, &interval, NULL);
}
