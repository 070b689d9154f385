/* SPDX-License-Identifier: MIT */
/*
 * trace_stacks.c - call stacks of a recording: see trace.h.
 *
 * A stack that was seen before is found in a table of hashes without a lock. A new one
 * is stored under lock. When a library was loaded its code is written, too, and when
 * one was closed that of all is written again, and the table begins anew: another
 * library may lie at its addresses.
 */
#include <string.h>
#include <sys/uio.h>
#include <unwind.h>

#include "instrument.h"
#include "trace.h"

enum {
	TABLE_SLOTS = 1 << 17,
	PROBES_MAX = 64,
	RUNTIME_FRAMES = 16, /* at most, of cudart between two entries of the library */
};

typedef _Unwind_Reason_Code unwind_step(struct _Unwind_Context *, void *);

static struct {
	uint32_t frames; /* of a stack that is stored */
	/* NULL: none; the next three are there before it. */
	_Unwind_Reason_Code (*_Atomic backtrace)(unwind_step *, void *);
	_Unwind_Ptr (*address)(struct _Unwind_Context *);
	_Unwind_Word (*stack)(struct _Unwind_Context *);
	_Unwind_Word (*saved)(struct _Unwind_Context *, int);
	/* High half: of the hash, low half: the stack's number. 0: empty. */
	_Atomic uint64_t *table;
	_Atomic uint64_t libraries; /* libraries_seen, when the modules were read */
	struct gcp_mutex lock;      /* for what follows, and new stacks */
	uint32_t modules; /* libraries of the loader's list whose code is written */
	struct {
		uintptr_t start, end;
	} own[2]; /* code of the two libraries; constant after start */
} stacks = {.lock = GCP_MUTEX(GCP_RANK_TRACE_STACKS)};

/* --- modules ----------------------------------------------------------------- */

static uint64_t bytes_hash(uint64_t hash, const void *bytes, size_t count)
{
	const unsigned char *byte = bytes;

	for (size_t i = 0; i < count; i++)
		hash = (hash ^ byte[i]) * 0x9e3779b97f4a7c15u;
	return hash ^ hash >> 29;
}

/* The program has no name, and one that was loaded by a relative path has that. */
static void path_find(const char *name, char *path, size_t capacity)
{
	ssize_t length = *name ? 0 : readlink("/proc/self/exe", path, capacity - 1);
	struct gcp_text text;

	length = length > 0 ? length : 0;
	gcp.text_init(&text, path + length, capacity - (size_t)length);
	if (*name)
		gcp.text_add_path(&text, name);
}

/* One range of code. */
static void module_note(uintptr_t start, uintptr_t end, uint64_t offset,
			const char *path)
{
	gcp_assert_held(GCP_RANK_TRACE_STACKS);
	const struct gcp_trace_module module = {gcp_clock_ns(), start, end, offset,
						strlen(path)};
	const uintptr_t own[2] = {(uintptr_t)module_note, (uintptr_t)gcp.log};

	for (int i = 0; i < 2; i++)
		if (own[i] >= start && own[i] < end) {
			stacks.own[i].start = start;
			stacks.own[i].end = end;
		}
	gcp_trace_module_add(&module, path);
}

static int library_note(struct dl_phdr_info *info, size_t size, void *number)
{
	char path[GCP_PATH_MAX];

	(void)size;
	if ((*(uint32_t *)number)++ < stacks.modules)
		return 0;
	path_find(info->dlpi_name, path, sizeof(path));
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		uintptr_t start = info->dlpi_addr + part->p_vaddr;

		if (part->p_type == PT_LOAD && part->p_flags & PF_X)
			module_note(start, start + part->p_memsz, part->p_offset, path);
	}
	return 0;
}

/* Writes what is new: the list grows at its end. */
static void modules_read(void)
{
	gcp_assert_held(GCP_RANK_TRACE_STACKS);
	uint32_t count = 0;

	dl_iterate_phdr(library_note, &count);
	stacks.modules = count;
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

	GCP_LOCKED(&stacks.lock);
	before = atomic_load(&stacks.libraries);
	if (before == libraries)
		return;
	if ((uint32_t)before != (uint32_t)libraries) {
		stacks.modules = 0;
		for (uint32_t i = 0; i < TABLE_SLOTS; i++)
			atomic_store_explicit(&stacks.table[i], 0,
					      memory_order_relaxed);
	}
	modules_read();
	atomic_store(&stacks.libraries, libraries);
}

