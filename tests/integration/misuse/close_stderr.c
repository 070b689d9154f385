/* SPDX-License-Identifier: MIT */
/* Closes 0, 1 and 2 and puts a file of its own there, which must stay empty. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "misuse.h"

int main(void)
{
	char name[] = "/tmp/gcpool-misuse-XXXXXX";
	int descriptor = mkstemp(name);
	struct stat state;

	unlink(name);
	for (int low = 0; low <= 2; low++)
		close(low);
	/* The log and the statistics have a file of their own to go to. */
	primary_context();
	MUST(cu.cuMemFree(allocated(4096)));
	if (dup2(descriptor, 2) != 2 || fstat(2, &state) != 0)
		return 201;
	return state.st_size == 0 ? 0 : 202;
}
