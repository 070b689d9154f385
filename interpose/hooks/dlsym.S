/* SPDX-License-Identifier: MIT */
/*
 * dlsym.S - the exported dlsym: a stub that jumps.
 *
 * glibc's dlsym looks at its own return address to learn which library asks, and
 * answers RTLD_NEXT and RTLD_DEFAULT by that. A hook that *called* it would
 * become the asker: libraries would get themselves from RTLD_NEXT, or miss
 * what only they can see. So the stub jumps to the real dlsym with every register as it
 * was, unless gcp_dlsym_route has an answer. The real one is the
 * next in the order of look-up: another preloaded library may have a dlsym as well.
 *
 * gcp_call_routed keeps all registers that can hold parameters and calls a function (its
 * address in %r10, x17; its parameters: %r11d, w16; what is kept, and the stack of the
 * caller: struct gcp_kept of dlsym.h). It jumps to the function that this returns, with
 * the caller's stack and registers as they were; NULL: it returns the second thing that
 * this returns (struct gcp_route).
 */

#include "../cuda/stubs.h"

	.text
	.globl	dlsym
	.type	dlsym, %function
	.p2align 4
dlsym:
	.cfi_startproc
	GCP_LAND
	GCP_ROUTE(gcp_dlsym_route)
	.cfi_endproc
	.size	dlsym, . - dlsym

	.hidden	gcp_call_routed
	.globl	gcp_call_routed
	.type	gcp_call_routed, %function
	.p2align 4
gcp_call_routed:
	.cfi_startproc
#if defined(__x86_64__)
	pushq	%rbp
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rbp, 0
	movq	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	subq	$8, %rsp
	.irp	r, rax, r9, r8, rcx, rdx, rsi, rdi
	pushq	%\r
	.endr
	subq	$128, %rsp
	.irp	n, 0, 1, 2, 3, 4, 5, 6, 7
	movaps	%xmm\n, 16 * \n(%rsp)
	.endr
	movl	%r11d, %edi
	leaq	128(%rsp), %rsi
	call	*%r10
	movq	%rax, %r11
	movq	%rdx, %r10
	.irp	n, 0, 1, 2, 3, 4, 5, 6, 7
	movaps	16 * \n(%rsp), %xmm\n
	.endr
	addq	$128, %rsp
	.irp	r, rdi, rsi, rdx, rcx, r8, r9, rax
	popq	%\r
	.endr
	leave
	.cfi_def_cfa %rsp, 8
	testq	%r11, %r11
	je	1f
	jmpq	*%r11
1:	movq	%r10, %rax
	ret
#else
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
	mov	x1, sp
	blr	x17
	mov	x16, x0
	mov	x17, x1
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
	cbz	x16, 1f
	br	x16
1:	mov	x0, x17
	ret
#endif
	.cfi_endproc
	.size	gcp_call_routed, . - gcp_call_routed

	.section .note.GNU-stack, "", %progbits
