#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A program chooses libgcpool for the frameworks that it uses: those of PyTorch, CuPy
and RMM that are here allocate from one pool.

    pip install gcpool-*.whl torch cupy-cuda13x
    gcpool python3 frameworks.py
"""

import ctypes
import gc
import sys

try:
    import gcpool
    from gcpool import frameworks
except ImportError:
    print("the wheel of gcpool is not installed")
    sys.exit(77)

MIB = 1 << 20


def torch_works():
    import torch

    frameworks.use_in_torch()
    torch.manual_seed(0)
    layer = torch.nn.Linear(512, 512).cuda()
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    same = True
    for step in range(50):
        batch = torch.full((256, 512), float(step), device="cuda")
        loss = layer(batch).square().mean()
        loss.backward()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            copy = batch + 1
            batch.record_stream(side)
        del batch
        main.wait_stream(side)
        same = same and bool((copy == step + 1).all())
        copy.record_stream(main)
    try:
        torch.empty(1 << 44, dtype=torch.uint8, device="cuda")
        return "more memory than there is", None
    except (RuntimeError, MemoryError):
        return "equal" if same else "WRONG", layer


def cupy_works():
    import cupy

    frameworks.use_in_cupy()
    stream = cupy.cuda.Stream(non_blocking=True)
    same = True
    for step in range(50):
        with stream:
            array = cupy.full(MIB, step, dtype=cupy.float32)
            total = float((array + 1).sum())
        same = same and total == MIB * (step + 1)
    return "equal" if same else "WRONG", array


def rmm_works():
    import rmm
    from rmm.pylibrmm.stream import Stream

    frameworks.use_in_rmm()
    streams = Stream(), Stream()
    same = True
    for step in range(50):
        stream, words = streams[step % 2], bytes([step]) * MIB
        buffer = rmm.DeviceBuffer.to_device(words, stream)
        copy = rmm.DeviceBuffer(ptr=buffer.ptr, size=buffer.size, stream=stream)
        del buffer  # behind the copy, in its stream
        same = same and copy.tobytes(stream) == words
    return "equal" if same else "WRONG", copy


def driver_works():
    """No framework: the pool itself, on the device's legacy stream."""
    pool = frameworks.Pool()
    cuda = ctypes.CDLL("libcuda.so.1")
    if cuda.cuInit(0):
        raise ImportError("no device", name="a device")
    first = pool.malloc(MIB, 0, None)
    pool.free(first, None)
    again = pool.malloc(MIB, 0, None)
    pool.free(again, None)
    return "equal" if again == first else "WRONG", None


def one_block():
    """A block of 64 MiB from each framework in turn, in the default stream, freed before
    the next one asks: all of them get the same memory."""
    def of_torch():
        import torch
        return torch.empty(64 * MIB, dtype=torch.uint8, device="cuda").data_ptr()

    def of_cupy():
        import cupy
        return cupy.empty(64 * MIB, dtype=cupy.uint8).data.ptr

    def of_rmm():
        import rmm
        return rmm.DeviceBuffer(size=64 * MIB).ptr

    takes = {"torch": of_torch, "cupy": of_cupy, "rmm": of_rmm}
    here = [name for name in takes if name in kept]
    addresses = {takes[name]() for name in here}
    return here, len(addresses) == 1


def main():
    wrong = False
    if not gcpool.loaded():
        print("plain CUDA: start this with gcpool")
        sys.exit(77)
    for name, works in (("pool", driver_works), ("torch", torch_works),
                        ("cupy", cupy_works), ("rmm", rmm_works)):
        try:
            words, kept[name] = works()
        except ImportError as missing:
            words = "not here (%s)" % missing.name
        print("%s: %s" % (name, words))
        wrong = wrong or words not in ("equal",) and "not here" not in words
    here, same = one_block()
    if len(here) > 1:
        print("one block served %s: %s" % (", ".join(here), "equal" if same else "WRONG"))
        wrong = wrong or not same
    stats = frameworks.statistics(0)
    print("one pool: %d allocations, %d of them without a call of the driver" % (
        stats["hits"] + stats["misses"], stats["hits"]))
    kept.clear()
    gc.collect()
    print("given back: %d MiB" % (frameworks.trim() // MIB))
    sys.exit(1 if wrong else 0)


kept = {}
if __name__ == "__main__":
    main()
