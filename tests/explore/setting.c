/* SPDX-License-Identifier: MIT */
/*
 * setting.c - what surrounds a history: the devices, their speed and the options
 * of the library, drawn from its source and handed over in the environment.
 *
 * Called in the child, before its first CUDA call: neither the library nor the
 * simulated driver has read anything by then.
 */
#include "explore.h"

/* A share of the small devices, some of them large enough for a few segments of the
 * default size, has the library's options as most programs have them: unset. */
static void draw_defaults(struct setting *setting, struct draw *draw)
{
	uint64_t choice = draw_below(draw, 16);
	uint64_t number = setting->seed & ((1ull << GENERATION_SHIFT) - 1);

	if (choice == 0 || choice > 6 || number < SEEDS_OF_BUGS)
		return;
	setting->defaults = true;
	setting->memory *= choice % 2 ? 1 : 4;
	setting->vmm = choice < 5;
}

static void draw_more(struct setting *setting)
{
	struct draw draw = draw_open(&setting->source, DRAW_MORE_SETTING);

	if (draw_below(&draw, 10) == 0)
		setting->quota = (40ull + draw_below(&draw, 100)) << 20;
	setting->tight |= setting->quota > 0;
	if (draw_below(&draw, 10) == 0)
		setting->host_memory = (256ull + draw_below(&draw, 4096)) << 10;
	if (draw_below(&draw, 10) == 0)
		setting->host_quota = (64ull + draw_below(&draw, 4096)) << 10;
	setting->host_thread = draw_below(&draw, 40) == 0;
	setting->count = draw_below(&draw, 60) == 0;
	setting->filter = draw_below(&draw, 30) == 0;
	setting->exit_with_memory = draw_below(&draw, 3) == 0;
	if (setting->memory_small)
		draw_defaults(setting, &draw);
	else if (setting->seed % (1ull << GENERATION_SHIFT) >= SEEDS_OF_BUGS &&
		 draw_below(&draw, 12) == 0) {
		setting->large = setting->defaults = true;
		setting->memory <<= draw_below(&draw, 3);
	}
}

/* Memory of the host where a device is full. */
static void draw_spill(struct setting *setting, struct draw *draw)
{
	uint64_t number = setting->seed & ((1ull << GENERATION_SHIFT) - 1);

	if ((setting->memory_small || setting->quota) && !setting->defaults &&
	    number >= SEEDS_OF_BUGS && draw_below(draw, 2))
		setting->spill = (2ull + draw_below(draw, 60)) << 20;
}

/* A driver lacks what is newer than it is. */
static void draw_driver(struct setting *setting)
{
	static const int versions[] = {12050, 12080, 12090};
	struct draw draw = draw_open(&setting->source, DRAW_DRIVER);

	setting->driver_version =
	    draw_below(&draw, 6) ? 13000 : versions[draw_below(&draw, 3)];
	setting->share = draw_below(&draw, 3) == 1;
	if (setting->share && draw_below(&draw, 4) && !setting->defaults)
		setting->vmm = true; /* only mapped memory can be shared */
	draw_spill(setting, &draw);
}

static void keep_defaults(struct setting *setting)
{
	setting->cache_limit = 0;
	setting->quota = setting->host_quota = 0;
	setting->completed = setting->host_thread = false;
	setting->tight &= setting->memory_small;
	setting->share = true;
}

/* What follows from what was drawn. */
static void derive(struct setting *setting)
{
	if (setting->defaults)
		keep_defaults(setting);
	setting->check_often = true;
}

bool setting_sleeps;

void setting_draw(struct setting *ret_setting, const struct source *source)
{
	struct draw draw = draw_open(source, DRAW_SETTING);
	struct setting setting = {.source = *source, .seed = source->seed};

	if (source->frozen) {
		setting = source->frozen->setting;
		setting.source = *source;
		derive(&setting);
		*ret_setting = setting;
		return;
	}
	setting.threads = draw_below(&draw, 2) ? 1 : 1 + draw_below(&draw, THREADS_MAX);
	setting.devices = draw_below(&draw, 4) ? 1 : 2;
	setting.memory_small = draw_below(&draw, 6) == 0;
	setting.memory =
	    setting.memory_small ? (40ull + draw_below(&draw, 100)) << 20 : 32ull << 30;
	if (draw_below(&draw, 6) == 0)
		setting.cache_limit = 1ull << (20 + draw_below(&draw, 7));
	setting.tight = setting.memory_small || setting.cache_limit;
	setting.vmm = draw_below(&draw, 4) == 0;
	setting.completed = draw_below(&draw, 6) == 0;
	setting.early = setting.seed % 2;
	draw_more(&setting);
	draw_driver(&setting);
	setting.sleep = setting_sleeps;
	setting.vmm |= setting.sleep;
	derive(&setting);
	*ret_setting = setting;
}

