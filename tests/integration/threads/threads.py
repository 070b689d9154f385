#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""threads.py PROGRAM [--seconds N] [--fast]

The program of threads.c under the library, on the simulated device, all built with
ThreadSanitizer, for so many seconds, with one seed after another: no race, no wrong
word, no hazard. With --fast all are the usual builds: twenty times as many seeds, which
find what goes wrong where each access is atomic. $GCPT_LIBRARY and $GCPT_PATH as in
tests/integration/preload/preload.py."""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "preload"))

import preload

# Not GCPOOL_THREAD: the library starts that thread past ThreadSanitizer.
SCHEDULES = [
    {"GCPSIM_SPEED": "random"},
    {"GCPSIM_SPEED": "never", "GCPOOL_TEST_WINDOW": "1M", "GCPOOL_TEST_FENCE_BATCH": "2"},
    {"GCPSIM_SPEED": "2000", "GCPOOL_THREAD_CACHE": "64K"},
    {"GCPSIM_SPEED": "random", "GCPOOL_TEST_WINDOW": "0", "GCPOOL_CACHE_LIMIT": "8M"},
    {"GCPSIM_SPEED": "idle", "GCPOOL_REUSE": "completed"},
    {"GCPSIM_SPEED": "random", "GCPOOL_BACKEND": "vmm"},
    {"GCPSIM_SPEED": "2000", "GCPOOL_BACKEND": "vmm", "GCPOOL_TEST_WINDOW": "4M",
     "GCPOOL_HOST_WINDOW": "1M"},
    {"GCPSIM_SPEED": "random", "GCPOOL_HOST_WINDOW": "0"}]
FAST_SCHEDULES = [
    {"GCPSIM_SPEED": "2000", "GCPOOL_THREAD_CACHE": "64K", "GCPOOL_DECAY": "5"},
    {"GCPSIM_SPEED": "2000", "GCPOOL_BACKEND": "vmm", "GCPOOL_DECAY": "5"},
    {"GCPSIM_SPEED": "random", "GCPOOL_THREAD": "1", "GCPOOL_DECAY": "3"},
    {"GCPSIM_SPEED": "2000", "GCPOOL_BACKEND": "vmm", "GCPOOL_GRAPH_SHARE": "1"},
    {"GCPSIM_SPEED": "2000"}]


def main():
    program, fast = sys.argv[1], "--fast" in sys.argv
    schedules = SCHEDULES + (FAST_SCHEDULES if fast else [])
    seconds = float(os.environ.get("GCPT_THREADS_SECONDS") or
                    (sys.argv[3] if len(sys.argv) > 3 else 5))
    if not os.path.exists(program) or not os.path.exists(preload.library()):
        print("skipped: not built (ninja threads)")
        sys.exit(preload.SKIP)
    checks = preload.Checks()
    start, seed = time.monotonic(), 0
    while not checks.wrong and (seed < 2 or time.monotonic() - start < seconds):
        seed += 1
        extra = {**schedules[seed % len(schedules)], "GCPSIM_SEED": str(seed),
                 "TSAN_OPTIONS": "halt_on_error=0 exitcode=66 second_deadlock_stack=1"}
        command = [program, "--seed", str(seed), "--rounds", "60", "--lives", "3"]
        result = preload.run(command, preload.library(), extra)
        checks.that(result.code == 0, f"{extra}: exit code {result.code}\n{result.out}"
                    f"{result.err[:6000]}")
        checks.clean(result, str(extra))
    print(f"threads: {seed} seeds, {time.monotonic() - start:.1f} s")
    checks.end()


if __name__ == "__main__":
    main()
