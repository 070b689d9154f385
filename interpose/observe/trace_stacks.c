/* SPDX-License-Identifier: MIT */
/*
 * trace_stacks.c - call stacks of a recording: see trace_stacks.h.
 *
 * A stack that was seen before is found in a table of hashes without a lock. A new one
 * is stored under lock. The list of executable mappings is read again when a library
 * was loaded or closed, and if an address of a new stack is in none of them. When a
 * library was closed another one may lie at its addresses: the table begins anew.
 */
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <unwind.h>

#include "instrument.h"
#include "trace_file.h"
#include "trace_stacks.h"

enum {
	TABLE_SLOTS = 1 << 17,
	PROBES_MAX = 64,
	RANGES_MAX = 4096,
	STACK_LOOKS_MAX = 64, /* of one thread that changes stacks */
	FRAMES_FEW = 2,       /* so few from frame pointers: there may be none */
};

struct range {
	uintptr_t start, end;
	uint64_t what; /* a hash of what is mapped there */
};

typedef _Unwind_Reason_Code unwind_step(struct _Unwind_Context *, void *);

static struct {
	uint32_t frames;
	enum gcp_trace_unwind unwind;
	/* NULL: none; the next three are there before it. */
	_Unwind_Reason_Code (*_Atomic backtrace)(unwind_step *, void *);
	_Unwind_Ptr (*address)(struct _Unwind_Context *);
	_Unwind_Word (*stack)(struct _Unwind_Context *);
	_Unwind_Word (*saved)(struct _Unwind_Context *, int);
	/* High half: of the hash, low half: the stack's number. 0: empty. */
	_Atomic uint64_t *table;
	_Atomic uint64_t libraries; /* libraries_seen, when the mappings were read */
	struct gcp_mutex lock; /* for what follows; files are read under it: cancel.h */
	struct range *ranges;  /* executable mappings, ascending */
	uint32_t range_count;
	uint64_t read_ns;    /* when they were read */
	struct range own[2]; /* code of the two libraries; constant after start */
} stacks = {.lock = GCP_MUTEX(GCP_RANK_TRACE_STACKS)};
static char maps_text[1 << 16]; /* stacks.lock */

/* The stack that the calling thread was on last, up to the thread's variables,
 * where they lie above it: what is mapped behind them may go any time. */
static __thread struct {
	uintptr_t low, high;
	uint32_t looks;
} on_stack;

/* --- mappings of the process ------------------------------------------------- */

struct mapping {
	uint64_t start, end, offset;
	uint64_t what; /* a hash of offset, file and path; of executable ones */
	bool executable;
	const char *path;
	size_t path_length;
};

static const char *hex_read(const char *next, uint64_t *ret_number)
{
	gcp_assert_held(GCP_RANK_TRACE_STACKS);
	*ret_number = 0;
	for (;; next++) {
		if (*next >= '0' && *next <= '9')
			*ret_number = *ret_number * 16 + (uint64_t)(*next - '0');
		else if (*next >= 'a' && *next <= 'f')
			*ret_number = *ret_number * 16 + (uint64_t)(*next - 'a' + 10);
		else
			return next;
	}
}

static uint64_t text_hash(const char *text, const char *end)
{
	uint64_t hash = 0;

	for (; text < end; text++)
		hash = (hash ^ (unsigned char)*text) * 0x9e3779b97f4a7c15u;
	return hash;
}

/* "start-end rwxp offset device inode   path" */
static bool mapping_parse(const char *line, const char *end, struct mapping *ret)
{
	gcp_assert_held(GCP_RANK_TRACE_STACKS);
	const char *next = hex_read(line, &ret->start);

	if (*next++ != '-')
		return false;
	next = hex_read(next, &ret->end);
	if (end - next < 6 || *next++ != ' ')
		return false;
	ret->executable = next[2] == 'x';
	ret->what = ret->executable ? text_hash(next + 5, end) : 0;
	next = hex_read(next + 5, &ret->offset);
	ret->path = memchr(next, '/', (size_t)(end - next));
	if (!ret->path)
		ret->path = memchr(next, '[', (size_t)(end - next));
	ret->path_length = ret->path ? (size_t)(end - ret->path) : 0;
	return true;
}

