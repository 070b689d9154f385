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

/* The codes that the driver returns. What tells of one is its name. */
#define ERROR(name)                                                                    \
	{                                                                              \
		name, #name                                                            \
	}
static const struct {
	CUresult code;
	const char *name;
} errors[] = {ERROR(CUDA_SUCCESS),
	      ERROR(CUDA_ERROR_INVALID_VALUE),
	      ERROR(CUDA_ERROR_OUT_OF_MEMORY),
	      ERROR(CUDA_ERROR_NOT_INITIALIZED),
	      ERROR(CUDA_ERROR_DEINITIALIZED),
	      ERROR(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER),
	      ERROR(CUDA_ERROR_NO_DEVICE),
	      ERROR(CUDA_ERROR_INVALID_DEVICE),
	      ERROR(CUDA_ERROR_INVALID_IMAGE),
	      ERROR(CUDA_ERROR_INVALID_CONTEXT),
	      ERROR(CUDA_ERROR_MAP_FAILED),
	      ERROR(CUDA_ERROR_ALREADY_MAPPED),
	      ERROR(CUDA_ERROR_UNSUPPORTED_LIMIT),
	      ERROR(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED),
	      ERROR(CUDA_ERROR_FILE_NOT_FOUND),
	      ERROR(CUDA_ERROR_OPERATING_SYSTEM),
	      ERROR(CUDA_ERROR_INVALID_HANDLE),
	      ERROR(CUDA_ERROR_ILLEGAL_STATE),
	      ERROR(CUDA_ERROR_NOT_FOUND),
	      ERROR(CUDA_ERROR_NOT_READY),
	      ERROR(CUDA_ERROR_ILLEGAL_ADDRESS),
	      ERROR(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED),
	      ERROR(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED),
	      ERROR(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE),
	      ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED),
	      ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED),
	      ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED),
	      ERROR(CUDA_ERROR_ILLEGAL_INSTRUCTION),
	      ERROR(CUDA_ERROR_LAUNCH_FAILED),
	      ERROR(CUDA_ERROR_NOT_PERMITTED),
	      ERROR(CUDA_ERROR_NOT_SUPPORTED),
	      ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
	      ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
	      ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE),
	      ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED),
	      ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED),
	      ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION),
	      ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT),
	      ERROR(CUDA_ERROR_CAPTURED_EVENT),
	      ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD),
	      ERROR(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE),
	      ERROR(CUDA_ERROR_UNKNOWN)};

static CUresult error_name(CUresult code, const char **ret_name)
{
	SIM_FAIL_IF(INVALID_VALUE, !ret_name);
	*ret_name = NULL;
	for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++)
		if (errors[i].code == code)
			*ret_name = errors[i].name;
	return *ret_name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_FORWARD(cuGetErrorName, error_name(error, pStr))
SIM_FORWARD(cuGetErrorString, error_name(error, pStr))
