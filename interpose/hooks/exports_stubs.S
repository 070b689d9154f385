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
	GCP_NUMBER(number, .Llook);
#define GCP_ENTRY_JUMP(next)                                                           \
	movl $0, %eax;                                                                 \
	movl $0, %eax;                                                                 \
	movl $0, %eax;                                                                 \
	jmp next;

#else

#define GCP_LINKED_JUMP(target)                                                        \
	hint 34; /* bti c */                                                           \
	adrp x17, gcp_linked_alone;                                                    \
	ldrb w17, [x17, :lo12:gcp_linked_alone];                                       \
	cbz w17, 1f;                                                                   \
	b target;                                                                      \
	1: GCP_NUMBER(number, .Llook);
#define GCP_ENTRY_JUMP(next)                                                           \
	movz x16, 0;                                                                   \
	movz x17, 0;                                                                   \
	movz x16, 0;                                                                   \
	movz x17, 0;                                                                   \
	b next;

#endif

	.text
.Llook:
	GCP_ROUTE(gcp_linked_target)
.Lwords:
	GCP_ROUTE(gcp_words_hook)

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
	gcp_hook_##name:                                                               \
	GCP_NUMBER(.Lrow_##name + (table << 16) + (stream << 22), .Lwords);            \
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

	.section .note.GNU-stack, "", %progbits
