#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""remap.py STRESS_PROGRAM

The stress with larger blocks on mapped segments: chunks move while work is
pending, and there is no hazard, no access to unmapped memory and no wrong word."""

import json
import sys

import preload

ARGUMENTS = "--threads 3 --streams 3 --rounds 300 --max 32m --keep 16".split()

SCHEDULES = [
    {"GCPSIM_SEED": "1", "GCPSIM_SPEED": "random"},
    {"GCPSIM_SEED": "2", "GCPSIM_SPEED": "random"},
    {"GCPSIM_SEED": "3", "GCPSIM_SPEED": "never"},
]


def main():
    stress = sys.argv[1]
    checks = preload.Checks()
    moved = 0
    for schedule in SCHEDULES:
        extra = {"GCPOOL_BACKEND": "vmm", "GCPOOL_STATS": "json", "GCPSIM_MEMORY": "1G",
                 **schedule}
        result = preload.run([stress, *ARGUMENTS], preload.library(), extra)
        checks.that(result.code == 0, f"{schedule}: exit code {result.code}\n{result.err}")
        checks.clean(result, str(schedule))
        text = result.err[result.err.find("{"):]
        statistics = json.loads(text)
        moved += sum(device["remaps"] for device in statistics["devices"])
        print(schedule, result.out.strip(), "moved", moved)
    checks.that(moved > 0, "nothing moved: the check says nothing")
    checks.end()


if __name__ == "__main__":
    main()
