/* SPDX-License-Identifier: MIT */
/*
 * exports_stubs.S - the entries of exports.c, each known outside under the name of its
 * row in symbols.h.
 *
 * Libraries that want to learn of every cuMemFree patch the first bytes of the function
 * that they find, and move the instructions that stood there elsewhere. They know only
 * a few kinds of instruction (UCX: bistro), not those that a compiler may begin a
 * function with. So an entry begins with 15 bytes of such a kind that do nothing: with
 * and without frame pointers, and whatever the compiler and its options are. That they
 * are known also tells whether an entry is patched (GCP_ENTRY_CODE in hooks.h).
 */
#include "../cuda/symbols.h"

#if defined(__x86_64__)

#define GCP_STUB(name)                                                                 \
	.symver gcp_entry_##name, name@GCPOOL;                                         \
	.globl gcp_entry_##name;                                                       \
	.type gcp_entry_##name, @function;                                             \
	.p2align 4;                                                                    \
	gcp_entry_##name: .cfi_startproc;                                              \
	movl $0, %eax;                                                                 \
	movl $0, %eax;                                                                 \
	movl $0, %eax;                                                                 \
	jmp gcp_called_##name;                                                         \
	.cfi_endproc;                                                                  \
	.size gcp_entry_##name, . - gcp_entry_##name;

#elif defined(__aarch64__)

#define GCP_STUB(name)                                                                 \
	.symver gcp_entry_##name, name@GCPOOL;                                         \
	.globl gcp_entry_##name;                                                       \
	.type gcp_entry_##name, %function;                                             \
	.p2align 4;                                                                    \
	gcp_entry_##name: .cfi_startproc;                                              \
	movz x16, 0;                                                                   \
	movz x17, 0;                                                                   \
	movz x16, 0;                                                                   \
	movz x17, 0;                                                                   \
	b gcp_called_##name;                                                           \
	.cfi_endproc;                                                                  \
	.size gcp_entry_##name, . - gcp_entry_##name;

#else
#error "no stubs for this processor"
#endif

#define GCP_X(name, ...) GCP_STUB(name)

	.text
GCP_DRIVER_HOOKS(GCP_X)

	.section .note.GNU-stack, "", %progbits
