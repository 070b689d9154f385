/* SPDX-License-Identifier: MIT */
/*
 * device.c - the devices that a program sees: names, numbers, attributes.
 * Entry points only; each device is an H200 in what it claims. Under the big
 * lock where they touch state.
 */
#include "sim.h"

#include <stdio.h>

SIM_ENTRY(cuDeviceGet)
{
	SIM_FAIL_IF(INVALID_VALUE, !device);
	SIM_FAIL_IF(INVALID_DEVICE, !sim_device_valid(ordinal));
	*device = ordinal;
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuDeviceGetCount)
{
	SIM_FAIL_IF(INVALID_VALUE, !count);
	*count = sim.devices;
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuDeviceGetName)
{
	SIM_FAIL_IF(INVALID_VALUE, !name || len <= 0);
	SIM_FAIL_IF(INVALID_DEVICE, !sim_device_valid(dev));
	snprintf(name, (size_t)len, "Simulated CUDA device");
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuDeviceGetUuid_v2)
{
	SIM_FAIL_IF(INVALID_VALUE, !uuid);
	SIM_FAIL_IF(INVALID_DEVICE, !sim_device_valid(dev));
	memset(uuid, 0, sizeof(*uuid));
	memcpy(uuid->bytes, "gcpsim", 6);
	uuid->bytes[15] = (char)dev;
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuDeviceTotalMem_v2)
{
	uint64_t available, total;

	SIM_FAIL_IF(INVALID_VALUE, !bytes);
	SIM_FAIL_IF(INVALID_DEVICE, !sim_device_valid(dev));
	sim_memory_info(dev, &available, &total);
	*bytes = total;
	return CUDA_SUCCESS;
}

static int device_attribute(CUdevice_attribute attrib, int device)
{
	switch (attrib) {
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
	case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
	case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
		return 1024;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		return 132;
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
		return 2048;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		return 9;
	case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
		return 512;
	case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
	case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
	case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
	case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
	case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
	case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
		return 1;
	case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
		return !sim.no_vmm;
	case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
		return sim.numa_limit > 0;
	case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
		return device;
	default:
		return 0;
	}
}

SIM_ENTRY(cuDeviceGetAttribute)
{
	SIM_FAIL_IF(INVALID_VALUE,
		    !pi || attrib <= 0 || attrib >= CU_DEVICE_ATTRIBUTE_MAX);
	SIM_FAIL_IF(INVALID_DEVICE, !sim_device_valid(dev));
	*pi = device_attribute(attrib, dev);
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuDeviceGetPCIBusId)
{
	SIM_FAIL_IF(INVALID_VALUE, !pciBusId || len <= 0);
	SIM_FAIL_IF(INVALID_DEVICE, !sim_device_valid(dev));
	snprintf(pciBusId, (size_t)len, "0000:%02x:00.0", dev + 1);
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuDeviceCanAccessPeer)
{
	SIM_FAIL_IF(INVALID_VALUE, !canAccessPeer);
	SIM_FAIL_IF(INVALID_DEVICE,
		    !sim_device_valid(dev) || !sim_device_valid(peerDev));
	*canAccessPeer = dev != peerDev;
	return CUDA_SUCCESS;
}
