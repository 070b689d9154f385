/* SPDX-License-Identifier: MIT */
/*
 * cancel.c - see cancel.h. Any lock, or none, may be held.
 */
#include "cancel.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>

int gcp_cancel_defer(void)
{
	int state = PTHREAD_CANCEL_ENABLE;

	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	return state;
}

void gcp_cancel_restore(int state)
{
	int before;

	(void)pthread_setcancelstate(state, &before);
}

/* The system call itself: nanosleep of libc is a cancellation point. */
void gcp_sleep(uint64_t ns)
{
	const struct timespec interval = {.tv_sec = (time_t)(ns / 1000000000),
					  .tv_nsec = (long)(ns % 1000000000)};
	int saved = errno;

	(void)syscall(SYS_nanosleep, &interval, NULL);
	errno = saved;
}
