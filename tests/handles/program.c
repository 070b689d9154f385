/* SPDX-License-Identifier: MIT */
/*
 * program.c - runs the cases named on the command line, then prints how many handles
 * each library has created and destroyed.
 */
#include "program.h"

#define SORT(id, name, create_fn, destroy_fn)                                          \
	{                                                                              \
		.kind = &gcp_handle_kinds[GCP_HANDLE_##id], .soname = name,            \
		.create_name = #create_fn, .destroy_name = #destroy_fn                 \
	}
struct sort sorts[SORTS] = {
    SORT(CUBLAS, "libcublas.so.13", cublasCreate_v2, cublasDestroy_v2),
    SORT(CUDNN, "libcudnn.so.9", cudnnCreate, cudnnDestroy),
    SORT(CUSOLVERDN, "libcusolver.so.12", cusolverDnCreate, cusolverDnDestroy),
    SORT(CUSOLVERSP, "libcusolver.so.12", cusolverSpCreate, cusolverSpDestroy),
};

static int wrong;

void check(bool good, const char *words, int line)
{
	if (good)
		return;
	wrong++;
	printf("WRONG: line %d: %s\n", line, words);
}

void *simulated(const char *name)
{
	void *found = dlsym(RTLD_DEFAULT, name);

	if (!found)
		printf("no %s\n", name);
	return found;
}

uint64_t setting_get(const struct sort *sort, void *handle, int setting)
{
	int (*getter)(void *, void *) = (int (*)(void *, void *))dlsym(
	    sort->library, sort->kind->settings[setting].getter);
	uint64_t value = 0;

	CHECK(getter && getter(handle, &value) == 0);
	return value;
}

int setting_set(const struct sort *sort, void *handle, int setting, uint64_t value)
{
	int (*setter)(void *, uint64_t) = (int (*)(void *, uint64_t))dlsym(
	    sort->library, sort->kind->settings[setting].setter);

	return setter ? setter(handle, value) : -1;
}

void loaded_reach(struct sort *sort)
{
	*(void **)&sort->create = dlsym(sort->library, sort->create_name);
	*(void **)&sort->destroy = dlsym(sort->library, sort->destroy_name);
	*(void **)&sort->work = dlsym(sort->library, "standin_work");
	*(void **)&sort->own = dlsym(sort->library, "standin_workspace_is_own");
	*(void **)&sort->counts = dlsym(sort->library, "standin_counts");
	*(void **)&sort->fail = dlsym(sort->library, "standin_fail");
	*(void **)&sort->refuse = dlsym(sort->library, "standin_refuse");
}

CUcontext primary;

void *must_create(const struct sort *sort)
{
	void *handle = NULL;

	CHECK(sort->create(&handle) == 0 && handle);
	return handle;
}

void must_destroy(const struct sort *sort, void *handle)
{
	OK(sort->destroy(handle));
}

void use_once(const struct sort *sort, CUstream stream)
{
	void *handle = must_create(sort);

	if (stream)
		stream_set(sort, handle, stream);
	OK(sort->work(handle));
	must_destroy(sort, handle);
}

void device_start(void)
{
	OK(cuInit(0), cuDevicePrimaryCtxRetain(&primary, 0), cuCtxSetCurrent(primary));
}

CUcontext context_new(void)
{
	CUcontext ctx = NULL;

#if CUDA_VERSION >= 13000
	OK(cuCtxCreate(&ctx, NULL, 0, 0));
#else
	OK(cuCtxCreate(&ctx, 0, 0));
#endif
	return ctx;
}

CUstream stream_new(void)
{
	CUstream stream = NULL;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

uint64_t pending(void)
{
	uint64_t (*ask)(void);

	*(void **)&ask = simulated("gcpsim_pending");
	return ask ? ask() : 0;
}

void stream_set(const struct sort *sort, void *handle, CUstream stream)
{
	if (sort->kind->settings[0].setter)
		OK(setting_set(sort, handle, 0, (uint64_t)(uintptr_t)stream));
}

static void sorts_open(void)
{
	for (int i = 0; i < SORTS; i++) {
		struct sort *sort = &sorts[i];

		sort->library = dlopen(sort->soname, RTLD_NOW | RTLD_LOCAL);
		if (!sort->library) {
			printf("%s\n", dlerror());
			exit(2);
		}
		loaded_reach(sort);
		sort_reach(sort, i);
	}
}

static void counts_print(void)
{
	int created, destroyed;

	for (int i = 0; i < SORTS; i++) {
		sorts[i].counts(&created, &destroyed);
		printf("%s: created %d, destroyed %d\n", sorts[i].soname, created,
		       destroyed);
	}
}

enum { CASES = 64 };

static struct test_case {
	const char *name;
	void (*run)(void);
	bool bare;
} cases[CASES];
static int case_count;

void case_add(const char *name, void (*run)(void), bool bare)
{
	cases[case_count++] = (struct test_case){name, run, bare};
}

static const struct test_case *case_find(const char *name)
{
	for (int i = 0; i < case_count; i++)
		if (strcmp(cases[i].name, name) == 0)
			return &cases[i];
	printf("no case %s\n", name);
	exit(2);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	sorts_open();
	for (int i = 1; i < argc; i++) {
		const struct test_case *found = case_find(argv[i]);

		if (!found->bare)
			device_start();
		found->run();
	}
	counts_print();
	return wrong ? 1 : 0;
}