/* --- trampolines of CPython -------------------------------------------------- */

/* What a function finds when the one that it has called returns. */
struct registers {
	uintptr_t address, stack, rbx, rbp, r12_to_15[4];
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
	ret->address = address;
	ret->stack = stacks.stack(context);
	ret->rbx = stacks.saved(context, 3);
	ret->rbp = stacks.saved(context, 6);
	for (int i = 0; i < 4; i++)
		ret->r12_to_15[i] = stacks.saved(context, 12 + i);
}

static bool memory_read(uintptr_t address, void *to, size_t bytes)
{
	struct iovec local = {to, bytes}, remote = {(void *)address, bytes};

	return syscall(SYS_process_vm_readv, getpid(), &local, 1ul, &remote, 1ul,
		       0ul) == (long)bytes;
}

/* With -X perf CPython runs each function of the program through a copy of a
 *trampoline, for which there are no tables:
 *
 *	sub $8, %rsp; call *%rcx; add $8, %rsp; ret		3.12, 3.13
 *	push %rbp; mov %rsp, %rbp; call *%rcx; pop %rbp; ret	3.14
 *
 * If the address is behind its call, sets the registers to those of its caller. What
 * is at the address of a stack's last frame is not known: it may be no memory. */
static bool trampoline_leave(struct registers *registers)
{
	unsigned char code[7];
	uintptr_t stack[2];
	bool add, pop;

	if (!memory_read(registers->address - 2, code, sizeof(code)) ||
	    memcmp(code, "\xff\xd1", 2) != 0)
		return false;
	add = memcmp(code + 2, "\x48\x83\xc4\x08\xc3", 5) == 0;
	pop = memcmp(code + 2, "\x5d\xc3", 2) == 0;
	if ((!add && !pop) || !memory_read(registers->stack, stack, sizeof(stack)))
		return false;
	if (pop)
		registers->rbp = stack[0];
	registers->address = stack[1];
	registers->stack += sizeof(stack);
	return true;
}

#endif

struct walk {
	uintptr_t frames[GCP_TRACE_FRAMES_MAX];
	uint32_t first; /* of this turn: those before come from another one */
	uint32_t count, most;
	struct registers last; /* of the last frame */
};

static bool is_own(uintptr_t address)
{
	for (int i = 0; i < 2; i++)
		if (address >= stacks.own[i].start && address < stacks.own[i].end)
			return true;
	return false;
}

/* What lies inside of the library, and inside of a call of it, is not the program's. */
static _Unwind_Reason_Code walk_step(struct _Unwind_Context *context, void *arg)
{
	struct walk *walk = arg;
	uintptr_t address = stacks.address(context);

	if (is_own(address)) {
		walk->count = walk->first;
	} else if (address) {
		walk->frames[walk->count++] = address;
#if defined(__x86_64__)
		registers_note(&walk->last, context, address);
#endif
	}
	return walk->count < walk->most ? _URC_NO_REASON : _URC_END_OF_STACK;
}

uint32_t gcp_stacks_walk(uint32_t most, uintptr_t *ret_frames)
{
	struct walk walk = {.most = most > RUNTIME_FRAMES ? most : RUNTIME_FRAMES};

	assert(most > 0 && most <= GCP_TRACE_FRAMES_MAX);
	if (!stacks.backtrace)
		return 0;
	stacks.backtrace(walk_step, &walk);
#if defined(__x86_64__) /* else a stack ends with the innermost Python function */
	while (walk.count > walk.first && walk.count < walk.most &&
	       trampoline_leave(&walk.last)) {
		struct registers registers = walk.last;

		walk.first = walk.count;
		gcp_walk_from(&registers, stacks.backtrace, walk_step, &walk);
	}
#endif
	most = walk.count < most ? walk.count : most;
	memcpy(ret_frames, walk.frames, most * sizeof(*ret_frames));
	return most;
}

