/* SPDX-License-Identifier: MIT */
/*
 * cublasLt.c - stands for libcublasLt, whose handles have no state. As that of
 * CUDA 13.0 it has one for all callers.
 */
#include <pthread.h>

#include "standin.h"

STANDIN_API int cublasLtCreate(struct standin **ret_handle);
STANDIN_API int cublasLtDestroy(struct standin *handle);
STANDIN_API int cublasLtLoggerSetLevel(int level);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct standin *one;
static int users;

int cublasLtCreate(struct standin **ret_handle)
{
	int result = 0;

	pthread_mutex_lock(&lock);
	if (!one)
		result = standin_create(&one);
	if (result == 0) {
		*ret_handle = one;
		users++;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

int cublasLtDestroy(struct standin *handle)
{
	int result;

	pthread_mutex_lock(&lock);
	result = users > 0 && handle == one ? 0 : 1;
	users -= result == 0;
	pthread_mutex_unlock(&lock);
	cuCtxSynchronize();
	return result;
}

/* Not a setter of a handle. */
int cublasLtLoggerSetLevel(int level)
{
	return level < 0 ? standin_set(NULL, 0, 0) + standin_destroy(NULL) : 0;
}
