/* SPDX-License-Identifier: MIT */
/*
 * hide.c - an older driver: functions that it does not have.
 *
 * Called by tests before anything has looked for a function, and for GCPSIM_HIDE
 * when the library is loaded; takes no lock. Neither cuGetProcAddress nor the loader
 * finds such a function afterwards: its symbol in this library's own table is made
 * one that is not defined. References that the loader has bound already stay, so a
 * call of such a function is counted as a misuse.
 */
#include "sim.h"

#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern ElfW(Dyn) _DYNAMIC[] __attribute__((visibility("hidden")));

bool sim_hidden[SIM_FN_COUNT];

/* --- by what name ---------------------------------------------------------------- */

/* "cuName" stands for all versions of it, "cuName_v2" for that one; per-thread twins
 * go with either. */
static bool names(const char *list, const char *symbol)
{
	while (list && *list) {
		size_t length = strcspn(list, ",");
		const char *rest = symbol + length;

		if (length > 0 && strncmp(symbol, list, length) == 0 &&
		    (!*rest || *rest == '_'))
			return true;
		list += length + (list[length] == ',');
	}
	return false;
}

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

		if (fn < 0 || !sim_hidden[fn])
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

int gcpsim_hide(const char *list)
{
	bool any = false;

	sim_thread_self(); /* reads the driver's version */
	for (int fn = 0; fn < SIM_FN_COUNT; fn++) {
		sim_hidden[fn] |= names(list, sim_fn_names[fn]) ||
				  sim_fn_since[fn] > sim.driver_version;
		any |= sim_hidden[fn];
	}
	return any ? table_hide() : 0;
}

__attribute__((constructor)) static void hide_at_start(void)
{
	const char *list = getenv("GCPSIM_HIDE");

	if (list)
		gcpsim_hide(list);
}
