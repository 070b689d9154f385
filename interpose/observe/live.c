/* SPDX-License-Identifier: MIT */
/*
 * live.c - the live view: see live.h.
 */
#include <fcntl.h>
#include <string.h>

#include "instrument.h"
#include "live.h"

enum {
	EVERY_NS = 100 * 1000 * 1000,
	REPLY_MAX = 4 << 20,
	BLOCKS_MAX = 1 << 20,
};

static struct gcp_live_page *page;
static char place[32];      /* the directory */
static char page_path[64];  /* in it */
static char reply_path[72]; /* in it, until gcpool ctl has read the answer */
static uid_t user;          /* whose they are */

/* --- the page ---------------------------------------------------------------- */

static void page_fill(const struct gcp_options *options)
{
	struct gcp_text text;

	page->version = GCP_LIVE_VERSION;
	page->bytes = GCP_LIVE_BYTES;
	page->start_time = gcp.process_start_time();
	gcp.text_init(&text, page->trace, sizeof(page->trace));
	gcp.text_add_path(&text, options->trace_file);
	memcpy(page->magic, GCP_LIVE_MAGIC, sizeof(page->magic));
}

/* Containers may share /dev/shm, and each has a process 1. */
static void paths_make(void)
{
	struct gcp_text text;

	user = geteuid();
	gcp.text_init(&text, place, sizeof(place));
	gcp.text_add(&text, "/dev/shm/gcpool.%u", (unsigned)user);
	gcp.text_init(&text, page_path, sizeof(page_path));
	gcp.text_add(&text, "%s/%llu.%d", place,
		     (unsigned long long)gcp.process_namespace(), (int)getpid());
	gcp.text_init(&text, reply_path, sizeof(reply_path));
	gcp.text_add(&text, "%s.reply", page_path);
}

/* Makes the directory. 0, or why its content may not be the user's alone. */
static int place_make(void)
{
	struct stat about;

	if (getuid() != user || geteuid() != user)
		return EPERM;
	if (mkdir(place, 0700) != 0 && errno != EEXIST)
		return errno;
	if (syscall(SYS_newfstatat, AT_FDCWD, place, &about, AT_SYMLINK_NOFOLLOW) != 0)
		return errno;
	return S_ISDIR(about.st_mode) && about.st_uid == user && !(about.st_mode & 077)
		   ? 0
		   : EPERM;
}

/* A new file in the directory, with these bytes. One that a process of the same number
 * has left is taken away. 0 and a descriptor, or an errno. (The page is written, not
 * only made longer: a full /dev/shm is an error here and no signal.) */
static int own_file_make(const char *path, const char *bytes, size_t length,
			 int *ret_fd)
{
	struct gcp_text text = {(char *)bytes, length + 1, length, false};
	int error = place_make();

	if (error)
		return error;
	unlink(path);
	*ret_fd = gcp.path_open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
	if (*ret_fd < 0)
		return errno;
	error = gcp.text_write(&text, *ret_fd);
	if (error) {
		unlink(path);
		close(*ret_fd);
	}
	return error;
}

bool gcp_live_start(const struct gcp_options *options)
{
	static char zeros[GCP_LIVE_BYTES];
	void *memory;
	int fd, error;

	if (!options->live)
		return false;
	if (getuid() != geteuid()) {
		gcp.log(GCP_LOG_WARNING, "GCPOOL_LIVE: real and effective user differ, "
					 "showing nothing");
		return false;
	}
	paths_make();
	error = own_file_make(page_path, zeros, sizeof(zeros), &fd);
	if (!error) {
		memory = mmap(NULL, GCP_LIVE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
			      fd, 0);
		error = memory == MAP_FAILED ? errno : 0;
		close(fd);
		if (error)
			unlink(page_path);
	}
	if (error) {
		gcp.log(GCP_LOG_WARNING,
			"GCPOOL_LIVE: cannot make %s (%s), showing nothing", page_path,
			gcp.errno_words(error));
		return false;
	}
	page = memory;
	page_fill(options);
	return true;
}

void gcp_live_end(void)
{
	if (page) {
		unlink(page_path);
		unlink(reply_path);
	}
}

/* --- write ------------------------------------------------------------------- */

static void unused_update(struct gcp_live_device *devices)
{
	for (int i = 0;
	     i <= gcp.pools_device_max(gcp.process->pools) && i < GCP_LIVE_DEVICES;
	     i++) {
		strncpy(devices[i].uuid, gcp.report_uuid(i), sizeof(devices->uuid));
		devices[i].unused = gcp.pools_unheld(gcp.process->pools, i);
	}
}

static void page_update(uint64_t now)
{
	struct gcp_text text;

	assert(page->sequence % 2 == 0);
	atomic_fetch_add(&page->sequence, 1);
	gcp.text_init(&text, page->text, GCP_LIVE_BYTES - sizeof(*page));
	gcp.report_add(true, true, &text);
	if (gcp.process->options.control)
		unused_update(page->devices);
	page->length = text.cut ? 0 : text.length;
	page->updated_ns = now;
	atomic_fetch_add(&page->sequence, 1);
}

/* --- requests ---------------------------------------------------------------- */

static int reply_write(const void *bytes, size_t length)
{
	int fd, error = own_file_make(reply_path, bytes, length, &fd);

	if (!error)
		close(fd);
	return error;
}

struct snapshot {
	struct gcp_live_block *blocks;
	size_t count;
	int device;
};

static void snapshot_add(void *arg, const struct gcp_block_view *block)
{
	struct snapshot *snapshot = arg;

	if (snapshot->count < BLOCKS_MAX)
		snapshot->blocks[snapshot->count++] =
		    (struct gcp_live_block){block->addr, block->size, block->requested,
					    (uint32_t)snapshot->device, block->used};
}

static size_t snapshot_take(void *memory)
{
	struct snapshot snapshot = {.blocks = memory};

	for (; snapshot.device <= gcp.pools_device_max(gcp.process->pools);
	     snapshot.device++)
		gcp.pools_blocks(gcp.process->pools, snapshot.device, snapshot_add,
				 &snapshot);
	return snapshot.count * sizeof(*snapshot.blocks);
}

static_assert(REPLY_MAX < BLOCKS_MAX * sizeof(struct gcp_live_block), "room for both");

/* The answer, or the error, goes into the reply. */
static int request_serve(void)
{
	size_t room = BLOCKS_MAX * sizeof(struct gcp_live_block);
	char *memory = gcp_memory_map(room, PROT_READ | PROT_WRITE);
	int result = 0, error = 0;
	struct gcp_text text;

	if (!memory)
		return ENOMEM;
	gcp.text_init(&text, memory, REPLY_MAX);
	if (page->kind == GCP_LIVE_SNAPSHOT)
		text.length = snapshot_take(memory);
	else if (page->kind == GCP_LIVE_STATS)
		gcp.report_add(true, true, &text);
	else
		result = gcp.request(page->kind, (int)page->device, page->argument,
				     &page->answer, &text);
	if (text.length > 0 || page->kind == GCP_LIVE_SNAPSHOT)
		error = reply_write(memory, text.length);
	munmap(memory, room);
	return result ? result : error;
}

/* --- occasions --------------------------------------------------------------- */

void gcp_live_occasion(void)
{
	uint64_t now = gcp_clock_ns();
	uint32_t asked;

	if (!page)
		return;
	asked = atomic_load(&page->asked);
	if (asked != page->done) {
		page->result = (uint32_t)request_serve();
		atomic_store_explicit(&page->done, asked, memory_order_release);
	} else if (now - page->updated_ns < EVERY_NS) {
		return;
	}
	page_update(now);
}
