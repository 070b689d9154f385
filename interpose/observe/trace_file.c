/* SPDX-License-Identifier: MIT */
/*
 * trace_file.c - the file of a recording: see trace.h.
 *
 * Each content (events, rare events, stacks) is a sequence of slots that grows by
 * chunks of the file. Which slots were never written, their stamps tell. When the file
 * has reached its size, the oldest chunk of events becomes the newest.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>

#include "instrument.h"
#include "trace.h"

/* Each content but events has at most one part of so many of the file. */
enum { OTHERS = 4 };
#define CHUNK_ROOM (GCP_TRACE_CHUNK_BYTES - sizeof(struct gcp_trace_chunk))

/* The slots of one content: lock for writing. */
struct area {
	_Atomic uint64_t next;   /* number of the next slot; any thread */
	_Atomic uint64_t ready;  /* chunks that there are, or were */
	_Atomic uint64_t oldest; /* of these, the first that there still is */
	char *_Atomic *places;   /* [number of chunk % chunks_max] */
};

static struct {
	char path[GCP_PATH_MAX];
	dev_t device;
	ino_t inode;
	struct gcp_trace_header *header;
	uint64_t chunks_max;
	uint32_t frames;
	_Atomic bool over;     /* nothing more is written */
	struct gcp_mutex lock; /* the file is opened under it: lock.h */
	uint64_t chunks;       /* lock */
	bool full;             /* lock: it cannot grow any more */
	struct area areas[GCP_TRACE_CONTENTS];
} file = {.lock = GCP_MUTEX(GCP_RANK_TRACE_FILE)};

/* --- make the file ----------------------------------------------------------- */

/* Says why there is no recording. Returns false. */
static bool refuse(int error)
{
	gcp.log(GCP_LOG_WARNING,
		"GCPOOL_TRACE: %.400s cannot be made: %s, recording nothing", file.path,
		gcp.errno_words(error));
	return false;
}

/* The same file as before. A descriptor or -1. */
static int same_open(void)
{
	struct stat about;
	int fd = gcp.path_open(file.path, O_RDWR, 0);

	if (fd >= 0 && (gcp_file_stat(fd, &about) != 0 || about.st_dev != file.device ||
			about.st_ino != file.inode)) {
		close(fd);
		errno = ENOENT;
		fd = -1;
	}
	return fd;
}

/* Disk space for one piece more, so that no store into it can fail. 0 or an errno.
 * Beyond the process's limit the kernel would send a signal, too. */
static int space_take(int fd, uint64_t at, uint64_t bytes)
{
	struct rlimit limit;
	int error;

	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
	    at + bytes > limit.rlim_cur)
		return EFBIG;
	do
		error = posix_fallocate(fd, (off_t)at, (off_t)bytes);
	while (error == EINTR);
	return error;
}

