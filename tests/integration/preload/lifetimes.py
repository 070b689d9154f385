#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""lifetimes.py LIFETIMES_PROGRAM

Every end of a graph, normal and not: nothing is left in private pools, no user
object stays, no word is wrong; and graphs that come and go keep memory bounded."""

import sys

import preload

TRIALS = [
    ([], {"GCPSIM_SEED": "1"}),
    ([], {"GCPSIM_SEED": "2"}),
    ([], {"GCPSIM_SPEED": "never"}),
    (["--bound", "200"], {"GCPSIM_SEED": "3"}),
    (["--bound", "200"], {"GCPSIM_SPEED": "2000"}),
]


def main():
    checks = preload.Checks()
    checks.trials(sys.argv[1], TRIALS)
    checks.end()


if __name__ == "__main__":
    main()
