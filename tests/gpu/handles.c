/* SPDX-License-Identifier: MIT */
/*
 * handles.c - what creating and destroying handles of the real libraries costs, and
 * whether they come back as new. Built and run by handles.py:
 *
 *   handles pairs|roundtrip|workspace|stress KIND=LIBRARY...
 *
 * loads each library from its file and prints lines of words and numbers. Exit code 1:
 * something was wrong, and is said in a line that begins with WRONG.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../interpose/handles/handles_table.h"
#include "../several.h"

struct library {
	const struct gcp_handle_kind *kind;
	void *loaded;
	int (*create)(void **);
	int (*destroy)(void *);
	int (*set_stream)(void *, CUstream);
};

typedef int sgemm_fn(void *, int, int, int, int, int, const float *, const float *, int,
		     const float *, int, const float *, float *, int);

enum { LIBRARIES_MAX = 8 };

static struct library libraries[LIBRARIES_MAX];
static int library_count;
static CUcontext primary;
static sgemm_fn *sgemm;
static atomic_int wrong;

/* Says what is wrong; the program will end with 1. */
#define complain(...)                                                                  \
	(printf("WRONG: "), printf(__VA_ARGS__), printf("\n"), (void)(wrong = 1))

#define MUST(...)      SEVERAL(MUST_ONE, __VA_ARGS__)
#define MUST_ONE(call) must((int)(call), #call, __LINE__)

static void must(int result, const char *call, int line)
{
	if (result)
		complain("line %d: %s gives %d", line, call, result);
}

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* --- libraries ------------------------------------------------------------------- */

static const char *const functions[GCP_HANDLE_KINDS][2] = {
#define ROW(tag, soname, kind, create, destroy)                                        \
	[GCP_HANDLE_##kind] = {#create, #destroy},
    GCP_HANDLE_LIBRARIES(ROW)};

static void *must_find(void *library, const char *name)
{
	void *found = dlsym(library, name);

	if (!found) {
		complain("no %s", name);
		exit(1);
	}
	return found;
}

static void library_open(const char *name, const char *path)
{
	struct library *library = &libraries[library_count++];
	const char *setter;

	library->loaded = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library->loaded) {
		complain("%s", dlerror());
		exit(1);
	}
	for (int i = 0; i < GCP_HANDLE_KINDS; i++) {
		if (strcmp(gcp_handle_kinds[i].name, name) != 0)
			continue;
		library->kind = &gcp_handle_kinds[i];
		*(void **)&library->create =
		    must_find(library->loaded, functions[i][0]);
		*(void **)&library->destroy =
		    must_find(library->loaded, functions[i][1]);
		setter = library->kind->settings[0].setter;
		if (setter)
			*(void **)&library->set_stream =
			    must_find(library->loaded, setter);
		if (i == GCP_HANDLE_CUBLAS)
			*(void **)&sgemm = must_find(library->loaded, "cublasSgemm_v2");
	}
}

static void *create(const struct library *library)
{
	void *handle = NULL;

	MUST(library->create(&handle));
	return handle;
}

static CUstream stream_new(void)
{
	CUstream stream = NULL;

	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values, int count)
{
	qsort(values, (size_t)count, sizeof(*values), compare);
	return values[count / 2];
}

static void multiply(void *handle, int m, int n, int k, CUdeviceptr a, CUdeviceptr b,
		     CUdeviceptr c)
{
	static const float one = 1, zero = 0;

	MUST(sgemm(handle, 0, 0, m, n, k, &one, (const float *)a, m, (const float *)b,
		   k, &zero, (float *)c, m));
}

/* --- what it costs --------------------------------------------------------------- */

static void run_pairs(void)
{
	enum { PAIRS = 401 };
	double pairs[PAIRS];

	for (int l = 0; l < library_count; l++) {
		const struct library *library = &libraries[l];

		library->destroy(create(library));
		for (int i = 0; i < PAIRS; i++) {
			double start = now_us();

			MUST(library->destroy(create(library)));
			pairs[i] = now_us() - start;
		}
		printf("pair %s: %.2f us\n", library->kind->name, median(pairs, PAIRS));
	}
}

/* --- as new ---------------------------------------------------------------------- */

