/* SPDX-License-Identifier: MIT */
/*
 * lookup.c - initialisation, versions, error names, and the table that
 * cuGetProcAddress answers from.
 *
 * Entry points only. None of them needs the big lock but cuInit, which makes
 * the devices.
 */
#include "sim.h"

/* --- the table ------------------------------------------------------------------- */

struct row {
	const char *name;
	int since;
	enum sim_fn fn;
	void *legacy, *per_thread; /* per_thread: NULL if it has no twin */
};

static const struct row rows[] = {
#define SIM_F(name, since, symbol)                                                     \
	{#name, since, SIM_FN_##symbol, (void *)symbol, NULL},
#define SIM_S(name, since, symbol, per)                                                \
	{#name, since, SIM_FN_##symbol, (void *)symbol, (void *)per},
    SIM_TABLE(SIM_F, SIM_S)
#undef SIM_F
#undef SIM_S
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

const char *gcpsim_entry(int index)
{
	static const char *const names[] = {
#define SIM_F(name, since, symbol)      #symbol,
#define SIM_S(name, since, symbol, per) #symbol, #per,
	    SIM_TABLE(SIM_F, SIM_S) NULL
#undef SIM_F
#undef SIM_S
	};

	return index >= 0 && index < (int)(sizeof(names) / sizeof(names[0]))
		   ? names[index]
		   : NULL;
}

/* The newest row of `name` that version `version` knows. *ret_known says
 * whether there is one of any version. */
static const struct row *row_find(const char *name, int version, bool *ret_known)
{
	const struct row *best = NULL;

	*ret_known = false;
	for (int i = 0; i < ROWS; i++) {
		if (strcmp(rows[i].name, name) != 0)
			continue;
		if (rows[i].since > sim.driver_version)
			continue;
		*ret_known = true;
		if (rows[i].since <= version && (!best || rows[i].since >= best->since))
			best = &rows[i];
	}
	return best;
}

static CUresult lookup(const char *symbol, void **pfn, int version, cuuint64_t flags,
		       CUdriverProcAddressQueryResult *ret_status)
{
	CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
	const struct row *row;
	bool known, per_thread;

	SIM_FAIL_IF(INVALID_VALUE,
		    !symbol || !pfn || (flags & ~3ull) || version > sim.driver_version);
	*pfn = NULL;
	row = row_find(symbol, version, &known);
	per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
	if (row)
		*pfn = per_thread && row->per_thread ? row->per_thread : row->legacy;
	else
		status = known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
			       : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	if (ret_status)
		*ret_status = status;
	return CUDA_SUCCESS;
}

SIM_FORWARD(cuGetProcAddress_v2, lookup(symbol, pfn, cudaVersion, flags, symbolStatus))

/* The form of CUDA 11 has no status: what is not there is an error. */
SIM_ENTRY(cuGetProcAddress)
{
	SIM_TRY(lookup(symbol, pfn, cudaVersion, flags, NULL));
	return *pfn ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* --- life ------------------------------------------------------------------------- */

SIM_ENTRY(cuInit)
{
	SIM_FAIL_IF(INVALID_VALUE, Flags != 0);
	SIM_FAIL_IF(NOT_INITIALIZED, sim.forked);
	SIM_FAIL_IF(DEINITIALIZED, __atomic_load_n(&sim.exited, __ATOMIC_RELAXED));
	SIM_FAIL_IF(NO_DEVICE, sim.devices == 0);
	sim_lock();
	if (!sim.initialized) {
		sim_control_init();
		__atomic_store_n(&sim.initialized, true, __ATOMIC_RELEASE);
	}
	sim_unlock();
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuDriverGetVersion)
{
	SIM_FAIL_IF(INVALID_VALUE, !driverVersion);
	*driverVersion = sim.driver_version;
	return CUDA_SUCCESS;
}

/* --- errors --------------------------------------------------------------- */

#define SIM_ERRORS(X)                                                                  \
	X(CUDA_SUCCESS, "no error")                                                    \
	X(CUDA_ERROR_INVALID_VALUE, "invalid argument")                                \
	X(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")                                   \
	X(CUDA_ERROR_NOT_INITIALIZED, "initialization error")                          \
	X(CUDA_ERROR_DEINITIALIZED, "driver shutting down")                            \
	X(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER,                                       \
	  "API call is not supported in the installed CUDA driver")                    \
	X(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected")                  \
	X(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal")                         \
	X(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid")                  \
	X(CUDA_ERROR_INVALID_CONTEXT, "invalid device context")                        \
	X(CUDA_ERROR_MAP_FAILED, "mapping of buffer object failed")                    \
	X(CUDA_ERROR_ALREADY_MAPPED, "resource already mapped")                        \
	X(CUDA_ERROR_UNSUPPORTED_LIMIT, "limit is not supported on this architecture") \
	X(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,                                          \
	  "peer access is not supported between these two devices")                    \
	X(CUDA_ERROR_FILE_NOT_FOUND, "file not found")                                 \
	X(CUDA_ERROR_OPERATING_SYSTEM,                                                 \
	  "OS call failed or operation not supported on this OS")                      \
	X(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle")                        \
	X(CUDA_ERROR_ILLEGAL_STATE,                                                    \
	  "the operation cannot be performed in the present state")                    \
	X(CUDA_ERROR_NOT_FOUND, "named symbol not found")                              \
	X(CUDA_ERROR_NOT_READY, "device not ready")                                    \
	X(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered")      \
	X(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled")    \
	X(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled")      \
	X(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE,                                           \
	  "cannot set while device is active in this process")                         \
	X(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed")                     \
	X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,                                   \
	  "part or all of the requested memory range is already mapped")               \
	X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,                                       \
	  "pointer does not correspond to a registered memory region")                 \
	X(CUDA_ERROR_ILLEGAL_INSTRUCTION, "an illegal instruction was encountered")    \
	X(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure")                      \
	X(CUDA_ERROR_NOT_PERMITTED, "operation not permitted")                         \
	X(CUDA_ERROR_NOT_SUPPORTED, "operation not supported")                         \
	X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,                                       \
	  "operation not permitted when stream is capturing")                          \
	X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,                                       \
	  "operation failed due to a previous error during capture")                   \
	X(CUDA_ERROR_STREAM_CAPTURE_MERGE,                                             \
	  "operation would result in a merge of separate capture sequences")           \
	X(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,                                         \
	  "capture was not ended in the same stream as it began")                      \
	X(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work")    \
	X(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,                                         \
	  "dependency created on uncaptured work in another stream")                   \
	X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,                                          \
	  "operation would make the legacy stream depend on a capturing blocking "     \
	  "stream")                                                                    \
	X(CUDA_ERROR_CAPTURED_EVENT,                                                   \
	  "operation not permitted on an event last recorded in a capturing stream")   \
	X(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,                                      \
	  "attempt to terminate a thread-local capture sequence from another thread")  \
	X(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,                                        \
	  "the graph update was not performed because it included changes which "      \
	  "violated constraints specific to instantiated graph update")                \
	X(CUDA_ERROR_UNKNOWN, "unknown error")

SIM_ENTRY(cuGetErrorName)
{
	SIM_FAIL_IF(INVALID_VALUE, !pStr);
	*pStr = NULL;
#define SIM_X(code, text)                                                              \
	if (error == code)                                                             \
		*pStr = #code;
	SIM_ERRORS(SIM_X)
#undef SIM_X
	return *pStr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_ENTRY(cuGetErrorString)
{
	SIM_FAIL_IF(INVALID_VALUE, !pStr);
	*pStr = NULL;
#define SIM_X(code, text)                                                              \
	if (error == code)                                                             \
		*pStr = text;
	SIM_ERRORS(SIM_X)
#undef SIM_X
	return *pStr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
