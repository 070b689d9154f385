/* SPDX-License-Identifier: MIT */
/*
 * faults.c - the calls that the library makes, each failing in turn: the first,
 * the second ... until a run sees no failure; once, and from then on.
 *
 * The program may get the failure's own code wherever it could have come from, or
 * not notice. What it has must stay right: no hazard, nothing lost but what a
 * failing call itself loses, no capture invalidated.
 */
#include "trial.h"

enum { AT_MAX = 30, CODES_MAX = 2, NOT_READY = 600 };

/* What fails, how, and whether memory or graphs may stay lost by it. */
static const struct {
	const char *name;
	int codes[CODES_MAX];
	bool loses;
} calls[] = {
    {"cuMemAlloc_v2", {2, 0}, false},
    {"cuMemFree_v2", {719, 0}, true},
    {"cuCtxRecordEvent", {719, 801}, false},
    {"cuCtxWaitEvent", {719, 0}, false},
    {"cuEventCreate", {2, 0}, false},
    {"cuEventQuery", {NOT_READY, 719}, false},
    {"cuEventSynchronize", {719, 0}, false},
    {"cuCtxSynchronize", {719, 0}, false},
    {"cuCtxPushCurrent_v2", {719, 0}, true},
    {"cuStreamGetCaptureInfo_v3", {2, 0}, true},
    {"cuGraphNodeGetDependencies_v2", {2, 0}, false},
    {"cuMemPoolTrimTo", {2, 0}, false},
    {"cuDeviceGraphMemTrim", {2, 0}, false},
    {"cuMemHostAlloc", {2, 0}, false},
    {"cuMemFreeHost", {719, 0}, true},
    {"cuMemCreate", {2, 0}, false},
    {"cuMemAddressReserve", {2, 0}, false},
    {"cuMemMap", {2, 0}, true},
    {"cuMemSetAccess", {2, 0}, true},
    {"cuMemUnmap", {719, 0}, true},
    {"cuMemRelease", {719, 0}, true},
    {"cuCtxDestroy_v2", {719, 0}, true},
    {"cuDevicePrimaryCtxReset_v2", {719, 0}, true},
    {"cuDevicePrimaryCtxRelease_v2", {719, 0}, true},
    {"cuMemHostRegister_v2", {2, 0}, true},
    {FAULT_LOOKUP, {500, 0}, false},
    {FAULT_MEMORY, {2, 0}, false},
    {FAULT_BEGIN, {2, 0}, false},
};

enum { CALLS = sizeof(calls) / sizeof(*calls) };
_Static_assert((int)CALLS <= (int)FAULT_CALLS_MAX, "the outcome has a count for each");

const char *fault_name(unsigned call)
{
	return call < CALLS ? calls[call].name : NULL;
}

static unsigned begins;

void fault_start(const struct fault *fault)
{
	char plan[96];

	if (!fault->name)
		return;
	snprintf(plan, sizeof(plan), "%s:%u%s:%d", fault->name, fault->at,
		 fault->onwards ? "+" : "", fault->code);
	if (strcmp(fault->name, FAULT_LOOKUP) == 0)
		setenv("GCPSIM_FAIL", plan, 1); /* long before the first call */
}

static uint64_t calls_before; /* of the function that fails, when that was armed */

/* How often it was called so far. */
static uint64_t calls_of(const char *name)
{
	if (strcmp(name, FAULT_BEGIN) == 0)
		return begins;
	if (strcmp(name, FAULT_MEMORY) == 0)
		return library.memory_calls ? library.memory_calls() : 0;
	return gcpsim_calls(name);
}

static const struct fault *armed; /* NULL: none is */
static bool struck;

/* Look-ups fail long before the first call. */
bool fault_has_struck(const struct fault *fault)
{
	if (!fault || !fault->name)
		return false;
	struck |= strcmp(fault->name, FAULT_LOOKUP) == 0 ||
		  (armed && calls_of(armed->name) >= calls_before + armed->at);
	return struck;
}

void fault_arm(const struct fault *fault)
{
	char plan[96];

	if (!fault->name || strcmp(fault->name, FAULT_LOOKUP) == 0 ||
	    strcmp(fault->name, FAULT_BEGIN) == 0) {
		armed = fault->name ? fault : NULL;
		return;
	}
	armed = fault;
	calls_before = calls_of(fault->name);
	snprintf(plan, sizeof(plan), "%s:%u%s:%d", fault->name, fault->at,
		 fault->onwards ? "+" : "", fault->code);
	if (strcmp(fault->name, FAULT_MEMORY) != 0)
		gcpsim_fail(plan);
	else if (library.fail_memory)
		library.fail_memory(fault->at, fault->onwards);
}

