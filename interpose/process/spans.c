/* SPDX-License-Identifier: MIT */
/*
 * spans.c - see spans.h.
 *
 * The host's memory is cut into pieces; the spans of each context begin with a piece.
 * Each worker takes one after another: it copies what belongs to a piece to pinned
 * memory of its own, in its thread's stream of the context, waits for that, and copies
 * the piece as a whole to ordinary memory; or the other way. The pieces are taken from
 * several places in turns, so that devices are copied at once.
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

enum { PIECE = 8 << 20, WORKERS_MAX = 16, PLACES = 16 };

struct copying {
	const struct gcp_spans *spans;
	bool out;              /* to the host */
	_Atomic uint64_t next; /* turn */
	_Atomic uint32_t workers;
	_Atomic int result; /* of them one that failed */
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
	if (spans->count > 0 && spans->at[spans->count - 1].ctx != block->ctx)
		spans->bytes = (spans->bytes + PIECE - 1) / PIECE * PIECE;
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
	void *host;

	if (spans->bytes == 0)
		return 0;
	spans->stages = pieces < WORKERS_MAX ? (uint32_t)pieces : WORKERS_MAX;
	if (GCP_WITHIN(
		spans->at[0].ctx,
		gcp_real.cuMemHostAlloc(&spans->stage, (uint64_t)spans->stages * PIECE,
					CU_MEMHOSTALLOC_PORTABLE)) != CUDA_SUCCESS) {
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

/* In the context. */
static CUresult piece_copy(const struct copying *copying, const struct gcp_span *span,
			   uint64_t at, char *stage)
{
	const struct gcp_spans *spans = copying->spans;
	uint64_t end = at + PIECE < spans->bytes ? at + PIECE : spans->bytes;
	CUresult result = CUDA_SUCCESS, done;

	if (!copying->out)
		memcpy(stage, spans->host + at, end - at);
	for (; span < spans->at + spans->count && span->at < end && !result; span++) {
		uint64_t from = span->at > at ? span->at : at;
		uint64_t to = span->at + span->bytes;
		uint64_t bytes = (to < end ? to : end) - from;
		CUdeviceptr addr = span->addr + (from - span->at);
		char *host = stage + (from - at);

		result = copying->out
			     ? gcp_real.cuMemcpyDtoHAsync_v2(host, addr, bytes,
							     CU_STREAM_PER_THREAD)
			     : gcp_real.cuMemcpyHtoDAsync_v2(addr, host, bytes,
							     CU_STREAM_PER_THREAD);
	}
	done = gcp_real.cuStreamSynchronize(CU_STREAM_PER_THREAD);
	if (result == CUDA_SUCCESS && done == CUDA_SUCCESS && copying->out)
		memcpy(spans->host + at, stage, end - at);
	return result ?: done;
}

static void *worker_run(void *arg)
{
	struct copying *copying = arg;
	const struct gcp_spans *spans = copying->spans;
	char *stage = (char *)spans->stage +
		      (uint64_t)atomic_fetch_add(&copying->workers, 1) * PIECE;
	uint64_t each = (spans->bytes / PIECE + PLACES) / PLACES, turn, at;
	CUresult result = CUDA_SUCCESS;

	while (result == CUDA_SUCCESS && atomic_load(&copying->result) == 0 &&
	       (turn = atomic_fetch_add(&copying->next, 1)) < each * PLACES) {
		at = (turn % PLACES * each + turn / PLACES) * PIECE;
		if (at >= spans->bytes)
			continue;
		const struct gcp_span *span = span_find(spans, at);
		result =
		    atomic_load(&gcp_gate.ends)
			? CUDA_ERROR_DEINITIALIZED
			: GCP_WITHIN(span->ctx, piece_copy(copying, span, at, stage));
	}
	if (result != CUDA_SUCCESS)
		atomic_store(&copying->result, (int)result);
	return NULL;
}

/* The calling thread is a worker, and does without others. (pthread_join is in
 * libpthread before glibc 2.34.) */
int gcp_spans_copy(struct gcp_spans *spans, bool out)
{
	struct copying copying = {.spans = spans, .out = out};
	pthread_t threads[WORKERS_MAX];
	int (*join)(pthread_t, void **);
	uint32_t count = 0;

	assert(spans->host || spans->bytes == 0);
	*(void **)&join = gcp_elf_libc_symbol("pthread_join");
	while (join && count + 1 < spans->stages &&
	       gcp_thread_create(&threads[count], worker_run, &copying))
		count++;
	(void)worker_run(&copying);
	while (count > 0)
		(void)join(threads[--count], NULL);
	if (copying.result == 0 && !out)
		stage_release(spans);
	return copying.result;
}
