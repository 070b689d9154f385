#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""staging_graph.py STAGING_GRAPH_PROGRAM

A capture that stages through pinned memory, replayed beside eager staging, in every
capture mode and under several schedules: no wrong word, no hazard, no user object
left. Plain CUDA refuses. And the pinned memory of the graph is used again once the
graph is gone."""

import sys

import preload

TRIALS = [
    (["--replays", "60"], {"GCPSIM_SEED": "1"}),
    (["--replays", "60", "--mode", "1"], {"GCPSIM_SEED": "2"}),
    (["--replays", "60", "--mode", "2"], {"GCPSIM_SEED": "3"}),
    (["--replays", "10"], {"GCPSIM_SPEED": "never"}),
    (["--replays", "60"], {"GCPSIM_SEED": "4", "GCPOOL_THREAD": "1"}),
    (["--replays", "1000", "--blocks", "3", "--words", "500"], {"GCPSIM_SPEED": "2000"}),
]


def main():
    checks = preload.Checks()
    checks.refused(sys.argv[1])
    checks.trials(sys.argv[1], TRIALS)
    # 20 blocks are free when the graph is gone: the 60 eager turns after it find
    # them, which the count of the driver's calls shows.
    result = preload.run([sys.argv[1], "--blocks", "20", "--replays", "0"],
                         preload.library(), {"GCPSIM_SPEED": "idle"})
    calls = result.figures.get("cuMemHostAlloc", 0)
    checks.that(result.code == 0 and calls == 22,
                f"memory of a graph that is gone: {calls} driver calls, not 22, {result.out}")
    checks.end()


if __name__ == "__main__":
    main()
