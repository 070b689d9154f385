/* SPDX-License-Identifier: MIT */
/*
 * debug_say.c - the lines of GCPOOL_DEBUG: see debug.h.
 *
 * A frame is the name of its file and the place in it, as addr2line -e FILE takes it.
 */
#include <string.h>

#include "debug.h"
#include "instrument.h"

/* Of each kind; a program that goes wrong does so often. */
enum { LINES_MAX = 100 };

#define ULL(n) ((unsigned long long)(n))

/* --- frames ------------------------------------------------------------------ */

static void frame_add(struct gcp_text *text, uintptr_t address)
{
	const char *slash, *name;
	struct gcp_elf elf;

	if (!gcp.elf_at((const void *)address, &elf)) {
		gcp.text_add(text, "0x%llx", ULL(address));
		return;
	}
	slash = strrchr(elf.path, '/');
	name = elf.path[0] ? elf.path : program_invocation_short_name;
	gcp.text_add(text, "%s+0x%llx", slash ? slash + 1 : name,
		     ULL(address - elf.base));
}

static void stack_add(struct gcp_text *text, const char *words,
		      const struct gcp_debug_stack *stack)
{
	if (stack->count == 0)
		return;
	gcp.text_add(text, "%s", words);
	for (uint32_t i = 0; i < stack->count; i++) {
		gcp.text_add(text, "%s", i ? " < " : "");
		frame_add(text, stack->frames[i]);
	}
}

/* --- lines ------------------------------------------------------------------- */

struct line {
	char bytes[GCP_LINE_MAX];
	struct gcp_text text;
};

static bool line_begin(struct line *line, _Atomic uint32_t *count)
{
	uint32_t number = atomic_fetch_add(count, 1);

	if (number == LINES_MAX)
		gcp.log(GCP_LOG_ERROR | GCP_LOG_OFTEN,
			"GCPOOL_DEBUG: more of these are not said");
	if (number >= LINES_MAX)
		return false;
	gcp.text_init(&line->text, line->bytes, sizeof(line->bytes));
	gcp.text_add(&line->text, "GCPOOL_DEBUG: ");
	return true;
}

static void block_add(struct gcp_text *text, const struct gcp_debug_block *block)
{
	gcp.text_add(text, "block 0x%llx of %llu bytes (", ULL(block->info.addr),
		     ULL(block->info.requested));
	if (block->info.device < 0)
		gcp.text_add(text, "pinned host memory)");
	else if (!block->order.async)
		gcp.text_add(text, "device %d, any stream)", block->info.device);
	else
		gcp.text_add(text, "device %d, stream 0x%llx)", block->info.device,
			     ULL((uintptr_t)block->order.stream));
}

static void stacks_add(struct gcp_text *text, const struct gcp_debug_block *block)
{
	stack_add(text, "; allocated by ", &block->alloc);
	stack_add(text, "; freed by ", &block->free);
}

void gcp_debug_say(enum gcp_debug_kind kind, const struct gcp_debug_block *block,
		   const struct gcp_debug_found *what)
{
	static const char words[][24] = {"overrun of ", "use after free of ",
					 "double free of ", "never freed: "};
	static _Atomic uint32_t counts[GCP_DEBUG_KINDS];
	struct line line;

	if (!line_begin(&line, &counts[kind]))
		return;
	gcp.text_add(&line.text, "%s", words[kind]);
	block_add(&line.text, block);
	if (what->wrong)
		gcp.text_add(&line.text,
			     ": %llu byte%s written, the first at offset %llu",
			     ULL(what->wrong), what->wrong == 1 ? "" : "s",
			     ULL(what->first - block->info.addr));
	stacks_add(&line.text, block);
	stack_add(&line.text, "; and again by ", &what->by);
	gcp.log(GCP_LOG_ERROR | GCP_LOG_OFTEN, "%s", line.bytes);
}

void gcp_debug_say_foreign(gcp_addr addr, const struct gcp_debug_block *block,
			   const struct gcp_debug_stack *by)
{
	static _Atomic uint32_t count;
	struct line line;

	if (!line_begin(&line, &count))
		return;
	gcp.text_add(&line.text, "free of 0x%llx, which begins no block", ULL(addr));
	if (block) {
		gcp.text_add(&line.text, ": it lies %llu bytes into ",
			     ULL(addr - block->info.addr));
		block_add(&line.text, block);
		stacks_add(&line.text, block);
	}
	stack_add(&line.text, "; wrong free by ", by);
	gcp.log(GCP_LOG_ERROR | GCP_LOG_OFTEN, "%s", line.bytes);
}

void gcp_debug_say_leaks(uint64_t blocks, uint64_t bytes)
{
	GCP_TEXT(text, GCP_LINE_MAX);

	gcp.text_add(&text, "GCPOOL_DEBUG: %llu blocks were never freed", ULL(blocks));
	gcp.text_add_bytes(&text, ", together ", bytes);
	gcp.log(GCP_LOG_ERROR, "%s", text.bytes);
}

void gcp_debug_say_error(int result)
{
	static atomic_bool said;

	if (!atomic_exchange(&said, true))
		gcp.log(GCP_LOG_WARNING,
			"GCPOOL_DEBUG: the driver refuses to write or to read a "
			"pattern (error %d), some blocks are not checked",
			result);
}
