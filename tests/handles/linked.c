/* SPDX-License-Identifier: MIT */
/*
 * linked.c - the functions as the loader binds them in a program that is linked with
 * the libraries.
 */
#include "program.h"

#define PAIR(create, destroy)                                                          \
	extern int create(void **ret_handle);                                          \
	extern int destroy(void *handle);
PAIR(cublasCreate_v2, cublasDestroy_v2)
PAIR(cudnnCreate, cudnnDestroy)
PAIR(cusolverDnCreate, cusolverDnDestroy)
PAIR(cusolverSpCreate, cusolverSpDestroy)

void sort_reach(struct sort *sort, int index)
{
	static const struct {
		int (*create)(void **);
		int (*destroy)(void *);
	} linked[SORTS] = {
	    {cublasCreate_v2, cublasDestroy_v2},
	    {cudnnCreate, cudnnDestroy},
	    {cusolverDnCreate, cusolverDnDestroy},
	    {cusolverSpCreate, cusolverSpDestroy},
	};

	sort->create = linked[index].create;
	sort->destroy = linked[index].destroy;
}
