/*
 * elfwalk.c - see elfwalk.h. Called by the dlsym stub and the resolver; holds no lock
 * of ours, calls neither dlsym nor malloc.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "elfwalk.h"

struct gcp_elf_search {
	const char *soname;
	struct gcp_elf *result;
};

static int elf_visit(struct dl_phdr_info *info, size_t size, void *data);

bool gcp_elf_find(const char *soname, struct gcp_elf *ret_elf)
{
	struct gcp_elf_search search = {.soname = soname, .result = ret_elf};

	return dl_iterate_phdr(elf_visit, &search) != 0;
}

/* Most libraries have their dynamic section relocated in memory by the loader,
 * some (the vdso) do not. */
static const void *elf_pointer(const struct gcp_elf *elf, ElfW(Addr) value)
{
	return (const void *)(value < elf->base ? elf->base + value : value);
}

static bool elf_read(const struct dl_phdr_info *info, struct gcp_elf *elf)
{
	const ElfW(Dyn) *entry = NULL;
	ElfW(Addr) soname = 0;

	memset(elf, 0, offsetof(struct gcp_elf, path));
	elf->base = info->dlpi_addr;
	elf->phdr = info->dlpi_phdr;
	elf->phdr_count = info->dlpi_phnum;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			entry = (const ElfW(Dyn) *)(info->dlpi_addr +
						    info->dlpi_phdr[i].p_vaddr);
	if (!entry)
		return false;
	for (; entry->d_tag != DT_NULL; entry++) {
		const void *pointer = elf_pointer(elf, entry->d_un.d_ptr);

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
	}
	if (!elf->symbols || !elf->strings || (!elf->gnu_hash && !elf->sysv_hash))
		return false;
	elf->soname = soname ? elf->strings + soname : "";
	return true;
}

static int elf_visit(struct dl_phdr_info *info, size_t size, void *data)
{
	struct gcp_elf_search *search = data;
	struct gcp_elf *elf = search->result;

	(void)size;
	if (!elf_read(info, elf))
		return 0;
	if (strcmp(elf->soname, search->soname) != 0)
		return 0;
	strncpy(elf->path, info->dlpi_name ? info->dlpi_name : "", PATH_MAX - 1);
	elf->path[PATH_MAX - 1] = '\0';
	return 1;
}

/* --- functions --------------------------------------------------------------- */

static void *elf_match(const struct gcp_elf *elf, uint32_t index, const char *name)
{
	const ElfW(Sym) *symbol = &elf->symbols[index];

	if (symbol->st_shndx == SHN_UNDEF || (symbol->st_info & 0xf) != STT_FUNC ||
	    strcmp(elf->strings + symbol->st_name, name) != 0)
		return NULL;
	return (void *)(elf->base + symbol->st_value);
}

/* DT_GNU_HASH: bucket count, first symbol, bloom words, bloom shift; the bloom
 * filter; the buckets; one hash per symbol, whose lowest bit ends a chain. */
static void *elf_lookup_gnu(const struct gcp_elf *elf, const char *name)
{
	const uint32_t *table = elf->gnu_hash;
	uint32_t bucket_count = table[0], first = table[1];
	const ElfW(Addr) *bloom = (const ElfW(Addr) *)(table + 4);
	const uint32_t *buckets = (const uint32_t *)(bloom + table[2]);
	const uint32_t *chain = buckets + bucket_count;
	uint32_t hash = 5381, index;

	for (const unsigned char *c = (const unsigned char *)name; *c; c++)
		hash = hash * 33 + *c;
	if (!bucket_count)
		return NULL;
	index = buckets[hash % bucket_count];
	if (index < first)
		return NULL;
	for (;; index++) {
		uint32_t other = chain[index - first];
		void *found =
		    (other | 1) == (hash | 1) ? elf_match(elf, index, name) : NULL;

		if (found || (other & 1))
			return found;
	}
}

/* DT_HASH: bucket count, symbol count, buckets, chains. */
static void *elf_lookup_sysv(const struct gcp_elf *elf, const char *name)
{
	const uint32_t *table = elf->sysv_hash;

	for (uint32_t index = 1; index < table[1]; index++) {
		void *found = elf_match(elf, index, name);

		if (found)
			return found;
	}
	return NULL;
}

void *gcp_elf_symbol(const struct gcp_elf *elf, const char *name)
{
	return elf->gnu_hash ? elf_lookup_gnu(elf, name) : elf_lookup_sysv(elf, name);
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

void *gcp_elf_libc_symbol(const char *name)
{
	static const char *const libraries[] = {"libc.so.6", "libdl.so.2",
						"libpthread.so.0"};
	struct gcp_elf elf;
	void *found;

	for (size_t i = 0; i < sizeof(libraries) / sizeof(*libraries); i++) {
		if (!gcp_elf_find(libraries[i], &elf))
			continue;
		found = gcp_elf_symbol(&elf, name);
		if (found)
			return found;
	}
	return NULL;
}

bool gcp_elf_pin(const struct gcp_elf *elf)
{
	void *(*real_dlopen)(const char *, int);
	int saved = errno;
	bool pinned;

	*(void **)&real_dlopen = gcp_elf_libc_symbol("dlopen");
	pinned = real_dlopen &&
		 real_dlopen(elf->path, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
	errno = saved;
	return pinned;
}
