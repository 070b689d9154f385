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
#define LIBRARY_ROW(tag, soname, kind, create, destroy)                                \
	puts(#create "@" #soname);                                                     \
	puts(#destroy "@" #soname);
		GCP_HANDLE_LIBRARIES(LIBRARY_ROW)
		return 0;
	}
#define DRIVER_ROW(name, ...) puts(#name "@GCPOOL");
	GCP_DRIVER_HOOKS(DRIVER_ROW)
#define RUNTIME_ROW(tag, version, name, ...) puts(#name "@" #version);
#define GCP_V(tag, version)                  GCP_RUNTIME_HOOKS(RUNTIME_ROW, tag, version)
	GCP_RUNTIMES(GCP_V)
#undef GCP_V
	return 0;
}
