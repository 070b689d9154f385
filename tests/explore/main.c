/* SPDX-License-Identifier: MIT */
/*
 * main.c - the command line of the explorer.
 *
 *   explore [--library FILE] [--from SEED] [--count N] [--jobs N] [--kept DIR]
 *           [--plain] [--leak] [--shrink] [--keep-going] [--verbose] [--without NAME]
 *   explore --seed SEED | --frozen FILE [--ops 3,5-9,12] [--repeat N]
 *           [--print]
 *   explore --freeze --seed SEED [--fault X:3]
 *
 *   --library FILE  under this library
 *   --kept DIR      these first: histories that have found something (frozen.c)
 *   --frozen FILE   a history written down by --freeze, with its fault
 *   --freeze        plays nothing, but writes the history to stdout (frozen.c)
 *   --plain         on plain CUDA, or with the library off
 *   --leak          no free is done: whether the program is correct by itself
 *   --sleep         the process sleeps at random moments, in mapped memory
 *   --faults        each history many times, each call of the library failing in turn
 *   --fault X:3+:2  this one: the third call of X, and all later ones, gives code 2
 *   --keep-going    all failures, not only the first
 *   --without NAME  where the excuse of that name is used, that is a failure: excuses.h
 *
 * Starts itself again with the library preloaded. One line for each failure, one
 * for the whole; status 0: none, 1: some, 2: it could not run, or played none.
 */
#include "trial.h"

#include <dirent.h>
#include <errno.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { JOBS_MAX = 64, KEPT_MAX = 1024 };

struct arguments {
	struct trial trial;
	const char *library, *ops, *kept, *fault;
	struct source source; /* of the one */
	uint64_t from, count, repeat, jobs, seconds;
	bool one, print, keep_going, shrink, faults, freeze;
};

/* What all workers found together; shared. */
struct total {
	struct played played;
	uint64_t next;
};
static struct total *total;

static struct arguments arguments = {
    .count = 1000, .jobs = 1, .from = 1, .repeat = 1, .seconds = 120};

/* --- one history -------------------------------------------------------------- */

/* "3,5-9" */
static void ops_parse(const char *text, uint8_t *kept)
{
	memset(kept, 0, OPS_MAX);
	while (text && *text) {
		char *end;
		unsigned long from = strtoul(text, &end, 10), to = from;

		if (*end == '-')
			to = strtoul(end + 1, &end, 10);
		for (; from <= to && from < OPS_MAX; from++)
			kept[from] = 1;
		text = *end ? end + 1 : end;
	}
}

static void ops_print(const uint8_t *kept, uint32_t count, char *ret_text, size_t size)
{
	size_t n = 0;

	ret_text[0] = 0;
	for (uint32_t i = 0; i < count && n + 24 < size; i++) {
		uint32_t from = i;

		if (!kept[i])
			continue;
		while (i + 1 < count && kept[i + 1])
			i++;
		n += (size_t)snprintf(ret_text + n, size - n, n ? ",%u" : "%u", from);
		if (i > from)
			n += (size_t)snprintf(ret_text + n, size - n, "-%u", i);
	}
}

static void tell(const struct trial *trial, const struct setting *setting,
		 const struct history *history, const uint8_t *kept,
		 const struct outcome *of)
{
	const struct fault *fault = &trial->fault;
	char text[2048], failing[96] = "";
	uint32_t count = 0;

	for (uint32_t i = 0; i < history->count; i++)
		count += kept[i];
	ops_print(kept, history->count, text, sizeof(text));
	if (fault->name)
		snprintf(failing, sizeof(failing), " --fault %s:%u%s:%d", fault->name,
			 fault->at, fault->onwards ? "+" : "", fault->code);
	printf("explore%s%s %s%s --ops %s: step %u of %u operations: %s\n",
	       trial->plain ? " --plain" : "",
	       trial->leak      ? " --leak"
	       : setting->sleep ? " --sleep"
				: "",
	       source_name(&setting->source), failing, text, of->step, count, of->why);
	fflush(stdout);
}

/* What failed once may not fail again: threads of the driver's are real. */
static void tell_shrunk(const struct trial *trial, const struct setting *setting,
			const struct history *history, uint8_t *kept)
{
	struct outcome first = *outcome;
	uint8_t all[OPS_MAX];

	memcpy(all, kept, sizeof(all));
	if (arguments.shrink)
		trial_shrink(trial, setting, history, kept);
	if (arguments.shrink && outcome->failed)
		tell(trial, setting, history, kept, outcome);
	else
		tell(trial, setting, history, all, &first);
}

