#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Array expressions of changing sizes in CuPy, without its memory pool unless --pool
is given: elementwise with temporaries, reductions, and Fourier transforms. Prints JSON
like torch_steps.py, and goes through its sizes in the same way."""

import argparse
import json
import random
import time

import cupy

from yardstick import Library, Meter

STEPS = 200


class Elementwise:
    def step(self, chance):
        n = chance.randint(1 << 12, 1 << 20)
        a = cupy.arange(n, dtype=cupy.float32)
        b = cupy.sqrt(a * 3 + 1) - a / 7
        c = cupy.where(b > a, b * a, b - a)
        return (c + b * a).max()


class Reduction:
    def step(self, chance):
        shape = chance.randint(16, 1024), chance.randint(64, 1024)
        a = cupy.arange(shape[0] * shape[1], dtype=cupy.float32).reshape(shape) / 1e4
        rows, columns = a.sum(axis=1), a.max(axis=0)
        return (a - columns).std() + rows.mean() + cupy.sort(rows)[:9].sum()


class Fourier:
    def step(self, chance):
        batch = chance.randint(1, 64)
        a = cupy.arange(batch * 4096, dtype=cupy.float32).reshape(batch, 4096) % 97
        return abs(cupy.fft.irfft(cupy.fft.rfft(a) * 0.5)).sum()


WORK = {"elementwise": Elementwise, "reduction": Reduction, "fft": Fourier}


def peaks(library, pool):
    if library:
        return library.reserved_peak(), library.allocated_peak()
    return pool.total_bytes(), 0


def run(kind, steps, library, pool):
    pool.free_all_blocks()
    if library:
        library.trim()
    meter, work, results = Meter(), kind(), []
    chance = random.Random(1)
    for _ in range(steps):
        results.append(work.step(chance))
        meter.sample()
    cupy.cuda.Device().synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        results.append(work.step(chance))
    cupy.cuda.Device().synchronize()
    elapsed = time.perf_counter() - start
    meter.sample()
    reserved, allocated = peaks(library, pool)
    return {"step_ms": elapsed / steps * 1e3, "results": [float(r) for r in results],
            "device": meter.most(), "reserved": reserved, "allocated": allocated}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", type=float, default=1, help="of the usual number of steps")
    parser.add_argument("--pool", action="store_true")
    arguments = parser.parse_args()
    if not arguments.pool:
        cupy.cuda.set_allocator(None)
    cupy.zeros(1).sum()
    library, pool, found = Library(), cupy.get_default_memory_pool(), {}
    for name, kind in WORK.items():
        found[name] = run(kind, max(2, int(STEPS * arguments.part)), library, pool)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