static int setting_call(const struct library *library, const char *name, void *handle,
			uint64_t value)
{
	int (*call)(void *, uint64_t);

	*(void **)&call = dlsym(library->loaded, name);
	return call ? call(handle, value) : -1;
}

static bool setting_read(const struct library *library, int i, void *handle,
			 uint64_t *ret_value)
{
	*ret_value = 0;
	return setting_call(library, library->kind->settings[i].getter, handle,
			    (uint64_t)(uintptr_t)ret_value) == 0;
}

/* Sets it to something that it is not; false: the library takes nothing else. */
static bool setting_change(const struct library *library, int i, void *handle,
			   uint64_t old)
{
	static const uint64_t tries[] = {1, 2, 0, 3, 4, 8, 16, 64};
	static int on_host;
	uint64_t now;

	if (library->kind->settings[i].pointer)
		setting_call(library, library->kind->settings[i].setter, handle,
			     (uint64_t)(uintptr_t)(i == 0 ? (void *)stream_new()
							  : (void *)&on_host));
	for (size_t t = 0;
	     !library->kind->settings[i].pointer && t < sizeof(tries) / sizeof(*tries);
	     t++)
		if (tries[t] != old &&
		    setting_call(library, library->kind->settings[i].setter, handle,
				 tries[t]) == 0 &&
		    setting_read(library, i, handle, &now) && now == tries[t])
			return true;
	return setting_read(library, i, handle, &now) && now != old;
}

static void roundtrip(const struct library *library)
{
	uint64_t fresh[GCP_HANDLE_SETTINGS_MAX] = {0}, again;
	bool has[GCP_HANDLE_SETTINGS_MAX] = {false};
	void *handle = create(library), *before = handle;
	int changed = 0, count = 0;

	for (int i = 0;
	     i < GCP_HANDLE_SETTINGS_MAX && library->kind->settings[i].setter; i++) {
		has[i] = setting_read(library, i, handle, &fresh[i]);
		count += has[i];
		if (has[i] && setting_change(library, i, handle, fresh[i]))
			changed++;
		else
			printf("roundtrip %s: %s %s\n", library->kind->name,
			       library->kind->settings[i].setter,
			       has[i] ? "takes nothing else" : "is not there");
	}
	MUST(library->destroy(handle));
	handle = create(library);
	for (int i = 0; i < GCP_HANDLE_SETTINGS_MAX; i++)
		if (has[i] &&
		    (!setting_read(library, i, handle, &again) || again != fresh[i]))
			complain("%s gives %llx, not %llx",
				 library->kind->settings[i].getter,
				 (unsigned long long)again,
				 (unsigned long long)fresh[i]);
	printf("roundtrip %s: %d of %d changed, %s handle\n", library->kind->name,
	       changed, count, handle == before ? "the same" : "another");
	MUST(library->destroy(handle));
}

static void run_roundtrip(void)
{
	for (int l = 0; l < library_count; l++)
		roundtrip(&libraries[l]);
}

static size_t words_changed(CUdeviceptr p, size_t words)
{
	unsigned *host = malloc(words * 4);
	size_t count = 0;

	MUST(cuMemcpyDtoH(host, p, words * 4));
	for (size_t i = 0; i < words; i++)
		count += host[i] != 0xdeadbeef;
	free(host);
	return count;
}

/* A workspace that the program gave a handle is not used for the next owner. */
static void run_workspace(void)
{
	enum { M = 64, K = 1 << 20, WORDS = 8 << 20 };
	int (*set)(void *, CUdeviceptr, size_t);
	void *handle = create(&libraries[0]);
	CUdeviceptr workspace, a, c;
	size_t mine, others;

	*(void **)&set = must_find(libraries[0].loaded, "cublasSetWorkspace_v2");
	MUST(cuMemAlloc(&workspace, (size_t)WORDS * 4));
	MUST(cuMemAlloc(&a, (size_t)M * K * 4));
	MUST(cuMemAlloc(&c, (size_t)M * M * 4));
	MUST(cuMemsetD32(a, 0, (size_t)M * K));
	MUST(cuMemsetD32(workspace, 0xdeadbeef, WORDS));
	MUST(set(handle, workspace, (size_t)WORDS * 4));
	multiply(handle, M, M, K, a, a, c);
	MUST(cuCtxSynchronize());
	mine = words_changed(workspace, WORDS);
	MUST(cuMemsetD32(workspace, 0xdeadbeef, WORDS));
	MUST(libraries[0].destroy(handle));
	handle = create(&libraries[0]);
	multiply(handle, M, M, K, a, a, c);
	MUST(cuCtxSynchronize());
	others = words_changed(workspace, WORDS);
	printf("workspace: its owner's product wrote %zu words, the next owner's %zu\n",
	       mine, others);
	if (others)
		complain(
		    "the next owner of a handle works in the last one's workspace");
	MUST(libraries[0].destroy(handle));
}