/* True: all was well. */
static bool history_run(const struct trial *trial, const struct source *source)
{
	static struct history history;
	struct played played = {0};
	struct setting setting;
	uint8_t kept[OPS_MAX];

	setting_draw(&setting, source);
	history_draw(&history, &setting);
	memset(kept, 1, sizeof(kept));
	if (arguments.ops)
		ops_parse(arguments.ops, kept);
	if (arguments.print)
		history_print(&history, kept);
	if (arguments.faults) {
		faults_run(trial, &setting, &history, &played);
	} else {
		bool good = trial_run(trial, &setting, &history, kept);

		played = (struct played){1, outcome->steps, !good, 0, {0}};
		played_excuses(&played);
		if (!good)
			tell_shrunk(trial, &setting, &history, kept);
	}
	__atomic_add_fetch(&total->played.histories, played.histories,
			   __ATOMIC_RELAXED);
	__atomic_add_fetch(&total->played.steps, played.steps, __ATOMIC_RELAXED);
	__atomic_add_fetch(&total->played.failures, played.failures, __ATOMIC_RELAXED);
	__atomic_add_fetch(&total->played.sleeps, played.sleeps, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < EXCUSES; i++)
		__atomic_add_fetch(&total->played.excused[i], played.excused[i],
				   __ATOMIC_RELAXED);
	return played.failures == 0;
}

/* --- many --- */

static struct source kept_sources[KEPT_MAX];
static uint64_t kept_count;

/* False: it cannot be read; a line has said why. What it holds stays for good. */
static bool frozen_source(const char *path, struct source *ret_source)
{
	struct frozen *frozen = malloc(sizeof(*frozen));

	if (!frozen || !frozen_read(frozen, path))
		return false;
	*ret_source = (struct source){
	    .seed = frozen->setting.seed, .path = strdup(path), .frozen = frozen};
	return true;
}

static void kept_read(const char *dir)
{
	struct dirent **entries;
	int count = scandir(dir, &entries, NULL, alphasort);
	char path[4096];

	for (int i = 0; i < count && kept_count < KEPT_MAX; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, entries[i]->d_name);
		if (entries[i]->d_name[0] != '.' &&
		    !frozen_source(path, &kept_sources[kept_count++]))
			exit(2);
	}
	if (kept_count > 0)
		return;
	fprintf(stderr, "explore: no histories in %s\n", dir);
	exit(2);
}

static void worker(void)
{
	trial_init();
	for (;;) {
		uint64_t i = __atomic_fetch_add(&total->next, 1, __ATOMIC_RELAXED);
		struct trial trial = arguments.trial;
		struct source source;

		if (i >= kept_count + arguments.count)
			return;
		if (!arguments.keep_going &&
		    __atomic_load_n(&total->played.failures, __ATOMIC_RELAXED) > 0)
			return;
		source = source_of_seed(arguments.from + i - kept_count);
		if (i < kept_count) {
			source = kept_sources[i];
			trial.fault = source.frozen->fault;
		}
		history_run(&trial, &source);
	}
}

/* Where the library was allowed to differ from plain CUDA, and where that was of no
 * use.
 */
static void tell_excuses(const char *title, bool used)
{
	const char *between = title;

	for (unsigned i = 0; i < EXCUSES; i++) {
		if (used != (total->played.excused[i] > 0))
			continue;
		printf("%s%s", between, excuse_name((enum excuse)i));
		if (used)
			printf(" %lu", total->played.excused[i]);
		between = ", ";
	}
	if (*between == ',')
		putchar('\n');
}

static int run_all(void)
{
	struct timespec start, end;
	double seconds;
	int status;

	clock_gettime(CLOCK_MONOTONIC, &start);
	for (uint64_t i = 0; i < arguments.jobs; i++)
		if (fork() == 0) {
			worker();
			fflush(stdout);
			_exit(0);
		}
	while (wait(&status) > 0)
		if (status != 0)
			total->played.failures++;
	clock_gettime(CLOCK_MONOTONIC, &end);
	seconds = (double)(end.tv_sec - start.tv_sec) +
		  (double)(end.tv_nsec - start.tv_nsec) / 1e9;
	printf("explore: %lu histories, %lu steps, %lu failures, %.1f s, seeds "
	       "0x%lx to 0x%lx\n",
	       total->played.histories, total->played.steps, total->played.failures,
	       seconds, arguments.from, (arguments.from + arguments.count - 1));
	if (setting_sleeps)
		printf("explore: %lu sleeps\n", total->played.sleeps);
	if (!arguments.trial.plain) {
		tell_excuses("explore: excuses: ", true);
		tell_excuses("explore: unused excuses: ", false);
	}
	if (total->played.histories == 0 && total->played.failures == 0) {
		fprintf(stderr, "explore: no history was played\n");
		return 2;
	}
	return total->played.failures > 0;
}

/* --- the command line --- */

static bool flag(const char *text)
{
	struct {
		const char *name;
		bool *value;
	} flags[] = {
	    {"--plain", &arguments.trial.plain},     {"--leak", &arguments.trial.leak},
	    {"--verbose", &arguments.trial.verbose}, {"--shrink", &arguments.shrink},
	    {"--faults", &arguments.faults},         {"--sleep", &setting_sleeps},
	    {"--keep-going", &arguments.keep_going}, {"--print", &arguments.print},
	    {"--freeze", &arguments.freeze},
	};

	for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++)
		if (strcmp(text, flags[i].name) == 0)
			return *flags[i].value = true;
	return false;
}