static FILE *shown; /* as a shell would set it; or NULL */

static void set(const char *name, const char *value)
{
	if (shown)
		fprintf(shown, " %s=%s", name, value);
	setenv(name, value, 1);
}

static void set_number(const char *name, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%lu", value);
	set(name, text);
}

static void set_device(const struct setting *setting, struct draw *draw)
{
	static const char *const speeds[] = {"random", "random", "never", "idle",
					     "300",    "3000",   "40000"};

	set_number("GCPSIM_SEED", seed_drawn(setting->seed));
	set("GCPSIM_SPEED", speeds[draw_below(draw, 7)]);
	set_number("GCPSIM_DEVICES", (uint64_t)setting->devices);
	set_number("GCPSIM_MEMORY", setting->memory);
	set_number("GCPSIM_DRIVER_VERSION", (uint64_t)setting->driver_version);
	if (setting->driver_version < 13000)
		set("GCPSIM_HIDE", "1");
	if (draw_below(draw, 3) == 0)
		set("GCPSIM_STAGING", "1");
}

static void set_classes(struct draw *draw)
{
	switch (draw_below(draw, 6)) {
	case 0:
		set_number("GCPOOL_TEST_CLASS_MIN", 512u << draw_below(draw, 4));
		break;
	case 1:
		set_number("GCPOOL_TEST_CLASS_STEPS", 1 + draw_below(draw, 16));
		break;
	case 2:
		set_number("GCPOOL_TEST_CLASS_MIN", 512u << draw_below(draw, 5));
		set_number("GCPOOL_TEST_CLASS_MAX", 65536u << draw_below(draw, 6));
		break;
	default:
		break;
	}
}

/* Half of them as most programs run: auto maps. */
static const char *backend(const struct setting *setting)
{
	if (setting->vmm && setting->seed & 2)
		return "auto";
	return setting->vmm ? "vmm" : "segments";
}

/* Small windows and epochs make reuse behind barriers common. */
static void set_reuse(const struct setting *setting, struct draw *draw)
{
	if (draw_below(draw, 2))
		set_number("GCPOOL_TEST_WINDOW",
			   draw_below(draw, 3) ? 4096ull << draw_below(draw, 14) : 0);
	if (draw_below(draw, 2))
		set_number("GCPOOL_TEST_WINDOW_BLOCKS", 1 + draw_below(draw, 12));
	if (draw_below(draw, 4))
		set_number("GCPOOL_TEST_FENCE_BATCH", 1 + draw_below(draw, 8));
	if (draw_below(draw, 3) == 0)
		set_number("GCPOOL_THREAD_CACHE",
			   draw_below(draw, 2) ? 65536ull << draw_below(draw, 8) : 0);
	if (setting->cache_limit)
		set_number("GCPOOL_CACHE_LIMIT", setting->cache_limit);
	if (draw_below(draw, 12) == 0)
		set("GCPOOL_BLOCKING_FREE", "1");
	if (setting->completed)
		set("GCPOOL_REUSE", "completed");
	set("GCPOOL_BACKEND", backend(setting));
}

static void set_pinned(const struct setting *setting, struct draw *draw)
{
	if (draw_below(draw, 12) == 0)
		set("GCPOOL_HOST", "0");
	if (draw_below(draw, 3) == 0)
		set_number("GCPOOL_HOST_WINDOW",
			   draw_below(draw, 2) ? 4096ull << draw_below(draw, 8) : 0);
	if (draw_below(draw, 4) == 0)
		set_number("GCPOOL_HOST_CACHE_LIMIT",
			   draw_below(draw, 2) ? 4096ull << draw_below(draw, 10) : 0);
	if (setting->host_quota)
		set_number("GCPOOL_HOST_QUOTA", setting->host_quota);
	if (setting->host_memory)
		set_number("GCPSIM_HOST_MEMORY", setting->host_memory);
	if (setting->host_thread)
		set("GCPOOL_THREAD", "1");
}

