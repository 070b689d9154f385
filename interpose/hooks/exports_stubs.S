/* SPDX-License-Identifier: MIT */
/*
 * exports_stubs.S - every hooked function: the table of resolve.h, the exported symbol, and
 * for functions of the driver the entry.
 *
 * A program linked with libcuda, cudart or another library of the tables is bound to
 * the exported symbol. It jumps to the entry, unless a library stands behind this one
 * that has a function of the same name and is not NVIDIA's: linked.c finds that out at
 * the first call of all.
 *
 * The entry is what look-ups give (dlsym.c, getprocaddress.c). Libraries that want to
 * learn of every cuMemFree patch the first bytes of the function that they find, and
 * move the instructions that stood there elsewhere. They know only a few kinds of
 * instruction (UCX: bistro), not those that a compiler may begin a function with, and
 * not endbr64. So an entry of the driver begins with 15 bytes of such a kind that do
 * nothing: with and without frame pointers, and whatever the compiler and its options
 * are. That they are known also tells whether an entry is patched (GCP_ENTRY_CODE in
 * hooks.h). It goes on to the hook (call.h), or to gcp_called_<name> of exports.c, which
 * looks whether the call needs that.
 */
#include "../cuda/stubs.h"
#include "../cuda/symbols.h"

#if defined(__x86_64__)

#define GCP_LINKED_JUMP(target)                                                        \
	cmpb $0, gcp_linked_alone(%rip);                                               \
	jne target;                                                                    \
	movl $number, %r11d;                                                           \
	jmp .Llook;
#define GCP_ENTRY_JUMP(next)                                                           \
	movl $0, %eax;                                                                 \
	movl $0, %eax;                                                                 \
	movl $0, %eax;                                                                 \
	jmp next;
#define GCP_WORDS_JUMP(row, how)                                                       \
	movl $row + ((how) << 16), %r11d;                                              \
	jmp .Lwords;

#else

#define GCP_LINKED_JUMP(target)                                                        \
	hint 34; /* bti c */                                                           \
	adrp x17, gcp_linked_alone;                                                    \
	ldrb w17, [x17, :lo12:gcp_linked_alone];                                       \
	cbz w17, 1f;                                                                   \
	b target;                                                                      \
	1: movz w16, number;                                                           \
	b .Llook;
#define GCP_ENTRY_JUMP(next)                                                           \
	movz x16, 0;                                                                   \
	movz x17, 0;                                                                   \
	movz x16, 0;                                                                   \
	movz x17, 0;                                                                   \
	b next;
#define GCP_WORDS_JUMP(row, how)                                                       \
	movz w16, row;                                                                 \
	movk w16, how, lsl 16;                                                         \
	b .Lwords;

#endif

	.text
.Llook:
	GCP_ROUTE(gcp_linked_target)

#define GCP_LINKED(entry, symbol, target)                                              \
	.symver gcp_linked_##entry, symbol;                                            \
	.globl gcp_linked_##entry;                                                     \
	.type gcp_linked_##entry, %function;                                           \
	.p2align 3;                                                                    \
	gcp_linked_##entry: GCP_LINKED_JUMP(target)                                    \
	.size gcp_linked_##entry, . - gcp_linked_##entry;

#define GCP_ENTRY(name, next)                                                          \
	.globl gcp_entry_##name;                                                       \
	.hidden gcp_entry_##name;                                                      \
	.type gcp_entry_##name, %function;                                             \
	.p2align 3;                                                                    \
	4: gcp_entry_##name: GCP_ENTRY_JUMP(next)                                      \
	.size gcp_entry_##name, . - gcp_entry_##name;

/* struct gcp_row, whose fields are distances. */
#define GCP_ROW(entry, name, base, version, twin, need)                                \
	.pushsection .rodata.str1.1, "aMS", %progbits, 1;                              \
	2: .asciz name;                                                                \
	3: .asciz base;                                                                \
	.popsection;                                                                   \
	.pushsection .rodata.gcp_rows, "a", %progbits;                                 \
	.long entry, 2b - ., 3b - .;                                                   \
	.short version;                                                                \
	.byte 2 * twin, need;                                                             \
	.popsection;                                                                   \
	.set number, number + 1;

