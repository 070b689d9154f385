#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A data loader that pins what it loads, with PyTorch's cache of pinned memory out of
the way, checked by its sums.

  torch_pinned.py raw    batches through cudaHostAlloc and cudaFreeHost themselves
  torch_pinned.py own    through tensor.pin_memory(), PyTorch's own cache

"raw" is what pin_memory does without a cache: allocate, wrap, fill, copy to the GPU
asynchronously, free at once. Prints the sum of what arrived, which must be the same
for both, how many words were wrong, and the time of a batch."""

import ctypes
import sys
import time

import torch

BATCH = (64, 3, 128, 128)  # 12 MiB of int32


def runtime():
    """The runtime that PyTorch uses, with cudaHostAlloc and cudaFreeHost."""
    names = [line.split()[-1] for line in open("/proc/self/maps") if "libcudart" in line]
    lib = ctypes.CDLL(names[0] if names else "libcudart.so")
    lib.cudaHostAlloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_uint]
    lib.cudaFreeHost.argtypes = [ctypes.c_void_p]
    lib.cudaMemcpyAsync.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t,
                                    ctypes.c_int, ctypes.c_void_p]
    return lib


def batches(count):
    """What a loader would have read: the same every time."""
    generator = torch.Generator().manual_seed(7)
    shapes = [torch.randint(0, 1 << 20, BATCH, generator=generator, dtype=torch.int32)
              for _ in range(8)]
    return (shapes[i % len(shapes)] for i in range(count))


def upload_raw(lib, batch, stream):
    p = ctypes.c_void_p()
    size = batch.numel() * batch.element_size()
    if lib.cudaHostAlloc(ctypes.byref(p), size, 0):
        sys.exit("cudaHostAlloc failed")
    buffer = (ctypes.c_byte * size).from_address(p.value)
    torch.frombuffer(buffer, dtype=batch.dtype).view(batch.shape).copy_(batch)
    arrived = torch.empty(batch.shape, dtype=batch.dtype, device="cuda")
    to_device = 1
    if lib.cudaMemcpyAsync(arrived.data_ptr(), p, size, to_device, stream.cuda_stream):
        sys.exit("cudaMemcpyAsync failed")
    if lib.cudaFreeHost(p):
        sys.exit("cudaFreeHost failed")
    return arrived


def run(how, count):
    streams = [torch.cuda.Stream() for _ in range(4)]
    lib = runtime() if how == "raw" else None
    sums = []
    start = time.perf_counter()
    for i, batch in enumerate(batches(count)):
        stream = streams[i % len(streams)]
        with torch.cuda.stream(stream):
            if how == "raw":
                arrived = upload_raw(lib, batch, stream)
            else:
                arrived = batch.pin_memory().cuda(non_blocking=True)
            sums.append((arrived.sum(dtype=torch.int64), batch))
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    wrong = sum(int(found) != int(batch.sum(dtype=torch.int64)) for found, batch in sums)
    total = sum(int(found) for found, _ in sums)
    print(f"batch: {seconds / count * 1e6:.0f} us, sum: {total}, wrong: {wrong}")
    return wrong


if __name__ == "__main__":
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    run(sys.argv[1], 8)
    sys.exit(1 if run(sys.argv[1], 200) else 0)
