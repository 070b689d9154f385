/* SPDX-License-Identifier: MIT */
/* musl_program.c - threads, a fork and look-ups, as musl has them: see musl.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static void *thread(void *argument)
{
	return argument;
}

int main(void)
{
	void *found = dlsym(RTLD_DEFAULT, "malloc"), *end = NULL;
	pthread_t other;
	int status;

	if (pthread_create(&other, NULL, thread, &status) || pthread_join(other, &end))
		return 1;
	if (fork() == 0)
		_exit(3);
	wait(&status);
	printf("thread %d, child %d, malloc %d, cuInit %d, cuMemAlloc %d\n",
	       end == &status, WEXITSTATUS(status), found != NULL,
	       dlsym(RTLD_DEFAULT, "cuInit") != NULL,
	       dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") != NULL);
	return 0;
}
