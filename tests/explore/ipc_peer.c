/* SPDX-License-Identifier: MIT */
/*
 * ipc_peer.c - another process: it opens blocks that this one exports and looks
 * whether they hold what they should, writes into them, and lends blocks of its own.
 *
 * A real process with the same simulated device (ipc_peer_main.c), started when it is
 * first needed. As CUDA demands, memory is freed only when the other process has
 * closed it, and work on it waits until the other process's work is done. Without the
 * program beside the explorer there is no IPC peer.
 */
#include "explore.h"

#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gcpool.h"
#include "ipc_peer.h"

enum { ENVIRONMENT_MAX = 200, BORROWED_BYTES_MAX = 20000 };

static struct {
	pid_t pid;
	int fd;
	bool absent, plain;
	struct block *blocks[IPC_PEER_SLOTS]; /* lent or borrowed */
	bool ordinary[IPC_PEER_SLOTS];        /* lent by a handle of the driver's */
} ipc_peer;

/* --- the process -------------------------------------------------------------- */

/* Its own driver and library: not ours with all that was drawn for it, but of the same
 * version. */
static bool is_of_another(const char *variable)
{
	if (strncmp(variable, "GCPSIM_HIDE=", 12) == 0 ||
	    strncmp(variable, "GCPSIM_DRIVER_VERSION=", 22) == 0)
		return false;
	return strncmp(variable, "GCPSIM_", 7) == 0 ||
	       strncmp(variable, "GCPOOL_", 7) == 0 ||
	       strncmp(variable, "LD_PRELOAD=", 11) == 0;
}

static char **environment(const struct setting *setting)
{
	static char devices[] = "GCPSIM_DEVICES=2", quiet[] = "GCPSIM_QUIET=1";
	static char speed[] = "GCPSIM_SPEED=idle", off[] = "GCPOOL_MODE=off";
	static char backend[] = "GCPOOL_BACKEND=vmm", log[] = "GCPOOL_LOG=error";
	static char preload[4200];
	static char *all[ENVIRONMENT_MAX + 10];
	const char *library_path = getenv("EXPLORE_LIBRARY");
	size_t count = 0;

	for (char **one = environ; *one && count < ENVIRONMENT_MAX; one++)
		if (!is_of_another(*one))
			all[count++] = *one;
	all[count++] = devices;
	all[count++] = quiet;
	all[count++] = log;
	all[count++] = speed;
	if (library_path && !setting->plain) {
		snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", library_path);
		all[count++] = preload;
	}
	if (ipc_peer.plain)
		all[count++] = off;
	if (setting->seed % 2 == 0)
		all[count++] = backend;
	all[count] = NULL;
	return all;
}

static bool path_find(char *ret_path, size_t size)
{
	static const char name[] = "ipc_peer";
	ssize_t length = readlink("/proc/self/exe", ret_path, size - sizeof(name) - 1);

	if (length < 0)
		return false;
	ret_path[length] = 0;
	strcpy(strrchr(ret_path, '/') + 1, name);
	return access(ret_path, X_OK) == 0;
}

static bool start(struct model *w)
{
	posix_spawn_file_actions_t actions;
	char path[4096], *arguments[] = {path, NULL};
	int ends[2];

	if (ipc_peer.pid || ipc_peer.absent)
		return ipc_peer.pid != 0;
	ipc_peer.absent = !path_find(path, sizeof(path));
	if (ipc_peer.absent)
		return false;
	ipc_peer.plain = w->setting->plain || w->setting->seed % 3 == 0;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
		failure(w, "no socket for the explorer itself");
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
	if (posix_spawn(&ipc_peer.pid, path, &actions, NULL, arguments,
			environment(w->setting)) != 0)
		failure(w, "no process for the explorer itself");
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	ipc_peer.fd = ends[0];
	return true;
}

static struct answer ask(struct model *w, const struct ask *ask)
{
	struct answer answer;

