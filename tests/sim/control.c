/* SPDX-License-Identifier: MIT */
/*
 * control.c - the environment, planned failures, findings and the report.
 *
 * Called by core.c at the first call of a process, by cuInit, at exit, and by
 * tests through gcpsim.h. Planned failures have their own lock; the rest runs
 * under the big lock or before any thread can be there.
 */
#include "sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>
#include <fcntl.h>

/* --- planned failures ------------------------------------------------------------- */

enum { FAILURES_MAX = 32, REPORTS_PRINTED_MAX = 10 };

struct failure {
	int fn;
	uint64_t at; /* of the calls since the plan was made, counted from 1 */
	bool onwards;
	uint64_t needs; /* or: whenever less of the device's memory is free */
	int device;
	CUresult code;
	uint64_t seen;
};

static pthread_mutex_t failures_lock = PTHREAD_MUTEX_INITIALIZER;
static struct failure failures[FAILURES_MAX];
static int failure_count;

/* <BYTES[@DEVICE]: the function takes so much memory of the device. */
static bool needs_parse(struct failure *plan, const char *text, char **ret_end)
{
	plan->needs = strtoull(text, ret_end, 10);
	if (**ret_end == 'M') {
		plan->needs <<= 20;
		++*ret_end;
	}
	if (**ret_end == '@')
		plan->device = (int)strtoul(*ret_end + 1, ret_end, 10);
	return plan->needs > 0 && sim_device_valid(plan->device);
}

static bool times_parse(struct failure *plan, const char *text, char **ret_end)
{
	plan->at = strtoull(text, ret_end, 10);
	plan->onwards = **ret_end == '+';
	*ret_end += plan->onwards;
	return plan->at > 0;
}

/* NAME:N[+][:CODE] or NAME:<BYTES[@DEVICE][:CODE]; NAME may leave out the version
 * suffix if that is not ambiguous. Returns how many functions it names. */
static int failure_parse(const char *text, size_t length)
{
	char name[128], *colon, *end;
	struct failure plan = {.code = CUDA_ERROR_OUT_OF_MEMORY};
	int made = 0;
	bool sense;

	if (length >= sizeof(name))
		return 0;
	memcpy(name, text, length);
	name[length] = 0;
	colon = strchr(name, ':');
	if (!colon)
		return 0;
	*colon = 0;
	sense = colon[1] == '<' ? needs_parse(&plan, colon + 2, &end)
				: times_parse(&plan, colon + 1, &end);
	if (*end == ':')
		plan.code = (CUresult)strtoul(end + 1, &end, 10);
	if (*end || !sense)
		return 0;
	for (int fn = 0; fn < SIM_FN_COUNT && failure_count < FAILURES_MAX; fn++) {
		const char *full = sim_fn_names[fn];
		size_t n = strlen(name);

		if (strncmp(full, name, n) != 0 || (full[n] && full[n] != '_'))
			continue;
		plan.fn = fn;
		failures[failure_count++] = plan;
		made++;
	}
	return made;
}

int gcpsim_fail(const char *plan)
{
	int result = 0;

	pthread_mutex_lock(&failures_lock);
	failure_count = 0;
	while (plan && *plan) {
		size_t length = strcspn(plan, ",");

		if (failure_parse(plan, length) == 0)
			result = -1;
		plan += length + (plan[length] == ',');
	}
	__atomic_store_n(&sim.failures_planned, failure_count > 0, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&failures_lock);
	return result;
}

static bool failure_is_now(const struct failure *f)
{
	uint64_t available, total;

	if (f->needs == 0)
		return f->seen == f->at || (f->onwards && f->seen > f->at);
	sim_lock();
	sim_memory_info(f->device, &available, &total);
	sim_unlock();
	return available < f->needs;
}

CUresult sim_failure(enum sim_fn fn)
{
	CUresult result = CUDA_SUCCESS;

	pthread_mutex_lock(&failures_lock);
	for (int i = 0; i < failure_count; i++) {
		struct failure *f = &failures[i];

		if (f->fn != (int)fn)
			continue;
		f->seen++;
		if (failure_is_now(f))
			result = f->code;
	}
	pthread_mutex_unlock(&failures_lock);
	return result;
}

/* --- the environment ------------------------------------------------------ */

static uint64_t device_memory = 16ull << 30;

static uint64_t parse_bytes(const char *text)
{
	char *end;
	uint64_t value = strtoull(text, &end, 10);

	switch (*end) {
	case 'k':
	case 'K':
		return value << 10;
	case 'm':
	case 'M':
		return value << 20;
	case 'g':
	case 'G':
		return value << 30;
	default:
		return value;
	}
}