static void header_fill(struct gcp_trace_header *header)
{
	struct timespec now;

	header->version = GCP_TRACE_VERSION;
	header->header_bytes = GCP_TRACE_HEADER_BYTES;
	header->chunk_bytes = GCP_TRACE_CHUNK_BYTES;
	header->event_bytes = sizeof(struct gcp_trace_event);
	header->chunk_slots = GCP_TRACE_CHUNK_SLOTS;
	header->frames = file.frames;
	header->pid = (uint32_t)getpid();
	header->start_time = gcp.process_start_time();
	clock_gettime(CLOCK_REALTIME, &now);
	header->realtime_ns =
	    (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	header->monotonic_ns = gcp_clock_ns();
	header->page_bytes = (uint32_t)sysconf(_SC_PAGESIZE);
	(void)gethostname(header->host, sizeof(header->host) - 1);
	gcp.process_program(header->program, sizeof(header->program));
	memcpy(header->magic, GCP_TRACE_MAGIC, sizeof(header->magic));
}

/* Maps the new file with all that it may grow to, and writes its header. 0 or an errno.
 */
static int header_make(int fd)
{
	uint64_t bytes =
	    GCP_TRACE_HEADER_BYTES + file.chunks_max * GCP_TRACE_CHUNK_BYTES;
	int error = space_take(fd, 0, GCP_TRACE_HEADER_BYTES);
	void *header = MAP_FAILED;
	struct stat about;

	if (!error)
		header = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (!error && (header == MAP_FAILED || gcp_file_stat(fd, &about) != 0))
		error = errno;
	if (error)
		return error;
	file.device = about.st_dev;
	file.inode = about.st_ino;
	file.header = header;
	header_fill(file.header);
	return 0;
}

static bool tables_make(void)
{
	size_t table = file.chunks_max * sizeof(char *);
	char *memory =
	    gcp_memory_map(GCP_TRACE_CONTENTS * table, PROT_READ | PROT_WRITE);

	if (!memory)
		return refuse(ENOMEM);
	for (int i = 0; i < GCP_TRACE_CONTENTS; i++)
		file.areas[i].places = (char *_Atomic *)(memory + (size_t)i * table);
	return true;
}

static struct gcp_trace_chunk *chunk_at(enum gcp_trace_content content,
					uint64_t number);

bool gcp_trace_file_create(const char *pattern, uint64_t bytes, uint32_t frames)
{
	struct gcp_text text;
	int fd, error;

	assert(!file.header && bytes >= GCP_TRACE_CHUNK_BYTES); /* once */
	file.frames = frames;
	file.chunks_max = bytes / GCP_TRACE_CHUNK_BYTES;
	gcp.text_init(&text, file.path, sizeof(file.path));
	gcp.text_add_path(&text, pattern);
	if (text.cut)
		return refuse(ENAMETOOLONG);
	if (!tables_make())
		return false;
	fd = gcp.path_open(file.path, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd < 0) /* no file is written over */
		return refuse(errno);
	error = header_make(fd);
	close(fd);
	if (error)
		refuse(error);
	else if (chunk_at(GCP_TRACE_EVENTS, 0)) /* a full disk is known now */
		return true;
	unlink(file.path);
	return false;
}

void gcp_trace_file_end(void)
{
	if (!file.header || atomic_exchange(&file.over, true))
		return;
	file.header->end_ns = gcp_clock_ns();
}

/* --- grow -------------------------------------------------------------------- */

static void full_say(int error)
{
	if (file.chunks == 0) {
		refuse(error);
		return;
	}
	gcp.log(GCP_LOG_WARNING,
		"GCPOOL_TRACE: %.400s cannot grow beyond %llu MiB (%s), %s", file.path,
		(unsigned long long)file.chunks, gcp.errno_words(error),
		error == ENOENT ? "recording no more"
				: "keeping the newest events there");
}

/* The next chunk of the file, if it may have one. NULL: it may not. */
static struct gcp_trace_chunk *chunk_create(void)
{
	gcp_assert_held(GCP_RANK_TRACE_FILE);
	uint64_t at = GCP_TRACE_HEADER_BYTES + file.chunks * GCP_TRACE_CHUNK_BYTES;
	int fd, error;

	if (file.full || file.chunks == file.chunks_max)
		return NULL;
	fd = same_open();
	error = fd < 0 ? errno : space_take(fd, at, GCP_TRACE_CHUNK_BYTES);
	if (fd >= 0)
		close(fd);
	if (error) {
		file.full = true;
		full_say(error);
		if (error == ENOENT)
			atomic_store(&file.over, true);
		return NULL;
	}
	file.chunks++;
	file.header->chunks = file.chunks;
	return (void *)((char *)file.header + at);
}

/* The oldest chunk of events. */
static struct gcp_trace_chunk *chunk_recycle(struct area *area)
{
	gcp_assert_held(GCP_RANK_TRACE_FILE);
	uint64_t oldest = atomic_load(&area->oldest);
	struct gcp_trace_chunk *chunk;

	if (area != &file.areas[GCP_TRACE_EVENTS] ||
	    oldest == atomic_load(&area->ready))
		return NULL;
	chunk = (void *)atomic_load(&area->places[oldest % file.chunks_max]);
	atomic_store(&area->oldest, oldest + 1);
	atomic_store(&chunk->content, GCP_TRACE_EMPTY);
	atomic_fetch_add(&file.header->lost_events, GCP_TRACE_CHUNK_SLOTS);
	return chunk;
}

/* One chunk more for the area. */
static bool area_grow(struct area *area, enum gcp_trace_content content)
{
	gcp_assert_held(GCP_RANK_TRACE_FILE);
	assert(area == &file.areas[content]);
	uint64_t number = atomic_load(&area->ready);
	struct gcp_trace_chunk *chunk = NULL;

	if (atomic_load(&file.over))
		return false;
	if (content == GCP_TRACE_EVENTS || number < (file.chunks_max + 3) / OTHERS)
		chunk = chunk_create();
	if (!chunk)
		chunk = chunk_recycle(area);
	if (!chunk)
		return false;
	chunk->number = number;
	atomic_store_explicit(&chunk->content, content, memory_order_release);
	atomic_store(&area->places[number % file.chunks_max], (char *)chunk);
	atomic_store_explicit(&area->ready, number + 1, memory_order_release);
	return true;
}

static __attribute__((noinline)) bool area_reach(enum gcp_trace_content content,
						 uint64_t number)
{
	struct area *area = &file.areas[content];

	GCP_LOCKED(&file.lock);
	while (atomic_load(&area->ready) <= number)
		if (!area_grow(area, content))
			return false;
	return true;
}

/* NULL: there is no room for it. */
static struct gcp_trace_chunk *chunk_at(enum gcp_trace_content content, uint64_t number)
{
	struct area *area = &file.areas[content];

	if (number >= atomic_load_explicit(&area->ready, memory_order_acquire) &&
	    !area_reach(content, number))
		return NULL;
	return (void *)atomic_load_explicit(&area->places[number % file.chunks_max],
					    memory_order_relaxed);
}

/* --- slots and entries ------------------------------------------------------- */

/* Where slot `number`, from 0, lies. NULL: nowhere. */
static void *slot_at(enum gcp_trace_content content, uint64_t number)
{
	bool stacks = content == GCP_TRACE_STACKS;
	uint64_t bytes = stacks ? (1 + file.frames) * sizeof(uint64_t)
				: sizeof(struct gcp_trace_event);
	uint64_t slots = stacks ? CHUNK_ROOM / bytes : GCP_TRACE_CHUNK_SLOTS;
	struct gcp_trace_chunk *chunk = chunk_at(content, number / slots);

	return chunk ? (char *)(chunk + 1) + number % slots * bytes : NULL;
}

void *gcp_trace_slot(enum gcp_trace_content content, uint32_t *ret_number)
{
	uint64_t number;
	void *slot;

	if (atomic_load_explicit(&file.over, memory_order_relaxed))
		return NULL;
	number = atomic_fetch_add_explicit(&file.areas[content].next, 1,
					   memory_order_relaxed);
	*ret_number = (uint32_t)number + 1;
	assert(content >= GCP_TRACE_EVENTS && content <= GCP_TRACE_STACKS);
	slot = slot_at(content, number);
	return slot || content != GCP_TRACE_RARE
		   ? slot
		   : gcp_trace_slot(GCP_TRACE_EVENTS, ret_number);
}

const uint64_t *gcp_trace_stack_at(uint32_t number)
{
	assert(number > 0);
	return slot_at(GCP_TRACE_STACKS, number - 1);
}

void gcp_trace_count_lost_stack(void)
{
	atomic_fetch_add(&file.header->lost_stacks, 1);
}

/* --- modules ----------------------------------------------------------------- */

void gcp_trace_module_add(const struct gcp_trace_module *module, const char *path)
{
	static uint64_t number; /* of the chunk that is filled */
	uint64_t bytes = sizeof(*module) + (module->path_bytes + 7) / 8 * 8;
	struct gcp_trace_chunk *chunk;
	char *to;

	if (!file.header) /* stacks without a recording */
		return;
	chunk = chunk_at(GCP_TRACE_MODULES, number);
	if (chunk && chunk->bytes + bytes > CHUNK_ROOM)
		chunk = chunk_at(GCP_TRACE_MODULES, ++number);
	if (!chunk)
		return;
	to = (char *)(chunk + 1) + chunk->bytes;
	memcpy(to, module, sizeof(*module));
	memcpy(to + sizeof(*module), path, module->path_bytes);
	atomic_store_explicit(&chunk->bytes, chunk->bytes + bytes,
			      memory_order_release);
}
