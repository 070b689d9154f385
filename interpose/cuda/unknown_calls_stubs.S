/* SPDX-License-Identifier: MIT */
/*
 * unknown_calls_stubs.S - 256 stubs for functions whose parameters are not known.
 *
 * Each puts its number into a scratch register and goes to gcp_call_routed (dlsym.S),
 * which calls gcp_unknown_call_called with the number, and jumps to the function that
 * this returns.
 */

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
#if defined(__x86_64__)
	endbr64
	movl	$number, %r11d
	jmp	.Lcommon
#elif defined(__aarch64__)
	hint	#34			/* bti c */
	mov	w16, #number
	b	.Lcommon
#else
#error "unknown_calls_stubs.S knows x86-64 and aarch64; write the stubs for this processor"
#endif
	.set	number, number + 1
	.endr
	.p2align 4
.Lcommon:
#if defined(__x86_64__)
	leaq	gcp_unknown_call_called(%rip), %r10
	jmp	gcp_call_routed
#else
	adrp	x17, gcp_unknown_call_called
	add	x17, x17, :lo12:gcp_unknown_call_called
	b	gcp_call_routed
#endif
	.cfi_endproc
	.size	gcp_unknown_call_stubs, . - gcp_unknown_call_stubs

	.section .note.GNU-stack, "", %progbits
