/* SPDX-License-Identifier: MIT */
/*
 * exports_table.c - prints name@version of each symbol that the hook tables say
 * is exported, or with an argument those of libgcpool-handles.so; binary.py compares
 * them with the library.
 */
#include <stdio.h>

#include "../../interpose/handles/handles_table.h"
#include "../../interpose/cuda/symbols.h"

int main(int argc, char **argv)
{
	(void)argv;
	if (argc > 1) {
#define GCP_X(tag, soname, kind, create, destroy)                                      \
	puts(#create "@" #soname);                                                     \
	puts(#destroy "@" #soname);
		GCP_HANDLE_LIBRARIES(GCP_X)
#undef GCP_X
		return 0;
	}
#define GCP_X(name, ...) puts(#name "@GCPOOL");
	GCP_DRIVER_HOOKS(GCP_X)
#undef GCP_X
#define GCP_X(tag, version, name, ...) puts(#name "@" #version);
#define GCP_V(tag, version)            GCP_RUNTIME_HOOKS(GCP_X, tag, version)
	GCP_RUNTIMES(GCP_V)
#undef GCP_V
#undef GCP_X
	return 0;
}
