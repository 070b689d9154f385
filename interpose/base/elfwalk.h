/* SPDX-License-Identifier: MIT */
/*
 * elfwalk.h - finds loaded libraries, and functions in them, by walking their ELF
 * symbol tables.
 *
 * Why not dlsym: this library *is* dlsym for the whole process, and a
 * look-up through the public one would leave its mark in dlerror, would find
 * our own hooks, and is not in libc.so.6 before glibc 2.34. The walk allocates
 * nothing and touches neither errno nor dlerror. Any thread, any time; it holds
 * the loader's list lock.
 *
 * Some of it runs before anything else in the process does: a sanitizer looks
 * up what it intercepts with dlsym, and what it intercepts (dl_iterate_phdr,
 * strcmp) does not work until it has. Functions marked GCP_EARLY therefore call
 * nothing of libc, and are never instrumented.
 */
#ifndef GCP_INTERPOSE_ELFWALK_H
#define GCP_INTERPOSE_ELFWALK_H

#include <limits.h>
#include <link.h>
#include <stdbool.h>

#define GCP_EARLY                                                                      \
	__attribute__((no_sanitize("address"), no_sanitize("thread"),                  \
		       no_sanitize("undefined")))

struct gcp_elf {
	ElfW(Addr) base;         /* load bias */
	const ElfW(Phdr) * phdr; /* program headers, to tell what lies inside */
	ElfW(Half) phdr_count;
	const ElfW(Sym) * symbols;
	const char *strings;
	const uint32_t *gnu_hash; /* at least one of the two hash tables */
	const uint32_t *sysv_hash;
	const char *soname;            /* "" if it has none */
	const ElfW(Verdef) * versions; /* that it defines; NULL: none */
	ElfW(Xword) version_count;
	char path[PATH_MAX]; /* as the loader knows it */
};

/* The first loaded library, but this one, whose soname is `name`; without one, the
 * first that defines the symbol version `name`. NVIDIA's libraries define one of their
 * own name, and a package that renames a library (auditwheel) leaves it. */
bool gcp_elf_find(const char *name, struct gcp_elf *ret_elf);
/* The loaded library, but this one, or program that has this address. */
bool gcp_elf_at(const void *address, struct gcp_elf *ret_elf);

/* True if gcp_elf_find could return this library for `name`. */
bool gcp_elf_is(const struct gcp_elf *elf, const char *name);

/* The function `name` that this library defines and exports, or NULL. */
void *gcp_elf_symbol(const struct gcp_elf *elf, const char *name);

/* The name of a function that this library defines and exports for which
 * is_it(arg, name) is true; NULL: there is none. */
const char *gcp_elf_function(const struct gcp_elf *elf,
			     bool (*is_it)(const void *arg, const char *name),
			     const void *arg);

/* Whether `address` lies in this library. */
bool gcp_elf_contains(const struct gcp_elf *elf, const void *address);

/* A function of libc, libdl or libpthread: they were separate libraries before
 * glibc 2.34, and a program may have been started without the latter two. */
void *gcp_elf_libc_symbol(const char *name);

/* Whether this library stands before libc and libdl in the order of look-up, as one
 * that is preloaded or linked does, so that its dlsym is the program's. One that was
 * loaded later stands behind them. */
bool gcp_elf_is_before_libc(void);

/* Keeps the library loaded permanently: pointers into it stay valid. */
bool gcp_elf_pin(const struct gcp_elf *elf);

#endif
