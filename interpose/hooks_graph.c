/* SPDX-License-Identifier: MIT */
/*
 * hooks_graph.c - the hooks on what becomes of captured graphs, and on their launches:
 * capture/share.c has to know of every way in which the memory of one that shares could
 * be used. While none may, each costs a few loads.
 */
#include "hooks.h"
#include "process_life.h"
#include "hooks_memory.h"
#include "streams.h"

static bool shares(void)
{
	return gcp_process_pooling() && gcp_tracker_shares(gcp_process.tracker);
}

/* --- instantiation ---------------------------------------------------------------- */

/* With other flags the device can launch it, or it is on its way to the device. */
enum {
	PLAIN_FLAGS = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
		      8 /* USE_NODE_PRIORITY, of CUDA 11.7 */
};

static CUresult instantiated(CUresult result, CUgraph graph, const CUgraphExec *exec,
			     unsigned long long flags)
{
	if (result == CUDA_SUCCESS && exec && shares())
		gcp_share_instantiated(gcp_process.tracker, graph, *exec,
				       (flags & ~(unsigned long long)PLAIN_FLAGS) == 0);
	return result;
}

CUresult gcp_hook_cuGraphInstantiate(CUgraphExec *ret_exec, CUgraph graph,
				     CUgraphNode *ret_node, char *log, size_t bytes)
{
	return instantiated(
	    gcp_real.cuGraphInstantiate(ret_exec, graph, ret_node, log, bytes), graph,
	    ret_exec, 0);
}

CUresult gcp_hook_cuGraphInstantiate_v2(CUgraphExec *ret_exec, CUgraph graph,
					CUgraphNode *ret_node, char *log, size_t bytes)
{
	return instantiated(
	    gcp_real.cuGraphInstantiate_v2(ret_exec, graph, ret_node, log, bytes),
	    graph, ret_exec, 0);
}

CUresult gcp_hook_cuGraphInstantiateWithFlags(CUgraphExec *ret_exec, CUgraph graph,
					      unsigned long long flags)
{
	return instantiated(
	    gcp_real.cuGraphInstantiateWithFlags(ret_exec, graph, flags), graph,
	    ret_exec, flags);
}

/* CUDA_GRAPH_INSTANTIATE_PARAMS begins with the flags. */
static unsigned long long flags_of(const void *parameters)
{
	return parameters ? *(const cuuint64_t *)parameters : 0;
}

CUresult gcp_hook_cuGraphInstantiateWithParams(CUgraphExec *ret_exec, CUgraph graph,
					       void *parameters)
{
	unsigned long long flags = flags_of(parameters);

	return instantiated(
	    gcp_real.cuGraphInstantiateWithParams(ret_exec, graph, parameters), graph,
	    ret_exec, flags);
}

CUresult gcp_hook_cuGraphInstantiateWithParams_ptsz(CUgraphExec *ret_exec,
						    CUgraph graph, void *parameters)
{
	unsigned long long flags = flags_of(parameters);

	return instantiated(
	    gcp_real.cuGraphInstantiateWithParams_ptsz(ret_exec, graph, parameters),
	    graph, ret_exec, flags);
}

/* --- ends ------------------------------------------------------------------------ */

CUresult gcp_hook_cuGraphDestroy(CUgraph graph)
{
	uint64_t share = 0;
	CUresult result;

	if (shares())
		share = gcp_share_graph_ending(gcp_process.tracker, graph);
	result = gcp_real.cuGraphDestroy(graph);
	if (share)
		gcp_share_graph_ended(gcp_process.tracker, share,
				      result == CUDA_SUCCESS);
	return result;
}

CUresult gcp_hook_cuGraphExecDestroy(CUgraphExec exec)
{
	uint64_t share = 0;
	CUresult result;

	if (shares())
		share = gcp_share_exec_ending(gcp_process.tracker, exec);
	result = gcp_real.cuGraphExecDestroy(exec);
	if (share)
		gcp_share_exec_ended(gcp_process.tracker, share,
				     result == CUDA_SUCCESS);
	return result;
}