/* Calls scope for each mapping, till one call returns false. lock is held. */
static void mappings_each(bool (*scope)(void *arg, const struct mapping *mapping),
			  void *arg)
{
	gcp_assert_held(GCP_RANK_TRACE_STACKS);
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	size_t left = 0;
	ssize_t got;

	while (fd >= 0 && left < sizeof(maps_text) - 1 &&
	       (got = read(fd, maps_text + left, sizeof(maps_text) - 1 - left)) > 0) {
		char *line = maps_text, *limit = line + left + got, *end;
		struct mapping mapping;

		*limit = '\0';
		for (; (end = memchr(line, '\n', (size_t)(limit - line)));
		     line = end + 1)
			if (mapping_parse(line, end, &mapping) && !scope(arg, &mapping))
				goto out;
		left = (size_t)(limit - line);
		memmove(maps_text, line, left);
	}
out:
	if (fd >= 0)
		close(fd);
}

static const struct range *range_find(uintptr_t address)
{
	uint32_t low = 0, high = stacks.range_count;

	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (address >= stacks.ranges[middle].end)
			low = middle + 1;
		else if (address < stacks.ranges[middle].start)
			high = middle;
		else
			return &stacks.ranges[middle];
	}
	return NULL;
}

static bool range_has(uintptr_t address)
{
	gcp_assert_held(GCP_RANK_TRACE_STACKS);
	return range_find(address) != NULL;
}

struct modules_read {
	struct range ranges[RANGES_MAX];
	uint32_t count;
	uint64_t now;
};

/* Those that are new since the list was read last are written. */
static bool module_note(void *arg, const struct mapping *mapping)
{
	gcp_assert_held(GCP_RANK_TRACE_STACKS);
	struct modules_read *read = arg;
	struct gcp_trace_module module = {read->now, mapping->start, mapping->end,
					  mapping->offset, mapping->path_length};
	const struct range *range;

	if (!mapping->executable)
		return true;
	range = range_find(mapping->start);
	if (!range || range->what != mapping->what || !range_has(mapping->end - 1))
		gcp_trace_module_add(&module, mapping->path ? mapping->path : "");
	if (read->count < RANGES_MAX)
		read->ranges[read->count++] =
		    (struct range){mapping->start, mapping->end, mapping->what};
	return true;
}

static void modules_read_locked(void)
{
	gcp_assert_held(GCP_RANK_TRACE_STACKS);
	struct modules_read *read = (void *)(stacks.ranges + RANGES_MAX);

	read->count = 0;
	read->now = gcp_clock_ns();
	mappings_each(module_note, read);
	memcpy(stacks.ranges, read->ranges, read->count * sizeof(*read->ranges));
	stacks.range_count = read->count;
	stacks.read_ns = read->now;
}

void gcp_stacks_modules(void)
{
	gcp.mutex_lock(&stacks.lock);

	modules_read_locked();
	gcp.mutex_unlock(&stacks.lock);
}

static int libraries_note(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size;
	*(uint64_t *)arg = (uint64_t)info->dlpi_adds << 32 | (uint32_t)info->dlpi_subs;
	return 1;
}

/* High half: how many libraries were loaded until now, low half: closed. */
static uint64_t libraries_seen(void)
{
	uint64_t libraries = 0;

	dl_iterate_phdr(libraries_note, &libraries);
	return libraries;
}

static __attribute__((noinline)) void libraries_changed(uint64_t libraries)
{
	uint64_t before;

	gcp.mutex_lock(&stacks.lock);
	before = atomic_load(&stacks.libraries);
	if (before != libraries)
		modules_read_locked();
	for (uint32_t i = 0; (uint32_t)before != (uint32_t)libraries && i < TABLE_SLOTS;
	     i++)
		atomic_store_explicit(&stacks.table[i], 0, memory_order_relaxed);
	atomic_store(&stacks.libraries, libraries);
	gcp.mutex_unlock(&stacks.lock);
}

