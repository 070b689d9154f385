#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""edge_cases.py [--loaded] PROGRAM SCENARIO [VARIABLE=value ...]

A rare situation, under the library, must end as on plain CUDA. --loaded: the program
loads the library itself."""

import sys

import preload


def main():
    arguments = sys.argv[1:]
    loaded = arguments[0] == "--loaded"
    program, scenario, *settings = arguments[1:] if loaded else arguments
    extra = dict(setting.split("=", 1) for setting in settings)
    checks = preload.Checks()
    result = preload.run([program, scenario], None if loaded else preload.library(), extra)
    print(result.out + result.err)
    if result.code == preload.SKIP:
        sys.exit(preload.SKIP)
    checks.that(result.code == 0, f"exit code {result.code}")
    checks.end()


if __name__ == "__main__":
    main()
