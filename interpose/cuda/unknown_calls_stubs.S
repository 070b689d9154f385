/* SPDX-License-Identifier: MIT */
/*
 * unknown_calls_stubs.S - 256 stubs for functions whose parameters are not known.
 *
 * Each puts its number into a scratch register and goes to gcp_call_routed (dlsym.S),
 * which calls gcp_unknown_call_called with the number, and jumps to the function that
 * this returns.
 */

#include "stubs.h"

	.text
	.hidden	gcp_unknown_call_stubs
	.globl	gcp_unknown_call_stubs
	.type	gcp_unknown_call_stubs, %function
	.p2align 4
gcp_unknown_call_stubs:
	.cfi_startproc
	.set	number, 0
	.rept	256
	.p2align 4
	GCP_LAND
	GCP_NUMBER(number, .Lcommon)
	.set	number, number + 1
	.endr
	.p2align 4
.Lcommon:
	GCP_ROUTE(gcp_unknown_call_called)
	.cfi_endproc
	.size	gcp_unknown_call_stubs, . - gcp_unknown_call_stubs

	.section .note.GNU-stack, "", %progbits
