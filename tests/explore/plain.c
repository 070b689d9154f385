/* SPDX-License-Identifier: MIT */
/*
 * plain.c - the oracle: what plain CUDA would do with the program's calls. The
 * simulated driver keeps its books (gcpsim_plain_alloc and others); here they are told
 * of each call, and the library's answer is compared with theirs.
 *
 * A program that is correct on plain CUDA frees no memory that a graph may still use.
 * Under the library it may, and so does the explorer's: on plain CUDA the free comes
 * when the last graph is gone, or the name of the graph pool. What is freed on a
 * stream is plain CUDA's again when the host knows the stream to be there, and what
 * another process has open when that closes it.
 *
 * Where the library refuses what plain CUDA would give, memory must really be missing:
 * what blocks in use and graph pools keep of the driver's memory is added up, and the
 * request must not fit beside it. All else could have gone back.
 *
 * Called with each allocation and free of the program, and after each step.
 */
#include "explore.h"

#include "gcpool.h"

enum {
	HELD_MAX = 65536,   /* pieces of memory */
	POOLS_LISTED = 256, /* graph pools */
	MIB = 1 << 20,
	CHUNK = 2 << 20, /* in which the library takes memory */
	PINNED_SLACK = 64 << 10,
	DEFAULT_WINDOW = 56 << 20, /* docs/options.md */
	DEFAULT_HOST_WINDOW = 256 << 20,
};

/* --- the program owns and frees ------------------------------------------------ */

void plain_own(struct thread *t, struct block *block, uint64_t plain)
{
	block->plain = plain;
	block->plain_pools = capture_pools(t);
	if (block->host && capture_may_take(t)) {
		t->model->pinned_captured += 2 * block->bytes;
		t->model->pinned_captured_in[block->context] += 2 * block->bytes;
	}
}

/* On plain CUDA itself no graph keeps anything: the program does not free it
 * (blocks.c). */
static bool is_kept(const struct model *w, const struct block *block)
{
	for (uint32_t i = 1; i <= w->pool_count && !w->setting->plain; i++)
		if (block->plain_pools & pool_bit(i) &&
		    (w->pools[i].refs > 0 || w->pools[i].named))
			return true;
	return block->plain_open || !clock_covers(&w->host, block->plain_mark);
}

void plain_lose(struct block *block)
{
	gcpsim_plain_free(block->plain);
	block->plain = 0;
	block->plain_freed = false;
}

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

/* Up to 1 MiB there are eight sizes in each power of two, without an option that says
 * otherwise. */
uint64_t plain_class_bytes(uint64_t wanted)
{
	uint64_t step = 512;

	while (wanted <= MIB && 16 * step < wanted)
		step *= 2;
	return round_up(wanted, step);
}

void plain_free(struct thread *t, struct block *block)
{
	struct model *w = t->model;

	block->plain_freed = true;
	w->plain_waiting++;
	plain_step(w);
}

/* Without the library the books must be the driver's own. Not after a free on a stream,
 * which the device does when it comes to it, and not where another process's memory
 * has taken addresses: how small blocks share memory depends on them. */
static bool books_are_exact(const struct model *w)
{
	for (const struct block *block = w->blocks; block; block = block->next)
		if (block->borrowed || block->async)
			return false;
	return w->setting->plain && !w->freed_on_streams;
}

/* A planned fault of a call that loses memory leaves more in use than the books say. */
static bool is_exact(const struct model *w, int device)
{
	uint64_t used = gcpsim_memory_used(device), plain = gcpsim_plain_used(device);

	return used == plain || (used > plain && w->setting->fault &&
				 w->setting->fault->loses && fault_excuses(w));
}

static void books_check(struct model *w)
{
	for (int i = 0; i < w->setting->devices; i++)
		if (!is_exact(w, i))
			failure(w,
				"device %d: %lu bytes are in use, and %lu in the books",
				i, gcpsim_memory_used(i), gcpsim_plain_used(i));
	if (!is_exact(w, -1))
		failure(w, "%lu bytes are pinned, and %lu in the books",
			gcpsim_memory_used(-1), gcpsim_plain_used(-1));
}

