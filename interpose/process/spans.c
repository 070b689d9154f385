/* SPDX-License-Identifier: MIT */
/*
 * spans.c - see spans.h.
 *
 * The host's memory is cut into pieces, those of each context apart. Each worker takes
 * one after another: it copies what belongs to a piece to pinned memory of its own, in
 * a stream of its own, waits for that, and copies the piece as a whole to ordinary
 * memory; or the other way. Several contexts, and so devices, are copied at once.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../base/elfwalk.h"
#include "../base/process_identity.h"
#include "../cuda/ctx_scope.h"
#include "../cuda/gate.h"
#include "../cuda/resolve.h"
#include "spans.h"

enum { PIECE = 8 << 20, WORKERS_MAX = 16 };

/* Of spans of one context. */
struct copying {
	const struct gcp_spans *spans;
	CUcontext ctx;
	uint64_t end;          /* of these, in the host's memory */
	bool out;              /* to the host */
	_Atomic uint64_t next; /* piece */
	_Atomic int result;    /* the first error */
};

struct worker {
	struct copying *copying;
	char *stage; /* a piece */
	pthread_t thread;
};

bool gcp_spans_add(struct gcp_spans *spans, const struct gcp_block_view *block)
{
	if (spans->count == spans->room) {
		size_t room = spans->room ? 2 * spans->room : 256;
		void *more = realloc(spans->at, room * sizeof(*spans->at));

		if (!more)
			return false;
		spans->at = more;
		spans->room = room;
	}
	assert(spans->count < spans->room && block->size > 0);
	spans->at[spans->count++] =
	    (struct gcp_span){block->ctx, block->addr, block->size, spans->bytes};
	spans->bytes += block->size;
	return true;
}

/* Returns the number behind these words in a file, or UINT64_MAX. */
static uint64_t figure_read(const char *directory, const char *file, const char *words)
{
	char text[4096], *at;
	GCP_TEXT(path, GCP_PATH_MAX);

	gcp_text_add(&path, "%s/%s", directory, file);
	if (gcp_file_read(path.bytes, text, sizeof(text)) <= 0 ||
	    !(at = strstr(text, words)))
		return UINT64_MAX;
	at += strlen(words) + strspn(at + strlen(words), " ");
	return *at >= '0' && *at <= '9' ? gcp_digits_read(at) : UINT64_MAX;
}

/* Returns the bytes that the processes of a cgroup may still take; UINT64_MAX: it has
 * no limit. */
static uint64_t group_room(const char *directory, bool first_version)
{
	uint64_t most = figure_read(
	    directory, first_version ? "memory.limit_in_bytes" : "memory.max", "");
	uint64_t used = first_version
			    ? figure_read(directory, "memory.stat", "total_rss ")
			    : figure_read(directory, "memory.stat", "anon ") +
				  figure_read(directory, "memory.stat", "\nshmem ");

	if (most == UINT64_MAX)
		return most;
	most = most / 10 * 9;
	return most - (most < used ? most : used);
}

/* In a container a cgroup may have a name that only the host knows: then the mounted
 * one counts. */
uint64_t gcp_host_room(void)
{
	uint64_t room = figure_read("/proc", "meminfo", "MemAvailable:") << 10, one;
	uint64_t total = figure_read("/proc", "meminfo", "MemTotal:") << 10;
	char lines[4096], *path, *end;

	if (room >= UINT64_MAX << 10) /* it is not known */
		return 0;
	room -= room < total / 10 ? room : total / 10;
	if (gcp_file_read("/proc/self/cgroup", lines, sizeof(lines)) <= 0)
		return room;
	for (char *line = lines; (end = strchr(line, '\n')); line = end + 1) {
		bool first_version = line[0] != '0';
		GCP_TEXT(group, GCP_PATH_MAX);

		*end = 0;
		path = strrchr(line, ':');
		if (!path || (first_version && !strstr(line, "memory:")))
			continue;
		gcp_text_add(&group, "/sys/fs/cgroup%s%s",
			     first_version ? "/memory" : "", path + 1);
		while ((path = strrchr(group.bytes, '/')) > group.bytes) {
			one = group_room(group.bytes, first_version);
			room = one < room ? one : room;
			*path = 0;
		}
	}
	return room;
}

