/* SPDX-License-Identifier: MIT */
/*
 * handles_table.c - see handles_table.h. Constant data, and what looks through it.
 *
 * Sources: the headers of CUDA 13.0 (cublas_api.h, cusolverDn.h, cusolverSp.h) and
 * cuDNN 9, and what the libraries export beyond them. Handles of cuBLASLt and cuSPARSE
 * cost less than a look at a pool (0.8 us, measured). cublasSetWorkspace has no getter:
 * cublasSetStream "unconditionally resets the cuBLAS library workspace back to the
 * default workspace pool" (cuBLAS manual, 2.4.7), hence `always`.
 * cublasSetEnvironmentMode is in no header; cuSOLVER calls it. It sets a field of the
 * handle, which cublasGetEnvironmentMode reads (CUDA 13.0).
 */
#include <string.h>

#include "handles_table.h"

/* Of vectors and matrices in memory, of the process (logger, backdoor), of the one
 * handle of the legacy API (kernel stream), of cublasXt's own handles; and the
 * workspace, which setting the stream sets back. */
static const char cublas_others[] =
    "cublasSetWorkspace_v2 cublasSetVector* cublasSetMatrix* "
    "cublasSetLoggerCallback cublasSetBackdoor cublasSetBackdoorEx "
    "cublasSetKernelStream cublasXtSet*";

/* Of descriptors, of tensors in memory (cudnnSetTensor) and of the process. */
static const char cudnn_others[] =
    "cudnnBackendSetAttribute cudnnRNNSetClip* cudnnSetActivationDescriptor* "
    "cudnnSetAlgorithmDescriptor cudnnSetAttnDescriptor cudnnSetBackdoor "
    "cudnnSetBackdoorEx cudnnSetCTCLossDescriptor* cudnnSetCallback "
    "cudnnSetConvolution2dDescriptor cudnnSetConvolutionGroupCount "
    "cudnnSetConvolutionMathType cudnnSetConvolutionNdDescriptor "
    "cudnnSetConvolutionReorderType cudnnSetDropoutDescriptor "
    "cudnnSetFilter4dDescriptor cudnnSetFilterNdDescriptor "
    "cudnnSetFusedOpsConstParamPackAttribute "
    "cudnnSetFusedOpsVariantParamPackAttribute cudnnSetLRNDescriptor "
    "cudnnSetOpTensorDescriptor cudnnSetPooling2dDescriptor "
    "cudnnSetPoolingNdDescriptor cudnnSetRNNDataDescriptor "
    "cudnnSetRNNDescriptor* cudnnSetReduceTensorDescriptor "
    "cudnnSetSeqDataDescriptor cudnnSetSpatialTransformerNdDescriptor "
    "cudnnSetTensor cudnnSetTensor4dDescriptor cudnnSetTensor4dDescriptorEx "
    "cudnnSetTensorNdDescriptor cudnnSetTensorNdDescriptorEx "
    "cudnnSetTensorTransformDescriptor";

/* Of parameter objects, of the process, and of the library's other handles. */
static const char cusolverdn_others[] =
    "cusolverDnIRSParamsSet* cusolverDnLoggerSet* cusolverDnSetAdvOptions "
    "cusolverDnXgesvdjSet* cusolverDnXsyevjSet* cusolverSp* cusolverRf*";

static const char cusolversp_others[] =
    "cusolverSpXsnluSetReorder cusolverDn* cusolverRf*";

/* clang-format off */

/* A part of the state, and of its flags those that are true. */
#define SETTING(prefix, what, ...)                                                     \
	{.getter = prefix "Get" what, .setter = prefix "Set" what, __VA_ARGS__}
#define STREAM .pointer = true, .required = true

/* name, prefix, status for a handle that was destroyed already, what it has, setters that
 * do not concern it. */
const struct gcp_handle_kind gcp_handle_kinds[GCP_HANDLE_KINDS] = {
    [GCP_HANDLE_CUBLAS] = {"cublas", "cublas", 1 /* NOT_INITIALIZED */, {
	SETTING("cublas", "Stream_v2", STREAM, .always = true),
	SETTING("cublas", "PointerMode_v2"),
	SETTING("cublas", "AtomicsMode"),
	SETTING("cublas", "MathMode"),
	SETTING("cublas", "SmCountTarget"),
	SETTING("cublas", "EmulationStrategy"),
	SETTING("cublas", "EmulationSpecialValuesSupport"),
	SETTING("cublas", "FixedPointEmulationMantissaControl"),
	SETTING("cublas", "FixedPointEmulationMaxMantissaBitCount"),
	SETTING("cublas", "FixedPointEmulationMantissaBitOffset"),
	SETTING("cublas", "FixedPointEmulationMantissaBitCountPointer", .pointer = true),
	SETTING("cublas", "EnvironmentMode"),
    }, cublas_others},
    [GCP_HANDLE_CUDNN] = {"cudnn", "cudnn", 2000 /* BAD_PARAM */, {
	SETTING("cudnn", "Stream", STREAM),
    }, cudnn_others},
    [GCP_HANDLE_CUSOLVERDN] = {"cusolverDn", "cusolver", 1, {
	SETTING("cusolverDn", "Stream", STREAM),
	SETTING("cusolverDn", "DeterministicMode"),
	SETTING("cusolverDn", "MathMode"),
	SETTING("cusolverDn", "EmulationStrategy"),
    }, cusolverdn_others},
    [GCP_HANDLE_CUSOLVERSP] = {"cusolverSp", "cusolver", 1, {
	SETTING("cusolverSp", "Stream", STREAM),
    }, cusolversp_others},
};

/* clang-format on */

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

/* True if one of `patterns` is the name, or its beginning and a star. */
static bool listed(const char *patterns, const char *name)
{
	size_t length;

	for (; *patterns; patterns += length + strspn(patterns + length, " ")) {
		length = strcspn(patterns, " ");
		if (patterns[length - 1] == '*'
			? strncmp(patterns, name, length - 1) == 0
			: strlen(name) == length && memcmp(patterns, name, length) == 0)
			return true;
	}
	return false;
}

bool gcp_handle_setter_unknown(const void *of_kind, const char *name)
{
	const struct gcp_handle_kind *kind = of_kind;

	if (!is_setter(kind->prefix, name) || listed(kind->others, name))
		return false;
	for (size_t i = 0; i < GCP_HANDLE_SETTINGS_MAX && kind->settings[i].setter; i++)
		if (strcmp(kind->settings[i].setter, name) == 0)
			return false;
	return true;
}
