#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""edge_cases.py [--loaded] [--says LINE] PROGRAM SCENARIO [VARIABLE=value ...]

A rare situation, under the library, must end as on plain CUDA. --loaded: the program
loads the library itself. --says: the library says this one line and no other; '': none."""

import re
import sys

import preload


def main():
    arguments = sys.argv[1:]
    loaded = arguments[0] == "--loaded"
    arguments = arguments[1:] if loaded else arguments
    says = None
    if arguments[0] == "--says":
        says, *arguments = arguments[1:]
    program, scenario, *settings = arguments
    extra = dict(setting.split("=", 1) for setting in settings)
    checks = preload.Checks()
    result = preload.run([program, scenario], None if loaded else preload.library(), extra)
    print(result.out + result.err)
    if result.code == preload.SKIP:
        sys.exit(preload.SKIP)
    checks.that(result.code == 0, f"exit code {result.code}")
    if says is not None:
        said = re.findall(r"^libgcpool\[\d+\]: (.*)", result.err, re.M)
        checks.that(said == [says] * bool(says), f"the library says {said}, not {says!r}")
    checks.end()


if __name__ == "__main__":
    main()
