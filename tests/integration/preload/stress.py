#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""stress.py STRESS_PROGRAM

The stress on the simulated device under several schedules: no hazard and no
wrong word with the library. Then with the library that was built without fences
($GCPT_NOFENCE): the same stress must find hazards, else it proves nothing."""

import os
import sys

import preload

ARGUMENTS = "--threads 3 --streams 3 --rounds 120 --max 256k --keep 8".split()

SCHEDULES = [
    {"GCPSIM_SEED": "1", "GCPSIM_SPEED": "random"},
    {"GCPSIM_SEED": "2", "GCPSIM_SPEED": "random"},
    {"GCPSIM_SEED": "3", "GCPSIM_SPEED": "never"},
    {"GCPSIM_SEED": "4", "GCPSIM_SPEED": "2000"},
    {"GCPSIM_SEED": "6", "GCPSIM_SPEED": "random", "ASYNC": "1"},
    {"GCPSIM_SEED": "5", "GCPSIM_SPEED": "100", "GCPOOL_CACHE_LIMIT": "0",
     "GCPOOL_LOG": "debug", "GCPOOL_LOG_FILE": "/dev/null", "GCPOOL_STATS": "json",
     "GCPOOL_STATS_EVERY": "1", "GCPOOL_STATS_FILE": "/dev/null"},
]


def main():
    program = sys.argv[1]
    checks = preload.Checks()
    found = 0
    for number, schedule in enumerate(SCHEDULES):
        command = [program, *ARGUMENTS, "--seed", str(number + 1)]
        command += ["--async"] if schedule.pop("ASYNC", None) else []
        result = preload.run(command, preload.library(), schedule)
        print(schedule, result.out.strip(), result.figures)
        checks.that(result.code == 0, f"{schedule}: exit code {result.code}\n{result.err}")
        checks.clean(result, str(schedule))
        quiet = {**schedule, "GCPSIM_QUIET": "1"}
        result = preload.run(command, os.environ["GCPT_NOFENCE"], quiet)
        print("without fences:", result.out.strip(), result.figures.get("hazards"))
        found += result.figures.get("hazards", 0)
    checks.that(found > 0, "without fences nothing was found: the check has no teeth")
    checks.end()


if __name__ == "__main__":
    main()
