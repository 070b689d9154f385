/* SPDX-License-Identifier: MIT */
/*
 * tags.c - the second means against hazards: data tags at execution.
 *
 * Every byte carries the number of the operation that wrote it last, twice: in
 * the order of submission, and in the order in which work really ran. When an
 * operation runs, the bytes that it touches must carry the writers that it
 * would have met had everything run in the order of submission; else something
 * overtook something it conflicts with, in this run and not only perhaps. Memory
 * that is mapped by hand is known by itself, not by an address: work at one address
 * finds what was written at another one, and must find the memory behind its
 * addresses that was there when it was submitted.
 * Shares nothing with hazard.c, so that neither covers the other's mistakes.
 * Called by schedule.c and memory.c under the big lock.
 *
 * A book is pages of 2 MiB found by hash, each a sorted array of runs of bytes
 * with one tag; what is not there has tag 0.
 */
#include "sim.h"

struct run {
	uint32_t lo, hi; /* bytes within the page */
	uint64_t tag;
};

struct page {
	uint64_t number; /* address / SIM_CHUNK */
	struct run *at;
	uint32_t count, capacity;
	struct page *next;
};

enum { BUCKETS = 4096 };

struct book {
	struct page *buckets[BUCKETS];
};

static struct book submitted, executed;

/* What an operation must find, and in which memory: runs in the order of its
 * accesses. */
struct sim_tags {
	struct expected {
		uint64_t addr, name, bytes, tag;
	} * at;
	uint32_t count, capacity;
};

/* --- a book --------------------------------------------------------------- */

static struct page *page_get(struct book *book, uint64_t number, bool create)
{
	struct page **slot = &book->buckets[(number * 0x9E3779B97F4A7C15ull) >> 52];
	struct page *page = *slot;

	while (page && page->number != number)
		page = page->next;
	if (!page && create) {
		page = sim_calloc(sizeof(*page));
		page->number = number;
		page->next = *slot;
		*slot = page;
	}
	return page;
}

/* Index of the first run that ends behind `lo`. */
static uint32_t run_at(const struct page *page, uint32_t lo)
{
	uint32_t a = 0, b = page->count;

	while (a < b) {
		uint32_t m = (a + b) / 2;

		if (page->at[m].hi <= lo)
			a = m + 1;
		else
			b = m;
	}
	return a;
}

/* Replaces runs [from, to) by `runs`. */
static void runs_replace(struct page *page, uint32_t from, uint32_t to,
			 const struct run *runs, uint32_t count)
{
	page->at =
	    sim_grow(page->at, &page->capacity, page->count + count, sizeof(*page->at));
	if (page->count > to)
		memmove(page->at + from + count, page->at + to,
			(page->count - to) * sizeof(*page->at));
	if (count)
		memcpy(page->at + from, runs, count * sizeof(*runs));
	page->count = page->count - (to - from) + count;
}

static void page_set(struct page *page, uint32_t lo, uint32_t hi, uint64_t tag)
{
	uint32_t from = run_at(page, lo), to = from, count = 0;
	struct run runs[3];

	while (to < page->count && page->at[to].lo < hi)
		to++;
	if (to > from && page->at[from].lo < lo)
		runs[count++] = (struct run){page->at[from].lo, lo, page->at[from].tag};
	if (tag)
		runs[count++] = (struct run){lo, hi, tag};
	if (to > from && page->at[to - 1].hi > hi)
		runs[count++] =
		    (struct run){hi, page->at[to - 1].hi, page->at[to - 1].tag};
	runs_replace(page, from, to, runs, count);
}

static void book_set(struct book *book, uint64_t addr, uint64_t bytes, uint64_t tag)
{
	SIM_EACH_CHUNK (addr, bytes, lo, n) {
		struct page *page = page_get(book, addr / SIM_CHUNK, tag != 0);

		if (page)
			page_set(page, (uint32_t)lo, (uint32_t)(lo + n), tag);
	}
}

/* The tag at `addr`; *ret_bytes: how far it reaches, `bytes` at most. */
static uint64_t book_get(struct book *book, uint64_t addr, uint64_t bytes,
			 uint64_t *ret_bytes)
{
	uint32_t lo = (uint32_t)(addr % SIM_CHUNK);
	const struct page *page = page_get(book, addr / SIM_CHUNK, false);
	uint32_t i = page ? run_at(page, lo) : 0;
	uint64_t end = SIM_CHUNK, tag = 0;

	if (page && i < page->count && page->at[i].lo <= lo) {
		end = page->at[i].hi;
		tag = page->at[i].tag;
	} else if (page && i < page->count) {
		end = page->at[i].lo;
	}
	*ret_bytes = end - lo < bytes ? end - lo : bytes;
	return tag;
}

/* --- memory behind addresses ---------------------------------------------- */

/* The name by which the books know the byte: what is mapped there now, at all of its
 * addresses the same, or else the address. *ret_bytes: as far as that goes on. */
