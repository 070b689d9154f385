#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""sharing.py SHARING_PROGRAM

Captures that share a graph pool, with checkpoint and restore: under several
schedules no word is wrong, no hazard is seen and nothing stays private."""

import sys

import preload

TRIALS = [
    (["--rounds", "6"], schedule)
    for schedule in ({"GCPSIM_SEED": "1"}, {"GCPSIM_SEED": "2"}, {"GCPSIM_SPEED": "never"},
                     {"GCPSIM_SPEED": "idle"}, {"GCPSIM_SPEED": "2000"})
]


def main():
    checks = preload.Checks()
    checks.trials(sys.argv[1], TRIALS)
    checks.end()


if __name__ == "__main__":
    main()
