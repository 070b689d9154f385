/* SPDX-License-Identifier: MIT */
/*
 * handles_table.c - see handles_table.h. Constant data, and what looks through it.
 *
 * Sources: the headers of CUDA 13.0 (cublas_api.h, cublasLt.h, cusolverDn.h,
 * cusolverSp.h, cusparse.h) and cuDNN 9, and what the libraries export beyond them.
 * cublasSetWorkspace has no getter: cublasSetStream "unconditionally resets the
 * cuBLAS library workspace back to the default workspace pool" (cuBLAS manual, 2.4.7),
 * hence `always`. cublasSetEnvironmentMode is in no header; cuSOLVER calls it. It sets
 * a field of the handle, which cublasGetEnvironmentMode reads (CUDA 13.0).
 */
#include <string.h>

#include "handles_table.h"

#define SETTING(prefix, what) .getter = prefix "Get" what, .setter = prefix "Set" what
#define VALUE(prefix, what)                                                            \
	{                                                                              \
		SETTING(prefix, what)                                                  \
	}
#define POINTER(prefix, what)                                                          \
	{                                                                              \
		SETTING(prefix, what), .pointer = true                                 \
	}
#define STREAM(prefix, what)                                                           \
	{                                                                              \
		SETTING(prefix, what), .pointer = true, .required = true               \
	}

/* Of vectors and matrices in memory, of the process (logger, backdoor), of the one
 * handle of the legacy API (kernel stream), of cublasXt's own handles; and the
 * workspace, which setting the stream sets back. */
static const char *const cublas_others[] = {
    "cublasSetWorkspace_v2",   "cublasSetVector*",  "cublasSetMatrix*",
    "cublasSetLoggerCallback", "cublasSetBackdoor", "cublasSetBackdoorEx",
    "cublasSetKernelStream",   "cublasXtSet*",      NULL,
};

/* Of descriptors and of the process. */
static const char *const cublaslt_others[] = {
    "cublasLtEmulationDescSetAttribute",
    "cublasLtMatmulAlgoConfigSetAttribute",
    "cublasLtMatmulDescSetAttribute",
    "cublasLtMatmulPreferenceSetAttribute",
    "cublasLtMatrixLayoutSetAttribute",
    "cublasLtMatrixTransformDescSetAttribute",
    "cublasLtHeuristicsCacheSetCapacity",
    "cublasLtLoggerSet*",
    "cublasLtSetEnvironmentMode",
    "cublasLtDisableCpuInstructionsSetMask",
    NULL,
};

/* Of descriptors, of tensors in memory (cudnnSetTensor) and of the process. */
static const char *const cudnn_others[] = {
    "cudnnBackendSetAttribute",
    "cudnnRNNSetClip*",
    "cudnnSetActivationDescriptor*",
    "cudnnSetAlgorithmDescriptor",
    "cudnnSetAttnDescriptor",
    "cudnnSetBackdoor",
    "cudnnSetBackdoorEx",
    "cudnnSetCTCLossDescriptor*",
    "cudnnSetCallback",
    "cudnnSetConvolution2dDescriptor",
    "cudnnSetConvolutionGroupCount",
    "cudnnSetConvolutionMathType",
    "cudnnSetConvolutionNdDescriptor",
    "cudnnSetConvolutionReorderType",
    "cudnnSetDropoutDescriptor",
    "cudnnSetFilter4dDescriptor",
    "cudnnSetFilterNdDescriptor",
    "cudnnSetFusedOpsConstParamPackAttribute",
    "cudnnSetFusedOpsVariantParamPackAttribute",
    "cudnnSetLRNDescriptor",
    "cudnnSetOpTensorDescriptor",
    "cudnnSetPooling2dDescriptor",
    "cudnnSetPoolingNdDescriptor",
    "cudnnSetRNNDataDescriptor",
    "cudnnSetRNNDescriptor*",
    "cudnnSetReduceTensorDescriptor",
    "cudnnSetSeqDataDescriptor",
    "cudnnSetSpatialTransformerNdDescriptor",
    "cudnnSetTensor",
    "cudnnSetTensor4dDescriptor",
    "cudnnSetTensor4dDescriptorEx",
    "cudnnSetTensorNdDescriptor",
    "cudnnSetTensorNdDescriptorEx",
    "cudnnSetTensorTransformDescriptor",
    NULL,
};

/* Of parameter objects, of the process, and of the library's other handles. */
static const char *const cusolverdn_others[] = {
    "cusolverDnIRSParamsSet*",
    "cusolverDnLoggerSet*",
    "cusolverDnSetAdvOptions",
    "cusolverDnXgesvdjSet*",
    "cusolverDnXsyevjSet*",
    "cusolverSp*",
    "cusolverRf*",
    NULL,
};

static const char *const cusolversp_others[] = {
    "cusolverSpXsnluSetReorder",
    "cusolverDn*",
    "cusolverRf*",
    NULL,
};