/* --- the table --------------------------------------------------------------- */

/* The stack's number, or 0 and the empty slot in which it would stand (NULL: none).
 * frames: stacks.frames of them, zeros behind the last. */
static uint32_t table_find(uint64_t hash, const uintptr_t *frames,
			   _Atomic uint64_t **ret_slot)
{
	*ret_slot = NULL;
	for (uint32_t i = 0; i < PROBES_MAX; i++) {
		_Atomic uint64_t *slot = &stacks.table[(hash + i) % TABLE_SLOTS];
		uint64_t value = atomic_load_explicit(slot, memory_order_acquire);
		const uint64_t *entry = NULL;

		if (!value) {
			*ret_slot = slot;
			return 0;
		}
		if (value >> 32 == hash >> 32)
			entry = gcp_trace_stack_at((uint32_t)value);
		if (entry && entry[0] == hash &&
		    memcmp(entry + 1, frames, stacks.frames * sizeof(*frames)) == 0)
			return (uint32_t)value;
	}
	return 0;
}

static uint32_t table_add(uint64_t hash, const uintptr_t *frames)
{
	gcp_assert_held(GCP_RANK_TRACE_STACKS);
	assert(hash >> 32 && frames[0]); /* the slot does not look empty */
	_Atomic uint64_t *slot;
	uint32_t number = table_find(hash, frames, &slot);
	uint64_t *entry;

	if (number)
		return number; /* by another thread meanwhile */
	entry = slot ? gcp_trace_slot(GCP_TRACE_STACKS, &number) : NULL;
	if (!entry) {
		gcp_trace_count_lost_stack();
		return 0;
	}
	memcpy(entry + 1, frames, stacks.frames * sizeof(*frames));
	__atomic_store_n(&entry[0], hash, __ATOMIC_RELEASE);
	atomic_store_explicit(slot, hash >> 32 << 32 | number, memory_order_release);
	return number;
}

uint32_t gcp_stacks_number(void)
{
	uintptr_t frames[GCP_TRACE_FRAMES_MAX] = {0};
	uint64_t hash, libraries = libraries_seen();
	_Atomic uint64_t *slot;
	uint32_t number;

	if (libraries != atomic_load_explicit(&stacks.libraries, memory_order_acquire))
		libraries_changed(libraries);
	if (gcp_stacks_walk(stacks.frames, frames) == 0)
		return 0;
	hash = bytes_hash(0, frames, stacks.frames * sizeof(*frames));
	hash |= 1ull << 63; /* never 0 */
	number = table_find(hash, frames, &slot);
	if (number)
		return number;
	GCP_LOCKED(&stacks.lock);
	return table_add(hash, frames);
}

/* --- start ------------------------------------------------------------------- */

void gcp_stacks_load(void)
{
	_Unwind_Reason_Code (*backtrace)(unwind_step *, void *);
	void *unwinder = dlopen("libgcc_s.so.1", RTLD_LAZY | RTLD_LOCAL);

	gcp.mutex_lock(&stacks.lock);
	modules_read(); /* which are the library's own */
	gcp.mutex_unlock(&stacks.lock);
	if (unwinder) {
		*(void **)&stacks.address = dlsym(unwinder, "_Unwind_GetIP");
		*(void **)&backtrace = dlsym(unwinder, "_Unwind_Backtrace");
		*(void **)&stacks.stack = dlsym(unwinder, "_Unwind_GetCFA");
		*(void **)&stacks.saved = dlsym(unwinder, "_Unwind_GetGR");
		if (stacks.address && stacks.stack && stacks.saved)
			atomic_store(&stacks.backtrace, backtrace);
	}
}

bool gcp_stacks_start(uint32_t frames)
{
	assert(frames > 0 && !stacks.table); /* once */
	stacks.frames = frames;
	stacks.table =
	    gcp_memory_map(TABLE_SLOTS * sizeof(*stacks.table), PROT_READ | PROT_WRITE);
	if (!stacks.table)
		gcp.log(GCP_LOG_WARNING, "GCPOOL_TRACE_STACKS: no memory for a table, "
					 "recording no stacks");
	return stacks.table;
}