static uint64_t name_of(uint64_t addr, uint64_t bytes, uint64_t *ret_bytes)
{
	const struct sim_alloc *alloc = sim_memory_find(addr);
	uint64_t room = SIM_CHUNK - addr % SIM_CHUNK, name = 0;

	if (alloc && addr < alloc->addr + alloc->span)
		name = sim_physical_name(alloc, addr);
	*ret_bytes = room < bytes ? room : bytes;
	return name ? name : addr;
}

static void memory_set(struct book *book, uint64_t addr, uint64_t bytes, uint64_t tag)
{
	while (bytes > 0) {
		uint64_t n, name = name_of(addr, bytes, &n);

		book_set(book, name, n, tag);
		addr += n;
		bytes -= n;
	}
}

static void writes_set(struct book *book, const struct sim_work *work, uint64_t tag)
{
	for (int i = 0; i < work->accesses; i++)
		for (uint64_t row = 0;
		     row < work->access[i].rows && work->access[i].mode == SIM_WRITE;
		     row++)
			memory_set(book,
				   work->access[i].addr + row * work->access[i].pitch,
				   work->access[i].bytes, tag);
}

/* --- operations ----------------------------------------------------------- */

static void expect(struct sim_tags *tags, uint64_t addr, uint64_t bytes)
{
	while (bytes > 0) {
		struct expected e = {.addr = addr};

		e.name = name_of(addr, bytes, &e.bytes);
		e.tag = book_get(&submitted, e.name, e.bytes, &e.bytes);
		tags->at = sim_grow(tags->at, &tags->capacity, tags->count + 1,
				    sizeof(*tags->at));
		tags->at[tags->count++] = e;
		addr += e.bytes;
		bytes -= e.bytes;
	}
}

struct sim_tags *sim_tags_submit(const struct sim_work *work, uint64_t tag)
{
	struct sim_tags *tags;

	if (work->accesses == 0)
		return NULL;
	tags = sim_calloc(sizeof(*tags));
	for (int i = 0; i < work->accesses; i++)
		for (uint64_t row = 0; row < work->access[i].rows; row++)
			expect(tags, work->access[i].addr + row * work->access[i].pitch,
			       work->access[i].bytes);
	writes_set(&submitted, work, tag);
	return tags;
}

/* Whether the memory is there still that was there when the work was submitted. */
static bool meets_memory(const struct expected *e, const struct sim_work *work)
{
	uint64_t n;

	if (name_of(e->addr, e->bytes, &n) == e->name)
		return true;
	sim_report(&sim.disorders,
		   "disorder: %s finds other memory behind bytes 0x%lx-0x%lx than "
		   "when it was submitted",
		   sim_work_name(work), e->addr, (e->addr + e->bytes - 1));
	return false;
}

static bool meets(const struct expected *e, const struct sim_work *work)
{
	uint64_t addr = e->name, bytes = e->bytes;

	if (!meets_memory(e, work))
		return false;
	while (bytes > 0) {
		uint64_t n, tag = book_get(&executed, addr, bytes, &n);

		if (tag != e->tag) {
			sim_report(&sim.disorders,
				   "disorder: %s finds bytes 0x%lx-0x%lx as operation "
				   "%lu left them, not as operation %lu did",
				   sim_work_name(work), addr, (addr + n - 1), tag,
				   e->tag);
			return false;
		}
		addr += n;
		bytes -= n;
	}
	return true;
}

void sim_tags_run(const struct sim_tags *tags, const struct sim_work *work,
		  uint64_t tag)
{
	for (uint32_t i = 0; tags && i < tags->count; i++)
		if (!meets(&tags->at[i], work))
			break;
	writes_set(&executed, work, tag);
}

/* The host acts now, after all that it was to come after: whatever was submitted
 * to write there must have run. What it writes is the latest in both books, so
 * that work which was to come before, and did not, finds the host's bytes. */
void sim_tags_host(uint64_t addr, uint64_t bytes, enum sim_mode mode)
{
	static uint64_t acts; /* their numbers are no operation's */
	uint64_t tag = 1ull << 63 | ++acts, n;
	bool fine = true;

	for (uint64_t at = addr; fine && at < addr + bytes; at += n) {
		uint64_t name = name_of(at, addr + bytes - at, &n);
		uint64_t must = book_get(&submitted, name, n, &n);
		uint64_t is = book_get(&executed, name, n, &n);

		fine = is == must;
		if (!fine)
			sim_report(&sim.disorders,
				   "disorder: the host finds bytes 0x%lx-0x%lx as "
				   "operation %lu left them, not as operation %lu did",
				   at, (at + n - 1), is, must);
	}
	if (mode != SIM_WRITE)
		return;
	memory_set(&submitted, addr, bytes, tag);
	memory_set(&executed, addr, bytes, tag);
}

void sim_tags_free(struct sim_tags *tags)
{
	if (tags)
		free(tags->at);
	free(tags);
}

void sim_tags_reset(uint64_t addr, uint64_t bytes)
{
	book_set(&submitted, addr, bytes, 0);
	book_set(&executed, addr, bytes, 0);
}
