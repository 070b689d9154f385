#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Array expressions with temporaries in CuPy, without its memory pool unless
--pool is given. Prints the time of a step and a checksum."""

import argparse
import time

import cupy


def step(a, b):
    c = a * b + a - b / 3
    d = cupy.sqrt(cupy.abs(c)) + cupy.sum(c, axis=0)
    return a + d * cupy.float32(1e-3), b - d * cupy.float32(1e-3)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--pool", action="store_true")
    arguments = parser.parse_args()
    if not arguments.pool:
        cupy.cuda.set_allocator(None)
    a = cupy.arange(1 << 20, dtype=cupy.float32).reshape(1024, 1024) / 1e6
    b = cupy.ones((1024, 1024), dtype=cupy.float32)
    for _ in range(20):
        step(a, b)
    cupy.cuda.Device().synchronize()
    start = time.perf_counter()
    for _ in range(arguments.steps):
        a, b = step(a, b)
    cupy.cuda.Device().synchronize()
    elapsed = (time.perf_counter() - start) / arguments.steps * 1e6
    checksum = int(cupy.sum(a.view(cupy.uint32).astype(cupy.uint64)))
    checksum ^= int(cupy.sum(b.view(cupy.uint32).astype(cupy.uint64)))
    print(f"step: {elapsed:.1f} us, checksum: {checksum:016x}")


if __name__ == "__main__":
    main()