/* The executable runs another graph from now on, in memory of its own: it never comes
 * back to the memory that it shared. Launches on their way do not change. */
static uint64_t update_begins(CUgraphExec exec, CUgraph graph)
{
	if (!shares())
		return 0;
	gcp_share_graph_taken(gcp_process.tracker, graph);
	return gcp_share_exec_ending(gcp_process.tracker, exec);
}

static CUresult updated(CUresult result, uint64_t share)
{
	if (share)
		gcp_share_exec_ended(gcp_process.tracker, share,
				     result == CUDA_SUCCESS);
	return result;
}

CUresult gcp_hook_cuGraphExecUpdate(CUgraphExec exec, CUgraph graph,
				    CUgraphNode *ret_node, void *ret_result)
{
	uint64_t share = update_begins(exec, graph);

	return updated(gcp_real.cuGraphExecUpdate(exec, graph, ret_node, ret_result),
		       share);
}

CUresult gcp_hook_cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
				       void *ret_result)
{
	uint64_t share = update_begins(exec, graph);

	return updated(gcp_real.cuGraphExecUpdate_v2(exec, graph, ret_result), share);
}

/* --- other uses -------------------------------------------------------------- */

static void graph_taken(CUgraph graph)
{
	if (shares())
		gcp_share_graph_taken(gcp_process.tracker, graph);
}

#define GCP_X(name, base, version, flags, need, parameters, arguments)                 \
	CUresult gcp_hook_##name parameters                                            \
	{                                                                              \
		graph_taken(graph);                                                    \
		return gcp_real.name arguments;                                        \
	}
GCP_HOOKS_GRAPH_TAKEN(GCP_X)
#undef GCP_X

#define GCP_X(name, base, version, flags, need, types, arguments)                      \
	CUresult gcp_hook_##name types                                                 \
	{                                                                              \
		graph_taken(NULL);                                                     \
		return gcp_real.name arguments;                                        \
	}
GCP_HOOKS_NODES_TAKEN(GCP_X)
#undef GCP_X

/* --- launches ---------------------------------------------------------------- */

enum { TRIES = 3 };

static CUresult launch_begin(CUgraphExec exec, CUstream stream,
			     struct gcp_launch *launch)
{
	int result, tries = 0;

	*launch = (struct gcp_launch){.share = 0};
	if (!shares())
		return CUDA_SUCCESS;
	/* What a try has made and could not map is given back, too: that is no reason
	 * to try for ever. */
	do
		result = gcp_launch_begin(gcp_process.tracker, exec, stream, launch);
	while (result == GCP_CUDA_OUT_OF_MEMORY && ++tries < TRIES &&
	       gcp_launch_reclaims(result));
	return result < 0 ? CUDA_ERROR_OUT_OF_MEMORY : (CUresult)result;
}

static CUresult launch(CUresult (*real)(CUgraphExec, CUstream), CUgraphExec exec,
		       CUstream stream, bool per_thread)
{
	struct gcp_launch launch;
	CUresult result;
	bool mine;
	int cancel = gcp_graph_turn_begin(&mine);

	result = launch_begin(exec, gcp_stream_named(stream, per_thread), &launch);
	if (launch.share == 0)
		gcp_graph_turn_end(&mine, cancel);
	if (result == CUDA_SUCCESS)
		result = gcp_stream_submits(stream, per_thread);
	if (result == CUDA_SUCCESS)
		result = real(exec, stream);
	if (launch.share)
		gcp_launch_end(gcp_process.tracker, exec, &launch, (int)result);
	gcp_graph_turn_end(&mine, cancel);
	return result;
}

CUresult gcp_hook_cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	return launch(gcp_real.cuGraphLaunch, exec, stream, false);
}

CUresult gcp_hook_cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
	return launch(gcp_real.cuGraphLaunch_ptsz, exec, stream, true);
}
