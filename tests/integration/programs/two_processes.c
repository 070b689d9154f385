/* SPDX-License-Identifier: MIT */
/*
 * two_processes.c - memory that one process exports and another one opens: codes, what
 * CUDA says of it, whose data is where, and what happens when one of the two frees.
 * The transcript must be the same with and without the library.
 *
 *   two_processes SCENARIO
 *
 * Two processes take turns: `give` lets the other one go on, `take` waits for it, and
 * only the one whose turn it is prints. Exit code 0: all data right; 1: some wrong; 2:
 * a call failed that must not; 3: a process ended otherwise.
 *
 * Styles: linked dlsym
 * Run: mapped: transcript.py GCPSIM_DEVICES=2 @ codes
 * Run: mapped: transcript.py GCPSIM_DEVICES=2 @ contexts
 */
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"
#include "kernels.h"

enum { SECONDS = 100, SLOW_NS = 200000000, MIB = 1 << 20 };

#define LAZY CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

/* One evaluation, then the line: calls have results behind pointers. */
#define SAY(call)                                                                      \
	do {                                                                           \
		long long value_ = (long long)(call);                                  \
		printf("%s: %-72s %lld\n", name, #call, value_);                       \
	} while (0)

static const char *name; /* of this process */
static int line;         /* to the other one */
static int wrong;
static struct gcpt_kernels kernels;

struct message {
	CUipcMemHandle handle, second;
};
static struct message message;

static void give(void)
{
	fflush(stdout);
	if (write(line, &message, sizeof(message)) != sizeof(message))
		_exit(3);
}

static void take(void)
{
	if (read(line, &message, sizeof(message)) != sizeof(message))
		_exit(3);
}

/* --- data ------------------------------------------------------------------------ */

static CUcontext ctx;

static void start(int device)
{
	GCPT_OK(gcpt_use(device), (int)cu.cuCtxGetCurrent(&ctx));
	GCPT_OK(gcpt_kernels_load(&kernels));
}

static void *pointer(CUdeviceptr p)
{
	return (void *)(uintptr_t)p;
}

static CUdeviceptr new_block(size_t bytes, uint32_t value)
{
	CUdeviceptr p;

	GCPT_OK((int)cu.cuMemAlloc(&p, bytes));
	if (bytes >= 4)
		GCPT_OK(gcpt_launch_fill(&kernels, NULL, pointer(p), bytes / 4, value));
	GCPT_OK(gcpt_sync());
	return p;
}

static uint32_t word(CUdeviceptr p)
{
	uint32_t value = 0;

	GCPT_OK(gcpt_copy(&value, pointer(p), sizeof(value)));
	return value;
}

/* Says nothing if all words are right. */
static void demand(CUdeviceptr p, size_t bytes, uint32_t value)
{
	unsigned long long count = 0;
	CUdeviceptr counter;

	GCPT_OK((int)cu.cuMemAlloc(&counter, sizeof(count)));
	GCPT_OK(gcpt_copy(pointer(counter), &count, sizeof(count)));
	GCPT_OK(gcpt_launch_check(&kernels, NULL, pointer(p), bytes / 4, value,
				  pointer(counter)));
	GCPT_OK(gcpt_copy(&count, pointer(counter), sizeof(count)));
	GCPT_OK((int)cu.cuMemFree(counter));
	if (count > 0)
		printf("%s: WRONG: %llu of %zu words are not %u\n", name, count,
		       bytes / 4, value);
	wrong += count > 0;
}

static void fill(CUdeviceptr p, size_t bytes, uint32_t value)
{
	GCPT_OK(gcpt_launch_fill(&kernels, NULL, pointer(p), bytes / 4, value));
	GCPT_OK(gcpt_sync());
}

static void attributes(CUdeviceptr p)
{
	int type = 77, ordinal = 77, legacy = 77, mapped = 77, managed = 77;
	CUdeviceptr begin = 0, base = 0;
	size_t range = 0, size = 0;
	CUcontext of = NULL;

	SAY(cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
	SAY(cu.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
	SAY(cu.cuPointerGetAttribute(
	    &legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p));
	SAY(cu.cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, p));
	SAY(cu.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
	SAY(cu.cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, p));
	SAY(cu.cuPointerGetAttribute(&begin, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p));
	SAY(cu.cuPointerGetAttribute(&range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p));
	SAY(cu.cuMemGetAddressRange(&base, &size, p));
	printf("%s: type %d, device %d, legacy %d, mapped %d, managed %d, of here %d, "
	       "begins %lld before, %zu bytes, %lld before, %zu bytes\n",
	       name, type, ordinal, legacy, mapped, managed, of == ctx,
	       (long long)(p - begin), range, base ? (long long)(p - base) : -1, size);
}

/* Whether the free of an exported block, or the close of an import, waits for all work
 * of its context. */
static void call_beside_work(CUresult (*call)(CUdeviceptr p), CUdeviceptr p)
{
	CUstream stream;

	GCPT_OK(gcpt_stream_create(&stream));
	GCPT_OK(gcpt_launch_spin(&kernels, stream, SLOW_NS));
	SAY(cu.cuStreamQuery(stream));
	SAY(call(p));
	SAY(cu.cuStreamQuery(stream));
	GCPT_OK(gcpt_stream_destroy(stream));
}

/* --- codes ----------------------------------------------------------------------- */

static void codes_out(void)
{
	CUdeviceptr beside, q, r = 7;
	CUipcMemHandle again;

	start(0);
	beside = new_block(10000, 69);
	q = new_block(10000, 70);
	SAY(cu.cuIpcGetMemHandle(&message.handle, q));
	SAY(cu.cuIpcGetMemHandle(&again, q));
	SAY(memcmp(&again, &message.handle, sizeof(again)) == 0);
	SAY(cu.cuIpcGetMemHandle(&again, q + 500));
	SAY(memcmp(&again, &message.handle, sizeof(again)) == 0);
	SAY(cu.cuIpcGetMemHandle(&again, beside));
	SAY(memcmp(&again, &message.handle, sizeof(again)) == 0);
	SAY(cu.cuIpcOpenMemHandle(&r, message.handle, LAZY));
	SAY(cu.cuIpcCloseMemHandle(q));
	attributes(q + 8);
	GCPT_OK((int)cu.cuCtxSetCurrent(NULL));
	SAY(cu.cuIpcGetMemHandle(&again, q));
	GCPT_OK((int)cu.cuCtxSetCurrent(ctx));
	give();
	take();
	demand(q, 10000, 71);
	demand(beside, 10000, 69);
	SAY(cu.cuMemFree(q));
	SAY(cu.cuMemFree(q));
	SAY(cu.cuIpcGetMemHandle(&again, q));
	SAY(cu.cuMemFree(beside));
}

static void codes_in(void)
{
	CUdeviceptr q = 7, again = 8, base;
	CUipcMemHandle of_it;
	size_t size;

	start(0);
	take();
	SAY(cu.cuIpcOpenMemHandle(&q, message.handle, 0));
	SAY(cu.cuIpcOpenMemHandle(&q, message.handle, 2));
	SAY(cu.cuIpcOpenMemHandle(NULL, message.handle, LAZY));
	GCPT_OK((int)cu.cuCtxSetCurrent(NULL));
	SAY(cu.cuIpcOpenMemHandle(NULL, message.handle, LAZY));
	SAY(cu.cuIpcOpenMemHandle(&q, message.handle, LAZY));
	GCPT_OK((int)cu.cuCtxSetCurrent(ctx));
	SAY(cu.cuIpcOpenMemHandle(&q, message.handle, LAZY));
	SAY(cu.cuIpcOpenMemHandle(&again, message.handle, LAZY));
	SAY(q == again);
	attributes(q);
	attributes(q + 100);
	demand(q, 10000, 70);
	SAY(cu.cuIpcGetMemHandle(&of_it, q));
	SAY(cu.cuMemFree(q));
	SAY(cu.cuMemFreeAsync(q, NULL));
	fill(q, 10000, 71);
	SAY(cu.cuIpcCloseMemHandle(q + 512));
	GCPT_OK((int)cu.cuCtxSetCurrent(NULL));
	SAY(cu.cuIpcCloseMemHandle(q));
	GCPT_OK((int)cu.cuCtxSetCurrent(ctx));
	SAY(cu.cuIpcCloseMemHandle(q));
	SAY(cu.cuMemGetAddressRange(&base, &size, q));
	demand(q, 10000, 71);
	SAY(cu.cuIpcCloseMemHandle(q));
	SAY(cu.cuMemGetAddressRange(&base, &size, q));
	SAY(cu.cuIpcCloseMemHandle(q));
	give();
}

/* --- contexts and devices -------------------------------------------------------- */

static void contexts_out(void)
{
	CUdeviceptr q, r;

	start(0);
	q = new_block(8 * MIB, 70);
	r = new_block(64 * MIB, 72);
	GCPT_OK((int)cu.cuIpcGetMemHandle(&message.handle, q));
	GCPT_OK((int)cu.cuIpcGetMemHandle(&message.second, r));
	give();
	take();
	call_beside_work(cu.cuMemFree, q);
	call_beside_work(cu.cuMemFree, r);
}

static void devices_in(void)
{
	CUdeviceptr q = 0, second = 0, base = 0;
	CUcontext first = ctx, other;
	size_t size = 0;

	SAY(cu.cuIpcOpenMemHandle(&q, message.handle, LAZY));
	start(1);
	other = ctx;
	SAY(cu.cuIpcOpenMemHandle(&second, message.handle, LAZY));
	SAY(q == second);
	attributes(second + 8);
	demand(second, 8 * MIB, 70);
	fill(second, 8 * MIB, 71);
	SAY(cu.cuMemGetAddressRange(&base, &size, q));
	GCPT_OK((int)cu.cuCtxSetCurrent(first));
	ctx = first;
	SAY(cu.cuMemGetAddressRange(&base, &size, second));
	SAY(word(q));
	SAY(word(second));
	SAY(cu.cuIpcCloseMemHandle(second));
	SAY(cu.cuIpcCloseMemHandle(second));
	GCPT_OK((int)cu.cuCtxSetCurrent(other));
	SAY(cu.cuIpcCloseMemHandle(q));
	SAY(cu.cuCtxEnablePeerAccess(first, 0));
	GCPT_OK((int)cu.cuCtxSetCurrent(first));
}

static void contexts_in(void)
{
	CUdeviceptr q = 0, second = 0;
	CUcontext other;
	int count = 0;

	start(0);
	take();
	GCPT_OK((int)cu.cuCtxCreate(&other, NULL, 0, 0), (int)cu.cuCtxSetCurrent(ctx));
	SAY(cu.cuIpcOpenMemHandle(&q, message.handle, LAZY));
	GCPT_OK((int)cu.cuCtxSetCurrent(other));
	SAY(cu.cuIpcOpenMemHandle(&second, message.handle, LAZY));
	SAY(cu.cuIpcOpenMemHandle(&second, message.second, LAZY));
	SAY(cu.cuIpcCloseMemHandle(q));
	SAY(cu.cuIpcOpenMemHandle(&second, message.second, LAZY));
	SAY(word(second));
	GCPT_OK((int)cu.cuCtxSetCurrent(ctx));
	SAY(cu.cuIpcOpenMemHandle(&q, message.handle, LAZY));
	SAY(cu.cuCtxDestroy(other));
	SAY(cu.cuIpcCloseMemHandle(second));
	SAY(cu.cuIpcOpenMemHandle(&q, message.handle, LAZY));
	SAY(word(q));
	SAY(cu.cuIpcCloseMemHandle(q));
	GCPT_OK(gcpt_device_count(&count));
	if (count > 1)
		devices_in();
	give();
}

/* --- ends ------------------------------------------------------------------------ */

/* What is freed is not known any more. */
static void demand_unknown(CUdeviceptr p)
{
	int type = 77, ordinal = 77;
	CUdeviceptr base = 0;
	CUipcMemHandle handle;
	size_t size = 0;

	SAY(cu.cuMemGetAddressRange(&base, &size, p));
	SAY(cu.cuMemGetAddressRange(&base, &size, p + 4096));
	SAY(cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
	SAY(cu.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
	SAY(cu.cuIpcGetMemHandle(&handle, p));
	SAY(cu.cuMemFree(p));
	SAY(cu.cuMemFreeAsync(p, NULL));
}

/* Freed while the other one has it open: that still has its own memory. */
static void held_out(void)
{
	CUdeviceptr q, r;

	start(0);
	q = new_block(64 * MIB, 70);
	GCPT_OK((int)cu.cuIpcGetMemHandle(&message.handle, q));
	give();
	take();
	SAY(cu.cuMemFree(q));
	demand_unknown(q);
	r = new_block(64 * MIB, 80);
	give(); /* looks, and fills */
	take();
	demand(r, 64 * MIB, 80);
	give(); /* closes */
	take();
	SAY(cu.cuMemFree(r));
	r = new_block(64 * MIB, 81);
	SAY(cu.cuMemFree(r));
}

static void held_in(void)
{
	CUdeviceptr q = 0;

	start(0);
	take();
	SAY(cu.cuIpcOpenMemHandle(&q, message.handle, LAZY));
	give();
	take();
	demand(q, 64 * MIB, 70);
	fill(q, 64 * MIB, 71);
	give();
	take();
	demand(q, 64 * MIB, 71);
	SAY(cu.cuIpcCloseMemHandle(q));
	SAY(cu.cuIpcOpenMemHandle(&q, message.handle, LAZY) != CUDA_SUCCESS);
	give();
}

/* --- changed handles ------------------------------------------------------------- */

static void forged_in(void)
{
	int refused = 0;
	CUdeviceptr q;

	start(0);
	take();
	for (size_t i = 0; i < sizeof(message.handle); i++) {
		CUipcMemHandle handle = message.handle;

		handle.reserved[i] = (char)~handle.reserved[i];
		refused += cu.cuIpcOpenMemHandle(&q, handle, LAZY) != CUDA_SUCCESS;
	}
	SAY(refused);
	SAY(cu.cuIpcOpenMemHandle(&q, message.handle, LAZY));
	SAY(cu.cuIpcCloseMemHandle(q));
	give();
}

/* --- scenarios ------------------------------------------------------------------- */

static const struct scenario {
	const char *name;
	void (*out)(void), (*in)(void);
} scenarios[] = {
    {"codes", codes_out, codes_in},
    {"contexts", contexts_out, contexts_in},
    {"held", held_out, held_in},
    {"forged", contexts_out, forged_in},
};

static void process_run(const struct scenario *scenario, int i, int lines[2])
{
	close(lines[!i]);
	line = lines[i];
	alarm(SECONDS);
	name = i ? "I" : "O";
	gcpt_driver_open();
	(i ? scenario->in : scenario->out)();
	exit(wrong ? 1 : 0);
}

static int play(const struct scenario *scenario)
{
	int lines[2], status, code = 0;
	pid_t children[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, lines) != 0)
		return 3;
	for (int i = 0; i < 2; i++) {
		children[i] = fork();
		if (children[i] == 0)
			process_run(scenario, i, lines);
	}
	close(lines[0]); /* or a process would wait for one that has failed */
	close(lines[1]);
	for (int i = 0; i < 2; i++) {
		if (waitpid(children[i], &status, 0) != children[i])
			return 3;
		if (status != 0 && code == 0)
			code = WIFEXITED(status) ? WEXITSTATUS(status) : 3;
	}
	return code;
}

int main(int argc, char **argv)
{
	for (size_t i = 0; argc == 2 && i < sizeof(scenarios) / sizeof(scenarios[0]);
	     i++)
		if (strcmp(argv[1], scenarios[i].name) == 0)
			return play(&scenarios[i]);
	fprintf(stderr, "usage: two_processes SCENARIO\n");
	return 2;
}
