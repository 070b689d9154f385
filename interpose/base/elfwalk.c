/* SPDX-License-Identifier: MIT */
/*
 * elfwalk.c - see elfwalk.h. Called by the dlsym stub and the resolver; holds no
 * lock of ours, calls neither dlsym nor malloc.
 *
 * libc.so.6 is found from the loader's own list, which begins with the program
 * and the libraries that it was started with and never loses those. All other
 * libraries are found by libc's own dl_iterate_phdr, which locks the list.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#include "elfwalk.h"

typedef int gcp_iterate(int (*)(struct dl_phdr_info *, size_t, void *), void *);

/* --- one library ------------------------------------------------------------------ */

GCP_EARLY static bool elf_same(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return *a == *b;
}

/* Fills what the dynamic section tells. Most libraries have it relocated in memory by
 * the loader, some (the vdso) do not. */
GCP_EARLY static bool elf_read(struct gcp_elf *elf, ElfW(Addr) base,
			       const ElfW(Dyn) * entry)
{
	ElfW(Addr) soname = 0;

	elf->base = base;
	elf->symbols = NULL;
	elf->strings = NULL;
	elf->gnu_hash = NULL;
	elf->sysv_hash = NULL;
	elf->versions = NULL;
	elf->version_count = 0;
	for (; entry->d_tag != DT_NULL; entry++) {
		ElfW(Addr) value = entry->d_un.d_ptr;
		const void *pointer =
		    (const void *)(value < base ? base + value : value);

		if (entry->d_tag == DT_SYMTAB)
			elf->symbols = pointer;
		else if (entry->d_tag == DT_STRTAB)
			elf->strings = pointer;
		else if (entry->d_tag == DT_GNU_HASH)
			elf->gnu_hash = pointer;
		else if (entry->d_tag == DT_HASH)
			elf->sysv_hash = pointer;
		else if (entry->d_tag == DT_SONAME)
			soname = entry->d_un.d_val;
		else if (entry->d_tag == DT_VERDEF)
			elf->versions = pointer;
		else if (entry->d_tag == DT_VERDEFNUM)
			elf->version_count = entry->d_un.d_val;
	}
	if (!elf->symbols || !elf->strings || (!elf->gnu_hash && !elf->sysv_hash))
		return false;
	elf->soname = soname ? elf->strings + soname : "";
	return true;
}

GCP_EARLY static bool elf_defines(const struct gcp_elf *elf, const char *version)
{
	const char *at = (const char *)elf->versions;

	for (ElfW(Xword) i = 0; at && i < elf->version_count; i++) {
		const ElfW(Verdef) *defined = (const ElfW(Verdef) *)at;
		const ElfW(Verdaux) *name =
		    (const ElfW(Verdaux) *)(at + defined->vd_aux);

		if (elf_same(elf->strings + name->vda_name, version))
			return true;
		at += defined->vd_next;
	}
	return false;
}

/* Returns the end of all that can be found; *ret_first: the first of them. DT_HASH:
 * bucket count, symbol count. DT_GNU_HASH: bucket count, first symbol, bloom words,
 * bloom shift; the bloom filter; the buckets; one hash per symbol, whose lowest bit
 * ends a chain. */
GCP_EARLY static uint32_t symbols_end(const struct gcp_elf *elf, uint32_t *ret_first)
{
	const uint32_t *table = elf->gnu_hash, *buckets, *chain;
	uint32_t last = 0;

	*ret_first = 1;
	if (!table)
		return elf->sysv_hash[1];
	*ret_first = table[1];
	buckets = (const uint32_t *)((const ElfW(Addr) *)(table + 4) + table[2]);
	chain = buckets + table[0];
	for (uint32_t i = 0; i < table[0]; i++)
		last = buckets[i] > last ? buckets[i] : last;
	if (last < table[1])
		return table[1];
	while (!(chain[last - table[1]] & 1))
		last++;
	return last + 1;
}

typedef bool elf_is_it(const void *arg, const char *name);

GCP_EARLY static bool is_name(const void *arg, const char *name)
{
	return elf_same(arg, name);
}