	if (write(ipc_peer.fd, ask, sizeof(*ask)) != sizeof(*ask) ||
	    read(ipc_peer.fd, &answer, sizeof(answer)) != sizeof(answer))
		failure(w, "the other process is gone");
	return answer;
}

static void demand(struct model *w, const struct ask *asked, const char *what)
{
	struct answer answer = ask(w, asked);

	if (answer.result != CUDA_SUCCESS || answer.wrong > 0)
		failure(w, "the other process, asked to %s: %d, %u of %u words wrong",
			what, answer.result, answer.wrong, asked->words);
}

static int slot_of(const struct block *block)
{
	for (int i = 0; i < IPC_PEER_SLOTS; i++)
		if (ipc_peer.blocks[i] == block)
			return i;
	return -1;
}

/* --- work of the other process ------------------------------------------------ */

static uint32_t words_of(uint32_t words)
{
	return words < IPC_PEER_WORDS_MAX ? words : IPC_PEER_WORDS_MAX;
}

/* What the program knows is there. */
static void region_check(struct thread *t, unsigned slot, const struct block *block,
			 const struct region *region)
{
	struct ask check = {.kind = ASK_CHECK,
			    .slot = slot,
			    .words = words_of(region->known),
			    .value = region->value,
			    .offset = region->offset};

	if (check.words == 0 || !order_host(t, region, WANT_READ))
		return;
	gcpsim_touch(block->addr + region->offset, check.words * 4ull, 0);
	demand(t->model, &check, "look at a block");
}

static void region_fill(struct thread *t, unsigned slot, const struct block *block,
			struct region *region, uint32_t value)
{
	struct ask fill = {.kind = ASK_FILL,
			   .slot = slot,
			   .words = words_of(region->words),
			   .value = value,
			   .offset = region->offset};
	uint64_t at = block->addr + region->offset;
	uint32_t first = 0, last = 0;

	if (fill.words == 0 || !order_host(t, region, WANT_WRITE))
		return;
	gcpsim_touch(at, fill.words * 4ull, 1);
	demand(t->model, &fill, "fill a block");
	if (gcpsim_peek(at, &first, 4) != 0 ||
	    gcpsim_peek(at + (fill.words - 1) * 4ull, &last, 4) != 0 ||
	    first != value || last != value)
		failure(t->model, "the other process filled something else");
	region->known = fill.words;
	region->value = value;
}

static void work(struct thread *t, struct block *block, const struct op *op)
{
	int slot = block ? slot_of(block) : -1;
	struct region *region = slot < 0 ? NULL : block_region(block, op->how >> 1);

	if (!region || block_is_early(t->model, block))
		return;
	if (op->how & 1)
		region_fill(t, (unsigned)slot, block, region, op->value);
	else
		region_check(t, (unsigned)slot, block, region);
}

/* --- what this process exports ------------------------------------------------ */

/* A process without the library is refused what does not begin an allocation, and all
 * that is mapped. And where this process has no memory for its books it hands nothing
 * over. */
static bool is_refused(const struct model *w, const struct answer *answer)
{
	if (answer->result == CUDA_ERROR_OPERATING_SYSTEM)
		return w->setting->vmm && plain_is_spoilt(w) &&
		       strcmp(w->setting->fault->name, FAULT_MEMORY) == 0 &&
		       excused(EXCUSE_FAULT);
	return answer->result == CUDA_ERROR_INVALID_VALUE && ipc_peer.plain;
}

