/* SPDX-License-Identifier: MIT */
/*
 * user_object.c - user objects: counted references whose last one calls the
 * program's destructor, on the driver's thread.
 *
 * A graph holds references; so does a hold, which is what an executable graph
 * and its launches in flight share. Called by graph.c and exec.c, under the
 * big lock.
 */
#include "graph.h"

struct sim_user_object {
	struct sim_object object;
	uint32_t refs;
	CUhostFn destroy; /* NULL: it is memory of a graph instead */
	void *data;
	uint64_t addr, buffer_id;
	struct sim_vc vc; /* of launches that are done when it is destroyed */
};

struct sim_hold {
	uint32_t refs;
	struct sim_user_refs users;
	struct sim_vc vc; /* of all launches that held it */
};

/* --- references ----------------------------------------------------------- */

static void user_release(struct sim_user_object *user, uint32_t count)
{
	user->refs -= count;
	if (user->refs > 0)
		return;
	if (user->destroy) {
		__atomic_fetch_sub(&sim.user_objects, 1, __ATOMIC_RELAXED);
		/* A thread that hears of its end knows that the launches are done. */
		sim_vc_join(&sim.host, &user->vc);
		sim_host_post(user->destroy, user->data, NULL);
	} else {
		struct sim_alloc *alloc = sim_memory_find(user->addr);

		/* What is not freed then is the program's, as other memory. */
		if (alloc && alloc->buffer_id == user->buffer_id) {
			alloc->of_graph = false;
			if (!alloc->unfreed)
				sim_memory_free(alloc);
		}
	}
	sim_vc_free(&user->vc);
	sim_object_delete(user);
}

struct sim_user_object *sim_user_memory(struct sim_alloc *alloc)
{
	struct sim_user_object *user = sim_object_new(SIM_USER_OBJECT, sizeof(*user));

	user->refs = 1;
	user->addr = alloc->addr;
	user->buffer_id = alloc->buffer_id;
	return user;
}

void sim_user_refs_add(struct sim_user_refs *refs, struct sim_user_object *user,
		       uint32_t count)
{
	for (uint32_t i = 0; i < refs->count; i++) {
		if (refs->at[i].user == user) {
			refs->at[i].refs += count;
			return;
		}
	}
	refs->at =
	    sim_grow(refs->at, &refs->capacity, refs->count + 1, sizeof(*refs->at));
	refs->at[refs->count].user = user;
	refs->at[refs->count++].refs = count;
}

/* As many references more for each object in `from` as it has. */
void sim_user_refs_share(struct sim_user_refs *refs, const struct sim_user_refs *from)
{
	for (uint32_t i = 0; i < from->count; i++) {
		from->at[i].user->refs += from->at[i].refs;
		sim_user_refs_add(refs, from->at[i].user, from->at[i].refs);
	}
}

void sim_user_refs_free(struct sim_user_refs *refs)
{
	for (uint32_t i = 0; i < refs->count; i++)
		user_release(refs->at[i].user, refs->at[i].refs);
	free(refs->at);
	*refs = (struct sim_user_refs){0};
}

static bool user_refs_remove(struct sim_user_refs *refs,
			     const struct sim_user_object *user, uint32_t count)
{
	for (uint32_t i = 0; i < refs->count; i++) {
		if (refs->at[i].user != user || refs->at[i].refs < count)
			continue;
		refs->at[i].refs -= count;
		if (refs->at[i].refs == 0)
			refs->at[i] = refs->at[--refs->count];
		return true;
	}
	return false;
}

/* --- holds ---------------------------------------------------------------- */

struct sim_hold *sim_hold_new(struct sim_user_refs users)
{
	struct sim_hold *hold = sim_calloc(sizeof(*hold));

	hold->refs = 1;
	hold->users = users;
	return hold;
}

struct sim_hold *sim_hold_get(struct sim_hold *hold)
{
	hold->refs++;
	return hold;
}

void sim_hold_launched(struct sim_hold *hold, const struct sim_vc *vc)
{
	sim_vc_join(&hold->vc, vc);
}

void sim_hold_put(struct sim_hold *hold)
{
	if (!hold || --hold->refs > 0)
		return;
	for (uint32_t i = 0; i < hold->users.count; i++)
		sim_vc_join(&hold->users.at[i].user->vc, &hold->vc);
	sim_vc_free(&hold->vc);
	sim_user_refs_free(&hold->users);
	free(hold);
}

/* --- entry points --------------------------------------------------------- */

SIM_ENTRY(cuUserObjectCreate)
{
	struct sim_user_object *user;

	SIM_FAIL_IF(INVALID_VALUE, !object_out || !destroy || initialRefcount == 0 ||
				       initialRefcount > INT32_MAX ||
				       flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
	user = sim_object_new(SIM_USER_OBJECT, sizeof(*user));
	user->refs = initialRefcount;
	user->destroy = destroy;
	user->data = ptr;
	__atomic_fetch_add(&sim.user_objects, 1, __ATOMIC_RELAXED);
	*object_out = (CUuserObject)user;
	return CUDA_SUCCESS;
}

static CUresult user_check(CUuserObject object, unsigned int count,
			   struct sim_user_object **ret_user)
{
	*ret_user = sim_object_check(object, SIM_USER_OBJECT);
	SIM_FAIL_IF(INVALID_VALUE, !*ret_user || count == 0 || count > INT32_MAX);
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuUserObjectRelease)
{
	SIM_GET(sim_user_object, user, user_check, object, count);
	SIM_FAIL_IF(INVALID_VALUE, count > user->refs);
	user_release(user, count);
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuGraphRetainUserObject)
{
	SIM_GET(sim_user_object, user, user_check, object, count);
	struct sim_graph *g = sim_object_check(graph, SIM_GRAPH);

	SIM_FAIL_IF(INVALID_VALUE,
		    !g || (flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE));
	if (!(flags & CU_GRAPH_USER_OBJECT_MOVE))
		user->refs += count;
	sim_user_refs_add(&g->users, user, count);
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuGraphReleaseUserObject)
{
	SIM_GET(sim_user_object, user, user_check, object, count);
	struct sim_graph *g = sim_object_check(graph, SIM_GRAPH);

	SIM_FAIL_IF(INVALID_VALUE, !g || !user_refs_remove(&g->users, user, count));
	user_release(user, count);
	return CUDA_SUCCESS;
}
