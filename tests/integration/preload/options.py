#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""options.py LOOP_PROGRAM

Options given in the environment reach the library in a real program: the help,
statistics to a file, a wrong name, strictness; and in a program that uses no CUDA
nothing of it appears."""

import json
import os
import sys
import tempfile

import preload


def run(program, **options):
    command = [program, "--iterations", "50", "--warm", "0"]
    return preload.run(command, preload.library(), options)


def main():
    program = sys.argv[1]
    checks = preload.Checks()
    result = run(program, GCPOOL_HELP="1")
    checks.that("GCPOOL_MODE" in result.out + result.err, "no help")
    checks.that(result.code == 0, f"help: exit code {result.code}")
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "stats")
        result = run(program, GCPOOL_STATS="json", GCPOOL_STATS_FILE=path)
        checks.that(result.err == "", f"statistics went to stderr: {result.err}")
        with open(path) as file:
            stats = json.loads(file.read())
        checks.equal("mode", "pool", stats["mode"])
        hits = stats["devices"][0]["hits"]
        checks.that(hits > 25, f"only {hits} hits in 50 rounds")
    result = run(program, GCPOOL_MOED="off")
    checks.that("GCPOOL_MOED is not an option" in result.err, f"no line: {result.err!r}")
    checks.that(result.code == 0, f"a wrong name: exit code {result.code}")
    result = run(program, GCPOOL_MOED="off", GCPOOL_STRICT="1")
    checks.that(result.code != 0, "a wrong name was accepted though strict")
    if not os.environ.get("GCPT_EMULATOR"):  # this machine's programs cannot have it then
        result = preload.run(["true"], preload.library(),
                             {"GCPOOL_STATS": "text", "GCPOOL_HELP": "1"})
        checks.equal("a program without CUDA", (0, "", ""), (result.code, result.out, result.err))
    checks.end()


if __name__ == "__main__":
    main()
