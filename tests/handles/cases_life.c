/* SPDX-License-Identifier: MIT */
/*
 * cases_life.c - handles through captures, the ends of contexts, forks, and libraries
 * that come and go. As cases.c.
 */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

/* --- captures -------------------------------------------------------------------- */

static CUstream capture_begin(void)
{
	CUstream stream = stream_new();

	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	return stream;
}

static void capture_end(CUstream stream)
{
	CUgraph graph = NULL;

	CHECK(cuStreamEndCapture(stream, &graph) == 0 && graph);
	if (graph)
		OK(cuGraphDestroy(graph));
}

/* A creation in a capture takes what is done; a destroy there is the library's own. */
CASE(capture)
{
	void *handle, *other;
	CUstream stream;

	must_destroy(&sorts[0], must_create(&sorts[0]));
	OK(cuCtxSynchronize());

	stream = capture_begin();
	handle = must_create(&sorts[0]); /* the free one: it is done */
	OK(setting_set(&sorts[0], handle, 3, 9));
	stream_set(&sorts[0], handle, stream);
	OK(sorts[0].work(handle));
	capture_end(stream);

	must_destroy(&sorts[0], handle);
	OK(cuCtxSynchronize());
	other = must_create(&sorts[0]); /* as new */
	CHECK(other == handle && setting_get(&sorts[0], other, 3) == 1);
	CHECK(setting_get(&sorts[0], other, 0) == 0);
	stream = capture_begin();
	OK(sorts[0].destroy(other));
	(void)cuStreamEndCapture(stream, &(CUgraph){NULL});
}

typedef CUresult begin_fn(double half, CUstream stream, CUstreamCaptureMode mode);

/* No fence is recorded in a capture that began in an unknown way: that would destroy
 * it. From then on handles are their libraries'. */
CASE(capture_unknown)
{
	CUdriverProcAddressQueryResult status;
	void *begin = NULL, *handle;
	CUstream stream;

	OK(cuGetProcAddress("cuStreamBeginCaptureInvented", &begin, 13000, 0, &status));
	must_destroy(&sorts[0], must_create(&sorts[0]));
	stream = stream_new();
	CHECK(((begin_fn *)begin)(0.5, stream, CU_STREAM_CAPTURE_MODE_RELAXED) == 0);
	handle = must_create(&sorts[0]);
	capture_end(stream);
	must_destroy(&sorts[0], handle);
	must_destroy(&sorts[0], must_create(&sorts[0]));
}

/* --- threads that are cancelled ------------------------------------------------ */

static const char *cancelled_in; /* a function of the driver */
static bool came_back;

static void armed(const char *symbol)
{
	int (*when)(const char *, void (*)(void));

	*(void **)&when = simulated("gcpsim_when_called");
	CHECK(when && when(symbol, symbol ? pthread_testcancel : NULL) == 0);
}

/* Destroys one handle that goes back to its library, and one that is kept, and creates
 * one. */
static void *is_cancelled(void *back)
{
	void *handle;

	OK(cuCtxSetCurrent(primary));
	handle = must_create(&sorts[0]);
	armed(cancelled_in);
	pthread_cancel(pthread_self()); /* pending until a cancellation point */
	sorts[0].refuse(1);
	must_destroy(&sorts[0], back);
	sorts[0].refuse(0);
	must_destroy(&sorts[0], handle);
	(void)must_create(&sorts[0]);
	armed(NULL);
	came_back = true;
	return NULL;
}

/* A lock that is left is waited for at the begin of each capture. */
CASE(cancelled)
{
	static const char *const calls[] = {"cuCtxRecordEvent", "cuEventQuery",
					    "cuEventDestroy_v2"};

	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		void *back = must_create(&sorts[0]);
		pthread_t victim;

		must_destroy(&sorts[0], back); /* it has an event from now on */
		back = must_create(&sorts[0]);
		OK(setting_set(&sorts[0], back, 3, 9));
		cancelled_in = calls[i];
		came_back = false;
		OK(pthread_create(&victim, NULL, is_cancelled, back));
		OK(pthread_join(victim, NULL));
		CHECK(came_back);
		alarm(60);
		capture_end(capture_begin());
		alarm(0);
	}
}

/* --- lives ----------------------------------------------------------------------- */

/* Handles go with their context, free ones and others. */
BARE_CASE(context_ends)
{
	void *handle, *kept;

	OK(cuInit(0));
	for (int i = 0; i < 3; i++) {
		CUcontext ctx = context_new();

		handle = must_create(&sorts[0]);
		kept = must_create(&sorts[0]);
		OK(sorts[0].work(handle));
		must_destroy(&sorts[0], handle);
		OK(cuCtxDestroy(ctx));
		(void)kept;
	}
}

CASE(device_reset)
{
	void *handle, *kept;

	handle = must_create(&sorts[0]);
	kept = must_create(&sorts[0]);
	must_destroy(&sorts[0], handle);
	OK(cuDevicePrimaryCtxReset(0), cuCtxSetCurrent(NULL));
	device_start();
	handle = must_create(&sorts[0]);
	OK(sorts[0].work(handle));
	CHECK(handle != kept);
	must_destroy(&sorts[0], handle);
	OK(cuCtxSynchronize());
}