/* How many frames from the caller outwards lie in code. Libraries may have come since
 * the mappings were read; code that is made at run time is read no more than so often.
 */
static uint32_t frames_in_code(const uintptr_t *frames, uint32_t count)
{
	gcp_assert_held(GCP_RANK_TRACE_STACKS);
	for (uint32_t i = 0; i < count; i++) {
		if (range_has(frames[i] - 1))
			continue;
		if (gcp_clock_ns() - stacks.read_ns > 10 * 1000 * 1000)
			modules_read_locked();
		if (!range_has(frames[i] - 1))
			return i;
	}
	return count;
}

/* --- walk -------------------------------------------------------------------- */

static bool stack_note(void *arg, const struct mapping *mapping)
{
	gcp_assert_held(GCP_RANK_TRACE_STACKS);
	uintptr_t here = (uintptr_t)arg, own = (uintptr_t)&errno; /* one of libc's */

	if (here < mapping->start || here >= mapping->end)
		return true;
	on_stack.low = mapping->start;
	on_stack.high = mapping->end;
	if (own > here && own < mapping->end)
		on_stack.high = own;
	return false;
}

/* Whether it is known where the stack ends on which `here` lies. */
static bool stack_is_known(uintptr_t here)
{

	if (here >= on_stack.low && here < on_stack.high)
		return true;
	if (on_stack.looks >= STACK_LOOKS_MAX)
		return false;
	on_stack.looks++;
	gcp.mutex_lock(&stacks.lock);
	mappings_each(stack_note, (void *)here);
	gcp.mutex_unlock(&stacks.lock);
	return here >= on_stack.low && here < on_stack.high;
}

/* An address as aarch64 may have signed it. */
static uintptr_t unsigned_address(uintptr_t address)
{
#if defined(__aarch64__)
	return address & ((1ull << 48) - 1);
#else
	return address;
#endif
}

static __attribute__((no_sanitize("address"))) uint32_t
walk_frames(const struct gcp_caller *caller, uintptr_t *ret_frames)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0), frame = caller->frame;
	uint32_t count = 0;

	ret_frames[count++] = unsigned_address(caller->address);
	if (frame < here || !stack_is_known(here))
		return count;
	while (count < stacks.frames && frame % sizeof(frame) == 0 &&
	       frame >= on_stack.low && frame < on_stack.high - 2 * sizeof(frame)) {
		uintptr_t next = ((uintptr_t *)frame)[0];
		uintptr_t address = unsigned_address(((uintptr_t *)frame)[1]);

		if (address < 4096)
			break;
		if (count > 1 || address != ret_frames[0]) /* the entry's own frame */
			ret_frames[count++] = address;
		if (next <= frame)
			break;
		frame = next;
	}
	return count;
}

/* --- trampolines of CPython -------------------------------------------------- */

/* What a function finds when the one that it has called returns. */
struct registers {
	uintptr_t address, stack, rbx, rbp, r12, r13, r14, r15;
};

#if defined(__x86_64__)

/* Calls backtrace(step, arg) as if from where `registers` are: what unwinds this
 * function, by the rules below, reads them at rbx. */
void gcp_walk_from(const struct registers *registers,
		   _Unwind_Reason_Code (*backtrace)(unwind_step *, void *),
		   unwind_step *step, void *arg);
