/* SPDX-License-Identifier: MIT */
/*
 * cudnn.c - stands for libcudnn.
 */
#include "standin.h"

STANDIN_HANDLE(cudnnCreate, cudnnDestroy)
STANDIN_SETTING(0, cudnnGetStream, cudnnSetStream, void *)
