#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""graph_scratch.py GRAPH_SCRATCH_PROGRAM

Graphs that share the memory of their temporaries, launched from one thread (of several:
../threads/yields.py) under several schedules, whether the program keeps the graphs or not, and
by whatever it makes of them: no wrong word and no hazard; those that run one at a time hold the
largest one's memory. Without the launch guard there are hazards. Plain CUDA refuses."""

import os
import sys

import preload

SHARE = {"GCPOOL_GRAPH_SHARE": "1", "GCPOOL_BACKEND": "vmm"}
ORDERS = [["--order", "one"], ["--order", "turn"]]
SCHEDULES = [{"GCPSIM_SEED": "1"}, {"GCPSIM_SPEED": "never"}, {"GCPSIM_SPEED": "2000"}]
STRESS = ["--play", "stress", "--graphs", "6", "--bytes", "2m", "--launches", "400"]
HELD = ["--play", "held", "--graphs", "6", "--bytes", "16m"]
MOST = 16 * 1.125 + 2  # MiB


def stress(checks, program):
    trials = [(order + ["--form", form], {**SHARE, **schedule}) for order in ORDERS
              for form in ("once", "all") for schedule in SCHEDULES]
    checks.trials(program, [(STRESS + order, schedule) for order, schedule in trials])


def held(checks, program):
    for name, wanted, form in (("1", True, "once"), ("0", False, "once"), ("1", True, "kept"),
                               ("1", True, "all")):
        result = preload.run([program, *HELD, "--form", form], preload.library(),
                             {**SHARE, "GCPOOL_GRAPH_SHARE": name})
        print(f"GCPOOL_GRAPH_SHARE={name}: {result.out.strip()}")
        checks.that(result.code == 0, f"held: exit code {result.code}\n{result.err}")
        after = result.out.split("after a trim:", 1)[-1].split()[:1]
        checks.that(after and (float(after[0]) <= MOST) == wanted,
                    f"held with GCPOOL_GRAPH_SHARE={name}: {result.out}")


def teeth(checks, program):
    """Not every schedule runs two graphs at the same time."""
    found = 0
    for seed in range(1, 9):
        result = preload.run([program, *STRESS, "--order", "turn"],
                             os.environ["GCPT_NOGUARD"],
                             {**SHARE, "GCPSIM_QUIET": "1", "GCPSIM_SEED": str(seed)})
        found += result.figures.get("hazards", 0)
        if found:
            return
    checks.that(found, "graphs run side by side in one memory, and nothing is noticed")


def main():
    checks = preload.Checks()
    checks.refused(sys.argv[1])
    stress(checks, sys.argv[1])
    held(checks, sys.argv[1])
    if os.environ.get("GCPT_NOGUARD"):
        teeth(checks, sys.argv[1])
    checks.end()


if __name__ == "__main__":
    main()