void fault_disarm(void)
{
	(void)fault_has_struck(armed);
	armed = NULL;
	gcpsim_fail(NULL);
	if (library.fail_memory)
		library.fail_memory(0, 0);
}

/* The library has memory for everything else than this capture. */
void fault_capture_begins(const struct fault *fault)
{
	begins++;
	if (fault && strcmp(fault->name, FAULT_BEGIN) == 0 && library.fail_memory &&
	    (begins == fault->at || (begins > fault->at && fault->onwards)))
		library.fail_memory(1, fault->onwards);
}

void fault_capture_begun(const struct fault *fault)
{
	if (fault && strcmp(fault->name, FAULT_BEGIN) == 0 && library.fail_memory)
		library.fail_memory(0, 0);
}

uint64_t fault_count(unsigned call)
{
	return calls_of(calls[call].name);
}

/* One history, and what of it is played how. */
struct run {
	struct trial trial;
	const struct setting *setting;
	const struct history *history;
	uint8_t kept[OPS_MAX];
	struct played *played;
};

static bool run_one(struct run *run, const struct fault *fault)
{
	bool good;

	run->trial.fault = *fault;
	good = trial_run(&run->trial, run->setting, run->history, run->kept);
	run->played->histories++;
	run->played->steps += outcome->steps;
	played_excuses(run->played);
	if (good)
		return true;
	run->played->failures++;
	printf("explore %s --fault %s:%u%s:%d: step %u of %u operations: %s\n",
	       source_name(&run->setting->source), fault->name ? fault->name : "none",
	       fault->at, fault->onwards ? "+" : "", fault->code, outcome->step,
	       run->history->count, outcome->why);
	fflush(stdout);
	return false;
}

/* Where another device gets no access to mapped memory the library says so, and goes
 * on; programs that use it from there do not. */
static bool is_told(const struct setting *setting, const char *name)
{
	return setting->vmm && setting->devices > 1 &&
	       (strcmp(name, "cuMemSetAccess") == 0 ||
		strcmp(name, "cuCtxPushCurrent_v2") == 0);
}

/* The `at`-th call in each way. */
static void run_ways(struct run *run, unsigned call, uint64_t at)
{
	for (unsigned how = 0; how < 2 * CODES_MAX; how++) {
		struct fault fault = {.name = calls[call].name,
				      .at = (unsigned)at,
				      .onwards = how & 1,
				      .code = calls[call].codes[how / 2],
				      .loses = calls[call].loses};

		/* Not ready for ever is no driver's answer. */
		if (fault.code && !(fault.onwards && fault.code == NOT_READY))
			run_one(run, &fault);
	}
}

void faults_run(const struct trial *trial, const struct setting *setting,
		const struct history *history, struct played *played)
{
	struct run run = {
	    .trial = *trial, .setting = setting, .history = history, .played = played};
	const struct fault none = {0};
	uint64_t counts[CALLS];

	memset(run.kept, 1, sizeof(run.kept));
	run_one(&run, &none);
	memcpy(counts, outcome->calls, sizeof(counts));
	for (unsigned call = 0; call < CALLS; call++) {
		uint64_t step = counts[call] / AT_MAX + 1;

		if (is_told(setting, calls[call].name))
			continue;
		for (uint64_t at = 1 + setting->seed % step; at <= counts[call];
		     at += step)
			run_ways(&run, call, at);
	}
}

/* "NAME:AT[+]:CODE" */
bool fault_parse(const char *text, struct fault *ret_fault)
{
	for (unsigned call = 0; call < CALLS; call++) {
		size_t length = strlen(calls[call].name);
		char *end;

		if (strncmp(text, calls[call].name, length) != 0 || text[length] != ':')
			continue;
		ret_fault->name = calls[call].name;
		ret_fault->loses = calls[call].loses;
		ret_fault->at = (unsigned)strtoul(text + length + 1, &end, 10);
		ret_fault->onwards = *end == '+';
		end += *end == '+';
		ret_fault->code = *end == ':' ? atoi(end + 1) : calls[call].codes[0];
		return true;
	}
	return false;
}
