#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""importers.py IPC_PROGRAM

A block inside of a segment is exported to a process without the library, and to one
where it is switched off: both are refused by CUDA, and no data are touched."""

import sys

import preload


def main():
    checks = preload.Checks()
    for how in ("--child-plain", "--child-off"):
        result = preload.run([sys.argv[1], how], preload.library())
        print(how, result.code, result.out + result.err)
        checks.that(result.code == 3, f"{how}: exit code {result.code}")
        checks.clean(result, how)
    checks.end()


if __name__ == "__main__":
    main()
