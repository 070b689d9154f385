/* SPDX-License-Identifier: MIT */
/*
 * hazard.c - the hazard checker: two operations that may overlap in time and
 * touch the same bytes, one of them writing.
 *
 * Each byte of memory that work touched remembers its last writer and its
 * readers since, as lane and number. A new access is ordered if its vector
 * clock covers all of those that it conflicts with. Driver allocations do not
 * matter here: memory that a cache hands on inside one allocation is judged by
 * order alone. Called at submission by stream.c and exec.c, under the big lock.
 * Never decides when something runs.
 *
 * Memory is kept in pages of 2 MiB found by hash; each page is a sorted array
 * of segments without overlap, empty space between them never touched.
 */
#include "sim.h"

/* One access of the past. */
struct mark {
	struct sim_epoch epoch;
	const char *what;
	uint32_t stream;
	enum sim_mode mode;
};

/* Invariants: lo < hi; readers hold no two marks of one lane and mode. */
struct segment {
	uint32_t lo, hi; /* bytes within the page */
	bool written;
	struct mark writer;
	struct mark *readers; /* reads and atomics since */
	uint32_t reader_count, reader_capacity;
};

struct page {
	uint64_t number; /* address / SIM_CHUNK */
	struct segment *at;
	uint32_t count, capacity;
	struct page *next;
};

enum { BUCKETS = 4096 };
static struct page *buckets[BUCKETS];

static struct page *page_find(uint64_t number, bool create)
{
	struct page **slot = &buckets[(number * 0x9E3779B97F4A7C15ull) >> 52];
	struct page *page;

	for (page = *slot; page; page = page->next)
		if (page->number == number)
			return page;
	if (!create)
		return NULL;
	page = sim_calloc(sizeof(*page));
	page->number = number;
	page->next = *slot;
	*slot = page;
	return page;
}

/* --- segments -------------------------------------------------------------------- */

/* Index of the first segment that ends behind `lo`. */
static uint32_t segment_at(const struct page *page, uint32_t lo)
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

static void segment_insert(struct page *page, uint32_t i, struct segment segment)
{
	page->at =
	    sim_grow(page->at, &page->capacity, page->count + 1, sizeof(*page->at));
	memmove(page->at + i + 1, page->at + i, (page->count - i) * sizeof(*page->at));
	page->at[i] = segment;
	page->count++;
}

static void segments_remove(struct page *page, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i++)
		free(page->at[i].readers);
	if (page->count > to)
		memmove(page->at + from, page->at + to,
			(page->count - to) * sizeof(*page->at));
	page->count -= to - from;
}

static void segment_split(struct page *page, uint32_t i, uint32_t at)
{
	struct segment right = page->at[i];

	right.lo = at;
	right.readers = NULL;
	right.reader_capacity = 0;
	right.readers = sim_grow(NULL, &right.reader_capacity, right.reader_count,
				 sizeof(*right.readers));
	if (right.reader_count)
		memcpy(right.readers, page->at[i].readers,
		       right.reader_count * sizeof(*right.readers));
	page->at[i].hi = at;
	segment_insert(page, i + 1, right);
}

/* Makes segment borders at lo and hi; returns the first segment in between. */
static uint32_t segments_cut(struct page *page, uint32_t lo, uint32_t hi)
{
	uint32_t i = segment_at(page, lo), last;

	if (i < page->count && page->at[i].lo < lo)
		segment_split(page, i++, lo);
	last = segment_at(page, hi);
	if (last < page->count && page->at[last].lo < hi)
		segment_split(page, last, hi);
	return i;
}

/* --- the check -------------------------------------------------------------------- */

static const char *const mode_names[] = {"read", "write", "atomic"};

static bool conflicts(enum sim_mode a, enum sim_mode b)
{
	if (a == SIM_ATOMIC && b == SIM_ATOMIC)
		return false;
	return a != SIM_READ || b != SIM_READ;
}

static bool check(const struct mark *old, const struct mark *new,
		  const struct sim_vc *vc, uint64_t lo, uint64_t hi)
{
	if (!conflicts(old->mode, new->mode) || sim_vc_covers(vc, old->epoch))
		return true;
	sim_report(&sim.hazards,
		   "hazard: %s (stream %u, no %lu) may %s bytes 0x%lx-0x%lx while "
		   "%s (stream %u, no %lu) may %s them",
		   new->what, new->stream, new->epoch.seq, mode_names[new->mode], lo,
		   (hi - 1), old->what, old->stream, old->epoch.seq,
		   mode_names[old->mode]);
	return false;
}

static bool check_segment(const struct segment *s, uint64_t base,
			  const struct mark *mark, const struct sim_vc *vc)
{
	uint64_t lo = base + s->lo, hi = base + s->hi;

	if (s->written && !check(&s->writer, mark, vc, lo, hi))
		return false;
	for (uint32_t i = 0; i < s->reader_count; i++)
		if (!check(&s->readers[i], mark, vc, lo, hi))
			return false;
	return true;
}

/* --- remembering ---------------------------------------------------------- */

/* Readers that the new one is ordered after say nothing more than it does, if
 * they are of the same mode. */
static void segment_read(struct segment *s, const struct mark *mark,
			 const struct sim_vc *vc)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < s->reader_count; i++)
		if (s->readers[i].mode != mark->mode ||
		    !sim_vc_covers(vc, s->readers[i].epoch))
			s->readers[kept++] = s->readers[i];
	s->readers =
	    sim_grow(s->readers, &s->reader_capacity, kept + 1, sizeof(*s->readers));
	s->readers[kept] = *mark;
	s->reader_count = kept + 1;
}

