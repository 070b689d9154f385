#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""staging.py STAGING_PROGRAM

Staging through pinned memory on the simulated device under several schedules: no
hazard and no wrong word with the library, which must serve most of it without the
driver. Then with the library that was built without fences ($GCPT_NOFENCE): the same
must find hazards, else it proves nothing."""

import os
import sys

import preload

ARGUMENTS = "--threads 3 --streams 3 --rounds 150 --max 64k".split()

SCHEDULES = [
    {"GCPSIM_SEED": "1", "GCPSIM_SPEED": "random"},
    {"GCPSIM_SEED": "2", "GCPSIM_SPEED": "random", "GCPOOL_HOST_WINDOW": "256K"},
    {"GCPSIM_SEED": "3", "GCPSIM_SPEED": "never", "GCPOOL_HOST_WINDOW": "4M"},
    {"GCPSIM_SEED": "4", "GCPSIM_SPEED": "2000", "GCPOOL_TEST_HOST_FENCE_BATCH": "1"},
    {"GCPSIM_SEED": "5", "GCPSIM_SPEED": "random", "GCPOOL_HOST_CACHE_LIMIT": "512K"},
    {"GCPSIM_SEED": "6", "GCPSIM_SPEED": "random", "GCPOOL_BLOCKING_FREE": "1"},
    {"GCPSIM_SEED": "7", "GCPSIM_SPEED": "random", "GCPOOL_THREAD": "1"},
]


def main():
    program = sys.argv[1]
    checks = preload.Checks()
    found = 0
    for number, schedule in enumerate(SCHEDULES):
        command = [program, *ARGUMENTS, "--seed", str(number + 1)]
        result = preload.run(command, preload.library(), schedule)
        print(schedule, result.out.strip(), result.figures)
        checks.that(result.code == 0, f"{schedule}: exit code {result.code}\n{result.err}")
        checks.clean(result, str(schedule))
        # Most is served without the driver: plain CUDA makes about 450 calls.
        calls = result.figures.get("cuMemHostAlloc", 0)
        checks.that(0 < calls < 400, f"{schedule}: {calls} calls of cuMemHostAlloc")
        quiet = {**schedule, "GCPSIM_QUIET": "1"}
        result = preload.run(command, os.environ["GCPT_NOFENCE"], quiet)
        print("without fences:", result.out.strip(), result.figures)
        found += result.figures.get("hazards", 0)
    checks.that(found > 0, "without fences nothing was found: the check has no teeth")
    checks.end()


if __name__ == "__main__":
    main()