/* Ends the explorer: `name` is an argument, and `why` is what is wrong with it. */
__attribute__((noreturn)) static void refuse(const char *name, const char *why)
{
	fprintf(stderr, "explore: %s %s\n", name, why);
	exit(2);
}

static uint64_t number_of(const char *name, const char *text)
{
	char *end;
	uint64_t number;

	errno = 0;
	number = strtoull(text, &end, 0);
	if (errno || end == text || *end || *text == '-')
		refuse(name, "needs a number");
	return number;
}

static void fault_take(const char *name, const char *text)
{
	arguments.fault = text;
	if (!fault_parse(text, &arguments.trial.fault))
		refuse(name, "needs a call of the table in faults.c, as in X:3+:2");
}

static void seed_take(const char *name, const char *text)
{
	arguments.source = source_of_seed(number_of(name, text));
	arguments.one = true;
}

static void without_take(const char *name, const char *text)
{
	if (!excuse_take_away(text))
		refuse(name, "needs the name of an excuse, see excuses.h");
}

static void frozen_take(const char *name, const char *text)
{
	(void)name;
	if (!frozen_source(text, &arguments.source))
		exit(2);
	arguments.one = true;
}

/* False: there is no such argument. */
static bool value(const char *name, const char *text)
{
	struct {
		const char *name;
		const char **text;
		uint64_t *number;
		void (*take)(const char *name, const char *text);
	} values[] = {
	    {"--library", .text = &arguments.library},
	    {"--ops", .text = &arguments.ops},
	    {"--kept", .text = &arguments.kept},
	    {"--from", .number = &arguments.from},
	    {"--count", .number = &arguments.count},
	    {"--jobs", .number = &arguments.jobs},
	    {"--repeat", .number = &arguments.repeat},
	    {"--seconds", .number = &arguments.seconds},
	    {"--fault", .take = fault_take},
	    {"--seed", .take = seed_take},
	    {"--frozen", .take = frozen_take},
	    {"--without", .take = without_take},
	};

	for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
		if (strcmp(name, values[i].name) != 0)
			continue;
		if (!text)
			refuse(name, "needs a value");
		if (values[i].text)
			*values[i].text = text;
		else if (values[i].number)
			*values[i].number = number_of(name, text);
		else
			values[i].take(name, text);
		return true;
	}
	return false;
}

static void seed_demand(uint64_t seed)
{
	if (seed_generation(seed) == GENERATION)
		return;
	fprintf(stderr,
		"explore: seed 0x%lx is of generation %u, this explorer draws %u: see "
		"draw.h\n",
		seed, seed_generation(seed), GENERATION);
	exit(2);
}

static void arguments_read(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (flag(argv[i]))
			continue;
		if (!value(argv[i], argv[i + 1]))
			refuse(argv[i], "is no argument, see main.c");
		i++;
	}
	arguments.trial.seconds = (unsigned)arguments.seconds;
	if (arguments.from >> GENERATION_SHIFT == 0)
		arguments.from |= (uint64_t)GENERATION << GENERATION_SHIFT;
	seed_demand(arguments.from);
	if (!arguments.source.frozen && arguments.one)
		seed_demand(arguments.source.seed);
	if (arguments.source.frozen && !arguments.trial.fault.name)
		arguments.trial.fault = arguments.source.frozen->fault;
	if (arguments.jobs < 1 || arguments.jobs > JOBS_MAX)
		arguments.jobs = 1;
}

/* Returns with the library preloaded. */
static void library_start(char **argv)
{
	char *path;

	if (getenv("EXPLORE_STARTED"))
		return;
	path = realpath(arguments.library, NULL);
	if (!path || access(path, R_OK) != 0)
		refuse("--library", "needs a file that can be read");
	setenv("EXPLORE_STARTED", "1", 1);
	setenv("LD_PRELOAD", path, 1);
	setenv("EXPLORE_LIBRARY", path, 1); /* ipc_peer.c */
	execv("/proc/self/exe", argv);
	perror("explore: cannot start itself again");
	exit(2);
}

int main(int argc, char **argv)
{
	arguments_read(argc, argv);
	if (arguments.library)
		library_start(argv);
	if (arguments.freeze)
		return !frozen_write(stdout, &arguments.source, arguments.fault);
	if (!arguments.library && !arguments.trial.plain)
		refuse("--library", "is needed, or --plain");
	total = mmap(NULL, sizeof(*total), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (total == MAP_FAILED)
		return 2;
	if (arguments.one) {
		bool good = true;

		trial_init();
		for (uint64_t i = 0; i < arguments.repeat && good; i++)
			good = history_run(&arguments.trial, &arguments.source);
		if (good) {
			printf("explore: %s: %lu steps, nothing found\n",
			       source_name(&arguments.source), outcome->steps);
			return 0;
		}
		return 1;
	}
	if (arguments.kept)
		kept_read(arguments.kept);
	return run_all();
}
