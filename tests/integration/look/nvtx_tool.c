/* SPDX-License-Identifier: MIT */
/*
 * nvtx_tool.c - a tool that listens to NVTX's memory extension, as compute-sanitizer
 * does, and writes a line for each call into $NVTX_TOOL_LOG. A wrong order of calls is
 * said.
 */
#include <stdio.h>
#include <stdlib.h>

#include <nvtx3/nvToolsExtMem.h>

int InitializeInjectionNvtx2(void *get_table);
int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t *module);

static FILE *out(void)
{
	static FILE *file;

	if (!file)
		file = fopen(getenv("NVTX_TOOL_LOG"), "a");
	setvbuf(file, NULL, _IOLBF, 0);
	return file;
}

static nvtxMemHeapHandle_t heap_register(nvtxDomainHandle_t domain,
					 nvtxMemHeapDesc_t const *desc)
{
	const nvtxMemVirtualRangeDesc_t *range = desc->typeSpecificDesc;

	(void)domain;
	fprintf(out(), "heap %p %zu usage %u type %u\n", range->ptr, range->size,
		desc->usage, desc->type);
	return (nvtxMemHeapHandle_t)range->ptr;
}

static void heap_unregister(nvtxDomainHandle_t domain, nvtxMemHeapHandle_t heap)
{
	(void)domain;
	fprintf(out(), "heapgone %p\n", (void *)heap);
}

static void regions_register(nvtxDomainHandle_t domain,
			     nvtxMemRegionsRegisterBatch_t const *desc)
{
	const nvtxMemVirtualRangeDesc_t *range = desc->regionDescElements;

	(void)domain;
	for (size_t i = 0; i < desc->regionCount; i++)
		fprintf(out(), "region %p %zu heap %p\n", range[i].ptr, range[i].size,
			(void *)desc->heap);
}

static void regions_unregister(nvtxDomainHandle_t domain,
			       nvtxMemRegionsUnregisterBatch_t const *desc)
{
	(void)domain;
	for (size_t i = 0; i < desc->refCount; i++)
		fprintf(out(), "regiongone %p\n", desc->refElements[i].pointer);
}

int InitializeInjectionNvtx2(void *get_table)
{
	(void)get_table;
	return 1;
}

int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t *module)
{
	intptr_t *slots = module->segments[0].functionSlots;

	if (module->moduleId != NVTX_EXT_MODULEID_MEM)
		return 0;
	slots[NVTX3EXT_CBID_nvtxMemHeapRegister] = (intptr_t)heap_register;
	slots[NVTX3EXT_CBID_nvtxMemHeapUnregister] = (intptr_t)heap_unregister;
	slots[NVTX3EXT_CBID_nvtxMemRegionsRegister] = (intptr_t)regions_register;
	slots[NVTX3EXT_CBID_nvtxMemRegionsUnregister] = (intptr_t)regions_unregister;
	return 1;
}
