/* SPDX-License-Identifier: MIT */
/*
 * touch.h - tells the simulated driver that the host touches pinned memory now, so
 * that its hazard checkers know. On a GPU these do nothing.
 */
#ifndef GCPT_TOUCH_H
#define GCPT_TOUCH_H

#include <stddef.h>

/* Just before the host does it. Any thread, after CUDA was opened. */
void gcpt_host_writes(const void *p, size_t bytes);
void gcpt_host_reads(const void *p, size_t bytes);

#endif
