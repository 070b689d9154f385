/* SPDX-License-Identifier: MIT */
/*
 * hooks_graph.c - the hooks on what becomes of captured graphs, and on their launches.
 * capture/holders.c has to know of all that can run on the memory of a graph, and
 * capture/share.c of every way in which the memory of one that shares could be used.
 * While no graph has memory, each costs a few loads.
 *
 * What is made of a graph holds its memory before the real call, and what a real call
 * ends until after it.
 */
#include <string.h>

#include "../cuda/cuda_vmm.h"
#include "../cuda/foreign_work.h"
#include "hooks.h"
#include "../process/process_life.h"
#include "hooks_memory.h"
#include "../cuda/streams.h"

#define WORD(n) GCP_WORD(words, n)

/* Memory that a node copies may not be open to the device yet. */
static CUresult graph_call(const struct gcp_call_words *words)
{
	return gcp_copy_again(gcp_words_call(words), words);
}

static bool shares(void)
{
	return gcp_process_pooling() && gcp_tracker_shares(gcp_process.tracker);
}

/* Graphs may have got memory of their own; else a call is refused. One whose context is
 * gone needs none. */
static CUresult owned(int result)
{
	if (result == -ENOMEM)
		return CUDA_ERROR_OUT_OF_MEMORY;
	return result > 0 ? (CUresult)result : CUDA_SUCCESS;
}

/* Something is about to be made of the graph. One of gcp_holding_... takes the result.
 */
static CUresult holding_begin(const struct gcp_call_words *words, CUgraph graph,
			      enum gcp_making making, struct gcp_holder **ret_holding)
{
	*ret_holding = NULL;
	return GCP_AGAIN(owned(gcp_holding_begin(gcp_process.tracker, graph, false,
						 making, ret_holding)),
			 .maker = words->base);
}

static CUresult holding_new(CUresult result, struct gcp_holder *holding,
			    const void *handle, bool is_exec)
{
	if (result != CUDA_SUCCESS)
		gcp_holding_add(gcp_process.tracker, holding, NULL, is_exec);
	else
		gcp_holding_new(gcp_process.tracker, holding, handle, is_exec);
	return result;
}

static CUresult node_read(const struct gcp_call_words *words)
{
	return GCP_AGAIN(owned(gcp_share_read(gcp_process.tracker, false)),
			 .maker = words->base);
}

/* --- executables ------------------------------------------------------------------ */

/* With other flags the device can launch it. */
enum {
	PLAIN_FLAGS = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
		      2 /* UPLOAD, as a call of cuGraphUpload */ |
		      8 /* USE_NODE_PRIORITY, of CUDA 11.7 */
};

/* Of a graph that an executable is about to be made of, or updated to. Its flags are a
 * parameter, CUDA_GRAPH_INSTANTIATE_PARAMS begins with them, or CUDA knows them. */
static enum gcp_making making_of(const struct gcp_call_words *words)
{
	cuuint64_t flags = 0;

	if (strstr(words->base, "WithFlags"))
		flags = words->at[2];
	else if (strstr(words->base, "WithParams") && WORD(2))
		flags = *(const cuuint64_t *)WORD(2);
	else if (strstr(words->base, "Update") &&
		 gcp_real.cuGraphExecGetFlags(WORD(0), &flags) != CUDA_SUCCESS)
		flags = UINT64_MAX;
	return flags & ~(cuuint64_t)PLAIN_FLAGS ? GCP_MAKING_UNSEEN : GCP_MAKING_EXEC;
}

/* CUDA looks at the addresses of copies, which may be mapped nowhere. Returns true if
 * they are mapped now: the call is to be made again, but not for ever, for another
 * thread may move them meanwhile. *result: the call's, or that there is no memory. */
static bool is_mapped_now(CUresult *result, const struct gcp_holder *holding,
			  int *looks)
{
	CUresult mapped;
	bool any;

	assert(*looks >= 0 && *looks <= 4); /* it ends */
	if (*result != CUDA_ERROR_INVALID_VALUE || !holding || !shares() ||
	    (*looks)++ == 4)
		return false;
	mapped = GCP_AGAIN(owned(gcp_share_look(gcp_process.tracker, holding, &any)),
			   .maker = "cuGraphInstantiate");
	if (mapped != CUDA_SUCCESS)
		*result = mapped;
	return any && mapped == CUDA_SUCCESS;
}

