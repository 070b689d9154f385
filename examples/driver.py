#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Allocates through the CUDA driver with nothing but ctypes, and asks the library what
it did. Any Python program with CUDA in it can ask in this way.

    pip install gcpool-*.whl
    gcpool python3 driver.py
"""

import ctypes
import sys

try:
    import gcpool
except ImportError:
    gcpool = None

BYTES, STEPS = 1 << 20, 1000


def call(name, *arguments):
    error = getattr(cuda, name)(*arguments)
    if error:
        sys.exit("driver.py: %s gives error %d" % (name, error))


def step():
    pointer = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(BYTES))
    call("cuMemsetD8_v2", pointer, ctypes.c_ubyte(1), ctypes.c_size_t(BYTES))
    call("cuMemFree_v2", pointer)


def main():
    device, context = ctypes.c_int(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    for _ in range(STEPS):
        step()
    print("%d steps" % STEPS)
    if gcpool is None:
        print("no Python package gcpool here to ask for statistics")
    elif not gcpool.loaded():
        print("plain CUDA: start this with gcpool")
    else:
        stats = gcpool.statistics(0)
        print("%d of %d allocations without a call of the driver" % (
            stats["hits"], stats["hits"] + stats["misses"]))


if __name__ == "__main__":
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        print("no CUDA driver here")
        sys.exit(77)
    main()
