#!/usr/bin/env python3
"""sharing.py SHARING_PROGRAM

Captures that share a graph pool, with checkpoint and restore: under several
schedules no word is wrong, no hazard is seen and nothing stays private."""

import sys

import preload


def main():
    checks = preload.Checks()
    for schedule in ({"GCPSIM_SEED": "1"}, {"GCPSIM_SEED": "2"}, {"GCPSIM_SPEED": "never"},
                     {"GCPSIM_SPEED": "idle"}, {"GCPSIM_SPEED": "2000"}):
        command = [sys.argv[1], "--words", "2000", "--rounds", "6"]
        result = preload.run(command, preload.library(), schedule)
        print(schedule, result.out.strip(), result.figures)
        checks.that(result.code == 0,
                    f"{schedule}: exit code {result.code}\n{result.out}{result.err}")
        checks.clean(result, f"{schedule}")
    checks.end()


if __name__ == "__main__":
    main()
