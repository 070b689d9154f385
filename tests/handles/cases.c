/* SPDX-License-Identifier: MIT */
/*
 * cases.c - what programs do with handles. Each case is correct on plain CUDA, where
 * it must find the same but for the number of handles.
 */
#include <pthread.h>

#include "program.h"

/* --- the state of a handle ------------------------------------------------------- */

static int settings_count(const struct sort *sort)
{
	int count = 0;

	while (count < GCP_HANDLE_SETTINGS_MAX && sort->kind->settings[count].setter)
		count++;
	return count;
}

static void settings_read(const struct sort *sort, void *handle, uint64_t *values)
{
	for (int i = 0; i < settings_count(sort); i++)
		values[i] = setting_get(sort, handle, i);
}

/* Sets all of the state, one part after the other, each to something else. */
static void settings_change(const struct sort *sort, void *handle)
{
	static char memory[4096];

	for (int i = 0; i < settings_count(sort); i++) {
		uint64_t value = setting_get(sort, handle, i) + 5;

		value = i == 0 ? (uint64_t)(uintptr_t)stream_new() : value;
		OK(setting_set(sort, handle, i, value));
	}
	if (sort->kind == &gcp_handle_kinds[GCP_HANDLE_CUBLAS]) {
		int (*set)(void *, void *, size_t);

		*(void **)&set = dlsym(sort->library, "cublasSetWorkspace_v2");
		OK(set(handle, memory, sizeof(memory)));
		CHECK(!sort->own(handle));
	}
}

static void roundtrip_of(const struct sort *sort)
{
	uint64_t fresh[GCP_HANDLE_SETTINGS_MAX], again[GCP_HANDLE_SETTINGS_MAX];
	void *handle = must_create(sort);

	settings_read(sort, handle, fresh);
	settings_change(sort, handle);
	must_destroy(sort, handle);
	handle = must_create(sort);
	settings_read(sort, handle, again);
	for (int i = 0; i < settings_count(sort); i++)
		if (fresh[i] != again[i])
			printf("%s: ", sort->kind->settings[i].getter),
			    CHECK(fresh[i] == again[i]);
	CHECK(sort->own(handle));
	must_destroy(sort, handle);
}

CASE(roundtrip)
{
	for (int i = 0; i < SORTS; i++)
		roundtrip_of(&sorts[i]);
}

/* The workspace alone is changed: nothing that could be read tells. */
CASE(workspace)
{
	static char memory[4096];
	int (*set)(void *, void *, size_t);
	void *handle;

	*(void **)&set = dlsym(sorts[0].library, "cublasSetWorkspace_v2");
	handle = must_create(&sorts[0]);
	OK(set(handle, memory, sizeof(memory)));
	must_destroy(&sorts[0], handle);
	handle = must_create(&sorts[0]);
	CHECK(sorts[0].own(handle));
	must_destroy(&sorts[0], handle);
}

/* A library reads its variables when it creates a handle. */
CASE(environment)
{
	void *handle;

	must_destroy(&sorts[0], must_create(&sorts[0]));
	setenv("CUBLAS_STANDIN_VALUE", "3", 1);
	handle = must_create(&sorts[0]);
	CHECK(setting_get(&sorts[0], handle, 3) == 3);
	must_destroy(&sorts[0], handle);
	unsetenv("CUBLAS_STANDIN_VALUE");
	handle = must_create(&sorts[0]);
	CHECK(setting_get(&sorts[0], handle, 3) == 1);
	must_destroy(&sorts[0], handle);
}

/* The library will not have its handle set back. */
CASE(refuse)
{
	void *handle;

	handle = must_create(&sorts[0]);
	OK(setting_set(&sorts[0], handle, 3, 9));
	sorts[0].refuse(1);
	must_destroy(&sorts[0], handle);
	sorts[0].refuse(0);
	handle = must_create(&sorts[0]);
	CHECK(setting_get(&sorts[0], handle, 3) == 1);
	must_destroy(&sorts[0], handle);
}

/* --- order ----------------------------------------------------------------------- */

/* The handle's workspace is still written when the next owner uses it. */
CASE(order)
{
	for (int i = 0; i < SORTS; i++) {
		use_once(&sorts[i], stream_new());
		printf("%s: %s\n", sorts[i].kind->name, pending() ? "pending" : "done");
		use_once(&sorts[i], stream_new());
	}
	OK(cuCtxSynchronize());
}

