/* SPDX-License-Identifier: MIT */
/*
 * program.h - programs that use handles as any program does: linked with the
 * libraries (linked.c), or loading them (loaded.c). The cases print what they find;
 * handles.py says what must come out, plain and pooled.
 */
#ifndef GCPT_HANDLES_PROGRAM_H
#define GCPT_HANDLES_PROGRAM_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>

#include "../../interpose/handles/handles_table.h"
#include "../several.h"

/* One sort of handle. */
struct sort {
	const struct gcp_handle_kind *kind;
	const char *soname;
	const char *create_name, *destroy_name;
	void *library; /* of dlopen */
	int (*create)(void **ret_handle);
	int (*destroy)(void *handle);
	int (*work)(void *handle);
	int (*own)(const void *handle); /* its workspace is its own */
	void (*counts)(int *ret_created, int *ret_destroyed);
	void (*fail)(int creations);
	void (*refuse)(int refuse);
};

enum { SORTS = 4 };
extern struct sort sorts[SORTS];

/* Fills create and destroy, as a program gets them that is linked with the libraries
 * (linked.c), or loads them (loaded.c). */
void sort_reach(struct sort *sort, int index);

/* Fills all functions from sort->library, as a program does that loads it. */
void loaded_reach(struct sort *sort);

/* The simulated driver's functions: gcpsim.h. */
void *simulated(const char *name);

void check(bool good, const char *words, int line);
#define CHECK(condition) check(condition, #condition, __LINE__)
/* Each call must be good. */
#define OK(...)      SEVERAL(OK_ONE, __VA_ARGS__)
#define OK_ONE(call) CHECK((call) == 0)

/* A case of that name, which lists itself. It begins with the primary context current;
 * one that is bare begins without any. */
void case_add(const char *name, void (*run)(void), bool bare);
#define CASE_OF(name, bare)                                                            \
	static void case_##name(void);                                                 \
	__attribute__((constructor)) static void list_##name(void)                     \
	{                                                                              \
		case_add(#name, case_##name, bare);                                    \
	}                                                                              \
	static void case_##name(void)
#define CASE(name)      CASE_OF(name, false)
#define BARE_CASE(name) CASE_OF(name, true)

/* What all cases use; whatever goes wrong is said, and counted. */
extern CUcontext primary;
void device_start(void); /* makes the primary context current */
CUcontext context_new(void);
CUstream stream_new(void);
uint64_t pending(void); /* operations that the simulated device has not done */
void *must_create(const struct sort *sort);
void must_destroy(const struct sort *sort, void *handle);
/* A handle is created, works, on a new stream if one is given, and is destroyed. */
void use_once(const struct sort *sort, CUstream stream);
void stream_set(const struct sort *sort, void *handle, CUstream stream);

uint64_t setting_get(const struct sort *sort, void *handle, int setting);
int setting_set(const struct sort *sort, void *handle, int setting, uint64_t value);

#endif