/* Returns MAP_FAILED, and errno, if there is no such memory. */
static void *host_map(uint64_t bytes, const char *place)
{
	const int access = PROT_READ | PROT_WRITE;
	GCP_TEXT(path, GCP_PATH_MAX);
	void *host = MAP_FAILED;
	int fd;

	assert(bytes > 0);
	if (!*place)
		return mmap(NULL, bytes, access,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	gcp_text_add(&path, "%s/gcpool.XXXXXX", place);
	fd = mkostemp(path.bytes, O_CLOEXEC);
	if (fd >= 0 && unlink(path.bytes) == 0 &&
	    (errno = posix_fallocate(fd, 0, (off_t)bytes)) == 0)
		host = mmap(NULL, bytes, access, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	return host;
}

int gcp_spans_open(struct gcp_spans *spans, const char *place)
{
	uint64_t pieces = (spans->bytes + PIECE - 1) / PIECE;
	uint64_t stage = spans->bytes;
	void *host;

	if (spans->bytes == 0)
		return 0;
	spans->stages = pieces < WORKERS_MAX ? (uint32_t)pieces : WORKERS_MAX;
	if (stage > PIECE)
		stage = (uint64_t)spans->stages * PIECE;
	if (GCP_WITHIN(spans->at[0].ctx,
		       gcp_real.cuMemHostAlloc(&spans->stage, stage,
					       CU_MEMHOSTALLOC_PORTABLE)) !=
	    CUDA_SUCCESS) {
		spans->stage = NULL;
		return ENOMEM;
	}
	host = host_map(spans->bytes, place);
	if (host == MAP_FAILED)
		return errno;
	(void)madvise(host, spans->bytes, MADV_HUGEPAGE);
	(void)madvise(host, spans->bytes, MADV_DONTFORK);
	(void)madvise(host, spans->bytes, MADV_DONTDUMP);
	spans->host = host;
	return 0;
}

/* While nothing else is submitted: CUDA waits for all work of the context. */
static void stage_release(struct gcp_spans *spans)
{
	if (spans->stage)
		(void)GCP_WITHIN(spans->at[0].ctx,
				 gcp_real.cuMemFreeHost(spans->stage));
	spans->stage = NULL;
}

void gcp_spans_close(struct gcp_spans *spans)
{
	stage_release(spans);
	if (spans->host)
		munmap(spans->host, spans->bytes);
	free(spans->at);
	*spans = (struct gcp_spans){0};
}

/* The span that has this place of the host's memory. */
static const struct gcp_span *span_find(const struct gcp_spans *spans, uint64_t at)
{
	size_t low = 0, high = spans->count;

	while (high - low > 1) {
		size_t middle = (low + high) / 2;

		if (spans->at[middle].at <= at)
			low = middle;
		else
			high = middle;
	}
	return &spans->at[low];
}

static CUresult piece_copy(const struct copying *copying, uint64_t at, uint64_t bytes,
			   char *stage, CUstream stream)
{
	const struct gcp_span *span = span_find(copying->spans, at);
	char *host = copying->spans->host + at;
	CUresult result = CUDA_SUCCESS, done;

	if (!copying->out)
		memcpy(stage, host, bytes);
	for (uint64_t from = 0, n; from < bytes && result == CUDA_SUCCESS; span++) {
		uint64_t skip = at + from - span->at;

		n = span->bytes - skip < bytes - from ? span->bytes - skip
						      : bytes - from;
		result = copying->out ? gcp_real.cuMemcpyDtoHAsync_v2(
					    stage + from, span->addr + skip, n, stream)
				      : gcp_real.cuMemcpyHtoDAsync_v2(
					    span->addr + skip, stage + from, n, stream);
		from += n;
	}
	done = gcp_real.cuStreamSynchronize(stream);
	if (result == CUDA_SUCCESS)
		result = done;
	if (result == CUDA_SUCCESS && copying->out)
		memcpy(host, stage, bytes);
	return result;
}

/* In the context. */
static CUresult pieces_copy(struct copying *copying, char *stage)
{
	CUstream stream;
	CUresult result = gcp_real.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);

	if (result != CUDA_SUCCESS)
		return result;
	while (result == CUDA_SUCCESS && atomic_load(&copying->result) == 0) {
		if (atomic_load(&gcp_gate.ends))
			result = CUDA_ERROR_DEINITIALIZED;
		uint64_t at = atomic_fetch_add(&copying->next, PIECE);

		if (at >= copying->end)
			break;
		result = piece_copy(
		    copying, at, copying->end - at < PIECE ? copying->end - at : PIECE,
		    stage, stream);
	}
	(void)gcp_real.cuStreamDestroy_v2(stream);
	return result;
}

static void *worker_run(void *arg)
{
	const struct worker *worker = arg;
	struct copying *copying = worker->copying;
	CUresult result = GCP_WITHIN(copying->ctx, pieces_copy(copying, worker->stage));

	if (result != CUDA_SUCCESS)
		atomic_store(&copying->result, (int)result);
	return NULL;
}

/* The calling thread is the worker of each context in turn, and does without others.
 * (pthread_join is in libpthread before glibc 2.34.) */
static int contexts_copy(struct copying *contexts, uint32_t number)
{
	uint32_t most = contexts->spans->stages - 1, count = 0;
	char *stage = contexts->spans->stage;
	struct worker workers[WORKERS_MAX];
	int (*join)(pthread_t, void **), result = 0;

	*(void **)&join = gcp_elf_libc_symbol("pthread_join");
	while (join && count < most) {
		struct worker *worker = &workers[count];

		worker->copying = &contexts[count % number];
		worker->stage = stage + (uint64_t)(count + 1) * PIECE;
		if (!gcp_thread_create(&worker->thread, worker_run, worker))
			break;
		count++;
	}
	for (uint32_t i = 0; i < number; i++)
		(void)worker_run(
		    &(struct worker){.copying = &contexts[i], .stage = stage});
	while (count > 0)
		(void)join(workers[--count].thread, NULL);
	for (uint32_t i = 0; i < number; i++)
		result = result ? result : atomic_load(&contexts[i].result);
	return result;
}

int gcp_spans_copy(struct gcp_spans *spans, bool out)
{
	struct copying contexts[WORKERS_MAX];
	uint32_t number = 0;
	int result = 0;

	assert(spans->host || spans->bytes == 0);
	for (size_t i = 0; i < spans->count && result == 0; i++) {
		const struct gcp_span *span = &spans->at[i];

		if (number == 0 || contexts[number - 1].ctx != span->ctx)
			contexts[number++] = (struct copying){
			    spans, span->ctx, .out = out, .next = span->at};
		contexts[number - 1].end = span->at + span->bytes;
		if (i + 1 < spans->count &&
		    (number < WORKERS_MAX || span[1].ctx == span->ctx))
			continue;
		result = contexts_copy(contexts, number);
		number = 0;
	}
	if (result == 0 && !out)
		stage_release(spans);
	return result;
}