/* Options that print: the output is not looked at here. */
static void set_voice(struct draw *draw)
{
	if (draw_below(draw, 4))
		return;
	set("GCPOOL_LOG", draw_below(draw, 2) ? "debug" : "off");
	set("GCPOOL_LOG_FILE", "/dev/null");
	set("GCPOOL_STATS", draw_below(draw, 2) ? "text" : "json");
	set("GCPOOL_STATS_FILE", "/dev/null");
}

/* The ends of what options allow, where there is memory enough for them; and options
 * that do not go together, of which one line speaks. */
static void set_extremes(const struct setting *setting, struct draw *draw)
{
	static const char *const ends[][2] = {
	    {"GCPOOL_TEST_CLASS_STEPS", "64"},
	    {"GCPOOL_TEST_CLASS_STEPS", "1"},
	    {"GCPOOL_TEST_FENCE_BATCH", "65536"},
	    {"GCPOOL_TEST_WINDOW_BLOCKS", "1048576"},
	    {"GCPOOL_TEST_WINDOW", "16T"},
	    {"GCPOOL_THREAD_CACHE", "16T"},
	    {"GCPOOL_CACHE_LIMIT", "0"},
	    {"GCPOOL_HOST_QUOTA", "none"},
	};
	const char *const *end = ends[draw_below(draw, 8)];

	if (setting->tight || draw_below(draw, 3))
		return;
	if (draw_below(draw, 6) == 0) {
		set("GCPOOL_LOG_FILE", "/dev/null");
		set("GCPOOL_TEST_CLASS_MIN", "64M");
		set("GCPOOL_STRICT", "0");
		return;
	}
	set(end[0], end[1]);
}

static void set_more(const struct setting *setting)
{
	struct draw draw = draw_open(&setting->source, DRAW_MORE_ENVIRONMENT);

	set_pinned(setting, &draw);
	set_voice(&draw);
	set_extremes(setting, &draw);
	if (setting->quota)
		set_number("GCPOOL_QUOTA", setting->quota);
	if (setting->spill)
		set_number(setting->seed & 4 ? "GCPSIM_NUMA_MEMORY" : "GCPOOL_SPILL",
			   setting->spill);
	if (setting->spill && setting->seed & 4)
		set("GCPOOL_SPILL", "none");
	if (draw_below(&draw, 6) == 0)
		set_number("GCPOOL_DECAY", draw_below(&draw, 3));
	if (draw_below(&draw, 3) == 1)
		set("GCPSIM_HANDLES", "again");
}

/* All options that the library has, or none but for the kind of its segments. */
static void set_options(const struct setting *setting, struct draw *draw)
{
	if (setting->defaults) {
		if (!setting->vmm)
			set("GCPOOL_BACKEND", "segments");
		if (setting->host_memory)
			set_number("GCPSIM_HOST_MEMORY", setting->host_memory);
		if (draw_below(draw, 3) == 1)
			set("GCPSIM_HANDLES", "again");
		return;
	}
	set_classes(draw);
	set_reuse(setting, draw);
	set_more(setting);
	if (!setting->share)
		set("GCPOOL_GRAPH_SHARE", "0");
}

void setting_apply(const struct setting *setting, FILE *show)
{
	struct draw draw = draw_open(&setting->source, DRAW_ENVIRONMENT);

	shown = show;
	if (setting->source.frozen) {
		frozen_environment(setting->source.frozen, set);
		set_number("GCPSIM_MEMORY", setting->memory);
	} else {
		set("GCPOOL_LOG", "error"); /* not each time that memory is out */
		set("GCPOOL_STRICT", "1");
		set_device(setting, &draw);
		set_options(setting, &draw);
	}
	if (setting->sleep) {
		set("GCPOOL_WAKE", "auto");
		set("GCPOOL_WAKE_WAIT", "0");
	}
	if (setting->plain)
		set("GCPOOL_MODE", "off");
	if (show)
		fputc('\n', show), fflush(show);
}
