/* SPDX-License-Identifier: MIT */
/*
 * cusparse.c - stands for libcusparse.
 */
#include "standin.h"

STANDIN_HANDLE(cusparseCreate, cusparseDestroy)
STANDIN_SETTING(0, cusparseGetStream, cusparseSetStream, void *)
STANDIN_SETTING(1, cusparseGetPointerMode, cusparseSetPointerMode, int)