void plain_step(struct model *w)
{
	if (w->plain_waiting == 0) {
		if (books_are_exact(w))
			books_check(w);
		return;
	}
	w->plain_waiting = 0;
	for (struct block *block = w->blocks; block; block = block->next) {
		if (!block->plain_freed)
			continue;
		if (is_kept(w, block)) {
			w->plain_waiting++;
			continue;
		}
		/* No free tells when memory of a graph that is gone may be used. */
		block->unclosed |= block->plain_pools && !block->host;
		plain_lose(block);
	}
}

/* --- what cannot go back ------------------------------------------------------- */

static uint64_t least(uint64_t a, uint64_t b)
{
	return a && a < b ? a : b;
}

/* To plain CUDA a quota is as much as there is. */
static uint64_t quota_of(const struct model *w, int device)
{
	uint64_t quota = device < 0 ? w->setting->host_quota : w->setting->quota;

	return w->setting->plain ? UINT64_MAX : least(quota, UINT64_MAX);
}

/* What may be had of the device. */
static uint64_t most_of(const struct model *w, int device)
{
	return least(quota_of(w, device), w->memory[device]);
}

/* Marks what lies at an address, and gives its bytes if it was not marked yet. Of
 * mapped memory a block keeps its own chunks alone, but for memory of graphs, and
 * blocks in stream order, which divide handles of theirs. */
static uint64_t piece_mark(const struct block *block, uint64_t at, uint64_t *marks,
			   unsigned *count, uint64_t *ret_next)
{
	uint64_t base = at / CHUNK * CHUNK, bytes = CHUNK;
	bool mapped =
	    !block->host && !block->pools && !block->async && gcpsim_usage(at) >= 0;
	unsigned i = 0;

	if (!block->host && gcpsim_is_on_host(at)) {
		*ret_next = base + bytes;
		return 0;
	}
	if (!mapped && (gcpsim_piece(at, &base, &bytes) != 0 || bytes == 0)) {
		*ret_next = at / CHUNK * CHUNK + CHUNK;
		return 0;
	}
	*ret_next = base + bytes;
	while (i < *count && marks[i] != base)
		i++;
	if (i < *count || *count == HELD_MAX)
		return 0;
	marks[(*count)++] = base;
	return block->host ? bytes : round_up(bytes, CHUNK);
}

/* Marks what the block (or all that the library took for it) lies in, and gives the
 * bytes of what was not marked yet. */
static uint64_t held_by(const struct block *block, bool rounded, uint64_t *marks,
			unsigned *count)
{
	uint64_t size = rounded ? plain_class_bytes(block->bytes) : block->bytes;
	uint64_t next, sum = 0;

	for (uint64_t at = block->addr; at < block->addr + size; at = next)
		sum += piece_mark(block, at, marks, count, &next);
	return sum;
}

/* Also of a block that is left (is_left, blocks.c): no longer live, and never freed. */
static bool is_held(const struct block *block)
{
	return (block->live || block->plain_freed || block->plain) &&
	       !block->borrowed && !block->foreign;
}

/* Bytes of the driver's that blocks in use, or kept by graphs, lie in. */
static uint64_t held_mark(const struct model *w, int device, bool rounded,
			  uint64_t *marks, unsigned *count)
{
	uint64_t bytes = 0;

	for (const struct block *block = w->blocks; block; block = block->next)
		if (is_held(block) &&
		    (device < 0 ? block->host
				: !block->host && block->device == device))
			bytes += held_by(block, rounded && !block->host, marks, count);
	return bytes;
}

static uint64_t held(const struct model *w, int device, bool rounded)
{
	static uint64_t marks[HELD_MAX];
	unsigned count = 0;

	return held_mark(w, device, rounded, marks, &count);
}

