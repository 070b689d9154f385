#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""graphs.py GRAPHS_PROGRAM

Eager work that writes the temporaries of a graph is noticed."""

import sys

import preload

def main():
    checks = preload.Checks()
    # Noticed is what meets the graph's own words at its time, which not every run does.
    for seed in range(1, 9):
        leak = preload.run([sys.argv[1], "--words", "2000", "--rounds", "5", "--leak"],
                           preload.library(), {"GCPSIM_QUIET": "1", "GCPSIM_SEED": str(seed)})
        if leak.code != 0:
            break
    # Wrong words, or a fault: mapped memory of a graph that is gone may be elsewhere.
    checks.that(leak.code in (1, 2) and leak.figures.get("hazards", 0),
                f"a leak is not noticed: {leak.code} {leak.out} {leak.figures}")
    checks.end()


if __name__ == "__main__":
    main()