/* A hook that gcp_words_hook is. */
#define GCP_BY_WORDS(name, table, stream)                                              \
	.globl gcp_hook_##name;                                                        \
	.hidden gcp_hook_##name;                                                       \
	.type gcp_hook_##name, %function;                                              \
	gcp_hook_##name: GCP_WORDS_JUMP(.Lrow_##name, table + (stream << 6))           \
	.size gcp_hook_##name, . - gcp_hook_##name;

	.section .rodata.gcp_rows, "a", %progbits
	.hidden gcp_rows
	.globl gcp_rows
	.p2align 2
gcp_rows:

	/* Each is one jump, and none changes the stack. */
	.text
	.cfi_startproc
	.set number, 0
#define GCP_CALL(name, base, version, twin, need, next)                                \
	GCP_LINKED(name, name@GCPOOL, 4f)                                              \
	GCP_ENTRY(name, next)                                                          \
	.set .Lrow_##name, number;                                                     \
	GCP_ROW(gcp_entry_##name - ., #name, #base, version, twin, need)
#define GCP_X(name, ...) GCP_CALL(name, __VA_ARGS__, gcp_hook_##name)
GCP_HOOKS_WHOLE(GCP_X)
#undef GCP_X
#define GCP_X(name, ...) GCP_CALL(name, __VA_ARGS__, gcp_called_##name)
GCP_HOOKS_QUICK(GCP_X)
#undef GCP_X
#define GCP_X(name, base, version, twin, need) GCP_ROW(0, #name, #base, version, twin, need)
GCP_DRIVER_USED(GCP_X)
#undef GCP_X

/* Of cudart: base is the library. */
#define GCP_OTHER(entry, name, library)                                                \
	GCP_LINKED(entry, name@library, gcp_entry_##entry)                             \
	GCP_ROW(gcp_entry_##entry - ., #name, #library, 0, 0, GCP_OPTIONAL)
#define GCP_X(tag, library, name, ...) GCP_OTHER(tag##_##name, name, library)
#define GCP_V(tag, library)	       GCP_RUNTIME_HOOKS(GCP_X, tag, library)
GCP_RUNTIMES(GCP_V)
#undef GCP_X
GCP_HOOKS_BY_WORDS(GCP_BY_WORDS)
	.cfi_endproc

	/* The parameters as words, as many as the longest call has: those in registers, and
	 * what is on the stack behind them. */
	.p2align 4
.Lwords:
	.cfi_startproc
#if defined(__x86_64__)
	pushq %rbp
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rbp, 0
	movq %rsp, %rbp
	.cfi_def_cfa_register %rbp
	subq $8, %rsp
	.irp word, 48(%rbp), 40(%rbp), 32(%rbp), 24(%rbp), 16(%rbp), %r9, %r8, %rcx, %rdx, %rsi, %rdi
	pushq \word
	.endr
	movl %r11d, %edi
	movq %rsp, %rsi
	call gcp_words_hook
	leave
	.cfi_def_cfa %rsp, 8
#else
	stp x29, x30, [sp, #-112]!
	.cfi_adjust_cfa_offset 112
	.cfi_rel_offset x29, 0
	.cfi_rel_offset x30, 8
	mov x29, sp
	ldp x9, x10, [sp, #112]
	ldr x11, [sp, #128]
	stp x0, x1, [sp, #16]
	stp x2, x3, [sp, #32]
	stp x4, x5, [sp, #48]
	stp x6, x7, [sp, #64]
	stp x9, x10, [sp, #80]
	str x11, [sp, #96]
	mov w0, w16
	add x1, sp, #16
	bl gcp_words_hook
	ldp x29, x30, [sp], #112
	.cfi_restore x29
	.cfi_restore x30
	.cfi_adjust_cfa_offset -112
#endif
	ret
	.cfi_endproc

	.section .note.GNU-stack, "", %progbits