/* The same with a second context about, in which work may be what this waits for. */
CASE(order_contexts)
{
	CUcontext other;

	other = context_new();
	OK(cuCtxSetCurrent(primary));
	use_once(&sorts[0], stream_new());
	use_once(&sorts[0], stream_new());
	OK(cuCtxSynchronize());
	/* That of the one context is not the other's. */
	OK(cuCtxSetCurrent(other));
	use_once(&sorts[0], NULL);
	OK(cuCtxSynchronize());
}

/* A loop that is far ahead of the device must not gather handles. */
CASE(ahead)
{
	context_new();
	OK(cuCtxSetCurrent(primary));
	for (int i = 0; i < 200; i++)
		use_once(&sorts[0], stream_new());
	OK(cuCtxSynchronize());
}

/* --- threads --------------------------------------------------------------------- */

enum { THREADS = 100, TOGETHER = 4 };

static pthread_barrier_t together;

static void *thread_run(void *arg)
{
	void *handles[SORTS];

	(void)arg;
	OK(cuCtxSetCurrent(primary));
	for (int i = 0; i < SORTS; i++) {
		CUcontext ctx = NULL;

		handles[i] = must_create(&sorts[i]);
		CHECK(cuCtxGetCurrent(&ctx) == 0 && ctx == primary);
		if (settings_count(&sorts[i]) > 1)
			CHECK(setting_get(&sorts[i], handles[i], 1) == 1);
		stream_set(&sorts[i], handles[i], stream_new());
		if (settings_count(&sorts[i]) > 1)
			OK(setting_set(&sorts[i], handles[i], 1, 7));
		CHECK(sorts[i].work(handles[i]) == 0);
	}
	pthread_barrier_wait(&together); /* so many are in use at one time */
	for (int i = 0; i < SORTS; i++)
		must_destroy(&sorts[i], handles[i]);
	return NULL;
}

static void run_together(void *(*run)(void *))
{
	pthread_t threads[TOGETHER];

	for (int i = 0; i < TOGETHER; i++)
		pthread_create(&threads[i], NULL, run, NULL);
	for (int i = 0; i < TOGETHER; i++)
		pthread_join(threads[i], NULL);
}

CASE(threads)
{
	for (int round = 0; round < THREADS / TOGETHER; round++) {
		pthread_barrier_init(&together, NULL, TOGETHER);
		run_together(thread_run);
		pthread_barrier_destroy(&together);
	}
	OK(cuCtxSynchronize());
}

/* Threads that do not wait for each other. */
static void *thread_churn(void *arg)
{
	const struct sort *sort = &sorts[0];
	CUstream stream;

	(void)arg;
	OK(cuCtxSetCurrent(primary));
	stream = stream_new();
	for (int i = 0; i < 300; i++) {
		void *handle = must_create(sort);

		CHECK(setting_get(sort, handle, 0) == 0);
		stream_set(sort, handle, stream);
		OK(sort->work(handle));
		CHECK(setting_get(sort, handle, 0) == (uint64_t)(uintptr_t)stream);
		must_destroy(sort, handle);
	}
	return NULL;
}

CASE(churn)
{
	run_together(thread_churn);
	OK(cuCtxSynchronize());
}

/* --- errors ---------------------------------------------------------------------- */

CASE(create_fails)
{
	void *handle = &handle;

	CHECK(sorts[0].create(NULL) == 7);
	sorts[0].fail(1);
	CHECK(sorts[0].create(&handle) == 3 && handle == &handle);
	must_destroy(&sorts[0], must_create(&sorts[0]));
	CHECK(sorts[0].destroy(NULL) == 1);
}

CASE(twice)
{
	void *handle, *one, *two;

	handle = must_create(&sorts[0]);
	must_destroy(&sorts[0], handle);
	CHECK(sorts[0].destroy(handle) == 1);
	one = must_create(&sorts[0]);
	two = must_create(&sorts[0]);
	CHECK(one != two);
	OK(sorts[0].destroy(one), sorts[0].destroy(two));
}

/* Reached past every hook: the library's own functions. */
CASE(behind)
{
	int (*create)(void **), (*destroy)(void *);
	void *handle, *again;

	*(void **)&create =
	    dlvsym(sorts[0].library, "cublasCreate_v2", "libcublas.so.13");
	*(void **)&destroy =
	    dlvsym(sorts[0].library, "cublasDestroy_v2", "libcublas.so.13");
	CHECK(create && destroy);
	OK(create(&handle));
	must_destroy(&sorts[0], handle);
	for (int i = 0; i < 8; i++) {
		handle = must_create(&sorts[0]);
		OK(destroy(handle));
		again = must_create(&sorts[0]);
		OK(sorts[0].work(again));
		must_destroy(&sorts[0], again);
	}
}
