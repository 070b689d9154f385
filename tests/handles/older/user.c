/* SPDX-License-Identifier: MIT */
/*
 * user.c - a plugin that is linked with the older cuBLAS.
 */
extern int cublasCreate_v2(void **ret_handle);
extern int cublasDestroy_v2(void *handle);

int user_create(void **ret_handle);
int user_destroy(void *handle);

int user_create(void **ret_handle)
{
	return cublasCreate_v2(ret_handle);
}

int user_destroy(void *handle)
{
	return cublasDestroy_v2(handle);
}
