/* SPDX-License-Identifier: MIT */
/*
 * clock.c - vector clocks: which operations are ordered before which.
 *
 * A lane is a chain of operations, each ordered after the one before: a
 * stream, or a path through a launched graph. An operation is known by its
 * lane and its number there. Called by stream.c, event.c, context.c, exec.c
 * and hazard.c, under the big lock. Knows nothing of time and execution.
 */
#include "sim.h"

static struct {
	uint64_t *seq; /* per lane: its newest operation */
	uint32_t count, capacity;
	uint32_t *idle; /* lanes given up; reused when the host knows them done */
	uint32_t idle_count, idle_capacity;
} lanes;

uint32_t sim_lane_new(void)
{
	for (uint32_t i = 0; i < lanes.idle_count; i++) {
		uint32_t lane = lanes.idle[i];
		struct sim_epoch last = {lanes.seq[lane], lane};

		if (!sim_vc_covers(&sim.host, last))
			continue;
		lanes.idle[i] = lanes.idle[--lanes.idle_count];
		return lane;
	}
	lanes.seq =
	    sim_grow(lanes.seq, &lanes.capacity, lanes.count + 1, sizeof(*lanes.seq));
	return lanes.count++;
}

void sim_lane_delete(uint32_t lane)
{
	lanes.idle = sim_grow(lanes.idle, &lanes.idle_capacity, lanes.idle_count + 1,
			      sizeof(*lanes.idle));
	lanes.idle[lanes.idle_count++] = lane;
}

uint64_t sim_lane_next(uint32_t lane)
{
	return ++lanes.seq[lane];
}

static void vc_reserve(struct sim_vc *vc, uint32_t count)
{
	if (count <= vc->count)
		return;
	vc->at = sim_grow(vc->at, &vc->capacity, count, sizeof(*vc->at));
	memset(vc->at + vc->count, 0, (count - vc->count) * sizeof(*vc->at));
	vc->count = count;
}

void sim_vc_join(struct sim_vc *vc, const struct sim_vc *other)
{
	vc_reserve(vc, other->count);
	for (uint32_t i = 0; i < other->count; i++)
		if (vc->at[i] < other->at[i])
			vc->at[i] = other->at[i];
}

void sim_vc_copy(struct sim_vc *vc, const struct sim_vc *other)
{
	vc->count = 0;
	vc_reserve(vc, other->count);
	if (other->count)
		memcpy(vc->at, other->at, other->count * sizeof(*vc->at));
}

void sim_vc_set(struct sim_vc *vc, uint32_t lane, uint64_t seq)
{
	vc_reserve(vc, lane + 1);
	vc->at[lane] = seq;
}

void sim_vc_clear(struct sim_vc *vc)
{
	vc->count = 0;
}

void sim_vc_free(struct sim_vc *vc)
{
	free(vc->at);
	*vc = (struct sim_vc){0};
}

bool sim_vc_covers(const struct sim_vc *vc, struct sim_epoch epoch)
{
	return epoch.lane < vc->count && vc->at[epoch.lane] >= epoch.seq;
}
