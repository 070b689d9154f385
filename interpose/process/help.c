/* SPDX-License-Identifier: MIT */
/*
 * help.c - see help.h. Asks through the page of the live view (live.h), as gcpool ctl
 * does, and the other process's thread (GCPOOL_CONTROL) answers.
 *
 *      this process                         the other one's thread, every 10 ms
 *      flock, argument, asked = n + 1
 *      looks every ms, for 100 ms           asked != done: gives, done = asked
 *      in vain: asked = n, flock ends
 *
 * A page must be a file of the same user in a directory of that user alone, of a
 * process that lives. Two processes that ask each other do not wait for each other: the
 * threads answer, and need no lock that is held here. None is asked twice within a
 * second for the same device.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../base/clock.h"
#include "../base/process.h"
#include "../base/process_identity.h"
#include "../cuda/ctx_scope.h"
#include "../cuda/resolve.h"
#include "../observe/live.h"
#include "help.h"

enum {
	PAUSE_NS = 1000 * 1000,
	ANSWER_NS = 100 * 1000 * 1000,
	ALL_NS = 300 * 1000 * 1000,
	AGAIN_NS = 1000 * 1000 * 1000,
	SOME = 64 << 20,
	ROUNDING = 4 << 20,
};

struct peer {
	int fd;
	struct gcp_live_page *page;
	struct gcp_live_device *device; /* in it */
};

/* Returns true if it is the user's alone, and as large. */
static bool is_own(int fd, mode_t type, size_t bytes)
{
	struct stat about;

	return gcp_file_stat(fd, &about) == 0 && about.st_uid == geteuid() &&
	       (about.st_mode & (S_IFMT | 077)) == type &&
	       (size_t)about.st_size >= bytes;
}

/* Returns the id of the process whose page has that name, or 0 for other names. */
static pid_t pid_of(const char *name)
{
	const char *dot = strchr(name, '.');

	if (!dot || gcp_digits_read(name) != gcp_process_namespace() ||
	    dot[1 + strspn(dot + 1, "0123456789")])
		return 0;
	return (pid_t)gcp_digits_read(dot + 1);
}

/* Returns true if the process may be asked for memory of the device. What it says of
 * unused memory may be a tenth of a second old. */
static bool peer_find(struct peer *peer, const char *uuid)
{
	struct gcp_live_page *page = peer->page;

	if (memcmp(page->magic, GCP_LIVE_MAGIC, sizeof(page->magic)) != 0 ||
	    page->version != GCP_LIVE_VERSION)
		return false;
	for (uint32_t i = 0; i < GCP_LIVE_DEVICES; i++) {
		peer->device = &page->devices[i];
		if (strncmp(peer->device->uuid, uuid, sizeof(peer->device->uuid)) == 0)
			return peer->device->unused > 0 &&
			       gcp_clock_ns() - peer->device->asked_ns > AGAIN_NS;
	}
	return false;
}

/* Looks at the page of that name. Returns true if it is a process's, to be closed. */
static bool peer_open(const char *place, const char *name, struct peer *peer)
{
	pid_t pid = pid_of(name);
	GCP_TEXT(path, 96);

	if (pid <= 0 || pid == getpid() || kill(pid, 0) != 0)
		return false;
	gcp_text_add(&path, "%s/%s", place, name);
	peer->fd = path.cut ? -1 : gcp_path_open(path.bytes, O_RDWR | O_NOFOLLOW, 0);
	if (peer->fd < 0)
		return false;
	peer->page = is_own(peer->fd, S_IFREG, sizeof(*peer->page))
			 ? mmap(NULL, sizeof(*peer->page), PROT_READ | PROT_WRITE,
				MAP_SHARED, peer->fd, 0)
			 : MAP_FAILED;
	if (peer->page == MAP_FAILED)
		close(peer->fd);
	return peer->page != MAP_FAILED;
}

/* Returns the bytes that the peer gave. It may have ended: nothing answers then. */
static uint64_t peer_ask(const struct peer *peer, uint64_t bytes, uint64_t until)
{
	struct gcp_live_page *page = peer->page;
	uint64_t now = gcp_clock_ns();
	uint32_t asked;

	assert(bytes > 0 && peer->fd >= 0);
	until = now + ANSWER_NS < until ? now + ANSWER_NS : until;
	if (flock(peer->fd, LOCK_EX | LOCK_NB) != 0 || page->asked != page->done)
		return 0;
	peer->device->asked_ns = now;
	page->kind = GCP_LIVE_HELP;
	page->argument = bytes;
	page->device = (uint64_t)(peer->device - page->devices); /* its number there */
	atomic_fetch_add(&gcp_process.help.asked, 1);
	asked = atomic_fetch_add(&page->asked, 1) + 1;
	while (page->done != asked) {
		if (gcp_clock_ns() >= until) {
			page->asked = asked - 1; /* not to be done later */
			return 0;
		}
		gcp_sleep(PAUSE_NS);
	}
	return page->answer;
}

/* Returns how many of these bytes the device lacks. 0: none, so the driver refuses for
 * another reason. */
static uint64_t missing(uint64_t bytes, CUcontext ctx)
{
	size_t left = 0, total = 0;

	if (bytes == 0)
		return SOME;
	if (GCP_WITHIN(ctx, gcp_real.cuMemGetInfo_v2(&left, &total)) != CUDA_SUCCESS)
		return bytes;
	return bytes + ROUNDING > left ? bytes + ROUNDING - left : 0;
}

/* Returns the bytes that all peers gave: none is asked once these are enough. */
static uint64_t peers_ask(DIR *pages, const char *place, const char *uuid,
			  uint64_t wanted)
{
	uint64_t until = gcp_clock_ns() + ALL_NS, got = 0;
	struct dirent *entry;
	struct peer peer;

	while (got < wanted && gcp_clock_ns() < until && (entry = readdir(pages))) {
		if (!peer_open(place, entry->d_name, &peer))
			continue;
		if (peer_find(&peer, uuid))
			got += peer_ask(&peer, wanted - got, until);
		munmap(peer.page, sizeof(*peer.page));
		close(peer.fd);
	}
	return got;
}

bool gcp_help_ask(int device, uint64_t bytes, CUcontext ctx)
{
	const char *uuid = gcp_report_uuid(device);
	uint64_t wanted, got = 0;
	GCP_TEXT(place, 32);
	GCP_KEEP_ERRNO;
	GCP_CANCEL_LATER;
	DIR *pages;

	assert((gcp_ranks_held & ~GCP_RANK_BIT(SLEEP)) == 0);
	if (!gcp_process.options.control || !uuid[0] ||
	    (wanted = missing(bytes, ctx)) == 0)
		return false;
	gcp_text_add(&place, "/dev/shm/gcpool.%u", (unsigned)geteuid());
	pages = opendir(place.bytes);
	if (pages && is_own(dirfd(pages), S_IFDIR, 0))
		got = peers_ask(pages, place.bytes, uuid, wanted);
	if (pages)
		closedir(pages);
	atomic_fetch_add(&gcp_process.help.got, got);
	return got > 0;
}

uint64_t gcp_help_give(int device, uint64_t bytes)
{
	struct gcp_pools *pools = gcp_process.pools;
	uint64_t unused = gcp_pools_unheld(pools, device), given;

	gcp_tracker_collect(gcp_process.tracker);
	given =
	    gcp_pools_trim(pools, device, unused > bytes ? unused - bytes : 0, false);
	if (given < bytes) /* of several contexts each keeps so much */
		given += gcp_pools_trim(pools, device, 0, false);
	atomic_fetch_add(&gcp_process.help.given, given);
	return given;
}
