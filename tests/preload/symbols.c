/*
 * symbols.c - prints what the library must export: every row of the table of
 * hooked symbols as name@VERSION, and what is exported for people. A test
 * compares it with the library's dynamic section.
 */
#include <stdio.h>

#include "../../interpose/symbols.h"

int main(void)
{
#define X(name, base, version, flags, need, parameters, arguments)                     \
	puts(#name "@GCPOOL");
	GCP_DRIVER_HOOKS(X)
#undef X
#define X(tag, version, name, parameters, arguments) puts(#name "@" version);
#define V(tag, version)                              GCP_RUNTIME_HOOKS(X, tag, version)
	GCP_RUNTIMES(V)
	return 0;
}
