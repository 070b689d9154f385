/* SPDX-License-Identifier: MIT */
/*
 * hide.c - an older driver (GCPSIM_HIDE): the loader finds no function that is newer
 * than its version, as cuGetProcAddress does not.
 *
 * Runs when the library is loaded; takes no lock. The symbol of such a function in this
 * library's own table is made one that is not defined.
 */
#include "sim.h"

#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

extern ElfW(Dyn) _DYNAMIC[] __attribute__((visibility("hidden")));

/* --- the loader's table --------------------------------------------------- */

static const void *dynamic_find(ElfW(Sxword) tag)
{
	for (const ElfW(Dyn) *entry = _DYNAMIC; entry->d_tag != DT_NULL; entry++)
		if (entry->d_tag == tag)
			return (const void *)entry->d_un.d_ptr;
	return NULL;
}

/* How many symbols there are: DT_GNU_HASH ends with a chain for each. */
static uint32_t symbols_count(const uint32_t *table)
{
	const uint32_t *buckets = table + 4 + table[2] * (sizeof(ElfW(Addr)) / 4);
	const uint32_t *chain = buckets + table[0];
	uint32_t last = 0;

	for (uint32_t i = 0; i < table[0]; i++)
		last = buckets[i] > last ? buckets[i] : last;
	while (last >= table[1] && !(chain[last - table[1]] & 1))
		last++;
	return last + 1;
}

/* The entry point of this symbol, or one that it is a twin of; -1: none. */
static int entry_of(const char *symbol)
{
	static const char *const suffixes[] = {"_ptsz", "_ptds"};
	size_t length = strlen(symbol);

	for (size_t i = 0; i < 2; i++)
		if (length > 5 && strcmp(symbol + length - 5, suffixes[i]) == 0)
			length -= 5;
	for (int fn = 0; fn < SIM_FN_COUNT; fn++)
		if (strncmp(sim_fn_names[fn], symbol, length) == 0 &&
		    sim_fn_names[fn][length] == 0)
			return fn;
	return -1;
}

static void symbols_hide(ElfW(Sym) * symbols, const char *strings, uint32_t count)
{
	for (uint32_t i = 1; i < count; i++) {
		int fn = entry_of(strings + symbols[i].st_name);

		if (fn < 0 || sim_fn_since[fn] <= sim.driver_version)
			continue;
		symbols[i].st_shndx = SHN_UNDEF;
		symbols[i].st_value = 0;
	}
}

static int table_hide(void)
{
	const uint32_t *hash = dynamic_find(DT_GNU_HASH);
	const ElfW(Sym) *symbols = dynamic_find(DT_SYMTAB);
	const char *strings = dynamic_find(DT_STRTAB);
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from, to;
	uint32_t count;

	if (!hash || !symbols || !strings)
		return -1;
	count = symbols_count(hash);
	from = (uintptr_t)symbols / page * page;
	to = (uintptr_t)(symbols + count);
	if (mprotect((void *)from, to - from, PROT_READ | PROT_WRITE) != 0)
		return -1;
	symbols_hide((ElfW(Sym) *)(uintptr_t)symbols, strings, count);
	return mprotect((void *)from, to - from, PROT_READ);
}

__attribute__((constructor)) static void hide_at_start(void)
{
	if (!getenv("GCPSIM_HIDE"))
		return;
	sim_thread_self(); /* reads the driver's version */
	if (table_hide() != 0)
		abort();
}