/* The driver's calls fail as this says: gcpsim_fail. */
static int fail(const char *plan)
{
	int (*real)(const char *);

	*(void **)&real = simulated("gcpsim_fail");
	return real ? real(plan) : -1;
}

/* It is released, and retained elsewhere; another one's end is refused, and then it
 * ends. */
CASE(context_stays)
{
	CUcontext other;

	OK(cuDevicePrimaryCtxRetain(&other, 0));
	must_destroy(&sorts[0], must_create(&sorts[0]));
	OK(cuDevicePrimaryCtxRelease(0));
	must_destroy(&sorts[0], must_create(&sorts[0]));
	other = context_new();
	must_destroy(&sorts[0], must_create(&sorts[0]));
	OK(fail("cuCtxDestroy:1:201"));
	CHECK(cuCtxDestroy(other) == CUDA_ERROR_INVALID_CONTEXT);
	use_once(&sorts[0], NULL);
	OK(cuCtxDestroy(other), cuCtxSetCurrent(primary));
	use_once(&sorts[0], NULL);
}

/* The child has no CUDA: what plain CUDA says there is said, and the parent's go on. */
CASE(fork)
{
	void *handle, *kept;
	int status = 0;
	pid_t child;

	handle = must_create(&sorts[0]);
	kept = must_create(&sorts[0]);
	must_destroy(&sorts[0], handle);
	child = fork();
	if (child == 0) {
		void *own = NULL;
		int result = sorts[0].create(&own);

		_exit(result == 0 ? 100 : result);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	printf("child: create gives %d\n", WEXITSTATUS(status));
	handle = must_create(&sorts[0]);
	CHECK(handle != kept);
	OK(sorts[0].destroy(handle), sorts[0].destroy(kept));
}

/* A plugin that is linked with a library that nothing else uses. Both go together. */
CASE(plugin)
{
	for (int i = 0; i < 3; i++) {
		void *plugin = dlopen(getenv("GCPT_USER"), RTLD_NOW | RTLD_LOCAL);
		int (*create)(void **), (*destroy)(void *);
		void *handle = NULL, *library;

		CHECK(plugin != NULL);
		if (!plugin)
			return;
		*(void **)&create = dlsym(plugin, "user_create");
		*(void **)&destroy = dlsym(plugin, "user_destroy");
		CHECK(create(&handle) == 0 && destroy(handle) == 0);
		CHECK(create(&handle) == 0 && destroy(handle) == 0);
		OK(dlclose(plugin));
		library = dlopen(getenv("GCPT_OLDER"), RTLD_NOW | RTLD_NOLOAD);
		printf("older: %s\n", library ? "stays" : "unloaded");
		if (library)
			dlclose(library);
	}
	OK(cuCtxSynchronize());
}

/* Two versions of one library at once. */
CASE(versions)
{
	void *library = dlopen(getenv("GCPT_OLDER"), RTLD_NOW);
	struct sort older = sorts[0];
	void *one, *two;
	int created, destroyed;

	CHECK(library != NULL);
	older.library = library;
	loaded_reach(&older);
	CHECK(older.create != sorts[0].create);
	for (int i = 0; i < 3; i++) {
		one = must_create(&sorts[0]);
		two = must_create(&older);
		OK(setting_set(&older, two, 3, 9));
		CHECK(one != two);
		must_destroy(&older, two);
		must_destroy(&sorts[0], one);
	}
	older.counts(&created, &destroyed);
	printf("older: created %d, destroyed %d\n", created, destroyed);
}

/* A thread's first call of all is the creation of a handle. */
BARE_CASE(first)
{
	void *handle = must_create(&sorts[0]);
	CUcontext ctx = NULL;

	CHECK(cuCtxGetCurrent(&ctx) == 0 && ctx);
	must_destroy(&sorts[0], handle);
	use_once(&sorts[0], NULL);
	OK(cuCtxSynchronize());
}

CASE(pairs)
{
	for (int i = 0; i < SORTS; i++) {
		for (int k = 0; k < 10; k++)
			must_destroy(&sorts[i], must_create(&sorts[i]));
	}
}

/* --- look-ups -------------------------------------------------------------------- */

static void lookup_say(const char *how, void *found)
{
	const char *error = dlerror();
	Dl_info info = {0};

	if (found)
		dladdr(found, &info);
	printf("%s: %s, %s\n", how,
	       found ? strrchr(info.dli_fname, '/') ? strrchr(info.dli_fname, '/') + 1
						    : info.dli_fname
		     : "none",
	       error ? error : "no error");
}

/* Which library a look-up finds. */
BARE_CASE(lookups)
{
	for (int i = 0; i < SORTS; i++) {
		lookup_say(sorts[i].create_name,
			   dlsym(sorts[i].library, sorts[i].create_name));
		lookup_say(sorts[i].destroy_name,
			   dlsym(sorts[i].library, sorts[i].destroy_name));
		lookup_say("by default", dlsym(RTLD_DEFAULT, sorts[i].create_name));
		lookup_say("next", dlsym(RTLD_NEXT, sorts[i].create_name));
		lookup_say("in another",
			   dlsym(sorts[(i + 1) % SORTS].library, sorts[i].create_name));
	}
	lookup_say("setter", dlsym(sorts[0].library, "cublasSetMathMode"));
	lookup_say("unknown", dlsym(sorts[0].library, "cublasCreate_v3"));
}
