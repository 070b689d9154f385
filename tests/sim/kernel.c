/* SPDX-License-Identifier: MIT */
/*
 * kernel.c - modules, functions, and launching them.
 *
 * An image is never looked at: every module holds the kernels that the test
 * programs use, under their names, with their C parameters. What a launch will
 * read and write is known from its arguments and declared here. Entry points,
 * under the big lock.
 */
#include "sim.h"

struct module {
	struct sim_object object;
	struct sim_ctx *ctx;
};

/* Letters: p write, r read, w read and write, a atomic, n number of words,
 * v 32-bit value, t nanoseconds. All parameters but v are 8 bytes. */
struct kernel {
	const char *name, *parameters;
};

static const struct kernel kernels[SIM_KERNEL_COUNT] = {
    [SIM_KERNEL_FILL] = {"gcpt_fill", "pnv"},
    [SIM_KERNEL_CHECK] = {"gcpt_check", "rnva"},
    [SIM_KERNEL_COPY] = {"gcpt_copy", "prn"},
    [SIM_KERNEL_ADD] = {"gcpt_add", "wnv"},
    [SIM_KERNEL_SPIN] = {"gcpt_spin", "t"},
    [SIM_KERNEL_FILL_SLOW] = {"gcpt_fill_slow", "pnvt"},
    [SIM_KERNEL_CHECK_SLOW] = {"gcpt_check_slow", "rnvat"},
    [SIM_KERNEL_TRAP] = {"gcpt_trap", ""},
};

struct function {
	struct sim_object object;
	enum sim_kernel kernel;
};

static struct function *functions[SIM_KERNEL_COUNT];

/* --- modules -------------------------------------------------------------- */

static CUresult module_load(void **ret_module, const void *image)
{
	struct module *module;

	SIM_FAIL_IF(INVALID_VALUE, !ret_module || !image);
	SIM_CURRENT(ctx);
	module = sim_object_new(SIM_MODULE, sizeof(*module));
	module->ctx = ctx;
	*ret_module = module;
	return CUDA_SUCCESS;
}

SIM_FORWARD(cuModuleLoad, module_load((void **)module, fname))
SIM_FORWARD(cuModuleLoadData, module_load((void **)module, image))
SIM_FORWARD(cuModuleLoadDataEx, module_load((void **)module, image))
SIM_FORWARD(cuModuleLoadFatBinary, module_load((void **)module, fatCubin))

SIM_ENTRY(cuModuleUnload)
{
	struct module *module = sim_object_check(hmod, SIM_MODULE);

	SIM_FAIL_IF(INVALID_HANDLE, !module);
	SIM_TRY(sim_ctx_wait(module->ctx));
	sim_object_delete(module);
	return CUDA_SUCCESS;
}

