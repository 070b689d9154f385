/* SPDX-License-Identifier: MIT */
/*
 * unknown_calls_stubs.S - 128 stubs for functions whose parameters are not known.
 *
 * Each puts its number into a scratch register and goes to the common part, which
 * keeps all registers that can hold parameters, calls gcp_unknown_call_called with
 * the number, and jumps to the function that this returns, with the caller's stack and
 * registers as they were. exports_stubs.S comes to gcp_call_routed with a function of
 * its own in place of that one.
 */

#if defined(__x86_64__)

	.text
	.hidden	gcp_unknown_call_stubs
	.globl	gcp_unknown_call_stubs
	.type	gcp_unknown_call_stubs, @function
	.p2align 4
gcp_unknown_call_stubs:
	.cfi_startproc
	.set	number, 0
	.rept	128
	.p2align 4
	endbr64
	movl	$number, %r11d
	jmp	.Lcommon
	.set	number, number + 1
	.endr
	.p2align 4
.Lcommon:
	leaq	gcp_unknown_call_called(%rip), %r10
	.hidden	gcp_call_routed
	.globl	gcp_call_routed
gcp_call_routed:
	pushq	%rbp
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rbp, 0
	movq	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	subq	$192, %rsp
	movq	%rdi, (%rsp)
	movq	%rsi, 8(%rsp)
	movq	%rdx, 16(%rsp)
	movq	%rcx, 24(%rsp)
	movq	%r8, 32(%rsp)
	movq	%r9, 40(%rsp)
	movq	%rax, 48(%rsp)
	.irp	n, 0, 1, 2, 3, 4, 5, 6, 7
	movaps	%xmm\n, 64 + 16 * \n(%rsp)
	.endr
	movl	%r11d, %edi
	call	*%r10
	movq	%rax, %r11
	movq	(%rsp), %rdi
	movq	8(%rsp), %rsi
	movq	16(%rsp), %rdx
	movq	24(%rsp), %rcx
	movq	32(%rsp), %r8
	movq	40(%rsp), %r9
	movq	48(%rsp), %rax
	.irp	n, 0, 1, 2, 3, 4, 5, 6, 7
	movaps	64 + 16 * \n(%rsp), %xmm\n
	.endr
	leave
	.cfi_def_cfa %rsp, 8
	jmpq	*%r11
	.cfi_endproc
	.size	gcp_unknown_call_stubs, . - gcp_unknown_call_stubs

#elif defined(__aarch64__)

	.text
	.hidden	gcp_unknown_call_stubs
	.globl	gcp_unknown_call_stubs
	.type	gcp_unknown_call_stubs, %function
	.p2align 4
gcp_unknown_call_stubs:
	.cfi_startproc
	.set	number, 0
	.rept	128
	.p2align 4
	hint	#34			/* bti c */
	mov	w16, #number
	b	.Lcommon
	.set	number, number + 1
	.endr
	.p2align 4
.Lcommon:
	adrp	x17, gcp_unknown_call_called
	add	x17, x17, :lo12:gcp_unknown_call_called
	.hidden	gcp_call_routed
	.globl	gcp_call_routed
gcp_call_routed:
	stp	x29, x30, [sp, #-224]!
	.cfi_adjust_cfa_offset 224
	.cfi_rel_offset x29, 0
	.cfi_rel_offset x30, 8
	mov	x29, sp
	stp	x0, x1, [sp, #16]
	stp	x2, x3, [sp, #32]
	stp	x4, x5, [sp, #48]
	stp	x6, x7, [sp, #64]
	str	x8, [sp, #80]
	stp	q0, q1, [sp, #96]
	stp	q2, q3, [sp, #128]
	stp	q4, q5, [sp, #160]
	stp	q6, q7, [sp, #192]
	mov	w0, w16
	blr	x17
	mov	x16, x0
	ldp	x0, x1, [sp, #16]
	ldp	x2, x3, [sp, #32]
	ldp	x4, x5, [sp, #48]
	ldp	x6, x7, [sp, #64]
	ldr	x8, [sp, #80]
	ldp	q0, q1, [sp, #96]
	ldp	q2, q3, [sp, #128]
	ldp	q4, q5, [sp, #160]
	ldp	q6, q7, [sp, #192]
	ldp	x29, x30, [sp], #224
	.cfi_restore x29
	.cfi_restore x30
	.cfi_adjust_cfa_offset -224
	br	x16
	.cfi_endproc
	.size	gcp_unknown_call_stubs, . - gcp_unknown_call_stubs

#else
#error "unknown_calls_stubs.S knows x86-64 and aarch64; write the stubs for this processor"
#endif

	.section .note.GNU-stack, "", %progbits
