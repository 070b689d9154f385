/* SPDX-License-Identifier: MIT */
/*
 * dlsym.S - the exported dlsym: a stub that jumps.
 *
 * glibc's dlsym looks at its own return address to learn which library asks, and
 * answers RTLD_NEXT and RTLD_DEFAULT by that. A hook that *called* it would
 * become the asker: libraries would get themselves from RTLD_NEXT, or miss
 * what only they can see. So the stub tests the name, and unless it begins
 * with "cu" jumps to the real dlsym with every register as it was. The real one is the
 * next in the order of look-up: another preloaded library may have a dlsym as well.
 *
 * For the few others gcp_dlsym_answer decides; if it has no answer
 * the stub jumps as well. gcp_dlsym_real holds the real dlsym; before the first
 * use it points to gcp_dlsym_first, which finds it.
 *
 * gcp_call_routed keeps all registers that can hold parameters, calls a function (its
 * address in %r10, x17; its parameter in %r11d, w16), and jumps to the function that
 * this returns, with the caller's stack and registers as they were.
 */

#if defined(__x86_64__)
#define LAND endbr64
#elif defined(__aarch64__)
#define LAND hint #34 /* bti c */
#else
#error "dlsym.S knows x86-64 and aarch64; write the stub for this processor"
#endif

	.text
	.globl	dlsym
	.type	dlsym, %function
	.p2align 4
dlsym:
	.cfi_startproc
	LAND
#if defined(__x86_64__)
	testq	%rsi, %rsi
	je	.Lreal
	cmpb	$'c', (%rsi)
	jne	.Lreal
	cmpb	$'u', 1(%rsi)
	je	.Lask
.Lreal:
	jmpq	*gcp_dlsym_real(%rip)
.Lask:
	pushq	%rdi
	.cfi_adjust_cfa_offset 8
	pushq	%rsi
	.cfi_adjust_cfa_offset 8
	subq	$8, %rsp		/* the answer; aligns the stack, too */
	.cfi_adjust_cfa_offset 8
	movq	24(%rsp), %rdx		/* the asker */
	movq	%rsp, %rcx
	call	gcp_dlsym_answer
	popq	%rdx
	.cfi_adjust_cfa_offset -8
	popq	%rsi
	.cfi_adjust_cfa_offset -8
	popq	%rdi
	.cfi_adjust_cfa_offset -8
	testl	%eax, %eax
	je	.Lreal
	movq	%rdx, %rax
#else
	cbz	x1, .Lreal
	ldrb	w9, [x1]
	cmp	w9, #'c'
	b.ne	.Lreal
	ldrb	w9, [x1, #1]
	cmp	w9, #'u'
	b.eq	.Lask
.Lreal:
	adrp	x16, gcp_dlsym_real
	ldr	x16, [x16, #:lo12:gcp_dlsym_real]
	br	x16
.Lask:
	stp	x29, x30, [sp, #-48]!
	.cfi_adjust_cfa_offset 48
	.cfi_rel_offset x29, 0
	.cfi_rel_offset x30, 8
	mov	x29, sp
	stp	x0, x1, [sp, #16]
	mov	x2, x30			/* the asker */
	add	x3, sp, #32		/* the answer */
	bl	gcp_dlsym_answer
	mov	w9, w0
	ldr	x10, [sp, #32]
	ldp	x0, x1, [sp, #16]
	ldp	x29, x30, [sp], #48
	.cfi_restore x29
	.cfi_restore x30
	.cfi_adjust_cfa_offset -48
	cbz	w9, .Lreal
	mov	x0, x10
#endif
	ret
	.cfi_endproc
	.size	dlsym, . - dlsym

	.hidden	gcp_dlsym_first
	.globl	gcp_dlsym_first
	.type	gcp_dlsym_first, %function
	.p2align 4
gcp_dlsym_first:
	.cfi_startproc
	LAND
#if defined(__x86_64__)
	leaq	gcp_dlsym_find(%rip), %r10
	jmp	gcp_call_routed
#else
	adrp	x17, gcp_dlsym_find
	add	x17, x17, :lo12:gcp_dlsym_find
	b	gcp_call_routed
#endif
	.cfi_endproc
	.size	gcp_dlsym_first, . - gcp_dlsym_first

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
#endif
	.cfi_endproc
	.size	gcp_call_routed, . - gcp_call_routed

	.section .note.GNU-stack, "", %progbits