static int64_t parse_speed(const char *text)
{
	if (!strcmp(text, "idle"))
		return GCPSIM_IDLE;
	if (!strcmp(text, "random"))
		return GCPSIM_RANDOM;
	if (!strcmp(text, "never"))
		return GCPSIM_NEVER;
	return strtoll(text, NULL, 10);
}

static bool env_flag(const char *name)
{
	const char *text = getenv(name);

	return text && *text && strcmp(text, "0") != 0;
}

static void load_numbers(void)
{
	const char *text;

	text = getenv("GCPSIM_SEED");
	sim_schedule_seed(text ? strtoull(text, NULL, 0) : 1);
	text = getenv("GCPSIM_SPEED");
	sim_schedule_set_speed(text ? parse_speed(text) : GCPSIM_RANDOM);
	text = getenv("GCPSIM_DEVICES");
	if (text)
		sim.devices = atoi(text);
	if (sim.devices < 0 || sim.devices > SIM_DEVICES_MAX)
		sim.devices = 1;
	text = getenv("GCPSIM_MEMORY");
	if (text && parse_bytes(text) >= SIM_CHUNK)
		device_memory = parse_bytes(text);
	text = getenv("GCPSIM_HOST_MEMORY");
	if (text)
		sim.host_limit = parse_bytes(text);
	text = getenv("GCPSIM_NUMA_MEMORY");
	sim.numa_limit = text ? parse_bytes(text) : UINT64_MAX;
	text = getenv("GCPSIM_VMM");
	sim.no_vmm = text && strcmp(text, "0") == 0;
	text = getenv("GCPSIM_HANDLES");
	sim.handles_again = text && strcmp(text, "again") == 0;
	text = getenv("GCPSIM_DRIVER_VERSION");
	if (text)
		sim.driver_version = atoi(text);
}

void sim_control_load(void)
{
	const char *plan = getenv("GCPSIM_FAIL");

	load_numbers();
	sim.quiet = env_flag("GCPSIM_QUIET");
	sim.staging = env_flag("GCPSIM_STAGING");
	sim.report_path = getenv("GCPSIM_REPORT");
	if (plan && gcpsim_fail(plan) != 0)
		fprintf(stderr,
			"gcpsim: GCPSIM_FAIL=%s names no function or number, "
			"ignoring that part\n",
			plan);
}

/* --- the end -------------------------------------------------------------- */

static void report_write(void)
{
	uint64_t live = 0;
	char line[4096];
	int n, fd;

	for (int i = 0; i < sim.devices; i++)
		live += gcpsim_memory_live(i);
	n = snprintf(line, sizeof(line),
		     "hazards=%lu disorders=%lu faults=%lu misuses=%lu invalidated=%lu "
		     "live_bytes=%lu user_objects=%lu",
		     sim.hazards, sim.disorders, sim.faults, sim.misuses,
		     sim.invalidated, live, sim.user_objects);
	for (int fn = 0; fn < SIM_FN_COUNT && n < (int)sizeof(line) - 80; fn++) {
		uint64_t calls = gcpsim_calls(sim_fn_names[fn]);

		if (calls)
			n += snprintf(line + n, sizeof(line) - (size_t)n, " %s=%lu",
				      sim_fn_names[fn], calls);
	}
	line[n++] = '\n';
	fd = open(sim.report_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, line, (size_t)n) != n)
		fprintf(stderr, "gcpsim: cannot write %s, no report\n",
			sim.report_path);
	if (fd >= 0)
		close(fd);
}

/* An exit handler rather than a destructor: glibc lets it change the status by
 * another exit(), and still runs all other handlers and destructors. */
static void process_exit(void)
{
	if (sim.forked || sim.exited)
		return;
	__atomic_store_n(&sim.exited, true, __ATOMIC_RELAXED);
	if (sim.report_path)
		report_write();
}

void sim_control_init(void)
{
	for (int i = 0; i < sim.devices; i++) {
		if (sim_memory_init(i, device_memory) != 0) {
			fputs("gcpsim: cannot map device memory, aborting\n", stderr);
			abort();
		}
	}
	atexit(process_exit);
}

/* --- findings ------------------------------------------------------------- */

static char last_report[512];