__asm__("	.text\n"
	"	.hidden	gcp_walk_from\n"
	"	.globl	gcp_walk_from\n"
	"	.type	gcp_walk_from, @function\n"
	"gcp_walk_from:\n"
	"	.cfi_startproc\n"
	"	endbr64\n"
	"	pushq	%rbx\n"
	"	movq	%rdi, %rbx\n"
	"	.cfi_escape 0x0f, 3, 0x73, 8, 0x06\n" /* the stack: *(rbx + 8) */
	"	.cfi_escape 0x10, 16, 2, 0x73, 0\n"   /* the address: at rbx */
	"	.cfi_escape 0x10, 3, 2, 0x73, 16\n"   /* rbx: at rbx + 16 */
	"	.cfi_escape 0x10, 6, 2, 0x73, 24\n"   /* rbp */
	"	.cfi_escape 0x10, 12, 2, 0x73, 32\n"
	"	.cfi_escape 0x10, 13, 2, 0x73, 40\n"
	"	.cfi_escape 0x10, 14, 2, 0x73, 48\n"
	"	.cfi_escape 0x10, 15, 2, 0x73, 56\n"
	"	movq	%rsi, %rax\n"
	"	movq	%rdx, %rdi\n"
	"	movq	%rcx, %rsi\n"
	"	call	*%rax\n"
	"	popq	%rbx\n"
	"	ret\n"
	"	.cfi_endproc\n"
	"	.size	gcp_walk_from, . - gcp_walk_from\n");

static void registers_note(struct registers *ret, struct _Unwind_Context *context,
			   uintptr_t address)
{
	*ret = (struct registers){
	    address,
	    stacks.stack(context),
	    stacks.saved(context, 3),
	    stacks.saved(context, 6),
	    stacks.saved(context, 12),
	    stacks.saved(context, 13),
	    stacks.saved(context, 14),
	    stacks.saved(context, 15),
	};
}

/* With -X perf CPython runs each function of the program through a copy of a
 *trampoline, for which there are no tables:
 *
 *	sub $8, %rsp; call *%rcx; add $8, %rsp; ret		3.12, 3.13
 *	push %rbp; mov %rsp, %rbp; call *%rcx; pop %rbp; ret	3.14
 *
 * If the address is behind its call, sets the registers to those of its caller. */
static bool trampoline_leave(struct registers *registers)
{
	const unsigned char *code = (const unsigned char *)registers->address;
	const uintptr_t *stack = (const uintptr_t *)registers->stack;
	gcp.mutex_lock(&stacks.lock);
	const struct range *range = NULL;
	bool add, pop;

	if (frames_in_code(&registers->address, 1) == 1)
		range = range_find(registers->address - 1);
	if (range && registers->address - range->start < 2)
		range = NULL;
	if (range && range->end - registers->address < 5)
		range = NULL;
	gcp.mutex_unlock(&stacks.lock);
	if (!range || memcmp(code - 2, "\xff\xd1", 2) != 0)
		return false;
	add = memcmp(code, "\x48\x83\xc4\x08\xc3", 5) == 0;
	pop = memcmp(code, "\x5d\xc3", 2) == 0;
	if (!add && !pop)
		return false;
	if (pop)
		registers->rbp = stack[0];
	registers->address = stack[1];
	registers->stack += 2 * sizeof(*stack);
	return true;
}

#endif

struct walk {
	uintptr_t from; /* the caller: what lies inside of it is ours; 0: not known */
	uintptr_t *frames;
	uint32_t count;
	bool reached;
	struct registers last; /* of the last frame */
};

static bool is_own(uintptr_t address)
{
	for (int i = 0; i < 2; i++)
		if (address >= stacks.own[i].start && address < stacks.own[i].end)
			return true;
	return false;
}

static _Unwind_Reason_Code walk_step(struct _Unwind_Context *context, void *arg)
{
	struct walk *walk = arg;
	uintptr_t address = stacks.address(context);

	if (walk->from)
		walk->reached = walk->reached || address == walk->from;
	else
		walk->reached = !is_own(address);
	if (walk->reached && address) {
		walk->frames[walk->count++] = address;
#if defined(__x86_64__)
		registers_note(&walk->last, context, address);
#endif
	}
	return walk->count < stacks.frames ? _URC_NO_REASON : _URC_END_OF_STACK;
}

