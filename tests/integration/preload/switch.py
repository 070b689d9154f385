#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""switch.py LOOP_PROGRAM

The mode switch reaches the library: pooled, the driver hardly sees an
allocation; with GCPOOL_MODE=off or count it sees each one, and the program's own
output stays the same but for its time."""

import sys

import preload

ITERATIONS = 200


def main():
    command = [sys.argv[1], "--iterations", str(ITERATIONS), "--warm", "0", "--size", "64k"]
    checks = preload.Checks()
    wanted = {
        None: lambda calls: calls >= ITERATIONS,
        "pool": lambda calls: calls <= ITERATIONS / 4,
        "count": lambda calls: calls >= ITERATIONS,
        "off": lambda calls: calls >= ITERATIONS,
    }
    for mode, good in wanted.items():
        extra = {"GCPOOL_MODE": mode} if mode else {}
        result = preload.run(command, preload.library() if mode else None, extra)
        calls = result.figures.get("cuMemAlloc_v2", 0)
        print(f"mode {mode}: code {result.code}, {calls} driver allocations")
        checks.that(result.code == 0, f"mode {mode}: {result.err}")
        checks.that(good(calls), f"mode {mode}: {calls} driver allocations")
        checks.clean(result, f"mode {mode}")
    checks.end()


if __name__ == "__main__":
    main()