/* Pinned memory that no block lies in, of other contexts whose work the driver's free
 * would wait for, and no free of such memory has; beside a capture, in which no fence
 * tells, of all others. As it was before the call: work may be done when that returns.
 */
static uint64_t stuck;

/* Of so many bytes of pinned memory in the context, those that no block lies in. */
static uint64_t unused_of(const struct model *w, int context, uint64_t bytes)
{
	static uint64_t marks[HELD_MAX];
	unsigned count = 0;
	uint64_t used = 0;

	for (const struct block *block = w->blocks; bytes && block; block = block->next)
		if (is_held(block) && block->host && block->context == context)
			used += held_by(block, false, marks, &count);
	return bytes > used ? bytes - used : 0;
}

/* In the calling thread's context. */
static uint64_t unused_here(const struct model *w)
{
	CUcontext ctx = NULL;

	(void)cuCtxGetCurrent(&ctx);
	for (int i = 0; i < CONTEXTS_MAX; i++)
		if (w->contexts[i].live && w->contexts[i].ctx == ctx)
			return unused_of(w, i, gcpsim_plain_pinned(ctx));
	return 0;
}

static uint64_t most_pinned(const struct model *w)
{
	return least(w->setting->host_quota,
		     least(w->setting->host_memory, UINT64_MAX));
}

static void stuck_look(const struct model *w)
{
	CUcontext own = NULL;

	stuck = 0;
	if (!w->setting->host_memory && !w->setting->host_quota)
		return;
	(void)cuCtxGetCurrent(&own);
	for (int i = 0; i < CONTEXTS_MAX; i++) {
		CUcontext ctx = w->contexts[i].ctx;

		if (w->contexts[i].live && ctx != own)
			stuck += unused_of(w, i,
					   all_is_calm(w) ? gcpsim_plain_stuck(ctx)
							  : gcpsim_plain_pinned(ctx));
	}
}

/* Whether, for all the host knows, a graph may run whose scratch is in a lane. */
static bool graphs_may_run(const struct model *w)
{
	for (uint32_t i = 1; i <= w->pool_count; i++)
		if (!clock_covers(&w->host, w->pools[i].launches.writer))
			return true;
	return false;
}

/* Of lanes that have not gone back, while they may be in use. */
static uint64_t held_by_lanes(const struct model *w, int device)
{
	struct gcpool_stats stats = {0};

	if (library.get_stats && graphs_may_run(w))
		(void)library.get_stats(device, &stats, sizeof(stats));
	return stats.lane_bytes.current;
}

static uint64_t held_by_graph_pools(void)
{
	static struct gcpool_graph_pool listed[POOLS_LISTED];
	size_t count = library.pools ? library.pools(listed, POOLS_LISTED) : 0;
	uint64_t bytes = 0;

	for (size_t i = 0; i < count && i < POOLS_LISTED; i++)
		bytes += listed[i].reserved_bytes;
	return bytes;
}

/* An executable whose update has failed may run on what was freed in the graph that it
 * was to be, and keeps that, too. */
static uint64_t held_by_failed_updates(const struct model *w)
{
	uint64_t bytes = 0;

	for (int i = 0; i < EXEC_SLOTS; i++)
		if (w->execs[i].handle && w->execs[i].mixed)
			bytes += w->execs[i].mixed_freed;
	return bytes;
}

/* --- the library is short of memory ---------------------------------------------- */

/* docs/limits.md: an allocation waits for work that plain CUDA has not waited for if
 * it needs memory of an epoch that no free has closed, or a graph's. A free closes one
 * where the device is nearly full (pool/timeline/tight.c), and where half of the
 * window has been freed, or all of a small one (window.c: with one stream); but not
 * beside a capture, nor on a stream. No free tells when memory of a graph that is gone
 * may be used. */

enum { NEARLY_FULL_PART = 64 };

static bool is_scarce(const struct model *w)
{
	return w->setting->memory_small || w->setting->quota;
}