static uint32_t walk_tables(const struct gcp_caller *caller, uintptr_t *ret_frames)
{
	struct walk walk = {.from = caller->address, .frames = ret_frames};

	stacks.backtrace(walk_step, &walk);
#if defined(__x86_64__) /* else a stack ends with the innermost Python function */
	while (walk.count && walk.count < stacks.frames &&
	       trampoline_leave(&walk.last)) {
		struct registers registers = walk.last;

		walk.from = registers.address;
		walk.reached = false;
		gcp_walk_from(&registers, stacks.backtrace, walk_step, &walk);
		if (!walk.reached)
			break;
	}
#endif
	return walk.count;
}

/* --- the table --------------------------------------------------------------- */

static uint64_t hash_of(const uintptr_t *frames, uint32_t count)
{
	uint64_t hash = count;

	for (uint32_t i = 0; i < count; i++) {
		hash = (hash ^ frames[i]) * 0x9e3779b97f4a7c15u;
		hash ^= hash >> 29;
	}
	return hash | 1ull << 63; /* never 0 */
}

static bool entry_is(uint32_t number, uint64_t hash, const uintptr_t *frames,
		     uint32_t count)
{
	const uint64_t *entry = gcp_trace_stack_at(number);

	if (!entry || entry[0] != hash)
		return false;
	for (uint32_t i = 0; i < count; i++)
		if (entry[1 + i] != frames[i])
			return false;
	return count == stacks.frames || entry[1 + count] == 0;
}

/* The stack's number, or 0 and the empty slot in which it would stand (NULL: none). */
static uint32_t table_find(uint64_t hash, const uintptr_t *frames, uint32_t count,
			   _Atomic uint64_t **ret_slot)
{
	*ret_slot = NULL;
	for (uint32_t i = 0; i < PROBES_MAX; i++) {
		_Atomic uint64_t *slot = &stacks.table[(hash + i) % TABLE_SLOTS];
		uint64_t value = atomic_load_explicit(slot, memory_order_acquire);

		if (!value) {
			*ret_slot = slot;
			return 0;
		}
		if (value >> 32 == hash >> 32 &&
		    entry_is((uint32_t)value, hash, frames, count))
			return (uint32_t)value;
	}
	return 0;
}

/* lock is held. */
static uint32_t table_add(uint64_t hash, const uintptr_t *frames, uint32_t count)
{
	_Atomic uint64_t *slot;
	uint32_t number = table_find(hash, frames, count, &slot);
	uint64_t *entry;

	if (number)
		return number; /* by another thread meanwhile */
	entry = slot ? gcp_trace_stack_entry(&number) : NULL;
	if (!entry) {
		gcp_trace_count_lost_stack();
		return 0;
	}
	for (uint32_t i = 0; i < stacks.frames; i++)
		entry[1 + i] = i < count ? frames[i] : 0;
	__atomic_store_n(&entry[0], hash, __ATOMIC_RELEASE);
	atomic_store_explicit(slot, hash >> 32 << 32 | number, memory_order_release);
	return number;
}

static __attribute__((noinline)) uint32_t stack_add(const struct gcp_caller *caller,
						    uintptr_t *frames, uint32_t count)
{
	uint32_t good, number;
	gcp.mutex_lock(&stacks.lock);

	good = frames_in_code(frames, count);
	if (good < count && stacks.unwind == GCP_UNWIND_AUTO && stacks.backtrace) {
		gcp.mutex_unlock(&stacks.lock);
		good = walk_tables(caller, frames);
		gcp.mutex_lock(&stacks.lock);
		frames_in_code(frames, good);
	}
	if (good == 0)
		good = 1; /* the caller is one, whatever it lies in */
	number = table_add(hash_of(frames, good), frames, good);
	gcp.mutex_unlock(&stacks.lock);
	return number;
}

static inline __attribute__((always_inline)) uint32_t
walk(const struct gcp_caller *caller, uintptr_t *ret_frames)
{
	uint32_t count = 0;

	/* The call that started the recording came before there was a caller. */
	if (stacks.unwind != GCP_UNWIND_TABLES && caller->address)
		count = walk_frames(caller, ret_frames);
	if (count <= FRAMES_FEW && stacks.frames > count && stacks.backtrace)
		count = walk_tables(caller, ret_frames);
	if (count == 0 && caller->address)
		ret_frames[count++] = caller->address;
	return count;
}

