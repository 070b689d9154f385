#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""graphs.py GRAPHS_PROGRAM

The lives of captured graphs with temporaries, beside eager work, under several
schedules: no wrong word, no hazard, no user object left. Plain CUDA refuses."""

import sys

import preload

TRIALS = [
    (["--rounds", "12"], {"GCPSIM_SEED": "1"}),
    (["--rounds", "12", "--eager-thread"], {"GCPSIM_SEED": "2"}),
    (["--rounds", "6", "--threads", "3", "--eager-thread"], {"GCPSIM_SEED": "3"}),
    (["--rounds", "6"], {"GCPSIM_SPEED": "never"}),
    (["--rounds", "6"], {"GCPSIM_SPEED": "2000"}),
    (["--rounds", "2", "--only", "destroyed", "--replays", "150"], {"GCPSIM_SEED": "4"}),
]


def main():
    checks = preload.Checks()
    checks.refused(sys.argv[1])
    checks.trials(sys.argv[1], TRIALS)
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
