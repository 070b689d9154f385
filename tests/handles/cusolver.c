/* SPDX-License-Identifier: MIT */
/*
 * cusolver.c - stands for libcusolver: two sorts of handles.
 */
#include "standin.h"

STANDIN_HANDLE(cusolverDnCreate, cusolverDnDestroy)
STANDIN_SETTING(0, cusolverDnGetStream, cusolverDnSetStream, void *)
STANDIN_SETTING(1, cusolverDnGetDeterministicMode, cusolverDnSetDeterministicMode, int)
STANDIN_SETTING(2, cusolverDnGetMathMode, cusolverDnSetMathMode, int)
STANDIN_SETTING(3, cusolverDnGetEmulationStrategy, cusolverDnSetEmulationStrategy, int)

STANDIN_HANDLE(cusolverSpCreate, cusolverSpDestroy)
STANDIN_SETTING(0, cusolverSpGetStream, cusolverSpSetStream, void *)