/* The symbol, if it is a function for which is_it(arg, name) is true; or NULL. */
GCP_EARLY static const ElfW(Sym) * elf_match(const struct gcp_elf *elf, uint32_t index,
					     elf_is_it *is_it, const void *arg)
{
	const ElfW(Sym) *symbol = &elf->symbols[index];

	return symbol->st_shndx != SHN_UNDEF && (symbol->st_info & 0xf) == STT_FUNC &&
		       is_it(arg, elf->strings + symbol->st_name)
		   ? symbol
		   : NULL;
}

/* The first one. */
GCP_EARLY static const ElfW(Sym) *
    elf_find(const struct gcp_elf *elf, elf_is_it *is_it, const void *arg)
{
	uint32_t index, end = symbols_end(elf, &index);
	const ElfW(Sym) *found = NULL;

	for (; !found && index < end; index++)
		found = elf_match(elf, index, is_it, arg);
	return found;
}

/* Of the names in one chain of DT_GNU_HASH: libcuda is asked for hundreds. */
GCP_EARLY static const ElfW(Sym) *
    elf_find_name(const struct gcp_elf *elf, const char *name)
{
	const uint32_t *table = elf->gnu_hash, *buckets, *chain;
	const ElfW(Sym) *found = NULL;
	uint32_t hash = 5381, index, end = 0;

	if (!table)
		return elf_find(elf, is_name, name);
	for (const unsigned char *c = (const unsigned char *)name; *c; c++)
		hash = hash * 33 + *c;
	buckets = (const uint32_t *)((const ElfW(Addr) *)(table + 4) + table[2]);
	chain = buckets + table[0];
	index = table[0] ? buckets[hash % table[0]] : 0;
	for (; !found && !end && index >= table[1]; index++) {
		found = elf_match(elf, index, is_name, name);
		end = chain[index - table[1]] & 1;
	}
	return found;
}

GCP_EARLY void *gcp_elf_symbol(const struct gcp_elf *elf, const char *name)
{
	const ElfW(Sym) *found = elf_find_name(elf, name);

	return found ? (void *)(elf->base + found->st_value) : NULL;
}

const char *gcp_elf_function(const struct gcp_elf *elf,
			     bool (*is_it)(const void *arg, const char *name),
			     const void *arg)
{
	const ElfW(Sym) *found = elf_find(elf, is_it, arg);

	return found ? elf->strings + found->st_name : NULL;
}

bool gcp_elf_contains(const struct gcp_elf *elf, const void *address)
{
	ElfW(Addr) at = (ElfW(Addr))address;

	for (int i = 0; i < elf->phdr_count; i++) {
		const ElfW(Phdr) *part = &elf->phdr[i];

		if (part->p_type == PT_LOAD && at >= elf->base + part->p_vaddr &&
		    at < elf->base + part->p_vaddr + part->p_memsz)
			return true;
	}
	return false;
}

/* --- libc ----------------------------------------------------------------- */

/* The loader's list, which it leaves for debuggers: glibc's, or that of musl. */
extern struct r_debug _r_debug __attribute__((weak));
extern struct r_debug *_dl_debug_addr __attribute__((weak));

GCP_EARLY static const struct link_map *loader_list(void)
{
	if (&_r_debug)
		return _r_debug.r_map;
	return &_dl_debug_addr ? _dl_debug_addr->r_map : NULL;
}

/* musl's libc is its loader too, the last in the list that was there from the start,
 * and has no name of its own: what glibc has not is looked up in that. */
GCP_EARLY static void *libc_symbol(const char *name)
{
	struct gcp_elf elf;
	void *found = NULL;

	for (const struct link_map *map = loader_list(); map; map = map->l_next) {
		if (!map->l_ld || !elf_read(&elf, map->l_addr, map->l_ld))
			continue;
		if (elf_same(elf.soname, "libc.so.6"))
			return gcp_elf_symbol(&elf, name);
		if (!found && elf_same(elf.soname, ""))
			found = gcp_elf_symbol(&elf, name);
	}
	return found;
}