static CUresult function_find(void **ret_function, const void *handle, const char *name)
{
	SIM_FAIL_IF(INVALID_VALUE, !ret_function || !name);
	SIM_FAIL_IF(INVALID_HANDLE, !sim_object_check(handle, SIM_MODULE));
	for (int i = 0; i < SIM_KERNEL_COUNT; i++) {
		if (strcmp(name, kernels[i].name) != 0)
			continue;
		if (!functions[i]) {
			functions[i] =
			    sim_object_new(SIM_FUNCTION, sizeof(struct function));
			functions[i]->kernel = (enum sim_kernel)i;
		}
		*ret_function = functions[i];
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_NOT_FOUND;
}

SIM_FORWARD(cuModuleGetFunction, function_find((void **)hfunc, hmod, name))

SIM_ENTRY(cuLibraryLoadData)
{
	SIM_FAIL_IF(INVALID_VALUE, !library || !code);
	*library = sim_object_new(SIM_MODULE, sizeof(struct module));
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuKernelGetFunction)
{
	SIM_FAIL_IF(INVALID_VALUE, !pFunc);
	SIM_FAIL_IF(INVALID_HANDLE, !sim_object_check(kernel, SIM_FUNCTION));
	*pFunc = (CUfunction)kernel;
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuFuncGetAttribute)
{
	SIM_FAIL_IF(INVALID_VALUE, !pi);
	SIM_FAIL_IF(INVALID_HANDLE, !sim_object_check(hfunc, SIM_FUNCTION));
	*pi = attrib == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
	return CUDA_SUCCESS;
}

SIM_FORWARD(cuFuncSetAttribute, sim_object_check(hfunc, SIM_FUNCTION)
				    ? CUDA_SUCCESS
				    : CUDA_ERROR_INVALID_HANDLE)

/* --- arguments ------------------------------------------------------------ */

static uint64_t argument_bytes(char letter)
{
	return letter == 'v' ? 4 : 8;
}

static void arguments_from_list(struct sim_work *work, const char *letters,
				void **params)
{
	for (int i = 0; letters[i]; i++)
		memcpy(&work->launch.arg[i], params[i], argument_bytes(letters[i]));
}

static void declare_access(struct sim_work *work, uint64_t addr, uint64_t bytes,
			   enum sim_mode mode)
{
	if (bytes == 0)
		return;
	work->access[work->accesses++] =
	    (struct sim_access){.addr = addr, .bytes = bytes, .rows = 1, .mode = mode};
}

static void declare_accesses(struct sim_work *work, const char *letters)
{
	const char *n = strchr(letters, 'n');
	uint64_t bytes = n ? work->launch.arg[n - letters] * 4 : 0;

	for (int i = 0; letters[i]; i++) {
		uint64_t arg = work->launch.arg[i];

		switch (letters[i]) {
		case 'p':
		case 'w':
			declare_access(work, arg, bytes, SIM_WRITE);
			break;
		case 'r':
			declare_access(work, arg, bytes, SIM_READ);
			break;
		case 'a':
			declare_access(work, arg, 8, SIM_ATOMIC);
			break;
		case 't':
			work->duration_ns = arg;
			break;
		default:
			break;
		}
	}
}

CUresult sim_kernel_work(CUfunction f, void **params, void **extra,
			 struct sim_work *ret_work)
{
	const struct function *function = sim_object_check(f, SIM_FUNCTION);
	struct sim_work work = {.kind = SIM_WORK_KERNEL};
	const char *letters;

	SIM_FAIL_IF(INVALID_HANDLE, !function);
	work.kernel = function->kernel;
	letters = kernels[work.kernel].parameters;
	SIM_FAIL_IF(NOT_SUPPORTED, !params && extra);
	SIM_FAIL_IF(INVALID_VALUE, !params && *letters);
	arguments_from_list(&work, letters, params);
	work.duration_ns = 2000;
	declare_accesses(&work, letters);
	*ret_work = work;
	return CUDA_SUCCESS;
}

/* --- launching ------------------------------------------------------------ */

enum { SIZES = 7 }; /* of grid and block, and shared memory */

static unsigned last_launch[SIZES]; /* SIM_LOCKED */

void gcpsim_last_launch(unsigned ret_sizes[7])
{
	SIM_HOLD;

	memcpy(ret_sizes, last_launch, sizeof(last_launch));
}

static CUresult launch(CUfunction f, CUstream hStream, const unsigned dims[SIZES],
		       void **params, void **extra)
{
	struct sim_work work;

	for (int i = 0; i < 6; i++)
		SIM_FAIL_IF(INVALID_VALUE, dims[i] == 0);
	memcpy(last_launch, dims, sizeof(last_launch));
	SIM_STREAM(stream, hStream);
	SIM_TRY(sim_kernel_work(f, params, extra, &work));
	return sim_stream_submit(stream, &work, NULL);
}

SIM_ENTRY(cuLaunchKernel)
{
	const unsigned dims[SIZES] = {gridDimX,  gridDimY,  gridDimZ,      blockDimX,
				      blockDimY, blockDimZ, sharedMemBytes};

	return launch(f, hStream, dims, kernelParams, extra);
}

SIM_ENTRY(cuLaunchCooperativeKernel)
{
	const unsigned dims[SIZES] = {gridDimX,  gridDimY,  gridDimZ,      blockDimX,
				      blockDimY, blockDimZ, sharedMemBytes};

	return launch(f, hStream, dims, kernelParams, NULL);
}

static uint64_t early_launches; /* SIM_LOCKED */

uint64_t gcpsim_early_launches(void)
{
	return early_launches;
}

static CUresult launch_ex(const CUlaunchConfig *config, CUstream hStream, CUfunction f,
			  void **kernelParams, void **extra)
{
	const unsigned dims[SIZES] = {config->gridDimX,      config->gridDimY,
				      config->gridDimZ,      config->blockDimX,
				      config->blockDimY,     config->blockDimZ,
				      config->sharedMemBytes};

	for (unsigned i = 0; config->attrs && i < config->numAttrs; i++)
		early_launches +=
		    config->attrs[i].id ==
			CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
		    config->attrs[i].value.programmaticStreamSerializationAllowed;
	return launch(f, hStream, dims, kernelParams, extra);
}

SIM_ENTRY(cuLaunchKernelEx)
{
	SIM_FAIL_IF(INVALID_VALUE, !config);
	return launch_ex(config, config->hStream, f, kernelParams, extra);
}