/* An executable is made of the graph, or runs it in place of another one from now on:
 * launches on their way do not change. Made again where CUDA looks at addresses that
 * are mapped nowhere. What an update that failed has changed is not known; made again,
 * it sets the same once more. */
static CUresult exec_make(const struct gcp_call_words *words)
{
	bool updates = strcmp(words->base, "cuGraphExecUpdate") == 0;
	struct gcp_holder *holding;
	CUresult result = holding_begin(words, WORD(1), making_of(words), &holding);
	int looks = 0;

	if (result != CUDA_SUCCESS)
		return result;
	do
		result = GCP_AGAIN(gcp_words_call(words), .maker = words->base);
	while (is_mapped_now(&result, holding, &looks));
	result = gcp_copy_again(result, words);
	if (result != CUDA_SUCCESS) /* it may name a node */
		gcp_share_listed(gcp_process.tracker, WORD(1));
	if (result == CUDA_SUCCESS || !updates)
		return holding_new(
		    result, holding,
		    updates || result ? WORD(0) : *(CUgraphExec *)WORD(0), true);
	gcp_holding_add(gcp_process.tracker, holding, WORD(0), true);
	return result;
}

/* --- ends ------------------------------------------------------------------------ */

static CUresult end(const struct gcp_call_words *words, bool is_exec)
{
	struct gcp_holder *holder =
	    gcp_holder_ending(gcp_process.tracker, WORD(0), is_exec);
	CUresult result;

	assert(!holder || WORD(0)); /* Y7 */
	result = gcp_words_call(words);
	gcp_holding_add(gcp_process.tracker, holder, result ? WORD(0) : NULL, is_exec);
	return result;
}

/* --- graphs made of graphs ------------------------------------------------------ */

/* After a call that adds a node: to a graph that is being captured, maybe. */
static CUresult node_follows(CUresult result, CUgraph graph, const CUgraphNode *node)
{
	if (result != CUDA_SUCCESS || !gcp_process_capturing())
		return result;
	result = (CUresult)gcp_tracker_node_added(gcp_process.tracker, graph, *node);
	if (result != CUDA_SUCCESS)
		(void)gcp_real.cuGraphDestroyNode(*node);
	return result;
}

/* --- nodes of any kind ------------------------------------------------------------ */

/* Nodes of other types have no graph in them, as far as is known. */
enum {
	TYPE_KNOWN = CU_GRAPH_NODE_TYPE_CONDITIONAL,
	OWNERSHIP_MOVE = 1,
	SINCE_MOVE = 12090
};

static CUgraph child_of(const CUgraphNodeParams *params)
{
	return params && params->type == CU_GRAPH_NODE_TYPE_GRAPH ? params->graph.graph
								  : NULL;
}

/* Of a node that a program describes, and a graph that it puts there. One of a type
 * that is not known may have any graph in it. */
static CUresult node_begin(const struct gcp_call_words *words,
			   const CUgraphNodeParams *params, CUgraph graph,
			   enum gcp_making making, struct gcp_holder **ret_holding)
{
	CUresult result = CUDA_SUCCESS;

	*ret_holding = NULL;
	if (params && (unsigned int)params->type > TYPE_KNOWN) {
		gcp_share_listed(gcp_process.tracker, NULL);
		result = node_read(words);
	}
	return result ?: holding_begin(words, graph, making, ret_holding);
}

/* The graph itself becomes a part of the other one, and not a copy. NULL: none does. */
static CUgraph moved_of(const CUgraphNodeParams *params)
{
	/* Behind the graph, in headers since CUDA 12.9. */
	const int *ownership = params ? (const int *)(&params->graph.graph + 1) : NULL;
	int version = 0;

	if (!child_of(params) || *ownership != OWNERSHIP_MOVE ||
	    (gcp_real.cuDriverGetVersion(&version) == CUDA_SUCCESS &&
	     version < SINCE_MOVE))
		return NULL;
	return child_of(params);
}

