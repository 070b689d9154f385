/* SPDX-License-Identifier: MIT */
/*
 * api_options.c - the public function of gcpool.h that prints the table of options:
 * for `gcpool --options`, and for programs that ask. Before the first allocation it
 * reads the environment for itself and leaves the process as it is.
 */
#define GCPOOL_API __attribute__((visibility("default")))
#include "gcpool.h"

#include <errno.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "process.h"

static void complaint_say(void *arg, const char *sentence)
{
	(void)arg;
	gcp_log(GCP_LOG_WARNING, "%s", sentence);
}

/* As gcp_options_read, but no option has an effect. */
static int options_find(struct gcp_options *ret_options)
{
	char *const *environment = getauxval(AT_SECURE) ? NULL : environ;

	if (gcp_process_run_mode() == GCP_RUN_FRESH)
		return gcp_options_parse(ret_options, environment, complaint_say, NULL);
	*ret_options = gcp_process.options;
	return 0;
}

int gcpool_print_options(int fd)
{
	struct gcp_options options;
	char bytes[16384];
	struct gcp_text text;
	int kept = errno;
	int wrong = options_find(&options);

	gcp_text_init(&text, bytes, sizeof(bytes));
	gcp_options_show(&options, &text);
	gcp_text_write(&text, fd);
	errno = kept;
	return wrong;
}
