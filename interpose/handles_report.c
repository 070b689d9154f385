/* SPDX-License-Identifier: MIT */
/*
 * handles_report.c - see handles_report.h. Called at exit, and by tests.
 */
#include "handles_report.h"
#include "handles_table.h"

#define ULL(value) ((unsigned long long)(value))

static const struct row {
	const char *soname;
	enum gcp_handle_kind_id kind;
} rows[] = {
#define GCP_X(tag, soname, kind, create, destroy) {soname, GCP_HANDLE_##kind},
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