static bool is_nearly_full(const struct model *w, int device)
{
	uint64_t most = most_of(w, device), used = gcpsim_memory_used(device);

	return used > most || most - used < most / NEARLY_FULL_PART;
}

static void graphs_gone_count(struct model *w)
{
	uint64_t pools = held_by_graph_pools();

	if (pools < w->graphs_seen)
		w->graphs_gone += w->graphs_seen - pools;
	w->graphs_seen = pools;
}

/* Bytes of a block that is free which younger ones have, or have had, as far as memory
 * has not moved meanwhile. */
static uint64_t used_again(const struct model *w, const struct block *block, bool now)
{
	uint64_t bytes = 0, from, to, end = block->addr + block->bytes;

	for (const struct block *other = w->blocks; other != block;
	     other = other->next) {
		from = other->addr > block->addr ? other->addr : block->addr;
		to = other->addr + other->bytes;
		to = to < end ? to : end;
		if ((other->live || !now) && from < to)
			bytes += to - from;
	}
	return bytes;
}

/* Bytes that count towards the epoch that is open in a context, in blocks of more than
 * `least`: what is used again is of one that was closed for that, and what was freed in
 * a capture counts elsewhere. Not the block that is being freed: with one stream an
 * epoch takes two blocks. */
static uint64_t epoch_bytes(const struct model *w, int context, uint64_t least)
{
	uint64_t bytes = 0;

	for (const struct block *block = w->blocks; block; block = block->next)
		if (block->unclosed && block->counts && block->context == context &&
		    block->bytes > least && !block->live &&
		    used_again(w, block, false) == 0)
			bytes += block->bytes;
	return bytes;
}

void plain_closed(struct model *w, int context)
{
	w->graphs_gone = 0;
	for (struct block *block = w->blocks; block; block = block->next)
		if (block->context == context)
			block->unclosed = false;
}

/* A thread counts the blocks that it may keep for itself, of up to 1 MiB, and adds them
 * up with others' when it has its share. */
void plain_closes(struct model *w, struct block *block, bool waits)
{
	uint64_t window = plain_option("GCPOOL_TEST_WINDOW", DEFAULT_WINDOW);
	uint64_t full = window / (window > MIB ? 2 : 1);

	if (block->host || !is_scarce(w))
		return;
	graphs_gone_count(w);
	block->unclosed = true;
	block->counts = waits && !block->pools && !block->plain_pools;
	if (waits && all_is_calm(w) &&
	    (is_nearly_full(w, block->device) ||
	     epoch_bytes(w, block->context, MIB) >= full ||
	     epoch_bytes(w, block->context, 0) >= 2 * full))
		plain_closed(w, block->context);
}

/* What a wait for later work may give: with a block all that it lies in, and that no
 * block in use does. */
static uint64_t unclosed(const struct model *w, int device, uint64_t *marks,
			 unsigned *count)
{
	uint64_t bytes = w->graphs_gone;

	for (const struct block *block = w->blocks; block; block = block->next)
		if (block->unclosed && block->device == device &&
		    used_again(w, block, true) < block->bytes) {
			uint64_t lies_in = held_by(block, true, marks, count);
			uint64_t own = round_up(plain_class_bytes(block->bytes), CHUNK);

			bytes += lies_in > own ? lies_in : own;
		}
	return bytes;
}

/* Ordinary segments do not go back while a barrier is pending, such as the end of a
 * capture sets (pool/reclaim/purge.c): then all that is unused can only be waited for.
 */
static bool has_barrier(const struct model *w)
{
	return w->graphs_seen + w->graphs_gone > 0;
}

/* The request fits neither beside what the driver has given, nor beside what is in use,
 * a graph's, or can only be waited for. */
