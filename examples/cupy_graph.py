#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""CuPy with its own pool switched off: code that allocates is captured into a CUDA
graph. Plain CUDA refuses that; libgcpool serves it.

    pip install cupy-cuda13x
    gcpool python3 cupy_graph.py
"""

import sys

try:
    import cupy
except ImportError:
    print("no cupy here: pip install cupy-cuda13x")
    sys.exit(77)


def work(x):
    y = x * x + 3
    return y * (y - x)


def main():
    cupy.cuda.set_allocator(None)  # every array is a cudaMalloc
    stream = cupy.cuda.Stream(non_blocking=True)
    data = cupy.zeros(1 << 18, dtype=cupy.int32)
    work(data)  # compiles the kernels
    cupy.cuda.Device().synchronize()
    try:
        with stream:
            stream.begin_capture()
            result = work(data)
            graph = stream.end_capture()
    except Exception as error:  # which one depends on where CUDA refuses
        print("refused:", str(error).strip().splitlines()[0])
        sys.exit(2)
    wrong = 0
    for number in range(50):
        data[...] = cupy.arange(number, number + data.size, dtype=cupy.int32) % 1000
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        wrong += int(cupy.sum(result != work(data)))
    print("50 replays, wrong words: %d" % wrong)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