void sim_report(uint64_t *counter, const char *format, ...)
{
	uint64_t count = __atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
	char line[600];
	va_list args;
	int n;

	va_start(args, format);
	vsnprintf(last_report, sizeof(last_report), format, args);
	va_end(args);
	if (sim.quiet || count > REPORTS_PRINTED_MAX)
		return;
	n = snprintf(line, sizeof(line), "gcpsim: %s%s\n", last_report,
		     count == REPORTS_PRINTED_MAX ? "; printing no more of these" : "");
	if (n > 0 && write(STDERR_FILENO, line, (size_t)n) < 0)
		return;
}

const char *gcpsim_last_report(void)
{
	return last_report;
}

#define COUNTER(name)                                                                  \
	uint64_t gcpsim_##name(void)                                                   \
	{                                                                              \
		return SIM_LOAD(sim.name);                                             \
	}

COUNTER(hazards)
COUNTER(disorders)
COUNTER(faults)
COUNTER(misuses)
COUNTER(invalidated)
COUNTER(user_objects)
COUNTER(new_waits)
COUNTER(new_looks)
COUNTER(new_orders)

void gcpsim_reset_findings(void)
{
	__atomic_store_n(&sim.hazards, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&sim.disorders, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&sim.faults, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&sim.misuses, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&sim.invalidated, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&sim.new_waits, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&sim.new_looks, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&sim.new_orders, 0, __ATOMIC_RELAXED);
	last_report[0] = 0;
}

/* --- steering ------------------------------------------------------------- */

void gcpsim_set_speed(int64_t speed)
{
	sim_thread_self();
	SIM_HOLD;

	sim_schedule_set_speed(speed);
}

void gcpsim_advance(uint64_t ns)
{
	SIM_HOLD;

	sim_schedule_advance(ns);
}

void gcpsim_drain(void)
{
	SIM_HOLD;

	sim_schedule_drain();
}

uint64_t gcpsim_pending(void)
{
	SIM_HOLD;

	return sim_schedule_pending();
}

uint64_t gcpsim_pending_in(void *handle)
{
	struct sim_ops ops = {0};
	struct sim_ctx *ctx;
	uint64_t count;
	SIM_HOLD;

	ctx = sim_object_check(handle, SIM_CTX);
	if (ctx)
		sim_ctx_ops(ctx, &ops);
	count = ops.count;
	sim_ops_free(&ops);
	return count;
}

void gcpsim_touch(uint64_t addr, size_t bytes, int writes)
{
	enum sim_mode mode = writes ? SIM_WRITE : SIM_READ;
	SIM_HOLD;

	sim_hazard_host(addr, bytes, mode,
			writes ? "write from outside" : "read from outside");
	sim_tags_host(addr, bytes, mode);
}

void gcpsim_host_writes(const void *p, size_t bytes)
{
	gcpsim_touch((uintptr_t)p, bytes, 1);
}

void gcpsim_host_reads(const void *p, size_t bytes)
{
	gcpsim_touch((uintptr_t)p, bytes, 0);
}

static void (*_Atomic when_destroyed)(void);

void gcpsim_when_destroyed(void (*then)(void))
{
	atomic_store(&when_destroyed, then);
}

void sim_destroyed(const int *unused)
{
	void (*then)(void) = atomic_load(&when_destroyed);

	(void)unused;
	if (then && atomic_compare_exchange_strong(&when_destroyed, &then, NULL))
		then();
}

static void (*_Atomic when_called)(void);
_Atomic int sim_awaited = -1;

int gcpsim_when_called(const char *symbol, void (*then)(void))
{
	int fn = 0;

	atomic_store(&sim_awaited, -1);
	atomic_store(&when_called, then);
	if (!then)
		return 0;
	while (fn < SIM_FN_COUNT && strcmp(sim_fn_names[fn], symbol) != 0)
		fn++;
	if (fn == SIM_FN_COUNT)
		return -1;
	atomic_store(&sim_awaited, fn);
	return 0;
}

void sim_called_then(void)
{
	void (*then)(void) = atomic_exchange(&when_called, NULL);

	if (!then)
		return;
	atomic_store(&sim_awaited, -1);
	then();
}

int gcpsim_peek(uint64_t addr, void *ret_data, size_t bytes)
{
	const void *view;
	SIM_HOLD;

	view = sim_memory_host_view(addr, bytes, false);
	if (view)
		memcpy(ret_data, view, bytes);
	return view ? 0 : -1;
}

int gcpsim_poke(uint64_t addr, const void *data, size_t bytes)
{
	void *view;
	SIM_HOLD;

	view = sim_memory_host_view(addr, bytes, true);
	if (view)
		memcpy(view, data, bytes);
	return view ? 0 : -1;
}
