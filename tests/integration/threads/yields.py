#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""yields.py SECONDS PROGRAM...

Programs whose threads run at the same time, on the simulated device, with threads that are
held up at locks (yields.c, $GCPT_YIELDS), for so many seconds, each run with settings and a
seed of its own: no wrong word, no hazard."""

import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "preload"))

import preload

GRAPHS = "--play stress --order threads --graphs 6 --bytes 2m --launches 400 --form"
STRESS = "--threads 3 --streams 3 --rounds 120 --max 256k --keep 8"
RUNS = [f"graph_scratch {GRAPHS} once --every-stream", f"stress {STRESS}",
        f"graph_scratch {GRAPHS} kept --every-stream", f"stress {STRESS} --async",
        f"graph_scratch {GRAPHS} all"]
SETTINGS = {
    "GCPSIM_SPEED": ["never", "random", "2000"], "GCPOOL_BACKEND": ["vmm", "vmm", "segments"],
    "GCPOOL_DECAY": ["10000", "5"], "GCPOOL_TEST_WINDOW": ["64M", "0"]}
# Only mapped memory is shared by graphs, and a busy device has them overlap.
GRAPHS_SETTINGS = {"GCPSIM_SPEED": ["never", "random"], "GCPOOL_BACKEND": ["vmm"]}


def main():
    seconds = float(sys.argv[1])
    programs = {os.path.basename(path).partition("-")[0]: path for path in sys.argv[2:]}
    checks, start, count = preload.Checks(), time.monotonic(), 0
    first = time.time_ns() // 1000 % 10**9
    while not checks.wrong and time.monotonic() - start < seconds:
        seed, count = str(first + count), count + 1
        run = "threads --rounds 60 --lives 3" if count % 3 else RUNS[count // 3 % len(RUNS)]
        program, *arguments = run.split()
        command = [programs[program], *arguments, "--seed", seed]
        settings = {**SETTINGS, **(GRAPHS_SETTINGS if program == "graph_scratch" else {})}
        draw = random.Random(seed)
        extra = {name: draw.choice(values) for name, values in settings.items()}
        extra |= {"GCPSIM_SEED": seed, "GCPT_YIELD_SEED": seed}
        result = preload.run(command, f"{preload.library()}:{os.environ['GCPT_YIELDS']}", extra)
        name = f"{' '.join(command)} {extra}"
        checks.that(result.code == 0, f"{name}: exit code {result.code}\n{result.out}"
                    f"{result.err[:6000]}")
        checks.clean(result, name)
    print(f"{count} runs, {time.monotonic() - start:.1f} s")
    checks.end()


if __name__ == "__main__":
    main()
