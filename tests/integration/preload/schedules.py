#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""schedules.py [mapped] PROGRAM [ARGUMENT ...]

The program (stress.c, staging.c) under several schedules: no hazard and no wrong word with
the library. Then with the library that was built without fences ($GCPT_NOFENCE): the same
must find hazards, else it proves nothing. With `mapped`, instead: memory of large blocks
moves while work is pending."""

import json
import os
import sys

import preload

SCHEDULES = [
    {"GCPSIM_SPEED": "random"},
    {"GCPSIM_SPEED": "random", "GCPOOL_HOST_WINDOW": "256K"},
    {"GCPSIM_SPEED": "never", "GCPOOL_HOST_WINDOW": "4M"},
    {"GCPSIM_SPEED": "2000"},
    {"GCPSIM_SPEED": "100", "GCPOOL_CACHE_LIMIT": "0", "GCPOOL_LOG": "debug",
     "GCPOOL_LOG_FILE": "/dev/null", "GCPOOL_STATS": "json",
     "GCPOOL_STATS_FILE": "/dev/null"},
    {"GCPSIM_SPEED": "random", "GCPOOL_HOST_CACHE_LIMIT": "512K", "GCPOOL_BLOCKING_FREE": "1"},
    {"GCPSIM_SPEED": "random", "GCPOOL_THREAD": "1"}]
MAPPED = [{"GCPSIM_SPEED": speed, "GCPOOL_BACKEND": "vmm", "GCPOOL_STATS": "json",
           "GCPSIM_MEMORY": "1G"} for speed in ("random", "random", "never")]


def moved(result):
    """How often memory was mapped elsewhere, as the statistics say."""
    text = result.err[result.err.find("{"):]
    return sum(device["remaps"] for device in json.loads(text)["devices"])


def main():
    mapped = sys.argv[1] == "mapped"
    words, checks, found = sys.argv[1 + mapped:], preload.Checks(), 0
    for seed, schedule in enumerate(MAPPED if mapped else SCHEDULES, 1):
        command = [*words, "--seed", str(seed)]
        schedule = {"GCPSIM_SEED": str(seed), **schedule}
        result = preload.run(command, preload.library(), schedule)
        print(schedule, result.out.strip(), result.figures)
        checks.that(result.code == 0, f"{schedule}: exit code {result.code}\n{result.err}")
        checks.clean(result, str(schedule))
        # Plain CUDA makes about 450 calls for staging.
        checks.that(result.figures.get("cuMemHostAlloc", 0) < 400, f"{schedule}: pinned anew")
        if mapped:
            found += moved(result)
            continue
        result = preload.run(command, os.environ["GCPT_NOFENCE"],
                             {**schedule, "GCPSIM_QUIET": "1"})
        found += result.figures.get("hazards", 0)
    checks.that(found > 0, "nothing moved, or nothing was found without fences: no teeth")
    checks.end()


if __name__ == "__main__":
    main()
