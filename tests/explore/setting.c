/*
 * setting.c - what surrounds a history: the devices, their speed and the options
 * of the library, drawn from its source and handed over in the environment.
 *
 * Called in the child, before its first CUDA call: neither the library nor the
 * simulated driver has read anything by then.
 */
#include "explore.h"

#include <stdio.h>
#include <stdlib.h>

void setting_draw(struct setting *ret_setting, const struct source *source)
{
	struct draw draw = draw_open(source, DRAW_SETTING);
	struct setting setting = {.source = *source, .seed = source->seed};

	setting.threads = draw_below(&draw, 2) ? 1 : 1 + draw_below(&draw, THREADS_MAX);
	setting.devices = draw_below(&draw, 4) ? 1 : 2;
	setting.driver_version = draw_below(&draw, 12) ? 13000 : 12040;
	setting.memory_small = draw_below(&draw, 6) == 0;
	setting.memory =
	    setting.memory_small ? (40ull + draw_below(&draw, 100)) << 20 : 32ull << 30;
	setting.pinned = setting.memory_small ? 2ull << (20 + draw_below(&draw, 3)) : 0;
	if (draw_below(&draw, 6) == 0)
		setting.cache_limit = 1ull << (20 + draw_below(&draw, 7));
	setting.tight = setting.memory_small || setting.cache_limit;
	setting.vmm = draw_below(&draw, 4) == 0;
	setting.completed = draw_below(&draw, 6) == 0;
	setting.check_often = true;
	*ret_setting = setting;
}

static bool shown; /* as a shell would set it */

static void set(const char *name, const char *value)
{
	if (shown)
		printf("%s=%s ", name, value);
	setenv(name, value, 1);
}

static void set_number(const char *name, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	set(name, text);
}

static void set_device(const struct setting *setting, struct draw *draw)
{
	static const char *const speeds[] = {"random", "random", "never", "idle",
					     "300",    "3000",   "40000"};

	set_number("GCPSIM_SEED", setting->seed);
	set("GCPSIM_SPEED", speeds[draw_below(draw, 7)]);
	set_number("GCPSIM_DEVICES", (uint64_t)setting->devices);
	set_number("GCPSIM_MEMORY", setting->memory);
	set_number("GCPSIM_DRIVER_VERSION", (uint64_t)setting->driver_version);
	if (draw_below(draw, 3) == 0)
		set("GCPSIM_STAGING", "1");
}

static void set_classes(const struct setting *setting, struct draw *draw)
{
	static const char *const lists[] = {"512,4K,1M", "2K", "1K,64K,256K,2M",
					    "512,1024,1536,8K,32K,33K"};

	switch (draw_below(draw, 6)) {
	case 0:
		set("GCPOOL_CLASSES", lists[draw_below(draw, 4)]);
		break;
	case 1:
		set_number("GCPOOL_CLASS_STEPS", 1 + draw_below(draw, 16));
		break;
	case 2:
		set_number("GCPOOL_CLASS_MIN", 512u << draw_below(draw, 5));
		set_number("GCPOOL_CLASS_MAX", 65536u << draw_below(draw, 6));
		break;
	default:
		break;
	}
	if (draw_below(draw, 3) == 0)
		set_number("GCPOOL_SLAB_MAX",
			   draw_below(draw, 3) ? 1024u << draw_below(draw, 9) : 0);
	if (draw_below(draw, 3) == 0)
		set_number("GCPOOL_SEGMENT", 2ull << (20 + draw_below(draw, 6)));
	if (draw_below(draw, 3) == 0)
		set_number("GCPOOL_SPLIT_LIMIT", 64ull << (20 + draw_below(draw, 4)));
	/* So little that one small block pins, where memory is scarce. */
	if (setting->pinned) {
		set("GCPOOL_SEGMENT", "2M");
		set_number("GCPOOL_SPLIT_LIMIT", setting->pinned);
	}
}

/* Small windows and pages make reuse behind barriers common. */
static void set_reuse(const struct setting *setting, struct draw *draw)
{
	if (draw_below(draw, 2))
		set_number("GCPOOL_WINDOW",
			   draw_below(draw, 3) ? 4096ull << draw_below(draw, 14) : 0);
	if (draw_below(draw, 2))
		set_number("GCPOOL_WINDOW_BLOCKS", 1 + draw_below(draw, 12));
	if (draw_below(draw, 4))
		set_number("GCPOOL_PAGE", 1 + draw_below(draw, 8));
	if (draw_below(draw, 3) == 0)
		set_number("GCPOOL_THREAD_CACHE",
			   draw_below(draw, 2) ? 65536ull << draw_below(draw, 8) : 0);
	if (setting->cache_limit)
		set_number("GCPOOL_CACHE_LIMIT", setting->cache_limit);
	if (draw_below(draw, 12) == 0)
		set("GCPOOL_BLOCKING_FREE", "1");
	if (setting->completed)
		set("GCPOOL_REUSE", "completed");
	if (setting->vmm)
		set("GCPOOL_BACKEND", "vmm");
}

void setting_apply(const struct setting *setting, bool show)
{
	struct draw draw = draw_open(&setting->source, DRAW_ENVIRONMENT);

	shown = show;
	set_device(setting, &draw);
	set_classes(setting, &draw);
	set_reuse(setting, &draw);
	if (setting->plain)
		set("GCPOOL_MODE", "off");
	set("GCPOOL_STRICT", "1");
	if (show)
		putchar('\n'), fflush(stdout);
}
