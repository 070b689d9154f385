/* SPDX-License-Identifier: MIT */
/*
 * oom.c - fills the card in changing block sizes and reports what it got. By
 * plain rules each phase can have the whole card, since the one before freed
 * everything; an allocator that keeps what was freed must not stand in the way.
 *
 *   --limit BYTES  stop a phase after so many bytes (0: at out-of-memory)
 *   --blocks N     at most so many blocks in a phase
 *
 * Prints for each phase the bytes that it obtained and the code that ended it.
 * Exit code 1 when the end was anything but out-of-memory or the limit, or when
 * a block did not hold what was written into it.
 *
 * Styles: static shared linked dlsym
 */

#include "api.h"
#include "kernels.h"
#include "util.h"

struct setting {
	uint64_t limit, total;
	unsigned blocks_max;
	struct gcpt_kernels kernels;
	void *wrong;
	bool failed;
};

struct bag {
	void **block;
	unsigned count;
	uint64_t bytes;
};

/* Takes blocks of `size` until memory or the limit ends it. Marks each one. */
static int fill(struct setting *set, struct bag *bag, uint64_t size)
{
	while (bag->count < set->blocks_max && bag->bytes + size <= set->limit) {
		void *p;
		int code = gcpt_malloc(&p, size);

		if (code) {
			gcpt_last_error();
			return code;
		}
		GCPT_OK(gcpt_launch_fill(&set->kernels, NULL, p, 64, bag->count));
		GCPT_OK(gcpt_launch_fill(&set->kernels, NULL, (char *)p + size - 256,
					 64, bag->count));
		bag->block[bag->count++] = p;
		bag->bytes += size;
	}
	return 0;
}

/* Frees every `step`-th block, after looking whether its marks are intact. */
static void empty(struct setting *set, struct bag *bag, uint64_t size, unsigned step)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < bag->count; i++) {
		void *p = bag->block[i];

		if (i % step) {
			bag->block[kept++] = p;
			continue;
		}
		GCPT_OK(gcpt_launch_check(&set->kernels, NULL, p, 64, i, set->wrong));
		GCPT_OK(gcpt_launch_check(&set->kernels, NULL, (char *)p + size - 256,
					  64, i, set->wrong));
		GCPT_OK(gcpt_free(p));
		bag->bytes -= size;
	}
	bag->count = kept;
}

static void report(struct setting *set, const char *what, uint64_t size,
		   const struct bag *bag, int code)
{
	printf("oom: %-18s %10llu KiB blocks: obtained %8llu MiB in %u, end: %s\n",
	       what, (unsigned long long)(size >> 10),
	       (unsigned long long)(bag->bytes >> 20), bag->count,
	       code ? gcpt_error_name(code) : "limit");
	if (code && code != CUDA_ERROR_OUT_OF_MEMORY)
		set->failed = true;
}

/* One size: fill, free all. */
static void phase_plain(struct setting *set, struct bag *bag, uint64_t size)
{
	int code = fill(set, bag, size);

	report(set, "fill", size, bag, code);
	empty(set, bag, size, 1);
}

/* Holes: fill, free every other block, fill the holes with the same size. The
 * marks of the two fills mix, so the last look only frees. */
static void phase_holes(struct setting *set, struct bag *bag, uint64_t size)
{
	int code = fill(set, bag, size);

	report(set, "before the holes", size, bag, code);
	empty(set, bag, size, 2);
	code = fill(set, bag, size);
	report(set, "holes filled", size, bag, code);
	for (unsigned i = 0; i < bag->count; i++)
		GCPT_OK(gcpt_free(bag->block[i]));
	bag->count = 0;
	bag->bytes = 0;
}

static void run(struct setting *set, struct bag *bag)
{
	/* Fractions of the card, odd ones too: no multiple of anything. */
	static const unsigned parts[] = {64, 1500, 9, 300, 5000, 30, 700, 64};

	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		phase_plain(set, bag, (set->total / parts[i] + 511) & ~511ull);
	phase_holes(set, bag, (set->total / 400 + 511) & ~511ull);
	phase_plain(set, bag, (set->total / 16 + 511) & ~511ull);
}

int main(int argc, char **argv)
{
	struct setting set = {
	    .limit = gcpt_arg(argc, argv, "--limit", 0),
	    .blocks_max = (unsigned)gcpt_arg(argc, argv, "--blocks", 20000),
	};
	unsigned long long wrong = 0;
	struct bag bag = {0};
	size_t unused, total;

	GCPT_OK(gcpt_use(0), gcpt_kernels_load(&set.kernels));
	GCPT_OK(gcpt_mem_info(&unused, &total));
	set.total = set.limit ? set.limit : total;
	set.limit = set.limit ? set.limit : UINT64_MAX / 2;
	bag.block = calloc(set.blocks_max, sizeof(*bag.block));
	if (!bag.block)
		return 2;
	GCPT_OK(gcpt_malloc(&set.wrong, sizeof(wrong)));
	GCPT_OK(gcpt_copy(set.wrong, &wrong, sizeof(wrong)));
	run(&set, &bag);
	GCPT_OK(gcpt_copy(&wrong, set.wrong, sizeof(wrong)));
	printf("oom: wrong words: %llu\n", wrong);
	GCPT_OK(gcpt_free(set.wrong));
	free(bag.block);
	return set.failed || wrong ? 1 : 0;
}