static void lend(struct thread *t, struct block *block)
{
	struct ask open = {.kind = ASK_OPEN, .device = block ? block->device : 0};
	uint64_t calls = gcpsim_calls("cuIpcGetMemHandle");
	int slot = slot_of(NULL);
	struct answer answer;

	if (!block || slot < 0 || slot_of(block) >= 0 || !all_is_calm(t->model) ||
	    block_is_early(t->model, block) || !start(t->model) ||
	    !external_export(t, block, &open.handle))
		return;
	open.slot = (uint32_t)slot;
	answer = ask(t->model, &open);
	if (is_refused(t->model, &answer))
		return;
	if (answer.result != CUDA_SUCCESS)
		failure(t->model, "the other process cannot open a block: %d",
			answer.result);
	ipc_peer.blocks[slot] = block;
	ipc_peer.ordinary[slot] = calls != gcpsim_calls("cuIpcGetMemHandle");
	for (unsigned r = 0; r < REGIONS; r++)
		region_check(t, open.slot, block, &block->regions[r]);
}

/* --- what this process opens --- */

/* CUDA lets one context of a device open what another process has. */
static bool another_context_borrows(const struct model *w, int context)
{
	for (unsigned i = 0; i < IPC_PEER_SLOTS; i++) {
		const struct block *block = ipc_peer.blocks[i];

		if (block && block->borrowed && block->context != context &&
		    block->device == w->contexts[context].device)
			return true;
	}
	return false;
}

static void borrow(struct thread *t, struct block **slot_of_block, const struct op *op)
{
	struct model *w = t->model;
	struct ask make = {.kind = ASK_MAKE,
			   .device = w->contexts[t->context].device,
			   .bytes = 4 + op->bytes % BORROWED_BYTES_MAX};
	int slot = slot_of(NULL);
	struct answer answer;
	CUdeviceptr ptr = 0;

	if (*slot_of_block || slot < 0 || !may_be_unsafe(t) ||
	    another_context_borrows(w, t->context) || !start(w))
		return;
	make.slot = (uint32_t)slot;
	answer = ask(w, &make);
	if (answer.result != CUDA_SUCCESS)
		failure(w, "the other process cannot export a block: %d",
			answer.result);
	if (!FINE(t, cuIpcOpenMemHandle(&ptr, answer.handle,
					CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS))) {
		make.kind = ASK_FREE;
		demand(w, &make, "free a block");
		return;
	}
	*slot_of_block = block_adopt(t, ptr, make.bytes);
	(*slot_of_block)->borrowed = true;
	ipc_peer.blocks[slot] = *slot_of_block;
	for (unsigned r = 0; r < REGIONS; r++)
		region_fill(t, make.slot, *slot_of_block, &(*slot_of_block)->regions[r],
			    op->value + r);
}

/* --- ends --------------------------------------------------------------------- */

static bool all_is_done(struct thread *t, const struct block *block)
{
	return order_host(t, &block->regions[0], WANT_WRITE) &&
	       order_host(t, &block->regions[1], WANT_WRITE);
}

bool ipc_peer_closes(struct thread *t, const struct block *block)
{
	int slot = slot_of(block);
	struct ask end = {.kind = block->borrowed ? ASK_FREE : ASK_CLOSE,
			  .slot = (uint32_t)slot};

	if (slot < 0)
		return true;
	if (block->borrowed) {
		if (!may_be_unsafe(t) || !all_is_done(t, block))
			return false;
		for (unsigned r = 0; r < REGIONS; r++)
			region_check(t, end.slot, block, &block->regions[r]);
		context_use(t, block->context);
		plain_waits(t->model, block->context);
		if (!FINE(t, cuIpcCloseMemHandle(block->addr)))
			return false;
	}
	demand(t->model, &end, block->borrowed ? "free a block" : "close a block");
	ipc_peer.blocks[slot] = NULL;
	return true;
}

bool ipc_peer_closes_all(struct thread *t, int context)
{
	for (unsigned i = 0; i < IPC_PEER_SLOTS; i++) {
		struct block *block = ipc_peer.blocks[i];

		if (!block || (context >= 0 && block->context != context))
			continue;
		if (!ipc_peer_closes(t, block))
			return false;
		if (block->borrowed) {
			block->live = false;
			block->died = t->model->step;
			block_unslot(t->model, block);
		}
	}
	return true;
}

