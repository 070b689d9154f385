/* SPDX-License-Identifier: MIT */
/*
 * call_stats.c - counts of the program's calls that pass through, and of handles of GPU
 * libraries. See report.h.
 */
#include <stdatomic.h>

#include "../base/clock.h"
#include "report.h"
#include "call_stats.h"
#include "../cuda/handles_table.h"

static struct {
	_Atomic(uint64_t) start_ns;
	struct {
		_Atomic(uint64_t) count, failed, bytes, ns;
	} calls[GCP_COUNTED_CALL_COUNT];
} call_stats;

/* --- calls --------------------------------------------------------------------- */

void gcp_call_stats_begin(void)
{
	uint64_t none = 0;

	atomic_compare_exchange_strong(&call_stats.start_ns, &none, gcp_clock_ns());
}

uint64_t gcp_call_stats_start_ns(void)
{
	return atomic_load(&call_stats.start_ns);
}

void gcp_call_stats_add(enum gcp_counted_call call, uint64_t start_ns, uint64_t bytes,
			int result)
{
	uint64_t ns = gcp_clock_ns() - start_ns;

	atomic_fetch_add_explicit(&call_stats.calls[call].count, 1,
				  memory_order_relaxed);
	atomic_fetch_add_explicit(&call_stats.calls[call].ns, ns, memory_order_relaxed);
	if (result != 0)
		atomic_fetch_add_explicit(&call_stats.calls[call].failed, 1,
					  memory_order_relaxed);
	else if (bytes > 0)
		atomic_fetch_add_explicit(&call_stats.calls[call].bytes, bytes,
					  memory_order_relaxed);
}

void gcp_call_stats_get(enum gcp_counted_call call, struct gcp_call_stats_sum *ret_sum)
{
	ret_sum->count = atomic_load(&call_stats.calls[call].count);
	ret_sum->failed = atomic_load(&call_stats.calls[call].failed);
	ret_sum->bytes = atomic_load(&call_stats.calls[call].bytes);
	ret_sum->ns = atomic_load(&call_stats.calls[call].ns);
}

/* --- handles of GPU libraries: at exit, and by tests -------------------------- */

#define ULL(value) ((unsigned long long)(value))

static const struct row {
	const char *soname;
	enum gcp_handle_kind_id kind;
} rows[] = {
#define GCP_X(tag, soname, kind, create, destroy) {#soname, GCP_HANDLE_##kind},
    GCP_HANDLE_LIBRARIES(GCP_X)
#undef GCP_X
};

enum { ROW_COUNT = sizeof(rows) / sizeof(rows[0]) };

struct gcp_handle_counts gcp_handle_counts[ROW_COUNT];

void gcp_handle_counts_use(struct gcp_handle_counts *counts)
{
	uint64_t used = atomic_fetch_add(&counts->used, 1) + 1;
	uint64_t peak = atomic_load(&counts->peak);

	while (peak < used && !atomic_compare_exchange_weak(&counts->peak, &peak, used))
		;
}

void gcp_handle_counts_sum(uint64_t *ret_used, uint64_t *ret_kept)
{
	uint64_t used = 0, all = 0;

	for (int i = 0; i < ROW_COUNT; i++) {
		const struct gcp_handle_counts *counts = &gcp_handle_counts[i];

		used += counts->used;
		all += counts->created - counts->destroyed;
	}
	*ret_used = used;
	*ret_kept = all > used ? all - used : 0; /* counted one after another */
}

void gcp_handles_text(struct gcp_text *text)
{
	bool titled = false;

	for (int i = 0; i < ROW_COUNT; i++) {
		const struct gcp_handle_counts *counts = &gcp_handle_counts[i];

		if (counts->created == 0)
			continue;
		if (!titled)
			gcp_text_add(text, "%-19s %10s %10s %12s %12s\n", "handles",
				     "created", "reused", "in use", "peak");
		titled = true;
		gcp_text_add(text, "  %-17s %10llu %10llu %12llu %12llu  of %s\n",
			     gcp_handle_kinds[rows[i].kind].name, ULL(counts->created),
			     ULL(counts->reused), ULL(counts->used), ULL(counts->peak),
			     rows[i].soname);
	}
}

void gcp_handles_json(struct gcp_text *text)
{
	const char *comma = "";

	gcp_text_add(text, ", \"handles\": [");
	for (int i = 0; i < ROW_COUNT; i++) {
		const struct gcp_handle_counts *counts = &gcp_handle_counts[i];

		if (counts->created == 0)
			continue;
		gcp_text_add(text,
			     "%s{\"kind\": \"%s\", \"library\": \"%s\", "
			     "\"created\": %llu, \"reused\": %llu, "
			     "\"destroyed\": %llu, \"used\": %llu, \"peak\": %llu}",
			     comma, gcp_handle_kinds[rows[i].kind].name, rows[i].soname,
			     ULL(counts->created), ULL(counts->reused),
			     ULL(counts->destroyed), ULL(counts->used),
			     ULL(counts->peak));
		comma = ", ";
	}
	gcp_text_add(text, "]");
}