GCP_EARLY void *gcp_elf_libc_symbol(const char *name)
{
	static const char *const others[] = {"libdl.so.2", "libpthread.so.0"};
	struct gcp_elf elf;
	void *found = libc_symbol(name);

	for (size_t i = 0; !found && i < sizeof(others) / sizeof(*others); i++)
		if (gcp_elf_find(others[i], &elf))
			found = gcp_elf_symbol(&elf, name);
	return found;
}

bool gcp_elf_is_before_libc(void)
{
	struct gcp_elf elf;

	for (const struct link_map *map = loader_list(); map; map = map->l_next) {
		if (map->l_ld == _DYNAMIC) /* our own */
			return true;
		if (map->l_ld && elf_read(&elf, map->l_addr, map->l_ld) &&
		    (elf_same(elf.soname, "libc.so.6") ||
		     elf_same(elf.soname, "libdl.so.2")))
			return false;
	}
	return true;
}

/* --- any library ---------------------------------------------------------- */

struct gcp_elf_search {
	const char *name;    /* NULL: any */
	const void *address; /* that it must have; NULL: any */
	bool by_version;
	struct gcp_elf *result;
};

GCP_EARLY static int elf_object_check(struct dl_phdr_info *info, size_t size,
				      void *data)
{
	struct gcp_elf_search *search = data;
	struct gcp_elf *elf = search->result;
	const char *path = info->dlpi_name ? info->dlpi_name : "";
	const ElfW(Dyn) *dynamic = NULL;
	size_t length = 0;

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			dynamic = (const ElfW(Dyn) *)(info->dlpi_addr +
						      info->dlpi_phdr[i].p_vaddr);
	if (!dynamic || dynamic == _DYNAMIC ||
	    !elf_read(elf, info->dlpi_addr, dynamic) ||
	    (search->name &&
	     !(search->by_version ? elf_defines(elf, search->name)
				  : elf_same(elf->soname, search->name))))
		return 0;
	elf->phdr = info->dlpi_phdr;
	elf->phdr_count = info->dlpi_phnum;
	if (search->address && !gcp_elf_contains(elf, search->address))
		return 0;
	for (; path[length] && length < PATH_MAX - 1; length++)
		elf->path[length] = path[length];
	elf->path[length] = '\0';
	return 1;
}

GCP_EARLY static bool elf_search(struct gcp_elf_search *search)
{
	static gcp_iterate *cached;
	gcp_iterate *iterate = __atomic_load_n(&cached, __ATOMIC_RELAXED);

	if (!iterate) {
		*(void **)&iterate = libc_symbol("dl_iterate_phdr");
		if (!iterate)
			iterate = dl_iterate_phdr;
		__atomic_store_n(&cached, iterate, __ATOMIC_RELAXED);
	}
	if (iterate(elf_object_check, search) != 0)
		return true;
	search->by_version = true;
	return iterate(elf_object_check, search) != 0;
}

GCP_EARLY bool gcp_elf_find(const char *name, struct gcp_elf *ret_elf)
{
	struct gcp_elf_search search = {.name = name, .result = ret_elf};

	return elf_search(&search);
}

bool gcp_elf_at(const void *address, struct gcp_elf *ret_elf)
{
	struct gcp_elf_search search = {.address = address, .result = ret_elf};

	return elf_search(&search);
}

bool gcp_elf_is(const struct gcp_elf *elf, const char *name)
{
	return elf_same(elf->soname, name) || elf_defines(elf, name);
}

bool gcp_elf_pin(const struct gcp_elf *elf)
{
	void *(*real_dlopen)(const char *, int);
	int saved = errno;
	bool pinned;

	*(void **)&real_dlopen = gcp_elf_libc_symbol("dlopen");
	/* Before glibc 2.34 both dlopen and dlclose are in libdl: where it is not
	 * loaded, what is loaded came with the program and stays. */
	pinned = !real_dlopen ||
		 real_dlopen(elf->path, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
	errno = saved;
	return pinned;
}