static bool needs_unclosed(struct model *w, int device, uint64_t bytes)
{
	uint64_t most = most_of(w, device) / CHUNK * CHUNK;
	uint64_t need = round_up(plain_class_bytes(bytes), CHUNK), in_use, waiting;
	static uint64_t marks[HELD_MAX];
	unsigned count = 0;

	graphs_gone_count(w);
	if (gcpsim_memory_used(device) + need <= most)
		return false;
	if (w->freed_elsewhere || outcome->excused[EXCUSE_WAIT_LANE] > 0 ||
	    ((!w->setting->vmm || w->ordinary) && has_barrier(w)))
		return true;
	in_use = held_mark(w, device, true, marks, &count);
	waiting = unclosed(w, device, marks, &count) + w->graphs_seen;
	return waiting > 0 && in_use + waiting + need > most;
}

/* Of the host: the request does not fit beside what the driver has given, nor if all
 * went back that is unused in contexts for which plain CUDA has waited; and the own
 * context has some. */
static bool needs_own_pinned(const struct model *w, uint64_t bytes)
{
	uint64_t most = most_pinned(w), need = 2 * bytes + PINNED_SLACK;
	uint64_t own = unused_here(w);

	if (own == 0 || gcpsim_memory_used(-1) + need <= most)
		return false;
	return !all_is_calm(w) ||
	       held(w, -1, false) + own + stuck + w->pinned_captured + need > most;
}

bool plain_is_out(const struct model *w, int device, uint64_t bytes)
{
	return is_scarce(w) &&
	       gcpsim_memory_used(device) + round_up(bytes, CHUNK) > most_of(w, device);
}

void plain_may_be_full(struct model *w, int device, uint64_t bytes)
{
	const struct setting *setting = w->setting;

	if (device >= 0 && is_scarce(w) && needs_unclosed(w, device, bytes))
		plain_may_wait(w, EXCUSE_WAIT_FULL);
	if (device < 0 && (setting->host_memory || setting->host_quota) &&
	    needs_own_pinned(w, bytes))
		plain_may_wait(w, EXCUSE_WAIT_PINNED);
}

/* --- the program allocates ----------------------------------------------------- */

/* What was freed in a stream serves that stream at once. */
void plain_serve(struct model *w, const struct stream *s, uint64_t bytes)
{
	for (struct block *block = w->blocks; block && bytes > 0; block = block->next)
		if (block->plain_freed && block->async && block->plain &&
		    block->plain_mark.stream == s->number) {
			bytes -= bytes < block->bytes ? bytes : block->bytes;
			plain_lose(block);
		}
}

uint64_t plain_take(struct model *w, int device, uint64_t bytes)
{
	uint64_t plain;

	plain_step(w);
	if (device >= 0 && w->largest[device] < plain_class_bytes(bytes))
		w->largest[device] = plain_class_bytes(bytes);
	if (device < 0)
		stuck_look(w);
	plain_may_be_full(w, device, bytes);
	plain = gcpsim_plain_alloc(device, bytes);
	if (gcpsim_plain_used(device) <= quota_of(w, device))
		return plain;
	gcpsim_plain_free(plain);
	return 0;
}

/* --- the library refuses --------------------------------------------------------- */

/* What may be missing: the reason, or EXCUSES: nothing is. */
static enum excuse missing_device(const struct model *w, int device, uint64_t bytes)
{
	uint64_t most = most_of(w, device) / CHUNK * CHUNK;
	uint64_t need = round_up(plain_class_bytes(bytes), CHUNK);
	uint64_t kept = held(w, device, true);

	if (kept + need > most ||
	    held(w, device, false) + round_up(bytes, CHUNK) > most)
		return EXCUSE_ROUNDED;
	kept += held_by_graph_pools() + held_by_lanes(w, device) +
		held_by_failed_updates(w);
	return kept + need > most ? EXCUSE_GRAPHS : EXCUSES;
}

static enum excuse missing_pinned(const struct model *w, uint64_t bytes)
{
	const struct setting *setting = w->setting;
	uint64_t most = most_pinned(w);
	/* Below a quota, or beside a capture, CUDA is not asked for less than the
	 * rounded size. */
	bool rounds = setting->host_quota || !all_is_calm(w);
	uint64_t need = rounds ? 2 * bytes + PINNED_SLACK : bytes;
	uint64_t kept = held(w, -1, false);

