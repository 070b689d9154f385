#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Captures CuPy code that allocates, with CuPy's memory pool switched off, into a
CUDA graph, and compares replays with eager runs. Prints one line; exit code 0
when all agree, 2 when the capture is refused.

Plain CUDA refuses every allocation inside the capture: this needs libgcpool."""

import sys

import cupy

WORDS, REPLAYS = 1 << 18, 50


def work(x):
    y = x * x + 3
    z = y - x
    return y * z + z * 2


def main():
    cupy.cuda.set_allocator(None)
    stream = cupy.cuda.Stream(non_blocking=True)
    static = cupy.zeros(WORDS, dtype=cupy.int32)
    work(static)  # compiles the kernels
    cupy.cuda.Device().synchronize()
    try:
        with stream:
            stream.begin_capture()
            output = work(static)
            graph = stream.end_capture()
    except Exception as error:  # which one depends on where CUDA refuses
        print("refused:", str(error).strip().splitlines()[0], flush=True)
        sys.exit(2)
    wrong = 0
    for i in range(REPLAYS):
        data = cupy.arange(i, i + WORDS, dtype=cupy.int32) % 1000
        static[...] = data
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        junk = [cupy.full(WORDS, 7, dtype=cupy.int32) for _ in range(8)]
        del junk
        stream.synchronize()
        wrong += int(cupy.sum(output != work(data)))
    print(f"captured: {REPLAYS} replays, wrong words: {wrong}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