/* Of matrices and vectors, their descriptors, and of the process. */
static const char *const cusparse_others[] = {
    "cusparseBsrSetStridedBatch",   "cusparseCooSetPointers",
    "cusparseCooSetStridedBatch",   "cusparseCscSetPointers",
    "cusparseCsrSetPointers",       "cusparseCsrSetStridedBatch",
    "cusparseDnMatSetStridedBatch", "cusparseDnMatSetValues",
    "cusparseDnVecSetValues",       "cusparseLoggerSet*",
    "cusparseSetMatDiagType",       "cusparseSetMatFillMode",
    "cusparseSetMatIndexBase",      "cusparseSetMatType",
    "cusparseSpMatSetAttribute",    "cusparseSpMatSetValues",
    "cusparseSpVecSetValues",       NULL,
};

const struct gcp_handle_kind gcp_handle_kinds[GCP_HANDLE_KINDS] = {
    [GCP_HANDLE_CUBLAS] =
	{
	    .name = "cublas",
	    .prefix = "cublas",
	    .invalid = 1, /* CUBLAS_STATUS_NOT_INITIALIZED */
	    .settings =
		{
		    {SETTING("cublas", "Stream_v2"), .pointer = true, .required = true,
		     .always = true},
		    VALUE("cublas", "PointerMode_v2"),
		    VALUE("cublas", "AtomicsMode"),
		    VALUE("cublas", "MathMode"),
		    VALUE("cublas", "SmCountTarget"),
		    VALUE("cublas", "EmulationStrategy"),
		    VALUE("cublas", "EmulationSpecialValuesSupport"),
		    VALUE("cublas", "FixedPointEmulationMantissaControl"),
		    VALUE("cublas", "FixedPointEmulationMaxMantissaBitCount"),
		    VALUE("cublas", "FixedPointEmulationMantissaBitOffset"),
		    POINTER("cublas", "FixedPointEmulationMantissaBitCountPointer"),
		    VALUE("cublas", "EnvironmentMode"),
		},
	    .others = cublas_others,
	},
    [GCP_HANDLE_CUBLASLT] =
	{
	    .name = "cublasLt",
	    .prefix = "cublasLt",
	    .invalid = 1,
	    .shared = true, /* 13.0 has one for all */
	    .others = cublaslt_others,
	},
    [GCP_HANDLE_CUDNN] =
	{
	    .name = "cudnn",
	    .prefix = "cudnn",
	    .invalid = 2000, /* CUDNN_STATUS_BAD_PARAM */
	    .settings =
		{
		    STREAM("cudnn", "Stream"),
		},
	    .others = cudnn_others,
	},
    [GCP_HANDLE_CUSOLVERDN] =
	{
	    .name = "cusolverDn",
	    .prefix = "cusolver",
	    .invalid = 1, /* CUSOLVER_STATUS_NOT_INITIALIZED */
	    .settings =
		{
		    STREAM("cusolverDn", "Stream"),
		    VALUE("cusolverDn", "DeterministicMode"),
		    VALUE("cusolverDn", "MathMode"),
		    VALUE("cusolverDn", "EmulationStrategy"),
		},
	    .others = cusolverdn_others,
	},
    [GCP_HANDLE_CUSOLVERSP] =
	{
	    .name = "cusolverSp",
	    .prefix = "cusolver",
	    .invalid = 1,
	    .settings =
		{
		    STREAM("cusolverSp", "Stream"),
		},
	    .others = cusolversp_others,
	},
    [GCP_HANDLE_CUSPARSE] =
	{
	    .name = "cusparse",
	    .prefix = "cusparse",
	    .invalid = 1, /* CUSPARSE_STATUS_NOT_INITIALIZED */
	    .settings =
		{
		    STREAM("cusparse", "Stream"),
		    VALUE("cusparse", "PointerMode"),
		},
	    .others = cusparse_others,
	},
};

/* --- unknown setters ------------------------------------------------------------- */

/* "Set" and a capital letter, anywhere behind the prefix: cublasSetMathMode,
 * cudnnRNNSetClip_v8, but not cusolverRfSetupHost. */
static bool is_setter(const char *prefix, const char *name)
{
	size_t length = strlen(prefix);

	if (strncmp(name, prefix, length) != 0)
		return false;
	for (name += length; (name = strstr(name, "Set")); name++)
		if (name[3] >= 'A' && name[3] <= 'Z')
			return true;
	return false;
}

static bool matches(const char *pattern, const char *name)
{
	size_t length = strlen(pattern);

	if (pattern[length - 1] == '*')
		return strncmp(pattern, name, length - 1) == 0;
	return strcmp(pattern, name) == 0;
}

bool gcp_handle_setter_unknown(const struct gcp_handle_kind *kind, const char *name)
{
	if (!is_setter(kind->prefix, name))
		return false;
	for (size_t i = 0; i < GCP_HANDLE_SETTINGS_MAX && kind->settings[i].setter; i++)
		if (strcmp(kind->settings[i].setter, name) == 0)
			return false;
	for (size_t i = 0; kind->others[i]; i++)
		if (matches(kind->others[i], name))
			return false;
	return true;
}

struct setter_search {
	const struct gcp_handle_kind *kind;
	const char *found;
};

static bool setter_compare(void *arg, const char *name)
{
	struct setter_search *search = arg;

	if (gcp_handle_setter_unknown(search->kind, name))
		search->found = name;
	return search->found != NULL;
}

const char *gcp_handle_unknown_setter(const struct gcp_handle_kind *kind,
				      const struct gcp_elf *elf)
{
	struct setter_search search = {kind, NULL};

	gcp_elf_each_function(elf, setter_compare, &search);
	return search.found;
}
