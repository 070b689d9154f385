/* SPDX-License-Identifier: MIT */
/*
 * options.h - what people can set: one table of GCPOOL_ environment variables.
 *
 * gcp_options_read is called once, at the first allocation of the process, and
 * never at load time. Nothing here allocates, uses stdio or calls CUDA.
 */
#ifndef GCP_INTERPOSE_OPTIONS_H
#define GCP_INTERPOSE_OPTIONS_H

#include "../../pool/pool.h"
#include "log.h"

enum gcp_mode {
	GCP_MODE_POOL, /* allocate from the pool */
	GCP_MODE_OFF,  /* every call to the driver as without us */
};

enum gcp_stats_format {
	GCP_STATS_OFF,
	GCP_STATS_TEXT,
	GCP_STATS_JSON,
};

enum { GCP_OPTIONS_MAX = 40 };

struct gcp_options {
	enum gcp_mode mode;
	struct gcp_config pool;
	enum gcp_log_level log_level;
	char log_file[GCP_PATH_MAX]; /* empty: stderr */
	enum gcp_stats_format stats;
	char stats_file[GCP_PATH_MAX]; /* empty: stderr */
	bool thread;                   /* poller.c */
	bool async;                    /* hooks_async.c */
	bool graph_share;              /* capture/share.c */
	uint8_t handles;               /* handles.h of handles/ */
	bool live, control;            /* live: thread as well; control: live, wake */
	uint8_t wake;                  /* enum gcp_wake: gate.h */
	uint32_t wake_wait;            /* seconds */
	uint8_t debug;                 /* GCP_DEBUG_ of debug.h */
	char trace_file[GCP_PATH_MAX]; /* empty: none is made */
	uint64_t trace_bytes;
	uint32_t trace_frames;
	uint64_t spill; /* spill.c: bytes */
	bool strict;
	/* Numbers and sets as the environment writes them, by row of the table; empty:
	 * the default. */
	char given[GCP_OPTIONS_MAX][24];
};

/* Reads the environment (all defaults when the program runs with more rights
 * than its caller), sets up messages, says what was wrong in it, and prints
 * the options if GCPOOL_HELP asks for them. Returns the number of wrong
 * variables. With GCPOOL_STRICT=1 a wrong variable ends the process: its
 * message, then _exit(GCP_OPTIONS_EXIT). */
enum { GCP_OPTIONS_EXIT = 2 };
int gcp_options_read(struct gcp_options *ret_options);

/* The same without any effect; reports what is wrong only if `says` is set. */
int gcp_options_look(struct gcp_options *ret_options, bool says);

/* Bytes of the host; containers may have less. */
uint64_t gcp_host_memory(void);

/* Options from `environment` (NULL-terminated NAME=VALUE; NULL: empty), with
 * no effect but on *ret_options; each wrong variable is one call of
 * complain(arg, sentence, instead), which may be NULL. `instead` is what the parse
 * has done: "ignoring it". */
int gcp_options_parse(struct gcp_options *ret_options, char *const *environment,
		      void (*complain)(void *arg, const char *sentence,
				       const char *instead),
		      void *arg);

/* --- the table: options_table.c ------------------------------------------------- */

void gcp_options_default(struct gcp_options *options);

enum gcp_option_type {
	GCP_OPTION_CHOICE, /* one of `values`; its index is stored */
	GCP_OPTION_COUNT,
	GCP_OPTION_BYTES, /* K M G T: powers of 1024; 1.5G */
	GCP_OPTION_LIMIT, /* as BYTES, or N% of the memory there is, or none */
	GCP_OPTION_TEXT,
	GCP_OPTION_SET, /* some of `values`, with commas between; a bit each. The last:
			   all */
};

/* The texts lie in the row: pointers to them would have to be relocated at the start of
 * each program. */
struct gcp_option {
	char name[32];     /* of the environment variable */
	char meaning[156]; /* one line */
	enum gcp_option_type type;
	size_t offset; /* of the field in struct gcp_options */
	size_t size;   /* of the field, in bytes */
	/* CHOICE, SET: "pool|off"; COUNT, BYTES, LIMIT: "8M to 16G", with " by 1M" for
	 * multiples of that. People read it, too. */
	char values[28];
	char standard[8]; /* COUNT, BYTES, LIMIT, SET: the default */
	char on[8];       /* CHOICE: of these, what 1, yes, on and true mean */
	bool of_host;     /* LIMIT: N% is of the host's memory, not a device's */
	char nothing[12]; /* a word for 0 or "": "never", "stderr" */
};

/* First those of users, then those that only tests set (GCPOOL_TEST_...). */
extern const struct gcp_option gcp_option_table[];
extern const size_t gcp_option_count, gcp_option_all_count;

/* --- as people read them: options_show.c ------------------------------------------ */

/* The value of `option` in `options`, as people write it. */
void gcp_option_show_value(const struct gcp_option *option,
			   const struct gcp_options *options, struct gcp_text *text);

/* All rows, aligned, as `gcpool --options` prints them. */
void gcp_options_show(const struct gcp_options *options, struct gcp_text *text);

#endif