void ipc_peer_end(struct model *w)
{
	int status = 0;

	if (!ipc_peer.pid)
		return;
	close(ipc_peer.fd);
	if (waitpid(ipc_peer.pid, &status, 0) != ipc_peer.pid || status != 0)
		failure(w, "the other process ends with status 0x%x", status);
	ipc_peer.pid = 0;
	ipc_peer.absent = true;
}

/* --- memory that is freed while the other process has it open --- */

enum { LATE_TURNS = 6 };

/* None of the blocks that come next may lie in it. */
static void late_takes(struct thread *t, uint64_t addr, uint64_t bytes)
{
	struct op take = {.kind = OP_ALLOC, .bytes = bytes};
	struct block **slots = t->model->slots;

	for (unsigned i = 0, turn = 0; i < BLOCK_SLOTS && turn < LATE_TURNS; i++) {
		if (slots[i])
			continue;
		turn++;
		take.a = (uint8_t)i;
		op_play(t, &take);
		if (slots[i] && slots[i]->addr < addr + bytes &&
		    addr < slots[i]->addr + slots[i]->bytes)
			failure(t->model, "0x%lx is open in another process", addr);
	}
}

/* Whether the library counts another number of blocks than the program has. */
static bool is_behind(const struct model *w, int device)
{
	struct gcpool_stats stats;
	uint64_t count = 0;

	for (const struct block *block = w->blocks; block; block = block->next)
		count += block->live && !block->host && !block->borrowed &&
			 !block->passed && block->device == device;
	return library.get_stats(device, &stats, sizeof(stats)) == 0 &&
	       stats.allocation.current != count;
}

/* A thread of the library hears of the close, on a busy machine not at once. */
static void late_ends(struct model *w, const struct ask *end, int device,
		      uint64_t lent_before)
{
	w->closed_late = true;
	demand(w, end, "close a block");
	for (int tries = 0;
	     tries < 5000 && (library.lent() > lent_before || is_behind(w, device));
	     tries++)
		usleep(1000);
}

/* Plain CUDA keeps it until it is closed. Mapped memory that is open elsewhere is given
 * to nothing else, too, if the other process has the library. */
static void late(struct thread *t, struct block **slot)
{
	struct model *w = t->model;
	struct ask end = {.kind = ASK_CLOSE};
	struct block *block = *slot;
	uint64_t lent_before;

	if (!library.lent || !w->setting->vmm || w->ordinary || w->setting->plain ||
	    w->setting->leak || !all_is_calm(w) || !block || block->borrowed ||
	    block->async || block->in_capture || !library.active || !library.active())
		return;
	lend(t, block);
	end.slot = (uint32_t)slot_of(block);
	if (slot_of(block) < 0)
		return;
	if (ipc_peer.plain || ipc_peer.ordinary[end.slot] || !all_is_done(t, block)) {
		ipc_peer_closes(t, block);
		return;
	}
	ipc_peer.blocks[end.slot] = NULL;
	block->plain_open = true;
	lent_before = library.lent();
	if (block_free(t, block)) {
		*slot = NULL;
		late_takes(t, block->addr, block->bytes);
		late_ends(w, &end, block->device, lent_before);
		block->plain_open = false;
		plain_step(w);
	} else {
		block->plain_open = false;
		demand(w, &end, "close a block");
	}
}

void ipc_peer_play(struct thread *t, const struct op *op)
{
	struct block **slot = &t->model->slots[op->a % BLOCK_SLOTS];

	if (op->kind == OP_IPC_PEER_LATE)
		late(t, slot);
	else if (op->kind == OP_IPC_PEER_OPEN)
		lend(t, *slot && (*slot)->borrowed ? NULL : *slot);
	else if (op->kind == OP_IPC_PEER_WORK)
		work(t, *slot, op);
	else if (op->kind == OP_IPC_PEER_LEND)
		borrow(t, slot, op);
	else if (*slot && !(*slot)->borrowed)
		ipc_peer_closes(t, *slot);
}
