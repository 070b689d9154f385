#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A program chooses libgcpool for the frameworks that it uses, without a preload: those
of PyTorch, CuPy and RMM that are here allocate from one pool.

    pip install gcpool-*.whl torch cupy-cuda13x
    python3 frameworks.py
"""

import ctypes
import sys

from gcpool import frameworks

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

    frameworks.use_in_rmm()
    buffer = rmm.DeviceBuffer.to_device(bytes(range(256)))
    return "equal" if buffer.tobytes() == bytes(range(256)) else "WRONG", buffer


def driver_works():
    """No framework: the pool itself, on the device's legacy stream."""
    pool = frameworks.Pool()
    cuda = ctypes.CDLL("libcuda.so.1")
    if cuda.cuInit(0):
        raise ImportError("no device", name="a device")
    first = pool.malloc(MIB, 0, None)
    pool.free(first, None)
    again = pool.malloc(MIB, 0, None)
    return "equal" if again == first else "WRONG", again


def main():
    wrong = False
    for name, works in (("pool", driver_works), ("torch", torch_works),
                        ("cupy", cupy_works), ("rmm", rmm_works)):
        try:
            words, kept[name] = works()
        except ImportError as missing:
            words = "not here (%s)" % missing.name
        print("%s: %s" % (name, words))
        wrong = wrong or words not in ("equal",) and "not here" not in words
    stats = frameworks.statistics(0)
    print("one pool: %d allocations, %d of them without a call of the driver" % (
        stats["hits"] + stats["misses"], stats["hits"]))
    sys.exit(1 if wrong else 0)


kept = {}
if __name__ == "__main__":
    main()