	if (kept + need > most)
		return EXCUSE_ROUNDED;
	if (kept + w->pinned_captured + bytes > most)
		return EXCUSE_GRAPHS;
	return kept + w->pinned_captured + stuck + need > most ? EXCUSE_PINNED_BUSY
							       : EXCUSES;
}

static enum excuse missing(const struct model *w, int device, uint64_t bytes)
{
	enum excuse excuse =
	    device < 0 ? missing_pinned(w, bytes) : missing_device(w, device, bytes);

	return excuse == EXCUSES && plain_is_spoilt(w) ? EXCUSE_FAULT : excuse;
}

bool plain_is_spoilt(const struct model *w)
{
	return fault_has_struck(w->setting->fault);
}

bool fault_excuses(const struct model *w)
{
	return plain_is_spoilt(w) && excused(EXCUSE_FAULT);
}

bool fault_gives(const struct model *w, CUresult result)
{
	return w->setting->fault && (int)result == w->setting->fault->code &&
	       fault_excuses(w);
}

bool awake(const struct model *w)
{
	return !w->setting->sleep || !library.asleep() || library.wake() == 0 ||
	       !fault_excuses(w);
}

bool plain_lacks(const struct model *w, int device, uint64_t bytes)
{
	return (w->setting->memory_small || w->setting->quota) &&
	       (!all_is_calm(w) || missing_device(w, device, bytes) != EXCUSES);
}

bool plain_may_refuse(const struct model *w, int device, uint64_t bytes, uint64_t plain)
{
	return !plain || w->setting->leak || w->setting->plain ||
	       missing(w, device, bytes) != EXCUSES;
}

/* Plain CUDA would have had room. */
static void refusal_check(struct model *w, int device, uint64_t bytes)
{
	enum excuse excuse = missing(w, device, bytes);
	bool plain = w->setting->plain;

	if (plain && !books_are_exact(w))
		return;
	if (excuse == EXCUSES || (plain && !plain_is_spoilt(w)))
		failure(w,
			"device %d: no memory for %lu bytes; plain CUDA would have "
			"used %lu of %lu",
			device, bytes, gcpsim_plain_used(device),
			(device < 0 ? 0 : w->memory[device]));
	excused(excuse);
}

/* Not where nothing is ever given back: then the program alone is looked at. */
void plain_compare(struct model *w, int device, uint64_t bytes, uint64_t plain,
		   CUresult result)
{
	/* The library packs more closely, and has graphs share memory. */
	if (!w->setting->leak && result == CUDA_SUCCESS && !plain &&
	    !w->setting->spill && books_are_exact(w))
		failure(w, "device %d: %lu bytes that plain CUDA has not", device,
			bytes);
	if (!w->setting->leak && result == CUDA_ERROR_OUT_OF_MEMORY && plain)
		refusal_check(w, device, bytes);
	if (result != CUDA_SUCCESS)
		gcpsim_plain_free(plain);
}

/* But rows whose pitch CUDA has to tell first. */
void plain_spill_check(struct model *w, uint64_t bytes, CUresult result)
{
	if (result == CUDA_ERROR_OUT_OF_MEMORY && all_is_calm(w) &&
	    gcpsim_memory_used(-2) + round_up(bytes, CHUNK) <= w->setting->spill &&
	    !w->setting->plain && !fault_excuses(w))
		failure(w, "no memory for %lu bytes, and of the host %lu are taken",
			bytes, gcpsim_memory_used(-2));
}

/* --- how much is held --------------------------------------------------------- */

uint64_t plain_option(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);
	char *end;
	uint64_t value = text ? strtoull(text, &end, 10) : otherwise;

	if (text && *end)
		value <<= *end == 'T' ? 40 : *end == 'M' ? 20 : 10;
	return value;
}