/* --- threads --------------------------------------------------------------------- */

/* Products of many threads, through handles that come and go behind pending work.
 * Each shape needs a workspace; each product has its own right answer. */
enum {
	STRESS_THREADS = 8,
	STRESS_M = 64,
	STRESS_K = 1 << 16,
	STRESS_DEPTH = 8,
	STRESS_ROUNDS = 60
};

static unsigned float_bits(float value)
{
	unsigned bits;

	memcpy(&bits, &value, 4);
	return bits;
}

static void stress_check(CUdeviceptr c, float wanted)
{
	float host[STRESS_M * STRESS_M];
	int bad = 0;

	MUST(cuMemcpyDtoH(host, c, sizeof(host)));
	for (int i = 0; i < STRESS_M * STRESS_M; i++)
		bad += host[i] != wanted;
	if (bad)
		complain("%d of %d words are not %g (one is %g)", bad,
			 STRESS_M * STRESS_M, (double)wanted, (double)host[0]);
}

static void *stress_run(void *arg)
{
	int me = (int)(intptr_t)arg;
	CUdeviceptr a, b, c[STRESS_DEPTH];
	CUstream stream;

	MUST(cuCtxSetCurrent(primary));
	stream = stream_new();
	MUST(cuMemAlloc(&a, (size_t)STRESS_M * STRESS_K * 4));
	MUST(cuMemAlloc(&b, (size_t)STRESS_M * STRESS_K * 4));
	for (int i = 0; i < STRESS_DEPTH; i++)
		MUST(cuMemAlloc(&c[i], (size_t)STRESS_M * STRESS_M * 4));
	for (int round = 0; round < STRESS_ROUNDS; round++) {
		int x = 1 + (me + round) % 7;

		MUST(cuMemsetD32Async(a, float_bits((float)x),
				      (size_t)STRESS_M * STRESS_K, stream));
		MUST(cuMemsetD32Async(b, float_bits(1), (size_t)STRESS_M * STRESS_K,
				      stream));
		for (int i = 0; i < STRESS_DEPTH; i++) {
			void *handle = create(&libraries[0]);

			MUST(libraries[0].set_stream(handle, stream));
			multiply(handle, STRESS_M, STRESS_M, STRESS_K, a, b, c[i]);
			MUST(libraries[0].destroy(handle));
		}
		MUST(cuStreamSynchronize(stream));
		for (int i = 0; i < STRESS_DEPTH; i++)
			stress_check(c[i], (float)x * STRESS_K);
	}
	return NULL;
}

static void run_stress(void)
{
	pthread_t threads[STRESS_THREADS];
	double start = now_us();

	for (int i = 0; i < STRESS_THREADS; i++)
		pthread_create(&threads[i], NULL, stress_run, (void *)(intptr_t)i);
	for (int i = 0; i < STRESS_THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("stress: %d products, %.1f us each\n",
	       STRESS_THREADS * STRESS_ROUNDS * STRESS_DEPTH,
	       (now_us() - start) / (STRESS_THREADS * STRESS_ROUNDS * STRESS_DEPTH));
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 3)
		return 2;
	MUST(cuInit(0), cuDevicePrimaryCtxRetain(&primary, 0),
	     cuCtxSetCurrent(primary));
	for (int i = 2; i < argc && library_count < LIBRARIES_MAX; i++) {
		char *path = strchr(argv[i], '=');

		*path = '\0';
		library_open(argv[i], path + 1);
	}
	!strcmp(argv[1], "pairs")       ? run_pairs()
	: !strcmp(argv[1], "roundtrip") ? run_roundtrip()
	: !strcmp(argv[1], "workspace") ? run_workspace()
					: run_stress();
	return wrong ? 1 : 0;
}
