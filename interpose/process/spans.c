/* SPDX-License-Identifier: MIT */
/*
 * spans.c - see spans.h.
 *
 * The host's memory is cut into pieces. Each worker takes one after another: it copies
 * what belongs to a piece to pinned memory of its own, in a stream of its own, waits
 * for that, and copies the piece as a whole to ordinary memory; or the other way.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../base/elfwalk.h"
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
	_Atomic uint32_t workers;
	_Atomic int result; /* the first error */
};

bool gcp_spans_add(struct gcp_spans *spans, const struct gcp_block_view *block)
{
	int saved = errno;

	if (spans->count == spans->room) {
		size_t room = spans->room ? 2 * spans->room : 256;
		void *more = realloc(spans->at, room * sizeof(*spans->at));

		errno = saved;
		if (!more)
			return false;
		spans->at = more;
		spans->room = room;
	}
	spans->at[spans->count++] =
	    (struct gcp_span){block->ctx, block->addr, block->size, spans->bytes};
	spans->bytes += block->size;
	return true;
}

bool gcp_spans_open(struct gcp_spans *spans)
{
	uint64_t stage = spans->bytes;
	int saved = errno;
	void *host = MAP_FAILED;

	if (spans->bytes == 0)
		return true;
	if (stage > PIECE)
		stage = (stage + PIECE - 1) / PIECE * PIECE;
	if (stage > (uint64_t)WORKERS_MAX * PIECE)
		stage = (uint64_t)WORKERS_MAX * PIECE;
	if (GCP_WITHIN(spans->at[0].ctx, gcp_real.cuMemHostAlloc(
					     &spans->stage, stage,
					     CU_MEMHOSTALLOC_PORTABLE)) == CUDA_SUCCESS)
		host = mmap(NULL, spans->bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	else
		spans->stage = NULL;
	if (host != MAP_FAILED) {
		(void)madvise(host, spans->bytes, MADV_HUGEPAGE);
		(void)madvise(host, spans->bytes, MADV_DONTFORK);
		(void)madvise(host, spans->bytes, MADV_DONTDUMP);
		spans->host = host;
	}
	errno = saved;
	return spans->host;
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
	int saved = errno;

	stage_release(spans);
	if (spans->host)
		munmap(spans->host, spans->bytes);
	free(spans->at);
	errno = saved;
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

static void *copying_run(void *arg)
{
	struct copying *copying = arg;
	uint32_t number = atomic_fetch_add(&copying->workers, 1);
	char *stage = (char *)copying->spans->stage + (uint64_t)number * PIECE;
	CUresult result = GCP_WITHIN(copying->ctx, pieces_copy(copying, stage));

	if (result != CUDA_SUCCESS)
		atomic_store(&copying->result, (int)result);
	return NULL;
}

/* The calling thread is one of the workers, and does without others. (pthread_join is
 * in libpthread before glibc 2.34.) */
static int context_copy(struct copying *copying)
{
	int (*join)(pthread_t, void **);
	uint64_t begin = copying->next, pieces;
	pthread_t threads[WORKERS_MAX];
	uint32_t count = 0;

	pieces = (copying->end - begin + PIECE - 1) / PIECE;
	*(void **)&join = gcp_elf_libc_symbol("pthread_join");
	while (join && count + 1 < WORKERS_MAX && count + 1 < pieces &&
	       gcp_thread_create(&threads[count], copying_run, copying))
		count++;
	(void)copying_run(copying);
	while (count > 0)
		(void)join(threads[--count], NULL);
	return atomic_load(&copying->result);
}

int gcp_spans_copy(struct gcp_spans *spans, bool out)
{
	int result = 0;

	for (size_t i = 0, first; i < spans->count && result == 0;) {
		struct copying copying = {spans, spans->at[i].ctx, .out = out};

		first = i;
		while (i < spans->count && spans->at[i].ctx == copying.ctx)
			i++;
		copying.next = spans->at[first].at;
		copying.end = i < spans->count ? spans->at[i].at : spans->bytes;
		result = context_copy(&copying);
	}
	if (result == 0 && !out)
		stage_release(spans);
	return result;
}
