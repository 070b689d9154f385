/* first version: no captures yet */
#include "sim.h"
#include <stdlib.h>
CUresult sim_capture_unsafe(void)
{
	return CUDA_SUCCESS;
}
CUresult sim_capture_conflict(struct sim_ctx *ctx)
{
	(void)ctx;
	return CUDA_SUCCESS;
}
CUresult sim_capture_implicit(struct sim_ctx *ctx, bool query)
{
	(void)ctx;
	(void)query;
	return CUDA_SUCCESS;
}
CUresult sim_capture_work(struct sim_stream *s, const struct sim_work *w)
{
	(void)s;
	(void)w;
	return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult sim_capture_record(struct sim_stream *s, struct sim_event *e)
{
	(void)s;
	(void)e;
	return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult sim_capture_wait(struct sim_stream *s, struct sim_event *e)
{
	(void)s;
	(void)e;
	return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult sim_capture_refuse(struct sim_stream *s)
{
	(void)s;
	return CUDA_ERROR_NOT_SUPPORTED;
}
void sim_capture_stream_gone(struct sim_stream *s)
{
	(void)s;
}
CUresult sim_capture_alloc(struct sim_stream *s, uint64_t b, CUdeviceptr *r)
{
	(void)s;
	(void)b;
	(void)r;
	return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult sim_capture_free(struct sim_stream *s, struct sim_alloc *a)
{
	(void)s;
	(void)a;
	return CUDA_ERROR_NOT_SUPPORTED;
}
void sim_nodes_clear(struct sim_nodes *nodes)
{
	free(nodes->at);
	*nodes = (struct sim_nodes){0};
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	struct sim_thread *self = sim_thread_self();
	CUstreamCaptureMode old = self->mode;
	SIM_ENTER(cuThreadExchangeStreamCaptureMode);
	self->mode = *mode;
	*mode = old;
	return CUDA_SUCCESS;
}