/* `part` is embedded in `parent`; NULL: in a graph that is not known. */
static void part_known(CUgraph parent, CUgraph part, bool moved)
{
	if (part)
		gcp_graph_part(gcp_process.tracker, parent, part, moved);
}

static void bodies_known(CUgraph parent, const CUgraphNodeParams *params)
{
	if (params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL &&
	    params->conditional.phGraph_out)
		for (unsigned int i = 0; i < params->conditional.size; i++)
			part_known(parent, params->conditional.phGraph_out[i], false);
}

/* Addresses that the program names may be another graph's: a graph that a node is added
 * to is held. */
static CUresult node_add(const struct gcp_call_words *words)
{
	CUgraph parent = WORD(1), child;
	const CUgraphNodeParams *params = NULL;
	struct gcp_holder *holding;
	CUresult result;

	if (strcmp(words->base, "cuGraphAddNode") == 0)
		params = WORD(strstr(words->name, "_v2") ? 5 : 4);
	child = strstr(words->base, "Child") ? WORD(4) : child_of(params);
	result = node_begin(words, params, child,
			    child ? GCP_MAKING_COPY : GCP_MAKING_NODE, &holding);
	result = node_follows(result ?: graph_call(words), parent, WORD(0));
	assert(result != CUDA_SUCCESS || !holding || parent); /* Y3 */
	gcp_holding_add(gcp_process.tracker, holding, result ? NULL : parent, false);
	if (result == CUDA_SUCCESS && params) {
		part_known(parent, moved_of(params), true);
		bodies_known(parent, params);
	}
	return result;
}

/* The library knows the executable in which a node is set (of_exec), but not the graph
 * that a node belongs to. */
static CUresult node_set(const struct gcp_call_words *words, bool of_exec)
{
	bool names = strstr(words->base, "Child");
	const CUgraphNodeParams *params = names ? NULL : WORD(of_exec ? 2 : 1);
	CUgraph child = names ? WORD(2) : child_of(params);
	struct gcp_holder *holding;
	CUresult result = node_begin(words, params, child, GCP_MAKING_UNSEEN, &holding);

	result = result ?: graph_call(words);
	if (of_exec && child) {
		gcp_holding_set(gcp_process.tracker, holding, WORD(0), WORD(1),
				result == CUDA_SUCCESS);
		return result;
	}
	gcp_holding_keep(gcp_process.tracker, holding);
	if (result == CUDA_SUCCESS && !of_exec)
		part_known(NULL, moved_of(params), false);
	return result;
}

/* The program learns what a node works on. */
static CUresult node_tell(const struct gcp_call_words *words)
{
	const void *told = WORD(1);
	CUresult result = node_read(words) ?: gcp_words_call(words);

	if (result != CUDA_SUCCESS || !told)
		return result;
	if (strcmp(words->base, "cuGraphChildGraphNodeGetGraph") == 0)
		part_known(NULL, *(const CUgraph *)told, false);
	if (strcmp(words->base, "cuGraphNodeGetParams") == 0) {
		part_known(NULL, child_of(told), false);
		bodies_known(NULL, told);
	}
	return result;
}

/* Told from the first call on: what is captured into a graph later its parents hold. */
CUresult gcp_graph_call(const struct gcp_call_words *words)
{
	const char *form = words->base + strlen("cuGraph");
	struct gcp_holder *holding;
	CUresult result;
	GCP_CANCEL_LATER;

	if (gcp_process_started_mode() != GCP_RUN_POOL)
		return gcp_words_call(words);
	assert(gcp_process.tracker);
	if (strncmp(form, "Add", 3) == 0)
		return node_add(words);
	if (strncmp(form, "Instantiate", 11) == 0 || strcmp(form, "ExecUpdate") == 0)
		return exec_make(words);
	if (strstr(form, "Destroy"))
		return end(words, *form == 'E');
	if (strstr(form, "NodeGet"))
		return node_tell(words);
	if (strstr(form, "NodeSet") && !strstr(form, "Memcpy"))
		return node_set(words, *form == 'E');
	if (*form == 'C') { /* Create, Clone */
		result = holding_begin(words, form[1] == 'l' ? WORD(1) : NULL,
				       GCP_MAKING_COPY, &holding);
		result = result ?: gcp_words_call(words);
		return holding_new(result, holding, result ? NULL : *(CUgraph *)WORD(0),
				   false);
	}
	if (strncmp(form, "Get", 3) == 0 && WORD(1)) /* else CUDA only counts */
		gcp_share_listed(gcp_process.tracker, WORD(0));
	return graph_call(words);
}