/* The caller is one, whatever it lies in. */
static uint32_t frames_good(const uintptr_t *frames, uint32_t count)
{
	gcp.mutex_lock(&stacks.lock);
	uint32_t good = frames_in_code(frames, count);

	gcp.mutex_unlock(&stacks.lock);
	return good == 0 && count > 0 ? 1 : good;
}

uint32_t gcp_stacks_walk(const struct gcp_caller *caller, uintptr_t *ret_frames)
{
	uint32_t count, good;
	int saved = errno;

	if (!stacks.table) {
		ret_frames[0] = caller->address;
		return caller->address != 0;
	}
	count = walk(caller, ret_frames);
	good = frames_good(ret_frames, count);
	if (good < count && stacks.unwind == GCP_UNWIND_AUTO && stacks.backtrace)
		good = frames_good(ret_frames, walk_tables(caller, ret_frames));
	errno = saved;
	return good;
}

uint32_t gcp_stacks_number(const struct gcp_caller *caller)
{
	uintptr_t frames[GCP_TRACE_FRAMES_MAX];
	_Atomic uint64_t *slot;
	uint64_t libraries;
	uint32_t count, number;
	int saved = errno;

	if (!stacks.table)
		return 0;
	libraries = libraries_seen();
	if (libraries != atomic_load_explicit(&stacks.libraries, memory_order_acquire))
		libraries_changed(libraries);
	count = walk(caller, frames);
	if (count == 0) {
		errno = saved;
		return 0;
	}
	number = table_find(hash_of(frames, count), frames, count, &slot);
	if (!number)
		number = stack_add(caller, frames, count);
	errno = saved;
	return number;
}

/* --- start ------------------------------------------------------------------- */

void gcp_stacks_load(void)
{
	_Unwind_Reason_Code (*backtrace)(unwind_step *, void *);
	int saved = errno;
	void *unwinder;

	if (!stacks.table || stacks.unwind == GCP_UNWIND_FRAMES)
		return;
	unwinder = dlopen("libgcc_s.so.1", RTLD_LAZY | RTLD_LOCAL);
	if (!unwinder) {
		errno = saved;
		return;
	}
	*(void **)&stacks.address = dlsym(unwinder, "_Unwind_GetIP");
	*(void **)&backtrace = dlsym(unwinder, "_Unwind_Backtrace");
	*(void **)&stacks.stack = dlsym(unwinder, "_Unwind_GetCFA");
	*(void **)&stacks.saved = dlsym(unwinder, "_Unwind_GetGR");
	if (stacks.address && stacks.stack && stacks.saved)
		atomic_store(&stacks.backtrace, backtrace);
	errno = saved;
}

bool gcp_stacks_start(uint32_t frames, enum gcp_trace_unwind unwind)
{
	size_t table = TABLE_SLOTS * sizeof(*stacks.table);
	size_t ranges = RANGES_MAX * sizeof(struct range) + sizeof(struct modules_read);
	char *memory = mmap(NULL, table + ranges, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	const uintptr_t own[2] = {(uintptr_t)gcp_stacks_start, (uintptr_t)gcp.log};

	if (memory == MAP_FAILED) {
		gcp.log(GCP_LOG_WARNING, "GCPOOL_TRACE_STACKS: no memory for a table, "
					 "recording no stacks");
		return false;
	}
	stacks.frames = frames;
	stacks.unwind = unwind;
	stacks.ranges = (void *)(memory + table);
	atomic_store(&stacks.libraries, libraries_seen());
	gcp_stacks_modules();
	for (int i = 0; i < 2; i++) {
		const struct range *range = range_find(own[i]);

		if (range)
			stacks.own[i] = *range;
	}
	stacks.table = (void *)memory;
	return true;
}