/* The bound of docs/limits.md: what may be held where plain CUDA has held so much. Few
 * programs come to what it says of segments, and of memory in the order of streams. */
static uint64_t bound_device(const struct model *w, int device)
{
	uint64_t window = plain_option("GCPOOL_TEST_WINDOW", DEFAULT_WINDOW);
	bool mapped = w->setting->vmm && !w->ordinary;
	bool thrice = w->setting->large && (w->freed_on_streams || !mapped);

	return gcpsim_plain_peak(device) / 4 * (thrice ? 12 : 5) +
	       4 * w->largest[device] + w->contexts_peak * (2 * window + 96 * MIB);
}

uint64_t plain_growth_bound(const struct model *w, int device, uint64_t bytes)
{
	uint64_t window = plain_option("GCPOOL_TEST_WINDOW", DEFAULT_WINDOW);

	if (device < 0)
		return plain_option("GCPOOL_HOST_WINDOW", DEFAULT_HOST_WINDOW) +
		       8 * bytes + MIB;
	return w->contexts_peak * (2 * window + 32 * MIB) + 4 * bytes + 2 * CHUNK;
}

/* Why more may be held than the bound says, by how much. */
static enum excuse beyond_bound(const struct model *w, int device, uint64_t more)
{
	if (more <= w->graphs_held[device])
		return EXCUSE_GRAPHS;
	return plain_is_spoilt(w)   ? EXCUSE_FAULT
	       : w->freed_elsewhere ? EXCUSE_WAIT_DEVICES
				    : EXCUSES;
}

static void bound_check(struct model *w, int device)
{
	uint64_t bound = bound_device(w, device);
	uint64_t peak = gcpsim_memory_peak(device);
	enum excuse excuse;

	if (peak <= bound)
		return;
	excuse = beyond_bound(w, device, peak - bound);
	if (excuse == EXCUSES)
		failure(w,
			"device %d: %lu bytes were held, plain CUDA would have held "
			"%lu, and the bound is %lu",
			device, peak, gcpsim_plain_peak(device), bound);
	excused(excuse);
}

void plain_bounds(struct model *w)
{
	if (w->setting->leak || w->setting->plain)
		return;
	for (int i = 0; i < w->setting->devices; i++)
		bound_check(w, i);
}

/* --- waiting -------------------------------------------------------------------- */

void plain_waits(const struct model *w, int context)
{
	gcpsim_plain_waits(w->contexts[context].ctx, false);
}

void plain_may_wait(struct model *w, enum excuse excuse)
{
	if (excuse_is_there(excuse))
		w->may_wait |= EXCUSE_BIT(excuse);
}

/* Returns true if the host waited in that call. */
static bool waited_in(const char *call)
{
	return strncmp(gcpsim_last_report(), call, strlen(call)) == 0;
}

void plain_waits_check(struct model *w)
{
	uint64_t waits = gcpsim_new_waits() - w->new_waits;
	uint64_t looks = gcpsim_new_looks() - w->new_looks;
	uint64_t may_wait;

	if (plain_is_spoilt(w))
		plain_may_wait(w, EXCUSE_FAULT);
	may_wait = w->may_wait;

	/* In the order of a stream of the library's own, which a barrier holds back. */
	if (waits != looks && all_is_calm(w) &&
	    !(has_barrier(w) && waited_in("cuStreamSynchronize: the host ")))
		may_wait &= ~EXCUSE_BIT(EXCUSE_WAIT_FULL);
	if (!waited_in("cuMemFreeHost: the host "))
		may_wait &= ~EXCUSE_BIT(EXCUSE_WAIT_PINNED);
	w->may_wait = 0;
	if (waits == 0)
		return;
	w->new_waits += waits;
	w->new_looks += looks;
	if (w->setting->leak)
		return;
	if (!may_wait || (w->setting->plain && !plain_is_spoilt(w)))
		failure(w, "%s", gcpsim_last_report());
	excused((enum excuse)__builtin_ctzll(may_wait));
}
