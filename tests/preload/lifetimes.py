#!/usr/bin/env python3
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
    for arguments, schedule in TRIALS:
        name = f"{arguments} {schedule}"
        command = [sys.argv[1], "--words", "2000", *arguments]
        result = preload.run(command, preload.library(), schedule)
        print(name, result.out.strip(), result.figures)
        checks.that(result.code == 0, f"{name}: exit code {result.code}\n{result.err}")
        checks.clean(result, name)
        left = result.figures.get("user_objects", 0)
        checks.that(left == 0, f"{name}: {left} user objects left")
    checks.end()


if __name__ == "__main__":
    main()