/* --- launches ---------------------------------------------------------------- */

typedef CUresult gcp_graph_launch(CUgraphExec exec, CUstream stream);

/* The real launch. An event stands behind it where it is away: it may run on memory
 * which is ordered by fences of another context (those of a primary context cover its
 * green ones). For that event the memory waits once nothing holds it; without one the
 * memory of all graphs stays. Once memory is open to all devices it may copy between
 * them, and counts for all contexts. */
static CUresult launch_real(gcp_graph_launch *real, CUgraphExec exec, CUstream stream,
			    CUstream named)
{
	CUcontext ctx = NULL;
	bool away, copies = gcp_vmm_is_everywhere();
	CUresult result;

	if (gcp_contexts_are_several() && gcp_process_pooling() &&
	    (copies || gcp_tracker_holds(gcp_process.tracker)) &&
	    !gcp_stream_captures(named))
		ctx = gcp_stream_context(named);
	away = ctx && gcp_exec_is_away(gcp_process.tracker, exec, ctx, NULL) &&
	       gcp_exec_is_away(gcp_process.tracker, exec, ctx,
				gcp_contexts_home_of(ctx) ?: ctx);
	result = real(exec, stream);
	if (result != CUDA_SUCCESS || !ctx)
		return result;
	if (copies)
		(void)gcp_foreign_work_submitted(ctx, named, NULL, 0);
	else if (away && !gcp_foreign_work_note(ctx, named, &(CUcontext){NULL}, 1))
		gcp_graphs_keep(gcp_process.tracker, false); /* Y8 */
	return result;
}

/* Into a stream that captures it puts a copy of the graph into the captured one. */
static CUresult launch_once(gcp_graph_launch *real, CUgraphExec exec, CUstream stream,
			    CUstream named)
{
	struct gcp_launch launch = {.graph = NULL};
	CUresult result;
	bool guarded = exec && shares();
	GCP_CANCEL_LATER;

	gcp_stream_seen(named);
	result =
	    guarded ? owned(gcp_launch_begin(gcp_process.tracker, exec, named, &launch))
		    : CUDA_SUCCESS;
	result = result ?: gcp_stream_submits(named);
	if (result == CUDA_SUCCESS && gcp_process_capturing() &&
	    gcp_stream_capturable(named) &&
	    gcp_graph_launched(gcp_process.tracker, gcp_stream_context(named), named,
			       exec) != 0)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	result = result ?: launch_real(real, exec, stream, named);
	assert(!launch.graph || guarded);      /* X10: cancelled, its end is not told */
	assert(!launch.event || launch.graph); /* X1 */
	if (launch.graph)
		gcp_launch_end(gcp_process.tracker, &launch, (int)result);
	return result;
}

/* An executable takes memory at its first launch, and for its memory nodes at each:
 * before anything of it runs. */
static CUresult launch(gcp_graph_launch *real, CUgraphExec exec, CUstream stream,
		       CUstream named)
{
	CUresult result = launch_once(real, exec, stream, named);

	if (result == CUDA_SUCCESS)
		return result;
	struct gcp_tries tries = {.launch = true};
	while (gcp_copy_opens(result) || gcp_again(&tries, result))
		result = launch_once(real, exec, stream, named);
	return result;
}

#define HOOK_cuGraphLaunch(real, call, twin)                                           \
	launch(real, exec, stream, gcp_stream_named(stream, twin))
GCP_HOOKS_GRAPH_LAUNCHES(GCP_HOOK)