static void page_fill_gaps(struct page *page, uint32_t i, uint32_t lo, uint32_t hi)
{
	while (lo < hi) {
		uint32_t end = hi;

		if (i < page->count && page->at[i].lo < hi)
			end = page->at[i].lo;
		if (lo < end)
			segment_insert(page, i, (struct segment){.lo = lo, .hi = end});
		lo = page->at[i].hi;
		i++;
	}
}

static void page_write(struct page *page, uint32_t first, uint32_t lo, uint32_t hi,
		       const struct mark *mark)
{
	uint32_t last = first;

	while (last < page->count && page->at[last].lo < hi)
		last++;
	segments_remove(page, first, last);
	segment_insert(
	    page, first,
	    (struct segment){.lo = lo, .hi = hi, .written = true, .writer = *mark});
}

/* Returns whether the access was in order; it stops at the first that is not,
 * so that one mistake is one report. */
static bool page_access(struct page *page, uint32_t lo, uint32_t hi,
			const struct mark *mark, const struct sim_vc *vc, bool report)
{
	uint64_t base = page->number * SIM_CHUNK;
	uint32_t first = segments_cut(page, lo, hi);
	bool fine = true;

	for (uint32_t i = first; i < page->count && page->at[i].lo < hi && report; i++)
		if (!check_segment(&page->at[i], base, mark, vc))
			fine = report = false;
	if (mark->mode == SIM_WRITE) {
		page_write(page, first, lo, hi, mark);
		return fine;
	}
	page_fill_gaps(page, first, lo, hi);
	for (uint32_t i = first; i < page->count && page->at[i].lo < hi; i++)
		segment_read(&page->at[i], mark, vc);
	return fine;
}

static bool range_access(uint64_t addr, uint64_t bytes, const struct mark *mark,
			 const struct sim_vc *vc, bool report)
{
	bool fine = true;

	SIM_EACH_CHUNK (addr, bytes, lo, n) {
		struct page *page = page_find(addr / SIM_CHUNK, true);

		if (!page_access(page, (uint32_t)lo, (uint32_t)(lo + n), mark, vc,
				 report && fine))
			fine = false;
	}
	return fine;
}

/* Mapped memory is judged twice: at its address, which says what an unmapping
 * would disturb, and as the physical memory that several addresses may show. */
static bool named_access(uint64_t addr, uint64_t bytes, const struct mark *mark,
			 const struct sim_vc *vc, bool report)
{
	const struct sim_alloc *alloc = sim_memory_find(addr);
	bool fine = range_access(addr, bytes, mark, vc, report);

	while (alloc && bytes > 0) {
		uint64_t room = SIM_CHUNK - addr % SIM_CHUNK;
		uint64_t n = room < bytes ? room : bytes;
		uint64_t name = sim_physical_name(alloc, addr);

		if (name && !range_access(name, n, mark, vc, report && fine))
			fine = false;
		addr += n;
		bytes -= n;
		if (addr >= alloc->addr + alloc->span)
			break;
	}
	return fine;
}

void sim_hazard_access(const struct sim_access *access, struct sim_epoch epoch,
		       const struct sim_vc *vc, const struct sim_actor *actor)
{
	struct mark mark = {epoch, actor->what, actor->stream, access->mode};
	bool fine = true;

	if (access->rows <= 1 || access->pitch == access->bytes) {
		uint64_t rows = access->rows ? access->rows : 1;

		named_access(access->addr, access->bytes * rows, &mark, vc, true);
		return;
	}
	for (uint64_t row = 0; row < access->rows; row++)
		if (!named_access(access->addr + row * access->pitch, access->bytes,
				  &mark, vc, fine))
			fine = false;
}

/* False: something may still run there. */
static bool host_access(uint64_t addr, uint64_t bytes, const struct mark *mark)
{
	SIM_EACH_CHUNK (addr, bytes, lo, n) {
		const struct page *page = page_find(addr / SIM_CHUNK, false);
		uint32_t i = page ? segment_at(page, (uint32_t)lo) : 0;

		for (; page && i < page->count && page->at[i].lo < lo + n; i++)
			if (!check_segment(&page->at[i], page->number * SIM_CHUNK, mark,
					   &sim.host))
				return false;
	}
	return true;
}

/* The host acts at once: all that may still run is what it does not know to be
 * done. Nothing is remembered, because whatever is submitted later comes later. */
void sim_hazard_host(uint64_t addr, uint64_t bytes, enum sim_mode mode,
		     const char *what)
{
	const struct sim_alloc *alloc = sim_memory_find(addr);
	struct mark mark = {{0, 0}, what, 0, mode};

	if (!host_access(addr, bytes, &mark))
		return;
	while (alloc && bytes > 0 && addr < alloc->addr + alloc->span) {
		uint64_t room = SIM_CHUNK - addr % SIM_CHUNK;
		uint64_t n = room < bytes ? room : bytes;
		uint64_t name = sim_physical_name(alloc, addr);

		if (name && !host_access(name, n, &mark))
			return;
		addr += n;
		bytes -= n;
	}
}

void sim_hazard_mapping(uint64_t addr, uint64_t bytes, const char *what)
{
	struct mark mark = {{0, 0}, what, 0, SIM_WRITE};

	host_access(addr, bytes, &mark);
}

void sim_hazard_reset(uint64_t addr, uint64_t bytes)
{
	SIM_EACH_CHUNK (addr, bytes, lo, n) {
		struct page *page = page_find(addr / SIM_CHUNK, false);

		if (page && page->count) {
			uint32_t first =
			    segments_cut(page, (uint32_t)lo, (uint32_t)(lo + n));
			uint32_t last = first;

			while (last < page->count && page->at[last].lo < lo + n)
				last++;
			segments_remove(page, first, last);
		}
	}
}
