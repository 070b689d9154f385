/* SPDX-License-Identifier: MIT */
/*
 * stubs.h - for assembly: how a stub goes to gcp_call_routed (dlsym.S), with its number
 * if it has one, and what the target of an indirect jump begins with.
 */
#ifndef GCP_INTERPOSE_STUBS_H
#define GCP_INTERPOSE_STUBS_H

/* clang-format off */
#if defined(__x86_64__)
#define GCP_LAND endbr64
#define GCP_ROUTE(find) leaq find(%rip), %r10; jmp gcp_call_routed
#define GCP_NUMBER(number, next) movl $number, %r11d; jmp next
#elif defined(__aarch64__)
#define GCP_LAND hint 34 /* bti c */
#define GCP_ROUTE(find) adrp x17, find; add x17, x17, :lo12:find; b gcp_call_routed
#define GCP_NUMBER(number, next)                                                       \
	movz w16, (number) & 0xffff; movk w16, (number) >> 16, lsl 16; b next
#else
#error "the stubs know x86-64 and aarch64; write them for this processor"
#endif
/* clang-format on */

#endif
